"""Runs of offsets, against a list with one pair for each record."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.records.offset_runs import NO_RUNS, OffsetRuns, contiguous, offset_runs, scattered
from tests.examples import property_examples

Pair = tuple[int, int]  # offsets of a record at the source and at the target

steps = st.lists(st.tuples(st.integers(-6, 4), st.integers(0, 3), st.integers(1, 4)), max_size=12)
"""Of each run: how far it begins after the end of the one before, at the source (perhaps before it) and at the target;
and its records."""


def runs_of(some: Sequence[tuple[int, int, int]], target: int = 0) -> OffsetRuns:
    rows, source = [], 10
    for source_gap, target_gap, count in some:
        source, target = max(source + source_gap, 0), target + target_gap
        rows.append((source, target, count))
        source, target = source + count, target + count
    return offset_runs(rows)


def pairs(runs: OffsetRuns) -> list[Pair]:
    return [(source + n, target + n) for source, target, count in runs.rows() for n in range(count)]


def by_hand(records: Sequence[Pair]) -> OffsetRuns:
    """The fewest runs that have these records."""
    rows: list[tuple[int, int, int]] = []
    for source, target in records:
        if rows and (rows[-1][0] + rows[-1][2], rows[-1][1] + rows[-1][2]) == (source, target):
            rows[-1] = (*rows[-1][:2], rows[-1][2] + 1)
        else:
            rows.append((source, target, 1))
    return offset_runs(rows)


@property_examples()
@given(steps.filter(bool))
def test_the_ends_are_those_of_the_records(some: list[tuple[int, int, int]]) -> None:
    runs = runs_of(some)
    records = pairs(runs)
    assert (len(runs), runs.records) == (len(some), len(records))
    assert (runs.target_start, runs.target_end) == (records[0][1], records[-1][1] + 1)
    assert (runs.lowest_source, runs.source_end) == (min(s for s, _ in records), max(s for s, _ in records) + 1)


def test_without_a_run() -> None:
    assert (len(NO_RUNS), NO_RUNS.records, NO_RUNS.lowest_source, NO_RUNS.source_end) == (0, 0, 0, 0)
    assert (NO_RUNS.source_end_before(0), NO_RUNS.within(0, 9)) == (None, NO_RUNS)
    assert offset_runs([]) == NO_RUNS
    with pytest.raises(IndexError):
        NO_RUNS.target_start  # noqa: B018 -- the property raises
    assert NO_RUNS != []


@property_examples()
@given(steps)
def test_where_the_source_ends_before_a_record_of_the_target(some: list[tuple[int, int, int]]) -> None:
    runs = runs_of(some)
    records = pairs(runs)
    for offset in range(90):
        assert runs.source_end_before(offset) == next((s + 1 for s, t in reversed(records) if t < offset), None)


@property_examples()
@given(steps, st.integers(0, 50), st.integers(0, 50))
def test_within_has_the_records_of_these_target_offsets(
    some: list[tuple[int, int, int]], start: int, length: int
) -> None:
    runs = runs_of(some)
    assert pairs(runs.within(start, start + length)) == [one for one in pairs(runs) if start <= one[1] < start + length]


@property_examples()
@given(steps, st.integers(0, 12), st.integers(0, 12))
def test_a_slice_is_as_good_as_runs_of_their_own(some: list[tuple[int, int, int]], first: int, length: int) -> None:
    runs = runs_of(some)
    part = runs.slice(first, length)
    assert part == offset_runs(runs.rows()[first : first + length])
    assert part.within(5, 20) == offset_runs(part.rows()).within(5, 20)


class TestExtended:
    @property_examples()
    @given(steps, steps)
    def test_has_the_records_of_both(self, some: list[tuple[int, int, int]], more: list[tuple[int, int, int]]) -> None:
        runs = runs_of(some)
        later = runs_of(more, target=runs.target_end if len(runs) else 0)
        found = runs.extended(later)
        assert pairs(found) == pairs(runs) + pairs(later)
        assert len(runs) + len(later) - len(found) in (0, 1)

    def test_joins_where_both_ends_touch(self) -> None:
        runs = offset_runs([(0, 0, 2), (5, 2, 3)])
        assert runs.extended(offset_runs([(8, 5, 1), (9, 7, 1)])).rows() == [(0, 0, 2), (5, 2, 4), (9, 7, 1)]
        assert runs.extended(offset_runs([(9, 5, 1)])).rows() == [(0, 0, 2), (5, 2, 3), (9, 5, 1)]
        assert runs.extended(offset_runs([(8, 6, 1)])).rows() == [(0, 0, 2), (5, 2, 3), (8, 6, 1)]

    def test_with_nothing_is_the_same(self) -> None:
        runs = offset_runs([(0, 0, 2)])
        assert runs.extended(NO_RUNS) is runs
        assert NO_RUNS.extended(runs) is runs

    def test_runs_that_do_not_follow_are_refused(self) -> None:
        with pytest.raises(ValueError, match="runs from 1 do not follow runs up to 2"):
            offset_runs([(0, 0, 2)]).extended(offset_runs([(2, 1, 1)]))


ascending = st.lists(st.integers(1, 3), min_size=1, max_size=20).map(
    lambda gaps: [sum(gaps[: n + 1]) for n in range(len(gaps))]
)


def cut(offsets: Sequence[int], at: Sequence[int]) -> list[pa.Array]:
    """In several arrays, some of them empty."""
    ends = sorted(min(one, len(offsets)) for one in at)
    return [
        pa.array(offsets[start:end], pa.int64()) for start, end in zip([0, *ends], [*ends, len(offsets)], strict=True)
    ]


@property_examples()
@given(ascending, st.integers(0, 9), st.lists(st.integers(0, 20), max_size=3))
def test_contiguous_records_are_the_fewest_runs(sources: list[int], first: int, at: list[int]) -> None:
    records = [(source, first + n) for n, source in enumerate(sources)]
    assert contiguous(cut(sources, at), first) == by_hand(records)


@property_examples()
@given(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 2)), min_size=1), st.lists(st.integers(0, 20), max_size=3))
def test_scattered_records_are_the_fewest_runs(gaps: list[Pair], at: list[int]) -> None:
    records = [(sum(s for s, _ in gaps[: n + 1]), sum(t for _, t in gaps[: n + 1])) for n in range(len(gaps))]
    sources, targets = zip(*records, strict=True)
    assert scattered(cut(sources, at), pa.array(targets, pa.int64())) == by_hand(records)
