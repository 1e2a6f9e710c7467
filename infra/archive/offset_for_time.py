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

AT_ONCE = 32  # footers read in parallel


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
        pieces = [s for s in steps(segments, min(s.offsets.start for s in segments)) if isinstance(s, SegmentSlice)]
        for first in range(0, len(pieces), AT_ONCE):
            some = pieces[first : first + AT_ONCE]
            footers = self.pool.map(lambda piece: self.archive.footer(piece.segment), some)
            for piece, footer in zip(some, footers, strict=True):
                if _may_hold(footer, at_ms) and (found := self._first(piece, at_ms)) is not None:
                    return found
        return pieces[-1].offsets.next_offset

    def _first(self, piece: SegmentSlice, at_ms: int) -> int | None:
        for batch in self.archive.batches(piece):
            stamps = batch.column("timestamp").view(pa.int64())
            row = pc.index(pc.greater_equal(stamps, at_ms), pa.scalar(True)).as_py()
            if row >= 0:
                return int(batch.column("offset")[row].as_py())
        return None


def _may_hold(footer: SegmentFooter, at_ms: int) -> bool:
    """The ancestor's footers have no timestamp bounds."""
    return footer.count > 0 and (footer.max_timestamp_ms is None or footer.max_timestamp_ms >= at_ms)
