"""Compare two streams of records that should be equal in order, at any offsets: a topic and its copy.

Null headers and no headers are equal; null and empty bytes are not. The timestamp type is not compared: in a copy it
comes from the copying producer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from formats.footer import Digest
from formats.records.compare import equal_column, first_difference
from formats.records.digest import Digester
from formats.records.schema import SCHEMA
from formats.records.statistics import edges, first_offset

COMPARED_COLUMNS = tuple(name for name in SCHEMA.names if name not in ("offset", "timestamp_type"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRead:
    """Digest and offsets of one stream."""

    digest: Digest
    first_offset: int | None
    last_offset: int | None

    @property
    def count(self) -> int:
        return self.digest.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first record that differs; an offset is None where that stream has ended."""

    first_offset: int | None
    second_offset: int | None
    column: str | None = None  # the first that differs

    @property
    def text(self) -> str:
        if self.first_offset is None:
            return f"the second goes on at offset {self.second_offset} where the first ends"
        if self.second_offset is None:
            return f"the second ends where the first goes on at offset {self.first_offset}"
        return f"offset {self.first_offset} and offset {self.second_offset} differ in {self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamComparison:
    """Result of `compare_streams`: the first `same` records of both streams are equal."""

    same: int
    first: StreamRead
    second: StreamRead
    difference: Difference | None


def compare_streams(first: Iterator[pa.RecordBatch], second: Iterator[pa.RecordBatch]) -> StreamComparison:
    """Reads both to the end, even after a difference, so that the digests are complete. Holds one batch of each."""
    ours, theirs = _RecordStream(first), _RecordStream(second)
    same, difference = 0, None
    while difference is None:
        more = ours.fill(), theirs.fill()
        if not all(more):
            if any(more):
                difference = Difference(first_offset=ours.at, second_offset=theirs.at)
            break
        count = min(ours.left, theirs.left)
        a, b = ours.take(count), theirs.take(count)
        where = first_difference(a, b, _equal)
        if where is None:
            same += count
            continue
        same += where
        one, other = a.slice(where, 1), b.slice(where, 1)
        column = next(name for name in COMPARED_COLUMNS if not equal_column(name, one, other))
        difference = Difference(first_offset=first_offset(one), second_offset=first_offset(other), column=column)
    return StreamComparison(same=same, first=ours.finish(), second=theirs.finish(), difference=difference)


class _RecordStream:
    """A stream that is read by number of records and digested meanwhile."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches, self._digester = batches, Digester()
        self._batch: pa.RecordBatch | None = None
        self._first: int | None = None
        self._last: int | None = None

    def fill(self) -> bool:
        """Load a batch if the current one is empty; False at the end."""
        while self._batch is None or not self._batch.num_rows:
            self._batch = None  # free it before the next one is read
            self._batch = next(self._batches, None)
            if self._batch is None:
                return False
            if self._batch.num_rows:
                self._digester.update(self._batch)
                first, self._last = edges(self._batch)
                self._first = first if self._first is None else self._first
        return True

    @property
    def left(self) -> int:
        """Records left in the current batch."""
        return 0 if self._batch is None else int(self._batch.num_rows)

    @property
    def at(self) -> int | None:
        """Offset of the next record in the current batch."""
        return first_offset(self._batch) if self._batch is not None and self._batch.num_rows else None

    def take(self, count: int) -> pa.RecordBatch:
        assert self._batch is not None
        taken, self._batch = self._batch.slice(0, count), self._batch.slice(count)
        return taken

    def finish(self) -> StreamRead:
        """Reads the rest of the stream."""
        while self.fill():
            self._batch = None
        return StreamRead(digest=self._digester.digest(), first_offset=self._first, last_offset=self._last)


def _equal(a: pa.RecordBatch, b: pa.RecordBatch) -> bool:
    return all(equal_column(name, a, b) for name in COMPARED_COLUMNS)
