"""`replicator failback`: consumer groups that moved to another region go back, at the exact record."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.commands.failover import GiveUp, Wait, duration, stoppable
from replicator.terminal.interrupt import NOTHING_CHANGED, interruptible
from replicator.terminal.output import (
    DIFFERENCES,
    AsJson,
    ConfigFile,
    group,
    load_config,
    print_json,
    print_text,
)

if TYPE_CHECKING:
    pass

failback_app = group("Go back to the region that was failed over from.")

HandTo = Annotated[
    str | None,
    typer.Option("--to", metavar="REGION", help="Hand the groups that moved here over to that region."),
]
TakeFrom = Annotated[
    str | None,
    typer.Option("--from", metavar="REGION", help="Take back the groups that had moved to that region."),
]


@failback_app.command(short_help="Show what a failback would do, in either region.")
@interruptible(NOTHING_CHANGED)
def plan(to: HandTo = None, from_: TakeFrom = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show what a failback would do: with --to where the groups are now, with --from where they go.

    Exit code 3 when something is missing, or a group would not continue exactly.
    """
    from infra.runtime.lifecycle import SystemClock
    from replicator.commands.failback_output import handover_json, handover_text, take_back_json, take_back_text
    from replicator.failover.failback import Handover
    from replicator.failover.takeback import TakeBack
    from replicator.services.clients import Clients
    from replicator.services.ledger import ledger_in

    _one_of(to, from_)
    with Clients(load_config(config)) as clients:
        ledger = ledger_in(clients, create=False)
        if to is not None:
            handover = Handover(clients=clients, to=to, ledger=ledger).plan(SystemClock().now())
            lines, found, problems = handover_text(handover), handover_json(handover), handover.problems
        else:
            taken = TakeBack(clients=clients, region=from_ or "", ledger=ledger, clock=SystemClock()).plan()
            lines, found, problems = take_back_text(taken), take_back_json(taken), taken.problems
    if as_json:
        print_json(found)
    else:
        print_text("\n".join(lines))
    if problems:
        raise typer.Exit(DIFFERENCES)


@failback_app.command(short_help="Fail back: hand the groups over, then take them back.")
@interruptible("what was done is recorded; the same command goes on")
def execute(  # noqa: PLR0917 -- options of a command
    to: HandTo = None,
    from_: TakeFrom = None,
    wait: Wait = "10m",
    give_up: GiveUp = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Fail back in two halves: --to A in the region where the groups are, then --from B in the region A.

    The first stores where each group continues, in the bucket, and ends the failover; the second commits it. Each does
    nothing when it is done. Exit code 3 when something is missing or left.
    """
    from infra.runtime.lifecycle import SystemClock
    from replicator.commands.failback_output import handover_json, handover_text, take_back_json, take_back_text
    from replicator.failover.failback import Handover
    from replicator.failover.takeback import TakeBack
    from replicator.services.clients import Clients
    from replicator.services.ledger import ledger_in

    _one_of(to, from_)
    waits = duration(wait)
    found: Mapping[str, object]
    with stoppable() as stop, Clients(load_config(config)) as clients:
        ledger = ledger_in(clients, create=True)
        if to is not None:
            half = Handover(clients=clients, to=to, ledger=ledger)
            handover = half.plan(SystemClock().now())
            problems = handover.problems
            number = half.execute(handover) if give_up or not problems else None
            lines = [*handover_text(handover), _handed_over(number, to, clients.config.region)]
            found = {**handover_json(handover), "handover": number}
        else:
            taken = TakeBack(clients=clients, region=from_ or "", ledger=ledger, clock=SystemClock()).execute(
                stop, wait=waits, give_up=give_up
            )
            lines, found, problems = list(take_back_text(taken)), take_back_json(taken), taken.problems
    if as_json:
        print_json(found)
    else:
        print_text("\n".join(lines))
    if problems:
        raise typer.Exit(DIFFERENCES)


def _one_of(to: str | None, from_: str | None) -> None:
    if (to is None) == (from_ is None):
        raise typer.BadParameter("give --to in the region where the groups are, or --from where they go back to")


def _handed_over(number: int | None, to: str, here: str) -> str:
    if number is None:
        return "nothing was handed over: resolve what is named above, or go on without it by --give-up"
    return f"handed over, generation {number}: run `replicator failback execute --from {here}` in {to}"
