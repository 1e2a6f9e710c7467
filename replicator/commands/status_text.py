"""Egress, ingress and destinations in `replicator status`, as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING

from infra.archive.proofs import Proof
from infra.settings.units import format_age
from replicator.commands.client_lag import lag_table
from replicator.commands.status_remedies import release_command, seed_command, skip_command
from replicator.status.egress import EgressStatus
from replicator.status.egress_partition import EgressPartitionStatus
from replicator.status.ingress import IngressStatus
from replicator.status.ingress_partition import IngressPartition
from replicator.status.lag import PartitionLag
from replicator.status.sources import SourceStatus
from replicator.terminal.output import count_text, print_text, table

if TYPE_CHECKING:
    from infra.contracts.cluster import GroupFacts
    from replicator.status.destinations import DestinationsStatus


def print_egress(status: EgressStatus, now: datetime, *, archive: str, by_partition: bool) -> None:
    """`archive`: the address of the bucket and prefix, for messages."""
    print_text(f"\negress: {group_text(status.group_id, status.group, _egress_idles(status))}")
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
    if rows:
        print_text(table(head, rows))
    if text := _nothing_stored(status, archive):
        print_text(text)
    for problem in status.problems:
        print_text(f"! {problem}")


def print_ingress(
    status: IngressStatus,
    now: datetime,
    option: Sequence[str],
    lags: Sequence[PartitionLag] = (),
    *,
    archive: str,
    by_partition: bool,
) -> None:
    """`archive`: as of `print_egress`."""
    print_text(f"\ningress: {group_text(status.group_id, status.group, _ingress_idles(status))}")
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
    if rows:
        print_text(table(head, rows))
    for region in status.empty_regions:
        print_text(
            f"nothing is archived under {archive}/{region} yet: check that egress runs in region {region}, that its "
            "archive is in this bucket and prefix or is copied to it (S3 replication, sync), and that the name of the "
            "region in [[ingress.sources]] is the one in the file of that egress"
        )
    if not rows and not status.empty_regions and not status.never_arrived:
        print_text("none of the archived topics is delivered: `replicator explain topic NAME` says why")
    if behind := [one for one in lags if one.records or one.stored_records]:
        print_text(f"\nbehind the sources' logs:\n{lag_table(behind, by_partition=by_partition)}\n")
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


def print_destinations(status: DestinationsStatus, now: datetime) -> None:
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
    return f"source {source.region}: {beat}; {source.behind_text}, as of {_age(source.as_of, now)} ago"


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


def _nothing_stored(status: EgressStatus, archive: str) -> str:
    """Why the archive of the selected topics is empty, and what to check; empty when it is not."""
    if not status.partitions:
        if status.topics:
            return ""  # a problem says it
        return (
            "no topic is selected: check the names in [egress.topics], `replicator explain topic NAME` says which rule "
            "selects one, and that this principal may DESCRIBE the topics"
        )
    if any(p.archive_end is not None for p in status.partitions):
        return ""
    where, lag = f"{archive}/{status.partitions[0].source.region}", sum(p.lag for p in status.partitions)
    nothing = f"nothing of these topics is archived under {where}"
    if not lag:
        return f"{nothing}: no records wait"
    return (
        f"{nothing}: {count_text(lag)} offsets wait. The first segment is there within max_segment_age; if it is not, "
        "check that egress runs, what its /readyz and its log say, and that its file has this bucket and prefix"
    )


def _egress_idles(status: EgressStatus) -> str:
    """Why a running egress joins no group; empty when it should."""
    return "" if status.partitions or status.topics else "no topic of the cluster matches [egress.topics]"


def _ingress_idles(status: IngressStatus) -> str:
    return "no topic that is stored matches a source" if status.matches_nothing else ""


def group_text(group_id: str, group: GroupFacts, idles: str = "") -> str:
    """`idles`: why a running process has nothing to do; empty: it has, or that is not known."""
    if not group.is_known and idles:
        return f"{idles}, so nothing is to be done yet: a process that runs joins group {group_id} with the first one"
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


def _age(at: datetime | None, now: datetime) -> str:
    return "" if at is None else format_age(now - at)
