"""Reading a stretch of one source partition, even if its segments are merged and deleted meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from formats.facts import edges, records_within
from replicator.coverage import Part, joined, parts, uncovered
from replicator.errors import SegmentNotFound
from replicator.footer import SegmentFooter
from replicator.protocols import SegmentFormat
from replicator.segment import OffsetRange, Segment, SourcePartition
from replicator.store import SegmentStore
from replicator.stretches import Span, Stretch


@dataclass(frozen=True, slots=True)
class StretchReader:
    """`stamps`: the timestamps that are wanted, in milliseconds. A segment whose footer says that it holds none of them
    costs one read of its end."""

    store: SegmentStore
    format: SegmentFormat
    stamps: Span = field(default_factory=Span)

    def batches(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
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
                    if (wanted := self._stamped(batch)).num_rows:
                        yield wanted
                    next_offset = edges(batch)[1] + 1
            except SegmentNotFound:
                gone.add(part.segment)  # never asked for again, so this ends
                left = [OffsetRange(next_offset, part.offsets.end), *(later.offsets for later in waiting)]
                replaced = self._listed(stretch.source, left, gone)
                if replaced is None:
                    raise
                waiting = deque(replaced)

    def _listed(
        self, source: SourcePartition, left: Sequence[OffsetRange], gone: set[Segment]
    ) -> Sequence[Part] | None:
        """What is to be read now for what is left; None when some of that is not stored any more."""
        segments = [info.segment for info in self.store.list(source) if info.segment not in gone]
        steps = parts(segments, OffsetRange(left[0].start, left[-1].end))
        found = [step for step in steps if isinstance(step, Part)]
        lost = [lost for run in joined(left).runs for lost in uncovered((part.offsets for part in found), run)]
        return None if lost else found

    def _records(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Never empty ones."""
        with closing(self.format.open(self.store.open(part.segment), part.segment)) as reader:
            if self._may_hold(reader.footer):
                yield from records_within(reader.batches(part.offsets.start), part.offsets)

    def _may_hold(self, footer: SegmentFooter) -> bool:
        low, high = footer.min_timestamp_ms, footer.max_timestamp_ms
        return low is None or high is None or self.stamps.overlaps(low, high)  # the ancestor's do not tell

    def _stamped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self.stamps.is_bounded:
            return batch
        stamps = batch.column("timestamp").view(pa.int64())
        low, high = pa.scalar(self.stamps.low, pa.int64()), pa.scalar(self.stamps.high, pa.int64())
        return batch.filter(pc.and_(pc.greater_equal(stamps, low), pc.less_equal(stamps, high)))
