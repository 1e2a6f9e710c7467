"""Distributions of numbers over the buckets of a histogram, counted by whole columns and never by single records."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Distribution:
    """Numbers counted by bucket. Bucket i contains those that are at most its bound and above the bound before; the
    last bucket has no bound."""

    counts: tuple[int, ...]
    total: int  # sum of the numbers

    def __add__(self, other: Distribution) -> Distribution:
        """The numbers of both, which have the same buckets."""
        counts = tuple(mine + others for mine, others in zip(self.counts, other.counts, strict=True))
        return Distribution(counts, self.total + other.total)


def no_numbers(bounds: Sequence[int]) -> Distribution:
    return Distribution((0,) * (len(bounds) + 1), 0)


def distribution(numbers: pa.Int64Array, bounds: Sequence[int]) -> Distribution:
    """`numbers` has no nulls, and a sum within int64; `bounds` rise. Cost: a pass over the numbers for each bound that
    lies between the least and the greatest, and two more."""
    if not len(numbers):
        return no_numbers(bounds)
    least, greatest = extremes(numbers)

    def up_to(bound: int) -> int:
        return int(pc.less_equal(numbers, pa.scalar(bound, pa.int64())).true_count)

    return Distribution(_counts(len(numbers), least, greatest, bounds, up_to), pc.sum(numbers).as_py())


def joined(columns: Sequence[pa.Int64Array]) -> pa.Int64Array:
    """One column of all values; a copy, unless there is only one."""
    return columns[0] if len(columns) == 1 else pa.concat_arrays([pa.array([], pa.int64()), *columns])


@dataclass(frozen=True, slots=True)
class Timestamps:
    """Timestamps in ms of the records that have one, with what every distribution of their ages needs."""

    values: pa.Int64Array
    oldest: int  # of no timestamps: 0, as the next two
    newest: int
    total: int  # modulo 2^64: Arrow's sum of millions of timestamps wraps around

    @classmethod
    def of(cls, batches: Sequence[pa.RecordBatch]) -> Timestamps:
        """Without those below 0, such as Kafka's -1 for none. Of one batch, the column itself when all records have a
        timestamp; else a copy, of 8 bytes a record."""
        values = joined([batch.column("timestamp").view(pa.int64()) for batch in batches])
        if not len(values):
            return cls(values, 0, 0, 0)
        oldest, newest = extremes(values)
        if oldest < 0:
            values = values.filter(pc.greater_equal(values, pa.scalar(0, pa.int64())))
            oldest, newest = extremes(values) if len(values) else (0, 0)
        return cls(values, oldest, newest, (pc.sum(values).as_py() or 0) % 2**64)

    @classmethod
    def joined(cls, parts: Sequence[Timestamps]) -> Timestamps:
        parts = [part for part in parts if len(part.values)]
        return cls(
            joined([part.values for part in parts]),
            min((part.oldest for part in parts), default=0),
            max((part.newest for part in parts), default=0),
            sum(part.total for part in parts) % 2**64,
        )

    def ages(self, at_ms: int, bounds: Sequence[int]) -> Distribution:
        """Milliseconds from each timestamp until `at_ms`; 0 for a later one. The sum is below 2^64. Cost: a pass for
        each bound that lies between the least and the greatest age."""
        values, total, count = self.values, self.total, len(self.values)
        if not count:
            return no_numbers(bounds)
        if self.newest > at_ms:
            values = pc.min_element_wise(values, pa.scalar(at_ms, pa.int64()))
            total = pc.sum(values).as_py()

        def up_to(bound: int) -> int:
            return int(pc.greater_equal(values, pa.scalar(at_ms - bound, pa.int64())).true_count)

        least, greatest = max(at_ms - self.newest, 0), max(at_ms - self.oldest, 0)
        return Distribution(_counts(count, least, greatest, bounds, up_to), (count * at_ms - total) % 2**64)


def extremes(numbers: pa.Int64Array) -> tuple[int, int]:
    """The least and the greatest; there is one at least, and no null."""
    found = pc.min_max(numbers)
    return found["min"].as_py(), found["max"].as_py()


def _counts(
    count: int, least: int, greatest: int, bounds: Sequence[int], up_to: Callable[[int], int]
) -> tuple[int, ...]:
    """By bucket, of `count` numbers from `least` to `greatest`; `up_to` counts those that are at most a bound."""
    first = bisect_left(bounds, least)  # none is at most a bound before this one
    end = bisect_left(bounds, greatest)  # all are at most the bounds from this one on
    cumulative = [0] * (first + 1) + [up_to(bound) for bound in bounds[first:end]] + [count] * (len(bounds) + 1 - end)
    return tuple(high - low for low, high in pairwise(cumulative))
