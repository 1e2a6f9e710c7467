"""A source topic that gets more partitions while ingress runs."""

from __future__ import annotations

from infra.contracts.cluster import TopicPartition
from tests.ingress.process import Process, joined
from tests.ingress.world import World, key, numbers, source_settings

C, D, E = (TopicPartition("copy", number) for number in range(3))


def refreshes(process: Process) -> int:
    return process.finder._calls


def test_a_partition_without_a_destination_is_named_by_the_event_of_its_first_segment() -> None:
    world = World()
    world.put(0, 3)
    process = joined(world)
    world.put(0, 3, partition=2, partitions=3)
    process.later(1)
    assert "add partitions to it, at least 3" in process.stopped["a/t/2"]
    assert list(world.target.parked) == [key(2)]


def test_every_partition_without_a_destination_names_what_all_of_them_need() -> None:
    world = World()
    world.broker.create("copy", partitions=2)
    for partition in range(4):
        world.put(0, 3, partition=partition, partitions=4)
    process = joined(world)
    process.later(1)
    assert sorted(process.stopped) == ["a/t/2", "a/t/3"]
    for reason in process.stopped.values():
        assert "add partitions to it, at least 4" in reason


def test_a_lost_notification_only_delays_it() -> None:
    world = World()
    world.put(0, 3)
    process = joined(world)
    world.put(0, 3, partition=2, partitions=3, notify=False)
    for _ in range(10):
        process.later(30)
    assert list(process.stopped) == ["a/t/2"]


def test_events_of_partitions_that_have_a_destination_or_are_known_cause_no_refresh() -> None:
    world = World()
    world.put(0, 3)
    world.put(0, 3, partition=2, partitions=3)
    world.broker.create("copy", partitions=2)
    process = joined(world)
    before = refreshes(process)
    world.put(4, 5)
    world.put(0, 3, partition=1)
    world.put(4, 5, partition=2)
    world.put(0, 3, topic="unwanted")
    process.turn(5)
    process.later(1)
    assert refreshes(process) == before


def test_a_refresh_that_fails_is_repeated_for_the_same_path() -> None:
    world = World()
    world.put(0, 3)
    process = joined(world)
    world.objects.away = {"list"}
    world.put(0, 3, partition=2, partitions=3)
    process.later(1)
    assert "a/t/2" not in process.stopped
    world.objects.away = set()
    process.later(1)
    assert list(process.stopped) == ["a/t/2"]


def test_an_event_during_a_refresh_is_not_forgotten() -> None:
    world = World()
    world.put(0, 3)
    process = joined(world)
    process.pool.holding = True
    process.later(30)
    world.put(0, 3, partition=2, partitions=3)
    process.turn(2)
    process.pool.run_all()
    process.pool.holding = False
    process.later(1)
    assert list(process.stopped) == ["a/t/2"]


def test_delivery_begins_with_the_assignment_once_the_target_has_grown() -> None:
    world = World()
    world.put(0, 3)
    process = joined(world)
    world.put(0, 3, partition=2, partitions=3)
    process.later(1)
    world.broker.create("copy", partitions=3)
    process.placement.assign(E)
    process.turn(8)
    assert world.offsets(E) == numbers((0, 3))
    assert process.stopped == {}
    process.later(30)
    assert (process.stopped, process.ready) == ({}, True)
    assert process.metrics.value("stopped_partitions", held="false") == 0
    assert world.target.parked == {}


def test_a_refusal_ends_with_the_next_refresh_of_the_target() -> None:
    """Also when the new partition is assigned to another process."""
    world = World()
    world.put(0, 3)
    process = joined(world)
    world.put(0, 3, partition=2, partitions=3)
    process.later(1)
    world.broker.create("copy", partitions=3)
    process.later(30)
    assert process.stopped == {}


def test_a_partition_more_of_a_refused_topic_is_named_too() -> None:
    world = World(source_settings("^one-(.*)", "x-{topic}"), source_settings("^x-(.*)", "{topic}"))
    world.put(0, 3, topic="one-a")
    world.put(0, 3, topic="x-one-a")
    process = Process(world)
    process.turn(3)
    assert set(process.stopped) == {"a/one-a/0", "a/x-one-a/0"}
    world.put(0, 3, topic="one-a", partition=1)
    process.later(1)
    assert set(process.stopped) == {"a/one-a/0", "a/one-a/1", "a/x-one-a/0"}


def test_refreshes_for_new_partitions_are_a_second_apart() -> None:
    """Many come at once, and the store may be away."""
    world = World()
    world.put(0, 3)
    process = joined(world)
    before = world.objects.calls["list"]
    world.objects.away = {"list"}
    for partition in range(2, 30):
        world.put(0, 3, partition=partition, partitions=30)
        process.later(0.1)
    assert world.objects.calls["list"] - before <= 3 * 2
    world.objects.away = set()
    process.later(1)
    assert len(process.stopped) == 28
