"""Where a streaming query begins to read a source partition that its checkpoint does not have.

    earliest     the recorded begin of the archive, less the recorded gaps there
    a time       the first stored record stamped at or after it
    latest       the end of what is stored; a partition that appears later from its begin, as with `earliest`

Copies arrive in a bucket in any order, so the first stored segment is not yet the beginning, and a record may come
that is stamped at the time: a partition is left out until that is known, or its segments have stayed as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime

from formats.coverage import Gap, end_of, explained_until, from_first
from formats.segment import OffsetRange, SegmentInfo, SourcePartition
from infra.archive.archive import Archive
from infra.archive.offset_for_time import TimeFinder
from replicator.spark_source.missing import MissingSegments
from replicator.spark_source.opened import log_gaps
from replicator.spark_source.options import StreamOptions


@dataclass(frozen=True, slots=True)
class StartFinder:
    """Each result is None while the start is not known: the next trigger that lists partitions asks again. Raises
    StoreUnavailable."""

    archive: Archive
    pool: Executor  # reads footers
    options: StreamOptions
    missing: MissingSegments
    now: datetime

    def initial(self, source: SourcePartition) -> int | None:
        """Of a query without a checkpoint."""
        if self.options.from_time is None and self.options.from_latest:
            return end_of(info.segment.offsets for info in self.archive.segments.list(source))
        return self.appeared(source)

    def appeared(self, source: SourcePartition) -> int | None:
        """Of a partition that a running query does not have yet."""
        if self.options.from_time is not None:
            return self._at_time(source, self.options.from_time)
        return self._earliest(source, list(self.archive.segments.firsts(source)))

    def _earliest(self, source: SourcePartition, firsts: Sequence[SegmentInfo]) -> int | None:
        """`firsts`: at least those with which each level begins."""
        first = min((info.segment.offsets.start for info in firsts), default=None)
        # asked for after the listing: it is stored before the first segment
        begin = self._begin(source, self.archive.control.gaps.ranges(source))
        if begin is not None:
            return begin if first is None else min(begin, first)
        if not first:
            return first  # 0: nothing can come before it; None: nothing is stored
        return first if self._is_lost(source, [OffsetRange(0, first - 1)], firsts) else None

    def _at_time(self, source: SourcePartition, time: datetime) -> int | None:
        found = TimeFinder(self.archive, self.pool).next_offset(source, time)
        infos = list(self.archive.segments.list(source))
        if found is None or not infos:
            return self._earliest(source, infos)
        recorded = self.archive.control.gaps.ranges(source)
        begin = self._begin(source, recorded)
        holes = [hole for hole in self._holes(infos, recorded, begin or 0) if hole.start < found]
        if not holes:
            return found
        behind = [info for info in infos if info.segment.offsets.start > holes[-1].end]
        if not self._is_lost(source, holes, behind):
            return None
        log_gaps("archived_data_lost", source, [hole for hole in holes if begin is not None or hole.start > 0])
        return found

    def _begin(self, source: SourcePartition, recorded: Sequence[OffsetRange]) -> int | None:
        begin = self.archive.control.begins.of(source)
        return None if begin is None else explained_until(recorded, begin.offset)

    @staticmethod
    def _holes(infos: Sequence[SegmentInfo], recorded: Sequence[OffsetRange], begin: int) -> list[OffsetRange]:
        """What neither a segment nor a recorded gap has between `begin` and the last segment, in order."""
        segments = [info.segment for info in infos]
        first = min(segment.offsets.start for segment in segments)
        missing = [OffsetRange(begin, first - 1)] if begin < first else []
        missing += [step.offsets for step in from_first(segments) if isinstance(step, Gap)]
        unexplained = ((explained_until(recorded, one.start), one.end) for one in missing)
        return [OffsetRange(start, end) for start, end in unexplained if start <= end]

    def _is_lost(self, source: SourcePartition, holes: Sequence[OffsetRange], behind: Sequence[SegmentInfo]) -> bool:
        is_new = not self.missing.is_noticed(source, tuple(holes))
        is_lost = self.missing.is_lost(source, tuple(holes), behind, self.now)
        if is_new and not is_lost:
            log_gaps("stream_start_waits", source, holes)
        return is_lost
