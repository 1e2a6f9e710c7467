"""A topic and its copy: the first record that differs, for any batches and offsets."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.records.align import compare_streams
from formats.records.digest import digest_of
from tests.formats.sample_records import Row, batch_of, cuts, sample_rows, split

COUNT = 30
ROWS = sample_rows(COUNT)


def read(rows: list[Row], at: list[int]) -> Iterator[pa.RecordBatch]:
    return iter(split(batch_of(rows), at) if rows else [])


def moved(rows: list[Row]) -> list[Row]:
    """Records as in a copy: other offsets, and the producer's timestamp type."""
    return [{**row, "offset": 1_000 + 3 * n, "timestamp_type": 0} for n, row in enumerate(rows)]


@settings(deadline=None)
@given(cuts, cuts, st.integers(0, COUNT))
def test_a_copy_is_equal(first: list[int], second: list[int], count: int) -> None:
    copy = moved(ROWS[:count])
    found = compare_streams(read(ROWS[:count], first), read(copy, second))
    assert (found.same, found.difference) == (count, None)
    assert (found.first.count, found.second.count) == (count, count)
    if count:
        assert (found.second.first_offset, found.second.last_offset) == (1_000, 1_000 + 3 * (count - 1))
        assert found.second.digest == digest_of([batch_of(copy)])


@settings(deadline=None)
@given(cuts, cuts, st.integers(0, COUNT - 1), st.sampled_from(["key", "value", "timestamp", "headers"]))
def test_the_first_record_that_differs_is_named(first: list[int], second: list[int], at: int, column: str) -> None:
    copy = moved(ROWS)
    other = {"key": b"another", "value": None, "timestamp": 5, "headers": [("another", None)]}[column]
    if copy[at][column] == other:
        other = b"one more"
    copy[at] = {**copy[at], column: other}
    found = compare_streams(read(ROWS, first), read(copy, second))
    assert found.difference is not None
    assert (found.same, found.difference.first_offset, found.difference.second_offset) == (at, at, 1_000 + 3 * at)
    assert found.difference.column == column
    assert found.difference.text == f"offset {at} and offset {1_000 + 3 * at} differ in {column}"
    assert (found.first.count, found.second.count) == (COUNT, COUNT), "read to the end, for the digests"


@settings(deadline=None)
@given(cuts, cuts, st.integers(0, COUNT - 1))
def test_the_one_that_ends_early_is_named(first: list[int], second: list[int], count: int) -> None:
    short = compare_streams(read(ROWS, first), read(moved(ROWS[:count]), second))
    assert short.difference is not None
    assert (short.same, short.difference.first_offset, short.difference.second_offset) == (count, count, None)
    long = compare_streams(read(ROWS[:count], first), read(moved(ROWS), second))
    assert long.difference is not None
    assert (long.same, long.difference.first_offset) == (count, None)
    assert long.difference.text == f"the second goes on at offset {1_000 + 3 * count} where the first ends"
    assert short.difference.text == f"the second ends where the first goes on at offset {count}"
