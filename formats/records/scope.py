"""Filter records by offset and timestamp. Works on columns, never on single records."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from formats.footer import SegmentFooter
from formats.int_range import ANY_OFFSET, ANY_TIME, INT64_MAX, IntRange
from formats.records.statistics import first_offset, within
from formats.segment import OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """`timestamps`: in milliseconds. They are not ordered, so they filter records and give no position."""

    offsets: IntRange = ANY_OFFSET
    timestamps: IntRange = ANY_TIME

    def may_match(self, footer: SegmentFooter) -> bool:
        """Whether a record of the segment may match. True for the ancestor's segments: they lack timestamp bounds."""
        low, high = footer.min_timestamp_ms, footer.max_timestamp_ms
        return low is None or high is None or self.timestamps.overlaps(low, high)

    def is_past(self, batch: pa.RecordBatch) -> bool:
        """Whether all records from this batch on are after the range of offsets. The batch is not empty."""
        return first_offset(batch) > self.offsets.high

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records of `batch` that match; often `batch` itself."""
        low, high = max(self.offsets.low, 0), min(self.offsets.high, INT64_MAX - 1)
        if low > high:
            return batch.slice(0, 0)
        if low > 0 or self.offsets.high < INT64_MAX:
            batch = within(batch, OffsetRange(low, high))
        if not self.timestamps.is_bounded or not batch.num_rows:
            return batch
        timestamps = batch.column("timestamp").view(pa.int64())
        first, last = pa.scalar(self.timestamps.low, pa.int64()), pa.scalar(self.timestamps.high, pa.int64())
        return batch.filter(pc.and_(pc.greater_equal(timestamps, first), pc.less_equal(timestamps, last)))
