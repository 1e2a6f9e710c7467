"""Reading a piece of a segment as runs: what is produced, and checkpointed, as one."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replicator.coverage import Piece
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
    last: bool  # of its piece


@dataclass(frozen=True, slots=True)
class PieceReader:
    """Safe to call from several threads; each iterator belongs to one."""

    store: SegmentStore
    format: SegmentFormat
    max_records: int
    max_bytes: int

    def runs(self, piece: Piece, *, max_records: int | None = None) -> Generator[PieceRun, None, None]:
        """At least one; the last says that the piece ends. `max_records` is for less than usual in a run.

        Raises SegmentNotFound, CorruptSegment, StoreUnavailable. Holds one row group beside the run it yields.
        """
        most = min(max_records or self.max_records, self.max_records)
        held: list[RecordBatch] = []
        count = size = 0
        with closing(self.format.open(self.store.open(piece.segment), piece.segment)) as reader:
            for batch in reader.batches(piece.from_offset):
                for part in self._parts(batch, most):
                    if count and (count + part.num_rows > most or size + part.nbytes > self.max_bytes):
                        yield PieceRun(tuple(held), count, size, _next_offset(held), last=False)
                        held, count, size = [], 0, 0
                    held.append(part)
                    count += part.num_rows
                    size += part.nbytes
        yield PieceRun(tuple(held), count, size, piece.offsets.next_offset, last=True)

    def _parts(self, batch: RecordBatch, most: int) -> Iterator[RecordBatch]:
        rows = min(most, max(1, self.max_bytes * batch.num_rows // max(batch.nbytes, 1)))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _next_offset(batches: list[RecordBatch]) -> int:
    offset = batches[-1].column(0)[-1].as_py()
    assert isinstance(offset, int)
    return offset + 1
