"""`replicator failover`: consumer groups of a source region that is lost continue in this one."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.failover import REHEARSAL
from replicator.terminal.interrupt import NOTHING_CHANGED, interruptible
from replicator.terminal.output import (
    DIFFERENCES,
    AsJson,
    ConfigFile,
    complain,
    ended_by_signal,
    group,
    load_config,
    print_json,
    print_text,
)

if TYPE_CHECKING:
    from infra.runtime.lifecycle import Stop
    from replicator.services.clients import Clients

failover_app = group("Continue here when a source region is lost.")

FromRegion = Annotated[
    str | None,
    typer.Option("--from", metavar="REGION", help="The source region; default: the only one of the file."),
]
Wait = Annotated[
    str, typer.Option("--wait", metavar="TIME", help="How long what has arrived may take until it is delivered.")
]
GiveUp = Annotated[
    bool, typer.Option("--give-up", help="Go on without what is not delivered or cannot be known; it is named.")
]


@failover_app.command(short_help="Show what a failover would do, and what would be lost.")
@interruptible(NOTHING_CHANGED)
def plan(from_: FromRegion = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show what a failover from a source region would do, and what would be lost.

    Reads this region's bucket and cluster only. Exit code 3 when something is lost, or a group would not continue
    exactly.
    """
    from infra.runtime.lifecycle import SystemClock
    from replicator.commands.failover_output import failover_json, failover_text
    from replicator.failover.facts import FailoverSources
    from replicator.services.clients import Clients
    from replicator.services.ledger import ledger_in

    with Clients(load_config(config)) as clients:
        region = source_region(clients, from_)
        sources = FailoverSources(clients=clients, region=region, ledger=ledger_in(clients, create=False))
        found = sources.read(SystemClock().now()).plan
    if as_json:
        print_json(failover_json(found))
    else:
        print_text("\n".join(failover_text(found)))
    if not found.is_exact:
        raise typer.Exit(DIFFERENCES)


@failover_app.command(short_help="Fail over: deliver what has arrived, then move the groups.")
@interruptible("what was done is recorded; the same command goes on")
def execute(
    from_: FromRegion = None,
    wait: Wait = "10m",
    give_up: GiveUp = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Fail over from a source region: deliver what has arrived, then commit the offsets of its groups here.

    Each step is recorded; the same command goes on where it ended, and does nothing once all is done. Exit code 3 when
    something is lost, or groups are left.
    """
    from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
    from infra.runtime.lifecycle import SystemClock
    from replicator.commands.failover_output import executed_json, executed_text
    from replicator.failover.execute import FailoverExecution
    from replicator.failover.facts import FailoverSources
    from replicator.services.clients import Clients
    from replicator.services.ledger import ledger_in

    waits = duration(wait)
    with stoppable() as stop, Clients(load_config(config)) as clients:
        region = source_region(clients, from_)
        ledger = ledger_in(clients, create=True)
        done = FailoverExecution(
            sources=FailoverSources(clients=clients, region=region, ledger=ledger),
            ledger=ledger,
            catalog_admin=KafkaCatalogAdmin(clients.admin.connection),
            clock=SystemClock(),
            stop=stop,
            wait=waits,
            give_up=give_up,
            tell=complain,
        ).run()
    if as_json:
        print_json(executed_json(done))
    else:
        print_text("\n".join(executed_text(done)))
    if not done.is_whole:
        raise typer.Exit(DIFFERENCES)


@failover_app.command(short_help="Rehearse a failover into topics and groups of its own.")
@interruptible("the topics of the rehearsal stay, and the next rehearsal makes them anew")
def rehearse(  # noqa: PLR0917 -- options of a command
    from_: FromRegion = None,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Of the names of its topics and groups.")
    ] = REHEARSAL,
    most: Annotated[
        int, typer.Option("--records", metavar="N", min=1, help="Copy at most so many records of a partition.")
    ] = 1_000_000,
    keep: Annotated[bool, typer.Option("--keep", help="Leave topics and groups, to start applications on.")] = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Rehearse a failover: copies of the topics and groups, from where the groups stand, compared with the archive.

    The real topics and groups stay as they are. Exit code 3 when a group would not continue at its record, or
    when no group has a position here.
    """
    from infra.runtime.lifecycle import SystemClock
    from replicator.commands.failover_output import rehearsed_json, rehearsed_text
    from replicator.failover.facts import FailoverSources
    from replicator.failover.rehearse import Rehearsal
    from replicator.services.clients import Clients
    from replicator.services.ledger import ledger_in

    if not prefix:
        raise typer.BadParameter("--prefix: without one the real topics would be written")
    with stoppable() as stop, Clients(load_config(config)) as clients:
        region = source_region(clients, from_)
        ledger = ledger_in(clients, create=True)
        done = Rehearsal(
            sources=FailoverSources(clients=clients, region=region, ledger=ledger),
            ledger=ledger,
            clock=SystemClock(),
            stop=stop,
            prefix=prefix,
            most=most,
            keep=keep,
            tell=complain,
        ).run()
    if as_json:
        print_json(rehearsed_json(done))
    else:
        print_text("\n".join(rehearsed_text(done)))
    if not done.is_good:
        raise typer.Exit(DIFFERENCES)


def source_region(clients: Clients, given: str | None) -> str:
    """Raises ConfigError without [ingress], and typer.BadParameter when it has to be named."""
    regions = clients.ingress.regions
    if given is not None:
        return given
    if len(regions) > 1:
        raise typer.BadParameter(f"name one of the source regions with --from: {', '.join(regions)}")
    return next(iter(regions))


def duration(text: str) -> timedelta:
    """Raises typer.BadParameter."""
    from infra.settings.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


@contextmanager
def stoppable() -> Iterator[Stop]:
    from infra.runtime.lifecycle import Stop

    stop = Stop()
    with ended_by_signal(stop):
        yield stop
