"""Reading a split of one source partition, even if its segments are merged and deleted meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from formats.coverage import SegmentSlice, joined, parts, uncovered
from formats.errors import SegmentNotFound
from formats.read_splits import ReadSplit
from formats.records.scope import RecordFilter
from formats.records.statistics import last_offset, records_within
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.archive import Archive


@dataclass(frozen=True, slots=True)
class SplitReader:
    """Reads the records of a split that match `scope`. A segment whose footer rules out a match costs one read of its
    tail."""

    archive: Archive
    scope: RecordFilter = field(default_factory=RecordFilter)

    def batches(self, split: ReadSplit) -> Iterator[pa.RecordBatch]:
        """The matching records, in offset order. Holds one row group.

        A missing segment was replaced by others since the split was planned: the partition is listed again, and reading
        continues at the same offset. Raises SegmentNotFound when no stored segment covers the rest of it,
        CorruptSegment, StoreUnavailable.
        """
        waiting, gone = deque(split.parts), set[Segment]()
        while waiting:
            part = waiting.popleft()
            next_offset = part.offsets.start
            try:
                for batch in self._records(part):
                    if (wanted := self.scope.of(batch)).num_rows:
                        yield wanted
                    next_offset = last_offset(batch) + 1
            except SegmentNotFound:
                gone.add(part.segment)  # never read again, so the loop ends
                left = [OffsetRange(next_offset, part.offsets.end), *(later.offsets for later in waiting)]
                replaced = self._listed(split.source, left, gone)
                if replaced is None:
                    raise
                waiting = deque(replaced)

    def _listed(
        self, source: SourcePartition, left: Sequence[OffsetRange], gone: set[Segment]
    ) -> Sequence[SegmentSlice] | None:
        """Slices that cover the remaining ranges now; None when a part of them is no longer stored."""
        segments = [info.segment for info in self.archive.segments.list(source) if info.segment not in gone]
        steps = parts(segments, OffsetRange(left[0].start, left[-1].end))
        found = [step for step in steps if isinstance(step, SegmentSlice)]
        lost = [lost for run in joined(left).runs for lost in uncovered((part.offsets for part in found), run)]
        return None if lost else found

    def _records(self, part: SegmentSlice) -> Iterator[pa.RecordBatch]:
        """No batch is empty."""
        with self.archive.open(part.segment) as reader:
            if self.scope.may_match(reader.footer):
                yield from records_within(reader.batches(part.offsets.start), part.offsets)
