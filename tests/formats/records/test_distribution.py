"""Distributions computed from columns equal those counted number by number."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.records.distribution import Distribution, Timestamps, distribution, joined, no_numbers
from tests.examples import property_examples
from tests.formats.sample_records import Row, batch_of, cuts, split

PROPERTY = property_examples()
NOW_MS = 1_800_000_000_000

bounds = st.lists(st.integers(0, 50), unique=True, min_size=1, max_size=8).map(sorted)
near_numbers = st.lists(st.integers(-5, 60), max_size=30)
timestamps = st.lists(st.integers(NOW_MS - 60, NOW_MS + 5) | st.integers(0, 2**63 - 1), max_size=30)
any_timestamps = st.lists(st.sampled_from([-(2**63), -1, 0, 2**63 - 1]) | st.integers(-3, 3), max_size=20)


def one_by_one(numbers: Sequence[int], bounds: Sequence[int]) -> Distribution:
    counts = [0] * (len(bounds) + 1)
    for number in numbers:
        counts[bisect_left(bounds, number)] += 1
    return Distribution(tuple(counts), sum(numbers))


def row(timestamp_ms: int) -> Row:
    return {"offset": 0, "timestamp": timestamp_ms, "timestamp_type": 0, "key": None, "value": None, "headers": None}


def column(numbers: Sequence[int]) -> pa.Int64Array:
    return pa.array(numbers, pa.int64())


@PROPERTY
@given(numbers=near_numbers, bounds=bounds)
def test_numbers_are_counted_in_the_buckets_of_their_bounds(numbers: list[int], bounds: list[int]) -> None:
    assert distribution(column(numbers), bounds) == one_by_one(numbers, bounds)


@PROPERTY
@given(first=near_numbers, second=near_numbers, bounds=bounds)
def test_distributions_add_up(first: list[int], second: list[int], bounds: list[int]) -> None:
    together = distribution(column(first), bounds) + distribution(column(second), bounds) + no_numbers(bounds)
    assert together == distribution(joined([column(first), column(second)]), bounds)


@PROPERTY
@given(timestamps=timestamps, bounds=bounds, where=cuts)
def test_an_age_is_the_time_since_the_timestamp_and_0_for_a_future_one(
    timestamps: list[int], bounds: list[int], where: list[int]
) -> None:
    expected = one_by_one([max(NOW_MS - one, 0) for one in timestamps], bounds)
    parts = split(batch_of([row(one) for one in timestamps]), where)
    for found in (Timestamps.of(parts), Timestamps.joined([Timestamps.of([part]) for part in parts])):
        assert found.ages(NOW_MS, bounds) == expected


def test_the_sum_of_ages_is_right_where_that_of_the_timestamps_exceeds_64_bits() -> None:
    far = 2**62
    found = Timestamps.of([batch_of([row(far - 3)] * 4)])
    for one, count in ((found, 4), (Timestamps.joined([found] * 3), 12)):
        assert one.ages(far, (1, 10)) == Distribution((0, count, 0), 3 * count)


@PROPERTY
@given(timestamps=any_timestamps, where=cuts)
def test_timestamps_below_0_are_left_out(timestamps: list[int], where: list[int]) -> None:
    found = Timestamps.of(split(batch_of([row(one) for one in timestamps]), where))
    known = [one for one in timestamps if one >= 0]
    assert found.values.to_pylist() == known
    assert (found.oldest, found.newest) == (min(known, default=0), max(known, default=0))


@pytest.mark.parametrize("count", [1, 2])
def test_timestamps_are_not_copied_from_a_single_batch(count: int) -> None:
    batches = [batch_of([row(5)])] * count
    there, found = batches[0].column("timestamp").buffers()[1], Timestamps.of(batches).values.buffers()[1]
    assert (found.address == there.address) is (count == 1)


def test_no_batches_have_no_timestamps() -> None:
    for none in (Timestamps.of([]), Timestamps.joined([])):
        assert len(none.values) == 0
        assert none.ages(NOW_MS, (1, 2)) == no_numbers((1, 2)) == Distribution((0, 0, 0), 0)
