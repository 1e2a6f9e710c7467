from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.errors import StoreUnavailable
from formats.segment import SourcePartition
from infra.archive.offset_for_time import TimeFinder
from infra.archive.segments import SegmentStore
from infra.storage.memory_and_folder import MemoryObjectStore
from tests.fakes.archive import archive_of
from tests.fakes.executors import HandExecutor
from tests.ingress.world import FORMAT, STAMP, World

SOURCE = SourcePartition("a", "t", 0)
GOLDEN = Path(__file__).parent.parent.parent / "golden" / "ancestor" / "data"


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def finder(world: World) -> TimeFinder:
    return TimeFinder(archive_of(world.store, FORMAT), HandExecutor())


def test_no_archive() -> None:
    assert finder(World()).next_offset(SOURCE, at(STAMP)) is None


def test_by_the_records_of_the_segment_that_may_hold_it() -> None:
    world = World()
    world.put(0, 9)  # each stamped STAMP + its offset
    world.put(10, 19, holes=(12, 13))
    world.put(20, 20, holes=(20,))
    found = finder(world)
    world.objects.calls.clear()
    assert found.next_offset(SOURCE, at(STAMP + 12)) == 14
    assert world.objects.calls["open"] == 4, "three footers, and one segment's records"
    assert found.next_offset(SOURCE, at(STAMP - 1)) == 0
    assert found.next_offset(SOURCE, at(STAMP + 9)) == 9
    assert found.next_offset(SOURCE, at(STAMP + 20)) == 21, "the archive's end"
    assert found.next_offset(SOURCE, at(STAMP + 9) + timedelta(microseconds=1)) == 10


def test_records_before_an_overlap_are_not_searched_twice() -> None:
    world = World()
    world.put(0, 9)
    world.put(5, 14, stamp=STAMP + 100)  # its records below 10 are read from the other one
    assert finder(world).next_offset(SOURCE, at(STAMP + 50)) == 10


def test_an_unreadable_segment_raises() -> None:
    world = World()
    world.put(0, 9)
    world.objects.away.add("open")
    with pytest.raises(StoreUnavailable):
        finder(world).next_offset(SOURCE, at(STAMP))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(0, 30), max_size=4), min_size=1, max_size=5), st.integers(0, 31))
def test_no_record_at_or_after_the_time_lies_before_the_result(segments: list[list[int]], wanted: int) -> None:
    """Stamps in any order, one segment for each list; a list's records are apart, so that there are holes."""
    world, start, records = World(), 0, {}
    for stamps in segments:
        for n, stamp in enumerate(stamps):
            world.put(start + n, start + n, stamp=STAMP + stamp, notify=False)
            records[start + n] = stamp
        world.put(start + len(stamps), start + len(stamps), holes=(start + len(stamps),), notify=False)
        start += len(stamps) + 1
    found = finder(world).next_offset(SOURCE, at(STAMP + wanted))
    assert found == min((o for o, stamp in records.items() if stamp >= wanted), default=start)


def test_in_segments_of_the_ancestor_without_timestamp_bounds() -> None:
    objects = MemoryObjectStore()
    for path in sorted(p for p in GOLDEN.rglob("*") if p.is_file() and p.parent.name == "0"):
        with path.open("rb") as file:
            objects.put_new(f"data/{path.relative_to(GOLDEN)}", file, path.stat().st_size)
    source = SourcePartition("src", "kr.samples", 0)
    found = TimeFinder(archive_of(SegmentStore(objects, "data"), FORMAT), HandExecutor())
    assert found.next_offset(source, datetime(1800, 1, 1, tzinfo=UTC)) == 0
    end = found.next_offset(source, datetime(9000, 1, 1, tzinfo=UTC))
    assert end == 120
