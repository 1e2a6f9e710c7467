"""The RPO of an archive: the age of the oldest record of its source that is not archived.

archive   0 ────────── next offset             next offset < low: what lies between is lost
log               low ────┬────────── stable   the record at `next offset` is the oldest one that waits
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime

from formats.coverage import explained_until, joined
from formats.gap_acceptance import losses
from formats.segment import OffsetRange, SourcePartition
from infra.archive.archive import Archive
from infra.contracts.cluster import LogProbe, TopicFacts, TopicPartition
from replicator.egress_topics import archived_as
from replicator.first_few import first_few

NAMED = 3  # partitions of a reason


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """`seconds`: None if it is not known; `unknown` then holds the reason."""

    seconds: float | None
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class ArchivedEnd:
    """`next_offset`: the first offset from the begin on that is in no segment and no recorded gap: segments are stored
    in any order. None: nothing was ever archived, so egress begins where the log does. `end`: after the last one that
    is. `lost`: recorded losses that are not accepted."""

    next_offset: int | None
    end: int | None = None
    lost: Sequence[OffsetRange] = ()


def archived_ends(
    archive: Archive,
    region: str,
    topics: Collection[TopicFacts],
    *,
    cluster_id: str,
    claimed: Collection[str],
    wants: Callable[[str, int], bool],
    pool: Executor,
) -> Mapping[TopicPartition, ArchivedEnd]:
    """Of the partitions of `topics` that are wanted. A topic that was created again since it was archived is another
    one, and nothing of it is. `cluster_id`: of the cluster that has them. `claimed`: the archive paths of the
    region. Raises StoreUnavailable, MalformedEvent."""
    claims = archive.control.claims
    known = archived_as(claims, region, topics, cluster_id=cluster_id, claimed=claimed, pool=pool)
    sources = {
        at: SourcePartition.of(region, known[facts.name].incarnation, at.partition)
        for facts in topics
        for at in facts.partitions
        if wants(at.topic, at.partition)
    }
    found = pool.map(lambda source: _archived_end(archive, source), sources.values())
    return dict(zip(sources, found, strict=True))


def _archived_end(archive: Archive, source: SourcePartition) -> ArchivedEnd:
    gaps = archive.control.gaps.of(source)  # first: then every segment that was stored before a gap is listed
    stored = joined(info.segment.offsets for info in archive.segments.list(source))
    extent = joined([*stored.runs, *(gap.offsets for gap in gaps)])
    begin = archive.control.begins.of(source)
    start = extent.start if begin is None else begin.offset
    if start is None:
        return ArchivedEnd(None)
    return ArchivedEnd(explained_until(extent.runs, start), extent.next_offset, losses(gaps, (), stored))


def recovery_point(
    probe: LogProbe, ends: Mapping[TopicPartition, ArchivedEnd], now: datetime, cluster: str
) -> RecoveryPoint:
    """`ends`: of `archived_ends`. `cluster`: the name of the source's cluster in a reason. Raises BrokerUnavailable,
    TargetError."""
    logs = probe.ends(list(ends))
    if not logs:
        return RecoveryPoint(None, f"{cluster} was asked, and has none of these topics: is it the source?")
    waiting: dict[TopicPartition, int] = {}
    lost: list[str] = []
    beyond: list[str] = []
    for one, log in logs.items():
        archived, end = ends[one].next_offset, ends[one].end
        lost += [f"offsets {offsets.start} to {offsets.end} of {one}" for offsets in ends[one].lost]
        if archived is not None and archived < log.low:
            lost.append(f"offsets {archived} to {log.low - 1} of {one}")
        if end is not None and end > log.high:
            beyond.append(f"{one} up to {end - 1}, and its log ends at {log.high - 1}")
        next_offset = max(log.low if archived is None else archived, log.low)
        if next_offset < log.stable:
            waiting[one] = next_offset
    if lost:
        why = "the source removed them before they were archived"
        return RecoveryPoint(None, f"{first_few(lost, NAMED)} are lost: {why}")
    if beyond:
        why = "was that log cut, or is it another cluster?"
        return RecoveryPoint(None, f"the archive has {first_few(beyond, NAMED)}: {why}")
    timestamps = probe.timestamps(waiting)
    silent = {one: offset for one, offset in waiting.items() if one not in timestamps}
    if unknown := sorted(silent.keys() - set(probe.without_records(silent))):
        where = first_few([f"{one} at offset {silent[one]}" for one in unknown], NAMED)
        why = "it was not read in time, or has none"
        return RecoveryPoint(None, f"the timestamp of the first record that waits is not known of {where}: {why}")
    return RecoveryPoint(max([0.0, *((now - stamp).total_seconds() for stamp in timestamps.values())]))
