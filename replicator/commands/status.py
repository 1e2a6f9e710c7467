"""`replicator status`: the state of replication, read from bucket and clusters, whether or not a process runs."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from datetime import datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.terminal.output import (
    DIFFERENCES,
    FAILED,
    AsJson,
    ConfigFile,
    complain,
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
    from replicator.status.ingress import IngressStatus
    from replicator.status.lag import PartitionLag


def status(
    config: ConfigFile = None,
    as_json: AsJson = False,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Print a line for each partition, not each topic.")
    ] = False,
) -> None:
    """Show how far archive and delivery are, and what needs you.

    Reads the bucket and the clusters only. Exit code 3 when something is parked, stuck or lost, or a topic
    that the file names does not exist, 1 when a part could not be read: it is named, and the others are shown.
    """
    from infra.runtime.lifecycle import SystemClock
    from replicator.commands.status_compaction import compaction_json, print_compaction
    from replicator.commands.status_groups import groups_json, print_decisions, print_groups
    from replicator.commands.status_json import destinations_json, egress_json, ingress_json
    from replicator.commands.status_schemas import print_schemas, schemas_json, schemas_status
    from replicator.commands.status_text import print_destinations, print_egress, print_ingress
    from replicator.services.archive_status import compaction_status, egress_sources, groups_status
    from replicator.services.clients import Clients
    from replicator.services.ingress_status import lags_of
    from replicator.services.routing import routed
    from replicator.status.reading import StatusReading

    settings = load_config(config)
    now, reading = SystemClock().now(), StatusReading()
    with Clients(settings) as reach:
        egress = None
        if settings.egress is not None:
            egress = reading.read("egress", lambda: egress_sources(reach).read(now, reach.pool))
        found, ingress, destinations = None, None, None
        lags: Sequence[PartitionLag] = ()
        decisions: Sequence[GroupDecisions] = ()
        if settings.ingress is not None:
            found = reading.read("ingress", partial(routed, reach))
        if found is not None:
            ingress = reading.read("ingress", partial(_ingress, reach, found, now))
            destinations = reading.read("destinations", partial(_destinations, reach, found))
            decisions = reading.read("offsets of groups", partial(_decisions, reach, now)) or ()
        if found is not None and ingress is not None:
            lags = reading.read("lag", partial(lags_of, reach, found, ingress, now)) or ()
        groups = reading.read("groups", partial(groups_status, reach), of_bucket_alone=True) or ()
        compaction = reading.read("compaction", partial(compaction_status, reach, now), of_bucket_alone=True)
        newest = chain.from_iterable(one.newest for one in (egress, ingress) if one is not None)
        schemas = reading.read("schemas", partial(schemas_status, settings, reach, newest), of_bucket_alone=True) or ()
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
                "not_read": reading.not_read,
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
        if not any([settings.egress, settings.ingress, settings.compaction]):
            print_text("the configuration has none of [egress], [ingress] and [compaction]")
    for part, why in reading.not_read.items():
        complain(f"{part}: could not be read: {why}")
    if reading.not_read:
        raise typer.Exit(FAILED)
    troubled = [bool(one.problems) for one in (egress, ingress, destinations, compaction) if one is not None]
    if any([*troubled, *(one.is_troubled for one in groups)]):
        raise typer.Exit(DIFFERENCES)


def _ingress(reach: Clients, found: Routed, now: datetime) -> IngressStatus:
    from replicator.services.ingress_status import ingress_sources

    return ingress_sources(reach, found).read(now, reach.pool)


def _destinations(reach: Clients, found: Routed) -> DestinationsStatus:
    from replicator.services.planning import compared  # loads Arrow: only where there is ingress

    return compared(reach, found)


def _decisions(reach: Clients, now: datetime) -> Sequence[GroupDecisions]:
    if reach.config.ingress is None:
        return []
    from replicator.group_sync import group_decisions  # likewise

    return group_decisions(reach, now)
