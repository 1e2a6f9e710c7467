"""`replicator status`: the state of replication, read from bucket and clusters, whether or not a process runs."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import chain, groupby
from typing import TYPE_CHECKING, Annotated

import typer

from formats.messages.delivery_checkpoint import SEED
from infra.archive.proofs import Proof
from infra.runtime.lifecycle import SystemClock
from infra.settings.units import format_age
from replicator.commands.status_compaction import compaction_json, compaction_status, print_compaction
from replicator.commands.status_schemas import print_schemas, schemas_json, schemas_status
from replicator.services.clients import Clients
from replicator.services.ingress_status import ingress_sources
from replicator.services.routing import routed
from replicator.status.egress import EgressPartitionStatus, EgressSources, EgressStatus
from replicator.status.ingress import IngressPartition, IngressStatus
from replicator.status.sources import SourceStatus
from replicator.terminal.output import (
    DIFFERENCES,
    AsJson,
    ConfigFile,
    count_text,
    load_config,
    print_json,
    print_text,
    table,
)
from replicator.terminal.region_option import region_option

if TYPE_CHECKING:
    from infra.contracts.cluster import GroupFacts
    from replicator.config import Config
    from replicator.status.destinations import DestinationsStatus


def status(
    config: ConfigFile = None,
    as_json: AsJson = False,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Print a line for each partition, not each topic.")
    ] = False,
) -> None:
    """Show how far archive and delivery are, and what needs you.

    Reads the bucket and the clusters only. Exit code 3 when something is parked, stuck or lost, 1 when it could not be
    read.
    """
    settings = load_config(config)
    from replicator.services.planning import compared

    now = SystemClock().now()
    with Clients(settings) as reach:
        egress = _egress(settings, reach, now)
        found = None if settings.ingress is None else routed(reach)
        ingress = None if found is None else ingress_sources(reach, found).read(now, reach.pool)
        destinations = None if found is None else compared(reach, found)
        compaction = compaction_status(settings, reach, now)
        newest = [one.newest for one in (egress, ingress) if one is not None]
        schemas = schemas_status(settings, reach, chain.from_iterable(newest))
    option = [] if config is None else ["--config", str(config)]
    option += [] if (region := region_option()) is None else ["--region", region]
    if as_json:
        print_json(
            {
                "region": settings.region,
                "at": now.isoformat(),
                "egress": None if egress is None else _egress_json(egress, now),
                "ingress": None if ingress is None else _ingress_json(ingress, now, option),
                "destinations": None if destinations is None else _destinations_json(destinations),
                "compaction": None if compaction is None else compaction_json(compaction),
                "schemas": schemas_json(schemas),
            }
        )
    else:
        print_text(f"region {settings.region}, {now.isoformat(timespec='seconds')}")
        if egress is not None:
            _print_egress(egress, now, by_partition=partitions)
        if ingress is not None:
            _print_ingress(ingress, now, option, by_partition=partitions)
        if destinations is not None:
            _print_destinations(destinations, now)
        if compaction is not None:
            print_compaction(compaction, now)
        print_schemas(schemas)
        if egress is None and ingress is None and compaction is None:
            print_text("the configuration has none of [egress], [ingress] and [compaction]")
    if any(one is not None and one.problems for one in (egress, ingress, destinations, compaction)):
        raise typer.Exit(DIFFERENCES)


def seed_command(partition: IngressPartition, option: Sequence[str]) -> str:
    """The command that seeds a parked partition; empty unless only that lets it continue."""
    if partition.parked is None or not partition.parked.needs_seed or not partition.configured:
        return ""
    return shlex.join([*SEED.split(), str(partition.key.source), "--offset", "N", "--yes", *option])


def release_command(key_of: IngressPartition, option: Sequence[str]) -> str:
    """The command that releases a partition; empty if it has to be seeded instead."""
    if seed_command(key_of, option):
        return ""
    return shlex.join(["replicator", "release", *_where(key_of), "--yes", *option])


def skip_command(key_of: IngressPartition, option: Sequence[str]) -> str:
    """The command that skips a record; empty if there is no offset to skip, or skipping would not help."""
    if key_of.parked is None or key_of.parked.next_offset is None or key_of.parked.blames_target:
        return ""
    offset = str(key_of.parked.next_offset)
    return shlex.join(["replicator", "skip", _where(key_of)[0], offset, *_where(key_of)[1:]]) + (
        f" --reason TEXT --yes{''.join(f' {shlex.quote(o)}' for o in option)}"
    )


def _where(one: IngressPartition) -> list[str]:
    return [str(one.key.source), *([] if one.configured else ["--to", one.key.destination_topic])]


def _egress(settings: Config, reach: Clients, now: datetime) -> EgressStatus | None:
    if settings.egress is None:
        return None
    sources = EgressSources(
        region=settings.region,
        settings=settings.egress,
        own_topics=settings.own_topics,
        admin=reach.admin,
        groups=reach.groups,
        probe=reach.probe,
        store=reach.store,
        control=reach.control,
        proofs=reach.proofs,
    )
    return sources.read(now, reach.pool)


# --- text ------------------------------------------------------------------------------------------------------------


def _print_egress(status: EgressStatus, now: datetime, *, by_partition: bool) -> None:
    print_text(f"\negress: {group_text(status.group_id, status.group)}")
    rows: list[Sequence[object]] = []
    head: Sequence[str]
    if by_partition:
        head = ("partition", "low", "stable", "high", "committed", "archived", "lag", "open for", "gaps", "proven")
        for p in status.partitions:
            ends, age = p.ends, _age(p.open_since, now) or ("?" if p.is_open else "")
            ends_of = (ends.low, ends.stable, ends.high, p.committed, p.archive_end)
            rows.append((p.source, *ends_of, count_text(p.lag), age, p.recorded_gaps or "", _proven([p.proof], now)))
    else:
        head = ("topic", "partitions", "lag", "open transactions", "gaps", "proven", "problems")
        for place, some in _by_place(status.partitions):
            rows.append(
                (
                    place,
                    len(some),
                    count_text(sum(p.lag for p in some)),
                    sum(p.is_open for p in some) or "",
                    sum(p.recorded_gaps for p in some) or "",
                    _proven([p.proof for p in some], now),
                    sum(len(p.problems) for p in some) or "",
                )
            )
    print_text(table(head, rows))
    for problem in status.problems:
        print_text(f"! {problem}")


def _print_ingress(status: IngressStatus, now: datetime, option: Sequence[str], *, by_partition: bool) -> None:
    print_text(f"\ningress: {group_text(status.group_id, status.group)}")
    print_text(topic_text(status))
    for one in status.sources:
        print_text(source_text(one, now))
    for (place, destination), some in _by_destination(status.partitions):
        if (text := transform_text(some)) is not None:
            print_text(f"{place} -> {destination}: {text}")
    rows: list[Sequence[object]] = []
    head: Sequence[str]
    if by_partition:
        head = ("source", "destination", "checkpoint", "by", "age", "archived", "lag", "parked", "skipped", "proven")
        for p in status.partitions:
            c = p.checkpoint
            cells = (c.next_offset, c.author, _age(c.at, now)) if c else (None, "", "")
            parked = ("yes" if p.parked.next_offset is None else p.parked.next_offset) if p.parked else ""
            key, skipped, proven = p.key, p.skipped or "", _proven([p.proof], now)
            lag = count_text(p.lag)
            rows.append((key.source, key.destination_topic, *cells, p.archive_end, lag, parked, skipped, proven))
    else:
        head = ("source", "destination", "partitions", "lag", "parked", "skipped", "proven", "problems")
        for (place, destination), some in _by_destination(status.partitions):
            rows.append(
                (
                    place,
                    destination,
                    len(some),
                    count_text(sum(p.lag for p in some)),
                    sum(p.parked is not None for p in some) or "",
                    sum(p.skipped for p in some) or "",
                    _proven([p.proof for p in some], now),
                    sum(len(p.problems) for p in some) or "",
                )
            )
    print_text(table(head, rows))
    for problem in status.problems:
        print_text(f"! {problem}")
    for waits in status.waiting:
        print_text(waits)
    for p in status.parked:
        if seed := seed_command(p, option):
            print_text(f"\n{p.key.source}, with the archive's offset N at which the destination ends: {seed}")
            continue
        print_text(f"\n{p.key.source}, when the cause is gone: {release_command(p, option)}")
        if skip := skip_command(p, option):
            print_text(f"or to skip that record: {skip}")


def _print_destinations(status: DestinationsStatus, now: datetime) -> None:
    for region, at in status.changed_at.items():
        print_text(f"catalogue of {region}: last changed {_age(at, now)} ago")
    for region in status.without_catalog:
        print_text(f"catalogue of {region}: none has arrived; topics are created as their segments say")
    if status.changes:
        print_text(f"destinations: {status.changes} changes to make, which `replicator plan` lists")
    for text in status.differences:
        print_text(f"left as it is: {text}")
    for problem in status.problems:
        print_text(f"! {problem}")


def source_text(source: SourceStatus, now: datetime) -> str:
    """The line about a source region."""
    beat = (
        "no heartbeat has arrived" if source.heartbeat_at is None else f"heartbeat {_age(source.heartbeat_at, now)} ago"
    )
    for topic, exists in source.heartbeat_topics.items():
        beat += f", written to {topic}" if exists else f", {topic} does not exist yet"
    if source.as_of is None or source.records_behind is None:
        return f"source {source.region}: {beat}"
    behind = f"{count_text(source.records_behind)} records behind its logs, as of {_age(source.as_of, now)} ago"
    return f"source {source.region}: {beat}; {behind}"


def transform_text(partitions: Sequence[IngressPartition]) -> str | None:
    """What a transform did to the records of one destination; None: there is none, and was none."""
    names, dropped = {p.transform for p in partitions if p.transform}, sum(p.dropped for p in partitions)
    if not names and not dropped:
        return None
    return f"transform {', '.join(sorted(names)) or 'of before'}, {count_text(dropped)} records left out"


def topic_text(status: IngressStatus) -> str:
    """The line about the checkpoint topic. If it is missing, a problem has the details."""
    topic = f"checkpoint topic {status.checkpoint_topic}"
    if status.misses_topic:
        return f"{topic} does not exist"
    if not status.has_topic:
        return f"{topic} does not exist yet: ingress creates it when it starts"
    return f"{topic} belongs to {f'group {status.owner}' if status.owner else 'no group yet'}"


def group_text(group_id: str, group: GroupFacts) -> str:
    if not group.is_known:
        return f"group {group_id} has no members yet, or none any more: the cluster does not know it"
    return f"group {group_id} is {group.state}, members {group.members}, partitions held {len(group.partitions)}"


def _by_place(partitions: Iterable[EgressPartitionStatus]) -> Iterable[tuple[str, list[EgressPartitionStatus]]]:
    return ((place, list(some)) for place, some in groupby(partitions, lambda p: p.source.path))


def _by_destination(
    partitions: Iterable[IngressPartition],
) -> Iterable[tuple[tuple[str, str], list[IngressPartition]]]:
    def where(p: IngressPartition) -> tuple[str, str]:
        return f"{p.key.source.region}/{p.key.source.path}", p.key.destination_topic

    return ((key, list(some)) for key, some in groupby(sorted(partitions, key=where), where))


def _proven(proofs: Sequence[Proof | None], now: datetime) -> str:
    """The age of the oldest proof, if all partitions have one."""
    known = [proof for proof in proofs if proof is not None]
    if not known:
        return "never"
    if not all(proof.is_whole for proof in known):
        return "not whole"
    return f"{_age(min(proof.at for proof in known), now)} ago" if len(known) == len(proofs) else "in part"


def _proof_json(proof: Proof | None, now: datetime) -> Mapping[str, object] | None:
    if proof is None:
        return None
    age = (now - proof.at).total_seconds()
    return {"at": proof.at.isoformat(), "age_seconds": age, "next_offset": proof.next_offset, "whole": proof.is_whole}


def _age(at: datetime | None, now: datetime) -> str:
    return "" if at is None else format_age(now - at)


# --- JSON ------------------------------------------------------------------------------------------------------------


def _egress_json(status: EgressStatus, now: datetime) -> Mapping[str, object]:
    rows = [
        {
            "topic": p.source.topic,
            "partition": p.source.partition,
            "place": p.source.path,
            **asdict(p.ends),
            "committed": p.committed,
            "archive_end": p.archive_end,
            "lag": p.lag,
            "open_transaction": None
            if not p.is_open
            else {
                "since": p.open_since and p.open_since.isoformat(),
                "age_seconds": p.open_since and (now - p.open_since).total_seconds(),
            },
            "recorded_gaps": p.recorded_gaps,
            "proven": _proof_json(p.proof, now),
            "problems": list(p.problems),
        }
        for p in status.partitions
    ]
    return {"group": _group_json(status.group_id, status.group), "partitions": rows, "problems": status.problems}


def _ingress_json(status: IngressStatus, now: datetime, option: Sequence[str]) -> Mapping[str, object]:
    rows = [
        {
            "source": str(p.key.source),
            "destination": p.key.destination_topic,
            "configured": p.configured,
            "checkpoint": None
            if p.checkpoint is None
            else {
                "next_offset": p.checkpoint.next_offset,
                "author": str(p.checkpoint.author),
                "at": p.checkpoint.at.isoformat(),
                "age_seconds": (now - p.checkpoint.at).total_seconds(),
                "destination_topic_id": p.checkpoint.destination_topic_id,
            },
            "archive_start": p.archive_start,
            "archive_end": p.archive_end,
            "lag": p.lag,
            "parked": None
            if p.parked is None
            else {
                "next_offset": p.parked.next_offset,
                "since": p.parked.since.isoformat(),
                "reason": p.parked.reason,
                "release": release_command(p, option) or None,
                "seed": seed_command(p, option) or None,
                "skip": skip_command(p, option) or None,
            },
            "waits_since": p.waits_since and p.waits_since.isoformat(),
            "waits_for": p.waits_for or None,
            "skipped_offsets": p.skipped,
            "transform": p.transform or None,
            "dropped_records": p.dropped,
            "proven": _proof_json(p.proof, now),
            "problems": list(p.problems),
        }
        for p in status.partitions
    ]
    return {
        "group": _group_json(status.group_id, status.group),
        "checkpoint_topic": {
            "name": status.checkpoint_topic,
            "exists": status.has_topic,
            "group": status.owner or None,
        },
        "sources": [
            {
                "region": one.region,
                "heartbeat_at": one.heartbeat_at and one.heartbeat_at.isoformat(),
                "as_of": one.as_of and one.as_of.isoformat(),
                "records_behind": one.records_behind,
                "heartbeat_topics": dict(one.heartbeat_topics),
            }
            for one in status.sources
        ],
        "partitions": rows,
        "problems": status.problems,
    }


def _destinations_json(status: DestinationsStatus) -> Mapping[str, object]:
    return {
        "catalogs": {region: at.isoformat() for region, at in status.changed_at.items()},
        "without_catalog": list(status.without_catalog),
        "changes": status.changes,
        "left": list(status.differences),
        "problems": status.problems,
    }


def _group_json(group_id: str, group: GroupFacts) -> Mapping[str, object]:
    return {
        "id": group_id,
        "state": group.state,
        "members": group.members,
        "partitions_held": len(group.partitions),
    }
