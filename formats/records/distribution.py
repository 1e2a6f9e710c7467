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
    least, greatest = _extremes(numbers)

    def up_to(bound: int) -> int:
        return int(pc.less_equal(numbers, pa.scalar(bound, pa.int64())).true_count)

    return Distribution(_counts(len(numbers), least, greatest, bounds, up_to), pc.sum(numbers).as_py())


def joined(columns: Sequence[pa.Int64Array]) -> pa.Int64Array:
    """One column of all values; a copy, unless there is only one."""
    return columns[0] if len(columns) == 1 else pa.concat_arrays([pa.array([], pa.int64()), *columns])


def known_timestamps(batches: Sequence[pa.RecordBatch]) -> pa.Int64Array:
    """Timestamps in ms of the records that have one: without those below 0, such as Kafka's -1 for none. Of one batch,
    the column itself when all have one; else a copy, of 8 bytes a record."""
    timestamps = joined([batch.column("timestamp").view(pa.int64()) for batch in batches])
    if not len(timestamps) or pc.min(timestamps).as_py() >= 0:
        return timestamps
    return timestamps.filter(pc.greater_equal(timestamps, pa.scalar(0, pa.int64())))


def ages(timestamps: pa.Int64Array, at_ms: int, bounds: Sequence[int]) -> Distribution:
    """Milliseconds from each timestamp, none of which is below 0, until `at_ms`; 0 for a later one. Cost as of
    `distribution`."""
    if not len(timestamps):
        return no_numbers(bounds)
    oldest, newest = _extremes(timestamps)
    if newest > at_ms:
        timestamps = pc.min_element_wise(timestamps, pa.scalar(at_ms, pa.int64()))

    def up_to(bound: int) -> int:
        return int(pc.greater_equal(timestamps, pa.scalar(at_ms - bound, pa.int64())).true_count)

    count = len(timestamps)
    total = (count * at_ms - pc.sum(timestamps).as_py()) % 2**64  # Arrow's sum of millions of timestamps wraps around
    return Distribution(_counts(count, max(at_ms - newest, 0), max(at_ms - oldest, 0), bounds, up_to), total)


def _extremes(numbers: pa.Int64Array) -> tuple[int, int]:
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
