"""Cutting a slice into runs: by records, by bytes, from the middle, and a range without records."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.coverage import SegmentSlice
from formats.errors import CorruptSegment, SegmentNotFound, StoreUnavailable
from formats.records.transform import Returns, Transform, TransformStep
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.run_reader import SegmentRun, SegmentRunReader
from tests.ingress.world import World


def runs(
    world: World, segment: Segment, *, from_offset: int = 0, records: int = 1000, size: int = 1 << 20
) -> list[SegmentRun]:
    reader = SegmentRunReader(world.archive, records, size)
    return list(reader.runs([SegmentSlice.rest(segment, max(from_offset, segment.offsets.start))]))


def runs_of(world: World, *segments: Segment, records: int = 1000) -> Iterator[SegmentRun]:
    slices = [SegmentSlice.rest(segment, segment.offsets.start) for segment in segments]
    return SegmentRunReader(world.archive, records, 1 << 20).runs(slices)


def keeping(wanted: set[int]) -> Transform:
    values = pa.array(sorted(wanted), pa.int64())
    kept = TransformStep("user:f", lambda batch, _: pc.is_in(batch.column("offset"), value_set=values), Returns.EITHER)
    return Transform((kept,))


def offsets(run: SegmentRun) -> list[int]:
    return [o for batch in run.batches for o in batch.column(0).to_pylist()]


def test_small_slice_is_one_run() -> None:
    world = World()
    [run] = runs(world, world.put(3, 9, holes=(3, 9)))
    assert offsets(run) == [4, 5, 6, 7, 8]
    assert (run.count, run.next_offset, run.last) == (5, 10, True)


def test_cut_by_records() -> None:
    world = World()
    found = runs(world, world.put(0, 9), records=4)
    assert [offsets(run) for run in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [(run.next_offset, run.last) for run in found] == [(4, False), (8, False), (10, True)]


@pytest.mark.parametrize("records", [1, 2, 3, 4, 5, 6, 10, 20])
@pytest.mark.parametrize("until", [19, 17, 10, 9, 4])
@pytest.mark.parametrize("kept", [set[int](), {0}, {19}, {9, 10}])
def test_only_the_last_run_ends_at_the_end_of_the_slices(records: int, until: int, kept: set[int]) -> None:
    """Another one that did would be taken for the end of the delivery while the last one is still to come."""
    world = World()
    slices = [SegmentSlice.rest(one, one.offsets.start) for one in (world.put(0, 9), world.put(10, 19))]
    reader = SegmentRunReader(world.archive, records, 1 << 20, last_offset=lambda _: until)
    found = list(reader.runs(slices, transform=keeping(kept)))
    assert [run.last for run in found] == [*[False] * (len(found) - 1), True]
    positions = [run.next_offset for run in found]
    assert positions == sorted(set(positions)), "each moves the position"
    assert positions[-1] == until + 1
    assert sum(run.dropped + run.count for run in found) == until + 1


def test_position_between_two_runs_is_after_the_last_record_not_after_the_hole() -> None:
    world = World()
    found = runs(world, world.put(0, 9, holes=(3, 4, 5)), records=3)
    assert [run.next_offset for run in found] == [3, 9, 10]


def test_cut_by_bytes() -> None:
    world = World()
    found = runs(world, world.put(0, 99, value=bytes(1000)), size=10_000)
    assert [o for run in found for o in offsets(run)] == list(range(100))
    assert all(1 <= run.count <= 10 and run.size_bytes <= 10_000 for run in found)
    assert len(found) < 20


def test_record_larger_than_a_run_is_a_run() -> None:
    world = World()
    found = runs(world, world.put(0, 2, value=bytes(5000)), size=100)
    assert [offsets(run) for run in found] == [[0], [1], [2]]


def test_to_the_middle() -> None:
    world = World()
    part = SegmentSlice(world.put(0, 9), OffsetRange(2, 5))
    [run] = SegmentRunReader(world.archive, 1000, 1 << 20).runs([part])
    assert (offsets(run), run.next_offset, run.last) == ([2, 3, 4, 5], 6, True)


@pytest.mark.parametrize(("from_offset", "wanted"), [(3, [3, 4]), (4, [4]), (2, [3, 4])])
def test_from_the_middle(from_offset: int, wanted: list[int]) -> None:
    world = World()
    [run] = runs(world, world.put(0, 4, holes=(2,)), from_offset=from_offset)
    assert offsets(run) == wanted


@pytest.mark.parametrize("from_offset", [0, 5])
def test_range_without_records_only_moves_the_position(from_offset: int) -> None:
    world = World()
    [run] = runs(world, world.put(0, 9, holes=range(10)), from_offset=from_offset)
    assert (run.batches, run.count, run.next_offset, run.last) == ((), 0, 10, True)


def test_rest_of_a_slice_may_be_a_hole() -> None:
    world = World()
    [run] = runs(world, world.put(0, 9, holes=range(5, 10)), from_offset=5)
    assert (run.count, run.next_offset, run.last) == (0, 10, True)


def test_adjoining_slices_share_runs() -> None:
    world = World()
    found = list(runs_of(world, world.put(0, 3), world.put(4, 5), world.put(6, 9), records=6))
    assert [(offsets(run), run.next_offset, run.last) for run in found] == [
        ([0, 1, 2, 3, 4, 5], 6, False),
        ([6, 7, 8, 9], 10, True),
    ]


def test_records_do_not_wait_until_many_small_segments_are_read() -> None:
    world = World()
    segments = [world.put(start, start + 9) for start in range(0, 100, 10)]
    reader = SegmentRunReader(
        world.archive,
        1000,
        1 << 20,
        # a store that takes its time
        opened=lambda _: world.clock.advance(0.3),
        max_age=timedelta(seconds=1),
        clock=world.clock,
    )
    found = list(reader.runs([SegmentSlice.rest(one, one.offsets.start) for one in segments]))
    assert [run.next_offset for run in found] == [40, 80, 100]
    assert [o for run in found for o in offsets(run)] == list(range(100))


def test_a_run_is_as_old_as_its_first_segment_not_as_its_reader() -> None:
    world = World()
    segments = [world.put(start, start + 9) for start in range(0, 60, 10)]
    reader = SegmentRunReader(world.archive, 20, 1 << 20, max_age=timedelta(seconds=1), clock=world.clock)
    found = []
    for run in reader.runs([SegmentSlice.rest(one, one.offsets.start) for one in segments]):
        found.append(run.count)
        world.clock.advance(60)  # the target takes its time
    assert found == [20, 20, 20]


def test_a_segment_is_opened_while_others_decode_but_not_decoded() -> None:
    world = World()
    opened, decoding = threading.Event(), threading.Semaphore(1)
    reader = SegmentRunReader(world.archive, 1000, 1 << 20, opened=lambda _: opened.set(), decoding=decoding)
    runs = reader.runs([SegmentSlice.rest(world.put(0, 9), 0)])
    with ThreadPoolExecutor(1) as pool:
        with decoding:
            found = pool.submit(list, runs)
            assert opened.wait(10)
            assert not found.done()
        assert [offsets(run) for run in found.result(10)] == [list(range(10))]
    with pytest.raises(AssertionError, match="decoded"):
        list(replace(reader, decoding=_Refusing()).runs([SegmentSlice.rest(world.put(10, 19), 10)]))


class _Refusing(AbstractContextManager[None]):
    def __exit__(self, *_: object) -> None:
        raise AssertionError("decoded")


def test_holes_at_the_end_of_a_slice_are_delivered_with_it() -> None:
    world = World()
    slices = world.put(0, 9, holes=range(3, 10)), world.put(10, 19, holes=range(10, 20)), world.put(20, 23)
    found = list(runs_of(world, *slices, records=4))
    assert [(offsets(run), run.next_offset) for run in found] == [([0, 1, 2], 20), ([20, 21, 22, 23], 24)]


def test_records_read_before_an_error_are_yielded_first() -> None:
    world = World()
    slices = world.put(0, 3), world.put(4, 9, holes=range(4, 10)), world.put(10, 12)
    world.damage(slices[2])
    found = runs_of(world, *slices)
    first = next(found)
    assert (offsets(first), first.next_offset, first.last) == ([0, 1, 2, 3], 10, False)
    with pytest.raises(CorruptSegment):
        next(found)


def test_a_slice_without_records_before_an_error_is_delivered() -> None:
    world = World()
    slices = world.put(0, 9, holes=range(10)), world.put(10, 12)
    world.remove(slices[1])
    found = runs_of(world, *slices)
    assert next(found) == SegmentRun((), 0, 0, 10, last=False)
    with pytest.raises(SegmentNotFound):
        next(found)


def test_errors_are_raised() -> None:
    world = World()
    absent = Segment(SourcePartition("a", "t", 0), 0, OffsetRange(0, 9))
    with pytest.raises(SegmentNotFound):
        runs(world, absent)
    segment = world.put(0, 9)
    world.objects.away = {"open"}
    with pytest.raises(StoreUnavailable):
        runs(world, segment)
    world.objects.away = set()
    world.damage(segment)
    with pytest.raises(CorruptSegment):
        runs(world, segment)


@settings(max_examples=100, deadline=None)
@given(
    holes=st.sets(st.integers(0, 29)),
    ends=st.sets(st.integers(0, 28)),
    records=st.integers(1, 40),
    damaged=st.none() | st.integers(0, 29),
)
def test_runs_of_adjoining_slices_are_their_records_in_order(
    holes: set[int], ends: set[int], records: int, damaged: int | None
) -> None:
    world, segments, start = World(), [], 0
    for end in [*sorted(ends), 29]:
        segments.append(world.put(start, end, holes=[h for h in holes if start <= h <= end]))
        start = end + 1
    until = 30
    for segment in segments:
        if damaged is not None and damaged in segment.offsets:
            world.damage(segment)
            until = segment.offsets.start
    found: list[SegmentRun] = []
    try:
        found.extend(runs_of(world, *segments, records=records))
    except CorruptSegment:
        assert until < 30
    given = [o for run in found for o in offsets(run)]
    # a list that is extended by a generator that raises keeps what came before
    assert given == [o for o in range(until) if o not in holes]
    assert all(run.count == len(offsets(run)) <= records for run in found)
    assert (found[-1].next_offset if found else 0) == until
    assert [run.next_offset for run in found] == sorted({run.next_offset for run in found})


@settings(max_examples=100, deadline=None)
@given(
    holes=st.sets(st.integers(0, 29)),
    from_offset=st.integers(0, 29),
    records=st.integers(1, 40),
    size=st.integers(1, 3000),
)
def test_runs_are_the_slice_in_order_and_positions_rise(
    holes: set[int], from_offset: int, records: int, size: int
) -> None:
    world = World()
    found = runs(world, world.put(0, 29, holes=holes), from_offset=from_offset, records=records, size=size)
    assert [o for run in found for o in offsets(run)] == [o for o in range(from_offset, 30) if o not in holes]
    assert all(run.count == len(offsets(run)) <= records for run in found)
    assert [run.last for run in found] == [False] * (len(found) - 1) + [True]
    assert found[-1].next_offset == 30
    for run in found[:-1]:
        assert run.next_offset == offsets(run)[-1] + 1


@pytest.mark.parametrize("last", range(-1, 31))
def test_nothing_after_the_last_offset_is_read(last: int) -> None:
    """A merged segment reaches further than what was planned: the position ends where the records do, so that a
    later reader misses none."""
    world = World()
    slices = [SegmentSlice.rest(world.put(0, 9, holes=(4, 9)), 0), SegmentSlice.rest(world.put(10, 29), 10)]
    reader = SegmentRunReader(world.archive, 3, 1 << 20, last_offset=lambda _: last)
    found = list(reader.runs(slices))
    assert [o for run in found for o in offsets(run)] == [o for o in range(min(last, 29) + 1) if o not in (4, 9)]
    assert (found[-1].next_offset, found[-1].last) == (min(last, 29) + 1, True)
    assert all(run.next_offset <= last + 1 for run in found)
