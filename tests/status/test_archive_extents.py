from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replicator.segment import OffsetRange, SourcePartition
from replicator.status.archive import Extent, extents, joined, source_places
from tests.fakes.executors import HandExecutor
from tests.ingress.world import World

ranges = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 8)).map(lambda t: OffsetRange(t[0], t[0] + t[1])), max_size=12
)


@given(ranges)
def test_runs_hold_what_the_ranges_hold(given_ranges: list[OffsetRange]) -> None:
    extent = joined(given_ranges)
    covered = {o for r in given_ranges for o in range(r.start, r.next_offset)}
    assert {o for r in extent.runs for o in range(r.start, r.next_offset)} == covered
    assert all(a.next_offset < b.start for a, b in zip(extent.runs, extent.runs[1:], strict=False))
    assert (extent.start, extent.next_offset) == ((min(covered), max(covered) + 1) if covered else (None, None))


@given(ranges, st.integers(0, 50))
def test_what_is_missing_at_an_offset(given_ranges: list[OffsetRange], at: int) -> None:
    covered = {o for r in given_ranges for o in range(r.start, r.next_offset)}
    later = [o for o in covered if o > at]
    wanted = None if at in covered or not later else OffsetRange(at, min(later) - 1)
    assert joined(given_ranges).missing_at(at) == wanted


def test_each_place_is_listed_once_whatever_its_partitions_and_levels() -> None:
    world = World()
    for partition in range(5):
        world.put(0, 4, partition=partition)
        world.put(5, 9, partition=partition)
        world.put(0, 9, partition=partition, level=1)
        world.put(20, 24, partition=partition)
    world.put(7, 8, topic="other")
    world.objects.calls.clear()
    places = source_places(world.store, ["a"], HandExecutor())
    assert places == [("a", "other"), ("a", "t")]
    world.objects.calls.clear()
    found = extents(world.store, places, HandExecutor())
    assert world.objects.calls["list"] == 2
    runs = Extent((OffsetRange(0, 9), OffsetRange(20, 24)))
    assert found == {SourcePartition("a", "t", p): runs for p in range(5)} | {
        SourcePartition("a", "other", 0): Extent((OffsetRange(7, 8),))
    }
