"""Reading slices of segments as runs. A run is produced and checkpointed as a unit."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from formats.coverage import SegmentSlice
from formats.errors import ReplicatorError
from formats.footer import SegmentFooter
from formats.int_range import INT64_MAX, IntRange
from formats.records.lineage_header import with_lineage
from formats.records.scope import RecordFilter
from formats.records.statistics import last_offset
from formats.records.transform import NO_TRANSFORM, Transform
from formats.segment import SourcePartition
from infra.archive.archive import Archive
from infra.runtime.lifecycle import Clock, SystemClock

if TYPE_CHECKING:
    from pyarrow import RecordBatch


@dataclass(frozen=True, slots=True)
class SegmentRun:
    """Records of one source partition, in order. An empty run only advances the position."""

    batches: tuple[RecordBatch, ...]
    count: int
    size_bytes: int  # of the Arrow columns, about the size of the records
    next_offset: int  # after this run, everything below is delivered
    last: bool  # the last run of the slices; every other one ends before their end
    dropped: int = 0  # records that the transform left out


class RunReader(Protocol):
    def runs(
        self,
        slices: Sequence[SegmentSlice],
        *,
        max_records: int | None = None,
        transform: Transform = NO_TRANSFORM,
        lineage_header: str = "",
    ) -> Generator[SegmentRun, None, None]:
        """See SegmentRunReader."""


@dataclass(slots=True)
class _RunBuilder:
    """Records for the next run."""

    start_offset: int
    next_offset: int = field(init=False)  # the run covers everything below
    batches: list[RecordBatch] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0
    dropped: int = 0
    began_at: datetime | None = None  # when its first segment was opened, of those that begin in it

    def __post_init__(self) -> None:
        self.next_offset = self.start_offset

    @property
    def passed(self) -> int:
        """Offsets since the begin of the run, including those that are not delivered."""
        return self.next_offset - self.start_offset

    def has_room(self, part: RecordBatch, records: int, size_bytes: int) -> bool:
        return bool(self.count + part.num_rows <= records and self.size_bytes + part.nbytes <= size_bytes)

    def add(self, part: RecordBatch, last_offset: int, dropped: int) -> None:
        """Add the records to deliver up to `last_offset`; there may be none."""
        if part.num_rows:
            self.batches.append(part)
            self.count += part.num_rows
            self.size_bytes += part.nbytes
        self.dropped += dropped
        self.next_offset = last_offset + 1

    def age(self, now: datetime) -> timedelta:
        """How long its records have waited for more; zero without records."""
        return now - self.began_at if self.count and self.began_at is not None else timedelta()

    def end_run(self, *, last: bool = False) -> SegmentRun:
        run = SegmentRun(tuple(self.batches), self.count, self.size_bytes, self.next_offset, last, self.dropped)
        self.batches, self.count, self.size_bytes, self.dropped = [], 0, 0, 0
        self.start_offset, self.began_at = self.next_offset, None
        return run


EVERYTHING = RecordFilter()
MAX_OFFSETS_PER_RUN = 5_000_000  # offsets covered by one run


def no_end(_source: SourcePartition) -> int:
    return INT64_MAX


def ignored(_footer: SegmentFooter) -> None:
    pass


@dataclass(frozen=True, slots=True)
class SegmentRunReader:
    """Safe to call from several threads; each iterator belongs to one thread. Runs contain the records that match
    `scope`; the others are skipped like holes. Nothing after `last_offset` is read, and no run ends after it: a merged
    segment may extend further than the range to deliver."""

    archive: Archive
    max_records: int
    max_bytes: int
    scope: RecordFilter = EVERYTHING
    last_offset: Callable[[SourcePartition], int] = no_end
    expect: Callable[[SegmentFooter], None] = ignored  # raises ForeignSegment for a segment that does not belong here
    opened: Callable[[SegmentFooter], None] = ignored  # called with each segment that is opened, perhaps repeatedly
    max_age: timedelta = timedelta.max  # records do not wait longer in a run for the next segment to be opened
    clock: Clock = field(default_factory=SystemClock)
    # held while a row group is read and decoded. More threads open segments than decode: a store's answer takes time, a
    # decoded row group memory
    decoding: AbstractContextManager[object] = field(default_factory=nullcontext)

    def runs(
        self,
        slices: Sequence[SegmentSlice],
        *,
        max_records: int | None = None,
        transform: Transform = NO_TRANSFORM,
        lineage_header: str = "",
    ) -> Generator[SegmentRun, None, None]:
        """Yields at least one run; the final one has `last` set. The slices adjoin; a run may span several of them, so
        that small segments do not make small runs. `max_records` lowers the limit of a run, and of what `transform` is
        called with. `lineage_header`: name of the header that each record gets after it; empty: none.

        Raises SegmentNotFound, CorruptSegment, ForeignSegment, StoreUnavailable, TransformFailed, after a run of the
        records read before the error: the next offset of that run lies in the failed slice. Holds two row groups in
        addition to the run that it yields.
        """
        limit = min(max_records or self.max_records, self.max_records)
        source = slices[0].segment.source
        end = min(slices[-1].offsets.end, self.last_offset(source))
        builder = _RunBuilder(slices[0].offsets.start)
        last = builder.start_offset
        try:
            for segment_slice in slices:
                last = min(segment_slice.offsets.end, end)
                if last < segment_slice.offsets.start:
                    break
                if builder.count >= limit or builder.age(self.clock.now()) >= self.max_age:
                    yield builder.end_run()
                builder.began_at = builder.began_at or self.clock.now()
                for batch, cluster_id in self._batches(segment_slice, last):
                    for part in self._parts(batch, limit):
                        in_scope = self.scope.of(part)
                        wanted = transform(in_scope, source)
                        if lineage_header:
                            wanted = with_lineage(wanted, lineage_header, cluster_id, source)
                        # a full run ends before records that are left out, too: a refused record is alone at last
                        is_full = builder.count >= limit or not builder.has_room(wanted, limit, self.max_bytes)
                        if builder.count and is_full:
                            yield builder.end_run()
                        builder.add(wanted, last_offset(part), in_scope.num_rows - wanted.num_rows)
                        # few records to deliver: report the position anyway, but not as that of the end, which is
                        # the last run's
                        is_long = builder.passed >= MAX_OFFSETS_PER_RUN or builder.dropped >= limit
                        if is_long and builder.next_offset <= end:
                            yield builder.end_run()
                builder.next_offset = last + 1
        except ReplicatorError:
            if builder.start_offset < builder.next_offset <= last:  # beyond, the next slice would seem to be bad
                yield builder.end_run()
            raise
        yield builder.end_run(last=True)

    def _batches(self, segment_slice: SegmentSlice, last: int) -> Iterator[tuple[RecordBatch, str]]:
        """Batches of one slice, each with the id of its cluster; stops after the last offset in scope."""
        with self.archive.open(segment_slice.segment) as reader:
            self.expect(reader.footer)
            self.opened(reader.footer)
            if not self.scope.may_match(reader.footer):
                return
            bound = EVERYTHING if last == segment_slice.segment.offsets.end else RecordFilter(offsets=IntRange(0, last))
            batches = reader.batches(segment_slice.offsets.start)
            while True:
                with self.decoding:
                    batch = next(batches, None)
                if batch is None or self.scope.is_past(batch) or bound.is_past(batch):
                    return
                yield batch if bound is EVERYTHING else bound.of(batch), reader.footer.origin.cluster_id

    def _parts(self, batch: RecordBatch, limit: int) -> Iterator[RecordBatch]:
        rows = min(limit, max(1, self.max_bytes * batch.num_rows // max(batch.nbytes, 1)))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)
