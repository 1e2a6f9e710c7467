"""The order in which one listing reads gaps, segments and the begin of an archive, against a writer in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from formats.control.keys import gaps_prefix
from formats.segment import OffsetRange, SourcePartition, partition_prefix
from ingress.assigned_partition import ListedSegments
from ingress.segment_lister import SegmentLister
from tests.fakes.surroundings import CountedMetrics
from tests.ingress.world import REGION, World

SOURCE = SourcePartition(REGION, "t", 0)
LEVEL = partition_prefix("data", SOURCE, 0)
List = Callable[[World], ListedSegments]


@pytest.fixture
def listed() -> Iterator[List]:
    with ThreadPoolExecutor(1) as pool:

        def whole(world: World) -> ListedSegments:
            lister = SegmentLister(
                store=world.store,
                control=world.control,
                pool=pool,
                clock=world.clock,
                jitter=lambda interval: interval,
                interval=timedelta(minutes=5),
                metrics=CountedMetrics(),
            )
            return lister._ask(SOURCE, 2, {}, full=True, wants_begin=True, begun_at=0, left_behind={})

        yield whole


def after_the_first(world: World, prefixes: list[str], then: Callable[[], None]) -> None:
    """`then`, once, after the first listing of one of `prefixes`."""
    done: list[bool] = []

    def once() -> None:
        if not done:
            done.append(True)
            then()

    for prefix in prefixes:
        world.objects.after_listing[prefix] = once


def test_a_segment_that_was_stored_before_its_gap_was_recorded_is_seen_with_it(listed: List) -> None:
    """A gap is passed where no segment shows. So segments are read after the gaps."""
    world = World()
    world.put(0, 1)
    world.put(4, 5)

    def stored_then_recorded() -> None:
        world.put(2, 3)
        world.record_gap(2, 3)

    after_the_first(world, [gaps_prefix("data", SOURCE), LEVEL], stored_then_recorded)
    found = listed(world)
    ranges = {info.segment.offsets for info in found.infos}
    assert OffsetRange(2, 3) in ranges or OffsetRange(2, 3) not in found.recorded
    assert OffsetRange(4, 5) in ranges
    assert OffsetRange(2, 3) in {info.segment.offsets for info in listed(world).infos}


def test_the_begin_of_a_segment_that_is_seen_is_seen(listed: List) -> None:
    """It was recorded before the segment was stored. So it is read after the segments."""
    world = World()

    def begun() -> None:
        world.record_begin(0)
        world.put(2, 3)

    world.objects.after_listing[gaps_prefix("data", SOURCE)] = begun
    found = listed(world)
    assert ([info.segment.offsets for info in found.infos], found.begin) == ([OffsetRange(2, 3)], 0)
