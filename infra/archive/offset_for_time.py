"""The archived offset for a time, for reading from a point in time.

Timestamps are not ordered. The result is the smallest archived offset whose record has a timestamp at or after the
time, as in Kafka: no record with such a timestamp comes before it, and older records may come after it.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from formats.coverage import SegmentSlice, steps
from formats.footer import SegmentFooter
from formats.records.milliseconds import first_ms_at_or_after
from formats.segment import SourcePartition
from infra.archive.archive import Archive

PARALLEL_FOOTERS = 32  # requests


@dataclass(frozen=True, slots=True)
class TimeFinder:
    """Reads footers in parallel on `pool`, and records only of segments that may hold the result."""

    archive: Archive
    pool: Executor

    def next_offset(self, source: SourcePartition, at: datetime) -> int | None:
        """The next offset after the archive's end when no record has a timestamp at or after `at`; None when there is
        no archive. Raises StoreUnavailable, SegmentNotFound, CorruptSegment."""
        at_ms = first_ms_at_or_after(at)
        segments = [info.segment for info in self.archive.segments.list(source)]
        if not segments:
            return None
        slices = [s for s in steps(segments, min(s.offsets.start for s in segments)) if isinstance(s, SegmentSlice)]
        for first in range(0, len(slices), PARALLEL_FOOTERS):
            some_slices = slices[first : first + PARALLEL_FOOTERS]
            footers = self.pool.map(lambda one: self.archive.footer(one.segment), some_slices)
            for segment_slice, footer in zip(some_slices, footers, strict=True):
                if _may_contain(footer, at_ms) and (found := self._first(segment_slice, at_ms)) is not None:
                    return found
        return slices[-1].offsets.next_offset

    def _first(self, segment_slice: SegmentSlice, at_ms: int) -> int | None:
        for batch in self.archive.batches(segment_slice):
            timestamps = batch.column("timestamp").view(pa.int64())
            row = pc.index(pc.greater_equal(timestamps, at_ms), pa.scalar(True)).as_py()
            if row >= 0:
                return int(batch.column("offset")[row].as_py())
        return None


def _may_contain(footer: SegmentFooter, at_ms: int) -> bool:
    """The ancestor's footers have no timestamp bounds."""
    return footer.count > 0 and (footer.max_timestamp_ms is None or footer.max_timestamp_ms >= at_ms)
