"""Lookups in the archive for partitions that are about to be read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from egress.start.archive_lookup import ArchivedSegments, ArchiveLookup
from formats.control.fork import LogFork
from formats.segment import OffsetRange, SourcePartition
from infra.archive.archive import Archive
from infra.contracts.cluster import TopicPartition
from tests.egress.two_partitions import Make
from tests.egress.world import FORMAT, World, rule, source

P = TopicPartition("t", 0)
FORK = LogFork(
    source=SourcePartition("a", "t", 0),
    next_offset=5,
    leader_epoch=0,
    end_offset=3,
    found_at=datetime(2026, 1, 1, tzinfo=UTC),
)


@pytest.fixture
def world(make: Make) -> World:
    return make(rule("t", max_segment_messages=5), partitions=1)


@pytest.mark.parametrize(
    "one",
    [
        ArchivedSegments(has_begin=True),
        ArchivedSegments(extent=[OffsetRange(0, 9)]),
        ArchivedSegments(gaps=[OffsetRange(0, 9)]),
        ArchivedSegments(forks=[FORK]),
    ],
    ids=["begin", "segments", "gap", "fork"],
)
def test_anything_recorded_makes_a_partition_known(one: ArchivedSegments) -> None:
    assert ArchivedSegments().is_unknown
    assert not one.is_unknown


@pytest.mark.parametrize("offset", [0, 7, 10, 19, 20])
def test_segments_beyond_an_offset_are_listed_when_only_ranges_are_known(world: World, offset: int) -> None:
    process = world.process()
    process.join()
    world.produce(P, 20)
    process.turn(5)
    process.stop()
    lookup = ArchiveLookup(Archive(world.store, world.control, FORMAT))
    whole = lookup.whole(source(P), ArchivedSegments())
    assert (list(whole.infos), list(whole.stored)) == ([], [OffsetRange(0, 19)])
    beyond = lookup.beyond(source(P), whole, offset)
    assert list(beyond) == [segment for segment in world.segments(P) if segment.offsets.end >= offset]
