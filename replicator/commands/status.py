"""`replicator status`: the state of replication, read from bucket and clusters, whether or not a process runs."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.terminal.output import (
    DIFFERENCES,
    AsJson,
    ConfigFile,
    load_config,
    print_json,
    print_text,
)
from replicator.terminal.region_option import region_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replicator.group_sync import GroupDecisions
    from replicator.services.clients import Clients
    from replicator.services.routing import Routed
    from replicator.status.destinations import DestinationsStatus


def status(
    config: ConfigFile = None,
    as_json: AsJson = False,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Print a line for each partition, not each topic.")
    ] = False,
) -> None:
    """Show how far archive and delivery are, and what needs you.

    Reads the bucket and the clusters only. Exit code 3 when something is parked, stuck or lost, or a topic
    that the file names does not exist, 1 when the state could not be read.
    """
    from infra.runtime.lifecycle import SystemClock
    from replicator.commands.status_compaction import compaction_json, print_compaction
    from replicator.commands.status_groups import groups_json, print_decisions, print_groups
    from replicator.commands.status_json import destinations_json, egress_json, ingress_json
    from replicator.commands.status_schemas import print_schemas, schemas_json, schemas_status
    from replicator.commands.status_text import print_destinations, print_egress, print_ingress
    from replicator.services.archive_status import compaction_status, egress_sources, groups_status
    from replicator.services.clients import Clients
    from replicator.services.ingress_status import ingress_sources, lags_of
    from replicator.services.routing import routed

    settings = load_config(config)
    now = SystemClock().now()
    with Clients(settings) as reach:
        egress = None if settings.egress is None else egress_sources(reach).read(now, reach.pool)
        found = None if settings.ingress is None else routed(reach)
        ingress = None if found is None else ingress_sources(reach, found).read(now, reach.pool)
        lags = () if found is None or ingress is None else lags_of(reach, found, ingress, now)
        destinations = None if found is None else _destinations(reach, found)
        groups = groups_status(reach)
        decisions = _decisions(reach, now)
        compaction = compaction_status(reach, now)
        newest = [one.newest for one in (egress, ingress) if one is not None]
        schemas = schemas_status(settings, reach, chain.from_iterable(newest))
    option = [] if config is None else ["--config", str(config)]
    option += [] if (region := region_option()) is None else ["--region", region]
    if as_json:
        print_json(
            {
                "region": settings.region,
                "at": now.isoformat(),
                "egress": None if egress is None else egress_json(egress, now),
                "ingress": None if ingress is None else ingress_json(ingress, now, option, lags),
                "destinations": None if destinations is None else destinations_json(destinations),
                "groups": groups_json(groups, decisions),
                "compaction": None if compaction is None else compaction_json(compaction),
                "schemas": schemas_json(schemas),
            }
        )
    else:
        archive = f"s3://{settings.s3.bucket}" + (f"/{settings.s3.prefix}" if settings.s3.prefix else "")
        print_text(f"region {settings.region}, {now.isoformat(timespec='seconds')}")
        if egress is not None:
            print_egress(egress, now, archive=archive, by_partition=partitions)
        if ingress is not None:
            print_ingress(ingress, now, option, lags, archive=archive, by_partition=partitions)
        if destinations is not None:
            print_destinations(destinations, now)
        print_groups(groups, now)
        print_decisions(decisions)
        if compaction is not None:
            print_compaction(compaction, now)
        print_schemas(schemas)
        if egress is None and ingress is None and compaction is None:
            print_text("the configuration has none of [egress], [ingress] and [compaction]")
    troubled = [bool(one.problems) for one in (egress, ingress, destinations, compaction) if one is not None]
    if any([*troubled, *(one.is_troubled for one in groups)]):
        raise typer.Exit(DIFFERENCES)


def _destinations(reach: Clients, found: Routed) -> DestinationsStatus:
    from replicator.services.planning import compared  # loads Arrow: only where there is ingress

    return compared(reach, found)


def _decisions(reach: Clients, now: datetime) -> Sequence[GroupDecisions]:
    if reach.config.ingress is None:
        return []
    from replicator.group_sync import group_decisions  # likewise

    return group_decisions(reach, now)
