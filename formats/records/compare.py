"""Compare two copies of the same records: needed when a key is taken, and where segments overlap.

Two copies agree when the records at every offset that both hold are equal in every column. Offsets that only one holds
are legal when the source was compacted or truncated in between, which the caller knows. Null headers and no headers are
equal, as in the digest; null and empty bytes are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from formats.records.digest import counts
from formats.records.schema import SCHEMA
from formats.records.statistics import after, first_offset, last_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How far two copies agree. Reading stops at a difference: the counts are of the records before it."""

    both: int  # equal records in both
    only_first: int
    only_second: int
    offset: int | None = None  # of the first record that is in both, but differs
    column: str | None = None  # the first that differs, in schema order
    unmatched: int | None = field(default=None, compare=False)  # offset of the first record that only one copy holds

    @property
    def equal(self) -> bool:
        """Whether both copies hold the same records."""
        return self.offset is None and not self.only_first and not self.only_second

    @property
    def differs_in_presence_only(self) -> bool:
        """Whether the common records are equal, but one copy holds more."""
        return self.offset is None and not self.equal

    @property
    def detail(self) -> str:
        """The difference, for error messages."""
        if self.offset is not None:
            return f"column {self.column} differs"
        return (
            f"{self.both} records in both, {self.only_first} in the first only, {self.only_second} in the second only"
        )


def compare(first: Iterator[pa.RecordBatch], second: Iterator[pa.RecordBatch]) -> Comparison:
    """Reads both to the end, or to the first difference. Holds one batch of each."""
    ours, theirs = _Stream(first), _Stream(second)
    both = only_first = only_second = 0
    unmatched: int | None = None
    while ours.fill() and theirs.fill():
        bound = min(ours.last_offset, theirs.last_offset) + 1
        a, b = ours.take(bound), theirs.take(bound)
        shared_a, shared_b = _shared(a, b), _shared(b, a)
        if unmatched is None:
            unmatched = min(
                (o for o in (_first_unmatched(a, b), _first_unmatched(b, a)) if o is not None), default=None
            )
        difference = _difference(shared_a, shared_b)
        if difference is not None:
            offset, column = difference
            return Comparison(
                both=both,
                only_first=only_first,
                only_second=only_second,
                offset=offset,
                column=column,
                unmatched=unmatched if unmatched is not None and unmatched < offset else None,
            )
        both += shared_a.num_rows
        only_first += a.num_rows - shared_a.num_rows
        only_second += b.num_rows - shared_b.num_rows
    if unmatched is None:
        unmatched = next((stream.first_offset for stream in (ours, theirs) if stream.fill()), None)
    return Comparison(
        both=both,
        only_first=only_first + ours.count(),
        only_second=only_second + theirs.count(),
        unmatched=unmatched,
    )


class _Stream:
    """A stream of batches that is read by offset."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch | None = None

    def fill(self) -> bool:
        """Load a batch if the current one is empty; False at the end."""
        while self._batch is None or not self._batch.num_rows:
            self._batch = None  # free it before the next one is read
            self._batch = next(self._batches, None)
            if self._batch is None:
                return False
        return True

    @property
    def first_offset(self) -> int:
        assert self._batch is not None
        return first_offset(self._batch)

    @property
    def last_offset(self) -> int:
        assert self._batch is not None
        return last_offset(self._batch)

    def take(self, next_offset: int) -> pa.RecordBatch:
        """Take the records of the current batch below `next_offset`."""
        assert self._batch is not None
        rest = after(self._batch, next_offset)
        taken = self._batch.slice(0, self._batch.num_rows - rest.num_rows)
        self._batch = rest
        return taken

    def count(self) -> int:
        """Count the remaining records by reading them."""
        count = 0
        while self.fill():
            assert self._batch is not None
            count += self._batch.num_rows
            self._batch = None
        return count


def _shared(batch: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    """Records of `batch` whose offsets are also in `other`."""
    offsets, others = batch.column("offset"), other.column("offset")
    if offsets.equals(others):
        return batch
    return batch.filter(pc.is_in(offsets, value_set=others))


def _first_unmatched(batch: pa.RecordBatch, other: pa.RecordBatch) -> int | None:
    """The first offset of `batch` that is not in `other`."""
    offsets, others = batch.column("offset"), other.column("offset")
    if offsets.equals(others):
        return None
    index = pc.index(pc.is_in(offsets, value_set=others), False).as_py()
    return None if index < 0 else offsets[index].as_py()


def _difference(a: pa.RecordBatch, b: pa.RecordBatch) -> tuple[int, str] | None:
    """Offset and column of the first difference between batches with the same offsets."""
    at = first_difference(a, b, _equal)
    if at is None:
        return None
    columns = (name for name in SCHEMA.names if not equal_column(name, a.slice(at, 1), b.slice(at, 1)))
    return a.column("offset")[at].as_py(), next(columns)


def first_difference(
    a: pa.RecordBatch, b: pa.RecordBatch, equal: Callable[[pa.RecordBatch, pa.RecordBatch], bool]
) -> int | None:
    """Index of the first record that differs between batches of the same length. O(n), by bisection."""
    if equal(a, b):
        return None
    low, high = 0, a.num_rows  # equal before `low`; a difference before `high`
    while high - low > 1:
        middle = (low + high) // 2
        if equal(a.slice(low, middle - low), b.slice(low, middle - low)):
            low = middle
        else:
            high = middle
    return low


def _equal(a: pa.RecordBatch, b: pa.RecordBatch) -> bool:
    return all(equal_column(name, a, b) for name in SCHEMA.names)


def equal_column(name: str, a: pa.RecordBatch, b: pa.RecordBatch) -> bool:
    """Whether the column is equal in both batches, which have the same length."""
    left, right = a.column(name), b.column(name)
    if name != "headers" or left.equals(right):
        return bool(left.equals(right))
    return bool(counts(left).equals(counts(right)) and left.flatten().equals(right.flatten()))
