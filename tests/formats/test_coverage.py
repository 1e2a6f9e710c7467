"""Which segments to read: every stored offset once, in order, from as few objects as possible."""

from __future__ import annotations

from itertools import combinations, takewhile

from hypothesis import given, settings
from hypothesis import strategies as st

from formats.coverage import (
    Gap,
    SegmentSlice,
    adjoining,
    covered_until,
    explained_until,
    joined,
    next_step,
    parts,
    remaining,
    steps,
)
from formats.segment import OffsetRange, Segment, SourcePartition
from tests.examples import property_examples

SOURCE = SourcePartition("r", "t", 0)
SMALL = st.tuples(st.integers(0, 40), st.integers(0, 8), st.integers(0, 2)).map(
    lambda t: Segment(SOURCE, t[2], OffsetRange(t[0], t[0] + t[1]))
)


def offsets_of(segments: list[Segment], start: int) -> set[int]:
    return {o for s in segments for o in range(s.offsets.start, s.offsets.end + 1) if o >= start}


@property_examples()
@given(st.lists(SMALL, max_size=12), st.integers(0, 50))
def test_every_stored_offset_once_and_in_order(segments: list[Segment], start: int) -> None:
    read: list[int] = []
    missing: list[int] = []
    at = start
    for step in steps(segments, start):
        assert step.offsets.start == at
        at = step.offsets.next_offset
        (read if isinstance(step, SegmentSlice) else missing).extend(range(step.offsets.start, step.offsets.end + 1))
        if isinstance(step, SegmentSlice):
            assert step.offsets.start in step.segment.offsets
    stored = offsets_of(segments, start)
    assert read == sorted(stored)
    assert not set(missing) & stored


@property_examples()
@given(st.lists(SMALL, max_size=12), st.integers(0, 50), st.integers(0, 20))
def test_parts_are_every_stored_offset_within_once_and_in_order(segments: list[Segment], start: int, more: int) -> None:
    found = list(parts(segments, OffsetRange(start, start + more)))
    read = [o for s in found if isinstance(s, SegmentSlice) for o in range(s.offsets.start, s.offsets.next_offset)]
    assert read == sorted(o for o in offsets_of(segments, start) if o <= start + more)
    assert all(s.offsets.start in s.segment.offsets for s in found if isinstance(s, SegmentSlice))
    gaps = {o for s in found if isinstance(s, Gap) for o in range(s.offsets.start, s.offsets.next_offset)}
    first, last = min(offsets_of(segments, 0), default=0), max(offsets_of(segments, 0), default=0)
    assert gaps == {o for o in range(start, start + more + 1) if first < o < last} - set(read)


@property_examples()
@given(st.lists(SMALL, max_size=12, unique=True), st.integers(0, 50))
def test_steps_is_next_step_repeated(segments: list[Segment], start: int) -> None:
    for step in steps(segments, start):
        assert next_step(segments, start) == step
        start = step.offsets.next_offset
    assert next_step(segments, start) is None


@property_examples()
@given(st.lists(SMALL, max_size=7, unique=True), st.integers(0, 50))
def test_reads_the_fewest_objects(segments: list[Segment], start: int) -> None:
    reads = [s for s in steps(segments, start) if isinstance(s, SegmentSlice)]
    stored = offsets_of(segments, start)
    fewest = next(
        n
        for n in range(len(segments) + 1)
        for some in combinations(segments, n)
        if offsets_of(list(some), start) == stored
    )
    assert len(reads) == fewest


@given(st.lists(SMALL, max_size=12), st.integers(0, 50))
def test_covered_until_is_the_first_offset_not_stored(segments: list[Segment], start: int) -> None:
    stored, at = offsets_of(segments, start), start
    while at in stored:
        at += 1
    assert covered_until(segments, start) == at


@property_examples()
@given(st.lists(SMALL, max_size=12), st.integers(0, 50), st.integers(0, 60))
def test_remaining_slices_are_those_after_the_offset(segments: list[Segment], start: int, next_offset: int) -> None:
    slices = list(takewhile(lambda step: isinstance(step, SegmentSlice), steps(segments, start)))
    left = remaining([p for p in slices if isinstance(p, SegmentSlice)], next_offset)
    wanted = [o for p in slices for o in range(p.offsets.start, p.offsets.next_offset) if o >= next_offset]
    assert [o for p in left for o in range(p.offsets.start, p.offsets.next_offset)] == wanted


def test_merged_copy_is_preferred_to_its_inputs() -> None:
    slices = [Segment(SOURCE, 0, OffsetRange(0, 4)), Segment(SOURCE, 0, OffsetRange(5, 9))]
    merged = Segment(SOURCE, 1, OffsetRange(0, 9))
    assert list(steps([*slices, merged], 0)) == [SegmentSlice.rest(merged, 0)]
    assert next_step([Segment(SOURCE, 0, OffsetRange(5, 9))], 0) == Gap(OffsetRange(0, 4))


@property_examples()
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=8), st.integers(0, 40))
def test_recorded_gaps_explain_an_unbroken_run(ranges: list[tuple[int, int]], start: int) -> None:
    recorded = {o for first, more in ranges for o in range(first, first + more + 1)}
    until = explained_until([OffsetRange(first, first + more) for first, more in ranges], start)
    assert set(range(start, until)) <= recorded
    assert until not in recorded


RANGES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 8)).map(lambda t: OffsetRange(t[0], t[0] + t[1])), max_size=12
)


@settings(deadline=None)
@given(RANGES)
def test_runs_hold_what_the_ranges_hold(given_ranges: list[OffsetRange]) -> None:
    extent = joined(given_ranges)
    covered = {o for r in given_ranges for o in range(r.start, r.next_offset)}
    assert {o for r in extent.runs for o in range(r.start, r.next_offset)} == covered
    assert all(a.next_offset < b.start for a, b in zip(extent.runs, extent.runs[1:], strict=False))
    assert (extent.start, extent.next_offset) == ((min(covered), max(covered) + 1) if covered else (None, None))


@settings(deadline=None)
@given(RANGES, st.integers(0, 50))
def test_missing_offsets_at_an_offset(given_ranges: list[OffsetRange], at: int) -> None:
    covered = {o for r in given_ranges for o in range(r.start, r.next_offset)}
    later = [o for o in covered if o > at]
    wanted = None if at in covered or not later else OffsetRange(at, min(later) - 1)
    assert joined(given_ranges).missing_at(at) == wanted


@given(st.lists(SMALL.map(lambda s: s.offsets), max_size=12))
def test_groups_of_adjoining_ranges_are_the_runs_of_all(ranges: list[OffsetRange]) -> None:
    groups = adjoining(ranges)
    assert [one for group in groups for one in group] == sorted(ranges)
    assert tuple(run for group in groups for run in joined(group).runs) == joined(ranges).runs
