"""The RPO of an archive: the age of the oldest record of its source that is not archived.

archive   0 ────────── next offset             next offset < low: what lies between is lost
log               low ────┬────────── stable   the record at `next offset` is the oldest one that waits
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime

from formats.coverage import joined
from formats.incarnation import Incarnation
from formats.segment import SourcePartition
from infra.archive.archive import Archive
from infra.contracts.cluster import LogProbe, TopicPartition
from replicator.first_few import first_few

NAMED = 3  # partitions of a reason


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """`seconds`: None if it is not known; `unknown` then holds the reason."""

    seconds: float | None
    unknown: str = ""


def archived_ends(
    archive: Archive,
    region: str,
    stored: Sequence[SourcePartition],
    selected: Collection[TopicPartition],
    pool: Executor,
) -> Mapping[TopicPartition, int | None]:
    """Of the `stored` partitions, and of those that egress selects, the first offset that is in no segment and no
    recorded gap; None: nothing was ever archived, so egress begins where the log does. Raises StoreUnavailable,
    MalformedEvent."""
    incarnations = {source.topic: Incarnation(source.topic, source.incarnation) for source in stored}
    sources = {TopicPartition(source.topic, source.partition): source for source in stored}
    for one in selected:
        if one not in sources:
            incarnation = incarnations.get(one.topic, Incarnation(one.topic, ""))
            sources[one] = SourcePartition.of(region, incarnation, one.partition)
    found = pool.map(lambda source: _next_offset(archive, source), sources.values())
    return dict(zip(sources, found, strict=True))


def _next_offset(archive: Archive, source: SourcePartition) -> int | None:
    found = archive.listing(source)
    end = joined([*(info.segment.offsets for info in found.infos), *found.recorded]).next_offset
    if end is None and (begin := archive.control.begins.of(source)) is not None:
        return begin.offset
    return end


def recovery_point(
    probe: LogProbe, ends: Mapping[TopicPartition, int | None], now: datetime, cluster: str
) -> RecoveryPoint:
    """`ends`: of `archived_ends`. `cluster`: the name of the source's cluster in a reason. Raises BrokerUnavailable,
    TargetError."""
    logs = probe.ends(list(ends))
    if not logs:
        return RecoveryPoint(None, f"{cluster} was asked, and has none of these topics: is it the source?")
    waiting: dict[TopicPartition, int] = {}
    lost: list[str] = []
    for one, log in logs.items():
        archived = ends[one]
        if archived is not None and archived < log.low:
            lost.append(f"offsets {archived} to {log.low - 1} of {one}")
        next_offset = max(log.low if archived is None else archived, log.low)
        if next_offset < log.stable:
            waiting[one] = next_offset
    if lost:
        why = "the source removed them before they were archived"
        return RecoveryPoint(None, f"{first_few(lost, NAMED)} are lost: {why}")
    timestamps = probe.timestamps(waiting)
    silent = {one: offset for one, offset in waiting.items() if one not in timestamps}
    if unknown := sorted(silent.keys() - set(probe.without_records(silent))):
        where = first_few([f"{one} at offset {silent[one]}" for one in unknown], NAMED)
        why = "it was not read in time, or has none"
        return RecoveryPoint(None, f"the timestamp of the first record that waits is not known of {where}: {why}")
    return RecoveryPoint(max([0.0, *((now - stamp).total_seconds() for stamp in timestamps.values())]))
