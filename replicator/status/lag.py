"""How far each delivered partition is behind its source's log: in records, in stored bytes and in time.

    source's log     0 ─────────────────────────────────────────── 400     by its watermarks that have arrived here
    bucket           0 ───────────────────────── 350                       segments
    delivered        0 ────────── 260                                      checkpoint
                                  └── 140 records behind, 90 of them here

The watermarks are those that `status` sums up for a region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime

from formats.coverage import SegmentSlice, steps
from formats.segment import SegmentInfo, SourcePartition
from infra.archive.forward_listing import MAX_AFTER, ahead
from infra.archive.segments import SegmentStore
from infra.archive.source_reports import SourceReport
from infra.archive.watermark_history import WatermarkHistory
from infra.contracts.storage import ObjectStore
from replicator.status.ingress import IngressSources, IngressStatus
from replicator.status.ingress_partition import IngressPartition
from replicator.status.not_arrived import NotArrived
from replicator.status.sources import records_behind


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """Offsets without a record count as records: transaction markers, and what compaction removed."""

    source: SourcePartition
    destination: str
    next_offset: int | None  # of the source, to be delivered next; None: nothing was delivered
    source_end: int | None  # next offset of the source's log; None: not known, or the log is gone
    records: int | None  # behind the source's log, at least the stored ones; None: not known
    stored_records: int  # of them, in this bucket
    stored_bytes: int  # size of these in the bucket; of a segment that is delivered in part, the share of its offsets
    complete_as_of: datetime | None  # everything that the source held then is delivered; by the source's clock
    seconds: float | None  # since then: the RPO; None: not known


@dataclass(frozen=True, slots=True)
class LagSources:
    """What the lag is read from."""

    ingress: IngressSources
    objects: ObjectStore
    prefix: str

    def read(self, now: datetime, pool: Executor) -> Sequence[PartitionLag]:
        """Of all partitions that are delivered here, and then of those that will be, and of which nothing has arrived.
        Raises what the sources raise."""
        return self.of(self.ingress.read(now, pool), now, pool)

    def of(self, status: IngressStatus, now: datetime, pool: Executor) -> Sequence[PartitionLag]:
        """The same, of a status that was read."""
        delivered = [p for p in status.partitions if p.configured and not p.is_over]
        regions = sorted({p.key.source.region for p in delivered} | {one.source.region for one in status.not_arrived})
        reports = self.ingress.reports.refresh(regions)
        complete: dict[SourcePartition, datetime] = {}
        for region in regions:
            history = WatermarkHistory(self.objects, self.prefix, region)
            of_region = [p for p in delivered if p.key.source.region == region and not p.has_ended]
            offsets = {(p.key.source.topic, p.key.source.partition): p.next_offset or 0 for p in of_region}
            found = history.complete_as_of(reports[region], offsets)
            for p in of_region:
                if at := found.get((p.key.source.topic, p.key.source.partition)):
                    complete[p.key.source] = at
            if as_of := reports[region].as_of:  # the source holds nothing of a log that has ended
                ended = [p for p in delivered if p.key.source.region == region and p.has_ended and not p.lag]
                complete.update({p.key.source: as_of for p in ended})
        waiting = [p for p in delivered if p.lag]
        sizes = pool.map(lambda p: stored_bytes(self.ingress.store, p.key.source, p.next_offset or 0), waiting)
        size_of = dict(zip((p.key for p in waiting), sizes, strict=True))
        return [
            *(
                _lag(p, reports.get(p.key.source.region), size_of.get(p.key, 0), complete.get(p.key.source), now)
                for p in delivered
            ),
            *(_of_nothing(one, reports.get(one.source.region)) for one in status.not_arrived),
        ]


def _lag(
    p: IngressPartition, report: SourceReport | None, size: int, complete_as_of: datetime | None, now: datetime
) -> PartitionLag:
    source, next_offset = p.key.source, p.next_offset
    return PartitionLag(
        source=source,
        destination=p.key.destination_topic,
        next_offset=next_offset,
        source_end=None if report is None or p.has_ended else report.stable_end(source.topic, source.partition),
        records=records_behind(report, p),
        stored_records=p.lag,
        stored_bytes=size,
        complete_as_of=complete_as_of,
        seconds=None if complete_as_of is None else max((now - complete_as_of).total_seconds(), 0.0),
    )


def _of_nothing(one: NotArrived, report: SourceReport | None) -> PartitionLag:
    """Of a partition of which nothing has arrived: as of when it would be complete is not known, either."""
    source = one.source
    return PartitionLag(
        source=source,
        destination=one.destination,
        next_offset=None,
        source_end=None if report is None else report.stable_end(source.topic, source.partition),
        records=one.records,
        stored_records=0,
        stored_bytes=0,
        complete_as_of=None,
        seconds=None,
    )


def stored_bytes(store: SegmentStore, source: SourcePartition, next_offset: int) -> int:
    """Size of the stored segments from `next_offset` on, each offset counted once. One page of each level is in memory
    at a time."""
    total, is_cut = 0.0, True
    reach: Mapping[int, int] = {}
    while is_cut:
        page = ahead(store, source, next_offset, reach=reach)
        sizes = {info.segment: info.size_bytes for info in page.infos}
        horizon = _horizon(page.infos) if page.is_cut else None
        begin, reach = next_offset, page.reach
        for step in steps(sizes, next_offset):
            if horizon is not None and step.offsets.start >= horizon:
                break
            next_offset = step.offsets.next_offset
            if isinstance(step, SegmentSlice):
                total += sizes[step.segment] * step.offsets.count / step.segment.offsets.count
        is_cut = page.is_cut and next_offset > begin
    return round(total)


def _horizon(infos: Sequence[SegmentInfo]) -> int | None:
    """Where the page of the first level ends that may have more segments than it shows."""
    starts: dict[int, list[int]] = {}
    for info in infos:
        starts.setdefault(info.segment.level, []).append(info.segment.offsets.start)
    return min((max(found) for found in starts.values() if len(found) >= MAX_AFTER), default=None)
