"""Lookups in the archive for partitions that are about to be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from egress.start.archive_lookup import ArchivedSegments, ArchiveLookup
from formats.segment import OffsetRange
from infra.archive.archive import Archive
from infra.contracts.cluster import TopicPartition
from tests.egress.world import FORMAT, World, rule, source

P = TopicPartition("t", 0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, rule("t", max_segment_messages=5))
    world.broker.create("t", partitions=1)
    yield world
    world.close()


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
