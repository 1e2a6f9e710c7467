"""An egress that does not archive a partition although it has members."""

from __future__ import annotations

from datetime import timedelta

import pytest

from formats.control.keys import watermarks_prefix
from formats.control.watermarks import SourceWatermarks, TopicWatermarks, encode_watermarks
from formats.segment import SourcePartition
from infra.archive.generations import Generations
from infra.archive.source_reports import SourceReport, SourceReports
from infra.archive.watermark_history import WatermarkHistory
from replicator.status.stalled import silent, stalled
from tests.ingress.world import World

SOURCE = SourcePartition("a", "t", 0)
AGE = timedelta(minutes=1)
BEAT, MARKS = timedelta(seconds=5), timedelta(seconds=30)


@pytest.fixture
def world() -> World:
    """What was archived is the whole log; ten minutes later it is longer, and then nothing changes for an hour."""
    world = World()
    for number, end in enumerate((100, 300), start=1):
        topics = {"t": TopicWatermarks(topic_id="t", low=(0,), high=(end,), stable=(end,), position=(100,))}
        marks = SourceWatermarks(cluster_id="c", writer="w", observed_at=world.clock.at, topics=topics)
        assert Generations(world.objects.memory, watermarks_prefix("data", "a")).put(number, encode_watermarks(marks))
        world.clock.advance(600)
    world.clock.advance(3000)
    return world


def found(world: World, *, next_offset: int = 100) -> list[SourcePartition]:
    newest = {info.segment.source: info for info in world.store.list(SOURCE)}
    waiting = {SOURCE: (next_offset, AGE)}
    return list(stalled(WatermarkHistory(world.objects, "data", "a"), report(world), waiting, newest, world.clock.at))


def report(world: World) -> SourceReport:
    return SourceReports(world.objects, "data").refresh(["a"])["a"]


def test_a_log_that_has_been_longer_for_long_is_not_archived(world: World) -> None:
    assert found(world) == [], "its watermarks are old: `silent` names that"
    world.beat(2)
    assert found(world) == [SOURCE]


def test_what_is_archived_meanwhile_is_only_behind(world: World) -> None:
    world.beat(2)
    world.put(0, 99)
    assert found(world) == []
    world.clock.advance(1200)
    world.beat(2)
    assert found(world) == [SOURCE]


def test_the_end_of_the_log_is_reached(world: World) -> None:
    world.beat(2)
    assert found(world, next_offset=300) == []


def complained(world: World, *, beat: timedelta = BEAT, marks: timedelta = MARKS) -> str:
    return silent(report(world), world.clock.at, heartbeat_interval=beat, watermark_interval=marks)


def test_heartbeats_that_are_missing_are_a_problem_of_their_own(world: World) -> None:
    """The bucket refuses what egress writes: neither segments nor reports arrive."""
    world.beat(2)
    assert complained(world) == ""
    world.clock.advance(300)
    assert complained(world) == ""
    world.clock.advance(1)
    assert complained(world).startswith("egress stored its last heartbeat at ")
    assert complained(world, beat=timedelta(minutes=2)) == "", "few intervals"
    assert complained(world, beat=timedelta()) == "", "off"


def test_watermarks_that_are_missing_beside_heartbeats_are_a_problem(world: World) -> None:
    world.beat(2)
    world.clock.advance(600)
    world.beat(2, agrees=False)
    assert complained(world).startswith("egress last observed the ends of its logs at ")
    assert complained(world, marks=timedelta(minutes=20)) == "", "few intervals"
    assert complained(world, marks=timedelta()) == "", "off"


def test_before_the_first_heartbeat_nothing_is_known() -> None:
    assert complained(World()) == ""
