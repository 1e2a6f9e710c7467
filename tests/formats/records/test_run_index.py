"""Lookups by the index of runs, against a list with one pair for each record."""

from __future__ import annotations

from hypothesis import given

from formats.records.offset_runs import NO_RUNS, offset_runs
from formats.records.run_index import IndexedRecord, RunIndex
from tests.examples import property_examples
from tests.formats.records.test_offset_runs import pairs, runs_of, steps


def test_a_run_that_was_delivered_again() -> None:
    index = RunIndex(offset_runs([(100, 0, 3), (105, 4, 2), (95, 7, 4)]))
    assert index.first_reaching(101) == IndexedRecord(0, 101, 1)
    assert index.first_reaching(103) == IndexedRecord(1, 105, 4), "a hole belongs to the next record"
    assert index.first_reaching(107) is None
    assert [index.lowest_from(IndexedRecord(*one)) for one in ((0, 101, 1), (2, 97, 9))] == [95, 97]
    assert [index.end_before(run) for run in (0, 1, 2)] == [None, 103, 107]


def test_no_runs() -> None:
    assert RunIndex(NO_RUNS).first_reaching(0) is None


@property_examples()
@given(steps)
def test_as_in_a_list_of_records(some: list[tuple[int, int, int]]) -> None:
    runs = runs_of(some)
    index, records = RunIndex(runs), pairs(runs)
    for offset in range(90):
        found = index.first_reaching(offset)
        expected = next((one for one in records if one[0] >= offset), None)
        assert (None if found is None else (found.source, found.target)) == expected
        if found is not None:
            assert index.lowest_from(found) == min(s for s, t in records if t >= found.target)
            before = [s + 1 for s, t in records if t < runs.target[found.run].as_py()]
            assert index.end_before(found.run) == (before[-1] if before else None)
