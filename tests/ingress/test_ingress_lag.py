"""The lag that ingress reports, and the topics and segments that it finds."""

from __future__ import annotations

from datetime import timedelta

from formats.segment import OffsetRange, SourcePartition
from formats.topic_selection import TopicPattern
from infra.contracts.cluster import TopicPartition
from tests.ingress.copied import LABELS, SOURCE, C
from tests.ingress.process import Process, joined
from tests.ingress.world import World, numbers, source_settings


def test_lag_is_measured_in_offsets_and_seconds(world: World) -> None:
    world.put(0, 3)
    process = joined(world)
    world.target.away = True
    world.put(4, 13)
    process.later(7)
    process.later(5)
    assert process.metrics.value("ingress_lag_records", **LABELS) == 10
    assert process.metrics.value("ingress_lag_seconds", **LABELS) == 12
    world.target.away = False
    process.later(10)
    process.later(5)
    assert process.metrics.value("ingress_lag_records", **LABELS) == 0
    assert process.metrics.value("ingress_lag_seconds", **LABELS) == 0


def test_lag_is_not_zero_while_the_archive_cannot_be_listed(world: World) -> None:
    """Of a partition that another process delivered until now, this one knows nothing yet."""
    world.put(0, 99)
    world.set_checkpoint(10)
    process = Process(world)
    process.turn(2)
    world.objects.away = {"list"}
    process.placement.assign(C)
    for _ in range(200):
        process.later(0.4)
        assert process.metrics.value("ingress_lag_records", **LABELS) is None
        assert process.metrics.value("ingress_lag_seconds", **LABELS) is None
    assert "to list the archive" in process.stopped["a/t/0"]
    world.target.away = True
    world.objects.away = set()
    process.later(10)
    process.later(6)
    assert process.metrics.value("ingress_lag_records", **LABELS) == 90


def test_range_without_a_record_moves_the_position(world: World) -> None:
    world.put(0, 1)
    world.put(2, 9, holes=range(2, 10))
    process = joined(world)
    assert world.checkpoint() == 10
    world.put(10, 10)
    process.turn(2)
    assert world.offsets(C) == [0, 1, 10]


def test_new_topic_of_the_archive_is_found(world: World) -> None:
    world = World(source_settings("^.*", None))
    process = Process(world)
    process.turn(2)
    assert process.placement.topics == frozenset()
    world.put(0, 3, topic="new", partitions=1)
    process.later(30)
    assert process.placement.topics == {"new.ingress"}
    new = TopicPartition("new.ingress", 0)
    process.placement.assign(new)
    process.turn(5)
    assert world.offsets(new) == numbers((0, 3))


def test_a_filter_that_fails_makes_no_segment_unwanted() -> None:
    name = "tests.formats.policies.user_policies:FailsForSome"
    world = World(source_settings("^.*", None, topic_filter=name, exclude=(TopicPattern("^x.*"),)))
    controller = Process(world).controller
    wanted = {topic: controller.wants(SourcePartition("a", topic, 0)) for topic in ("t", "tmp", "x1", "forbidden")}
    assert wanted == {"t": True, "tmp": False, "x1": False, "forbidden": True}


def test_wants_only_what_a_source_delivers(world: World) -> None:
    controller = Process(world).controller
    assert controller.wants(SOURCE)
    assert not controller.wants(SourcePartition("b", "t", 0))
    assert not controller.wants(SourcePartition("a", "u", 0))
    assert not controller.wants(SourcePartition("a", "t", 0, "other-life"))


def test_refused_source_is_reported_and_forgotten_when_repaired(world: World) -> None:
    world.put(0, 3, partitions=None)
    process = Process(world)
    process.turn(2)
    assert "partitions" in process.stopped["a/t/0"]
    world.broker.create("copy", partitions=1)
    process.later(30)
    assert process.stopped == {}
    assert process.placement.topics == {"copy"}


def test_segments_are_covered_once_whatever_overlaps(world: World) -> None:
    for start, end, level in ((0, 4, 0), (3, 8, 0), (3, 6, 0), (0, 8, 1), (9, 12, 0), (7, 15, 0)):
        world.put(start, end, level=level)
    joined(world)
    assert world.offsets(C) == numbers((0, 15))
    assert OffsetRange(0, 15).next_offset == world.checkpoint()


def test_late_retries_of_another_source_do_not_matter() -> None:
    world = World(source_settings(late_segment_retries=0, lost_segment_timeout=timedelta(seconds=5), on_lost="skip"))
    world.put(0, 1)
    process = joined(world)
    world.put(4, 5)
    process.turn(2)
    process.later(4)
    assert world.offsets(C) == [0, 1]
    process.later(1)
    assert world.offsets(C) == [0, 1, 4, 5]
