"""Reading a stretch of one source partition, even if its segments are merged and deleted meanwhile."""

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
    """Of a stretch, what is inside `scope`. A segment whose footer says that it holds nothing of that costs one read of
    its end."""

    archive: Archive
    scope: RecordFilter = field(default_factory=RecordFilter)

    def batches(self, stretch: ReadSplit) -> Iterator[pa.RecordBatch]:
        """The wanted records, in offset order. Holds one row group.

        A segment that is gone was replaced by others since the stretch was planned: these are asked for, and reading
        goes on where it was. Raises SegmentNotFound when nothing stored covers what is left of it, CorruptSegment,
        StoreUnavailable.
        """
        waiting, gone = deque(stretch.parts), set[Segment]()
        while waiting:
            part = waiting.popleft()
            next_offset = part.offsets.start
            try:
                for batch in self._records(part):
                    if (wanted := self.scope.of(batch)).num_rows:
                        yield wanted
                    next_offset = last_offset(batch) + 1
            except SegmentNotFound:
                gone.add(part.segment)  # never asked for again, so this ends
                left = [OffsetRange(next_offset, part.offsets.end), *(later.offsets for later in waiting)]
                replaced = self._listed(stretch.source, left, gone)
                if replaced is None:
                    raise
                waiting = deque(replaced)

    def _listed(
        self, source: SourcePartition, left: Sequence[OffsetRange], gone: set[Segment]
    ) -> Sequence[SegmentSlice] | None:
        """What is to be read now for what is left; None when some of that is not stored any more."""
        segments = [info.segment for info in self.archive.segments.list(source) if info.segment not in gone]
        steps = parts(segments, OffsetRange(left[0].start, left[-1].end))
        found = [step for step in steps if isinstance(step, SegmentSlice)]
        lost = [lost for run in joined(left).runs for lost in uncovered((part.offsets for part in found), run)]
        return None if lost else found

    def _records(self, part: SegmentSlice) -> Iterator[pa.RecordBatch]:
        """Never empty ones."""
        with self.archive.open(part.segment) as reader:
            if self.scope.may_hold(reader.footer):
                yield from records_within(reader.batches(part.offsets.start), part.offsets)
