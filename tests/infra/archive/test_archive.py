"""Archive: segments opened with its format, and listed with their recorded gaps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.coverage import SegmentSlice
from formats.errors import CorruptSegment, SegmentNotFound, StoreUnavailable
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from tests.ingress.world import World

SOURCE = SourcePartition("a", "t", 0)
ABSENT = Segment(SOURCE, 0, OffsetRange(500, 599))


def test_a_segment_is_open_inside_of_the_block_only() -> None:
    world = World()
    segment = world.put(0, 9)
    with world.archive.open(segment) as reader:
        assert reader.footer.segment == segment
        batches = reader.batches()
    with pytest.raises(ValueError, match="closed"):
        next(batches)
    assert world.archive.footer(segment).count == 10


@given(st.data())
def test_a_slice_has_its_records_and_no_others(data: st.DataObject) -> None:
    world = World()
    holes = data.draw(st.sets(st.integers(0, 29)))
    segment = world.put(0, 29, holes=sorted(holes))
    start = data.draw(st.integers(0, 29))
    end = data.draw(st.integers(start, 29))
    batches = list(world.archive.batches(SegmentSlice(segment, OffsetRange(start, end))))
    assert all(batch.num_rows for batch in batches)
    found = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert found == [offset for offset in range(start, end + 1) if offset not in holes]


def test_absent_objects_are_not_found_and_errors_are_not_absence() -> None:
    world = World()
    segment = world.put(0, 9)
    with pytest.raises(SegmentNotFound):
        world.archive.footer(ABSENT)
    with pytest.raises(SegmentNotFound):
        next(world.archive.batches(SegmentSlice(ABSENT, ABSENT.offsets)))
    world.objects.away = {"open"}
    with pytest.raises(StoreUnavailable):
        world.archive.footer(segment)
    world.objects.away = set()
    world.objects.memory.replace(format_key("data", segment), b"x")
    with pytest.raises(CorruptSegment):
        world.archive.footer(segment)


def test_a_segment_that_is_stored_before_a_gap_is_recorded_is_listed_with_it() -> None:
    world = World()
    world.put(0, 9)
    world.record_gap(10, 19)
    before = len(world.objects.asked)
    listing = world.archive.listing(SOURCE)
    assert [info.segment.offsets for info in listing.infos] == [OffsetRange(0, 9)]
    assert list(listing.recorded) == [OffsetRange(10, 19)]
    gaps, segments = [key for operation, key in world.objects.asked[before:] if operation == "list"]
    assert "gaps" in gaps
    assert "_control" not in segments


def test_nothing_stored_is_an_empty_listing() -> None:
    listing = World().archive.listing(SOURCE)
    assert (list(listing.infos), list(listing.recorded)) == ([], [])
