"""Reading pieces of segments as runs: what is produced, and checkpointed, as one."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replicator.coverage import Piece
from replicator.errors import ReplicatorError
from replicator.protocols import SegmentFormat
from replicator.store import SegmentStore

if TYPE_CHECKING:
    from pyarrow import RecordBatch


@dataclass(frozen=True, slots=True)
class PieceRun:
    """Records of one source partition, in order. An empty one only moves the position."""

    batches: tuple[RecordBatch, ...]
    count: int
    size_bytes: int  # of the columns, about what the records have
    next_offset: int  # behind it everything below is delivered
    last: bool  # of its pieces


@dataclass(slots=True)
class _Gathered:
    """Records for the next run."""

    begun_at: int
    next_offset: int = field(init=False)  # everything below is delivered with it
    batches: list[RecordBatch] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0

    def __post_init__(self) -> None:
        self.next_offset = self.begun_at

    def has_room(self, part: RecordBatch, records: int, size_bytes: int) -> bool:
        return bool(self.count + part.num_rows <= records and self.size_bytes + part.nbytes <= size_bytes)

    def add(self, part: RecordBatch) -> None:
        self.batches.append(part)
        self.count += part.num_rows
        self.size_bytes += part.nbytes
        offset = part.column(0)[-1].as_py()
        assert isinstance(offset, int)
        self.next_offset = offset + 1

    def cut(self, *, last: bool = False) -> PieceRun:
        run = PieceRun(tuple(self.batches), self.count, self.size_bytes, self.next_offset, last)
        self.batches, self.count, self.size_bytes, self.begun_at = [], 0, 0, self.next_offset
        return run


@dataclass(frozen=True, slots=True)
class PieceReader:
    """Safe to call from several threads; each iterator belongs to one."""

    store: SegmentStore
    format: SegmentFormat
    max_records: int
    max_bytes: int

    def runs(self, pieces: Sequence[Piece], *, max_records: int | None = None) -> Generator[PieceRun, None, None]:
        """At least one; the last says that the pieces, which adjoin, end. A run may hold several of them, so that small
        segments do not make small runs. `max_records` is for less than usual in a run.

        Raises SegmentNotFound, CorruptSegment, StoreUnavailable, after a run of what was read before: the next offset
        of that one lies in the piece at fault. Holds two row groups beside the run it yields.
        """
        most = min(max_records or self.max_records, self.max_records)
        gathered = _Gathered(pieces[0].from_offset)
        try:
            for piece in pieces:
                if gathered.count >= most:
                    yield gathered.cut()
                with closing(self.format.open(self.store.open(piece.segment), piece.segment)) as reader:
                    for batch in reader.batches(piece.from_offset):
                        for part in self._parts(batch, most):
                            if gathered.count and not gathered.has_room(part, most, self.max_bytes):
                                yield gathered.cut()
                            gathered.add(part)
                gathered.next_offset = piece.offsets.next_offset
        except ReplicatorError:
            if gathered.next_offset > gathered.begun_at:
                yield gathered.cut()
            raise
        yield gathered.cut(last=True)

    def _parts(self, batch: RecordBatch, most: int) -> Iterator[RecordBatch]:
        rows = min(most, max(1, self.max_bytes * batch.num_rows // max(batch.nbytes, 1)))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)
