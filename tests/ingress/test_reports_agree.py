"""`/metrics`, `/readyz` and `replicator status` name the same partitions as stopped, with the same lag, in every state
in which a partition does not continue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO

import pytest

from formats.errors import CheckpointConflict
from formats.messages.delivery_checkpoint import Checkpoint
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.contracts.cluster import Occupancy, TopicPartition
from infra.runtime.metrics import GaugeName
from tests.ingress.process import Process, joined
from tests.ingress.world import DELAY, LOST, World, key, source_settings

C, D = TopicPartition("copy", 0), TopicPartition("copy", 1)
STATES: dict[str, Callable[[], tuple[World, Process]]] = {}
State = Callable[[], tuple[World, Process]]


def state(make: State) -> State:
    STATES[make.__name__] = make
    return make


@state
def target_with_fewer_partitions() -> tuple[World, Process]:
    world = World()
    world.broker.create("copy", partitions=1)
    for partition in (0, 1, 3):
        world.put(0, 9, partition=partition, partitions=4)
    return world, joined(world, C)


@state
def source_that_grew() -> tuple[World, Process]:
    world = World()
    world.put(0, 9)
    process = joined(world)
    world.put(0, 4, partition=2, partitions=3)
    process.turn(4)
    return world, process


@state
def incarnation_that_is_not_followed() -> tuple[World, Process]:
    world = World()
    world.put(0, 9)
    world.put(0, 299, incarnation="later")
    world.put(0, 99, incarnation="later", partition=1)
    return world, joined(world)


@state
def incarnation_without_a_claim() -> tuple[World, Process]:
    world = World(source_settings(on_recreate="follow"))
    world.put(0, 9)
    world.put(5, 299, incarnation="later")
    return world, joined(world)


@state
def several_topics_for_one_destination() -> tuple[World, Process]:
    world = World(source_settings("^one-(.*)", "x-{topic}"), source_settings("^x-(.*)", "{topic}"))
    world.put(0, 3, topic="one-a")
    world.put(0, 3, topic="one-a", partition=1)
    world.put(2, 3, topic="x-one-a")
    process = Process(world)
    process.turn(4)
    return world, process


@state
def destination_that_may_not_be_seen() -> tuple[World, Process]:
    world = World()
    world.put(0, 3)
    world.set_checkpoint(2)
    world.admin.hides["copy"] = "no DESCRIBE"
    process = Process(world)
    process.turn(4)
    return world, process


@state
def destination_that_may_not_be_created() -> tuple[World, Process]:
    world = World()
    world.put(0, 3)
    world.put(7, 9, partition=1)
    world.admin.refuses["copy"] = "no CREATE"
    process = Process(world)
    process.turn(4)
    return world, process


@state
def destination_name_too_long() -> tuple[World, Process]:
    world = World(source_settings("t", "c" * 245, on_recreate="new-topic"))
    world.put(0, 3, incarnation="12345678")
    process = Process(world)
    process.turn(4)
    return world, process


@state
def target_that_holds_foreign_records() -> tuple[World, Process]:
    world = World()
    world.put(0, 14)
    world.put(0, 3, partition=1)
    world.target.occupied[C] = Occupancy(holds_records=True)
    return world, joined(world)


@state
def destination_created_again() -> tuple[World, Process]:
    world = World()
    world.put(0, 3)
    joined(world).stop()
    world.admin.ids["copy"] = "another"
    world.put(4, 9)
    return world, joined(world)


@state
def checkpoints_in_conflict() -> tuple[World, Process]:
    world = World()
    world.put(0, 9)
    world.set_checkpoint(4)
    conflict = CheckpointConflict("two processes wrote different checkpoints")
    world.target.conflicts[key()] = conflict
    return world, joined(world)


@state
def segment_that_is_corrupt() -> tuple[World, Process]:
    world = World()
    world.put(0, 3)
    world.damage(world.put(4, 9))
    return world, joined(world)


@state
def segment_that_is_corrupt_before_more_than_a_view_holds() -> tuple[World, Process]:
    world = World()
    world.broker.create("copy", partitions=2)
    world.damage(world.put(0, 9))
    for start in range(10, 25_000, 10):
        world.peek.objects.put_new(f"data/a/t/0/0/{start:020d}-{start + 9:020d}", BytesIO(b""), 0)
    return world, joined(world)


@state
def segment_that_is_lost() -> tuple[World, Process]:
    world = World()
    world.put(0, 1)
    world.put(4, 9)
    process = joined(world)
    process.later(LOST, turns=8)
    process.later(LOST, turns=8)
    return world, process


@state
def record_that_is_refused() -> tuple[World, Process]:
    world = World()
    world.target.poison[C] = {6}
    world.put(0, 9)
    return world, joined(world)


@state
def checkpoint_that_is_gone() -> tuple[World, Process]:
    world = World()
    world.put(0, 4)
    process = joined(world, C)
    world.target.checkpoints.clear()
    world.target.stop_next()
    world.put(5, 9)
    process.later(1)
    return world, process


@state
def topic_that_may_not_be_written() -> tuple[World, Process]:
    world = World()
    world.put(0, 4)
    process = joined(world, C)
    world.target.denied = {"copy"}
    world.put(5, 9)
    process.turn(4)
    return world, process


@state
def listings_that_fail_for_long() -> tuple[World, Process]:
    world = World()
    world.put(0, 4)
    process = joined(world, C)
    world.put(5, 9)
    world.target.denied = {"copy"}
    process.turn(4)
    world.objects.away = {"list"}
    for _ in range(40):
        process.later(30, turns=2)
    world.objects.away = set()
    return world, process


@state
def segment_of_another_topic() -> tuple[World, Process]:
    world = World()
    world.claim(0, topic_id="ours")
    world.put(0, 9, topic_id="theirs")
    return world, joined(world)


def stopped_in_metrics(process: Process) -> float:
    found = [process.metrics.value("stopped_partitions", held=held) for held in ("true", "false")]
    return sum(value or 0 for value in found)


def gauges(process: Process, name: GaugeName) -> dict[str, float]:
    found = {}
    for (gauge, labels), value in process.metrics.gauges.items():
        if gauge == name:
            of = dict(labels)
            found[f"{of['region']}/{of['topic']}/{of['partition']}"] = value
    return found


def lag_of(process: Process) -> dict[str, float]:
    """Partitions with a lag; an assigned one without stored segments shows 0."""
    return {partition: lag for partition, lag in gauges(process, "ingress_lag_records").items() if lag}


@pytest.mark.parametrize("name", sorted(STATES))
def test_what_does_not_continue_is_the_same_everywhere(name: str) -> None:
    world, process = STATES[name]()
    process.later(5)
    process.later(25)  # the next complete refresh
    process.later(5)
    status = world.status()
    stopped = {str(p.key.source) for p in status.partitions if p.problems}
    assert stopped, "else the state proves nothing"
    assert set(process.stopped) == stopped
    assert stopped_in_metrics(process) == len(stopped)
    lags = lag_of(process)
    assert lags == {str(p.key.source): p.lag for p in status.partitions if p.lag}
    assert lags.keys() >= stopped
    seconds = gauges(process, "ingress_lag_seconds")
    assert {partition for partition, value in seconds.items() if value > 0} >= stopped
    assert not process.ready


def test_every_process_exports_what_no_process_holds_and_none_adds_it_to_its_own() -> None:
    world, first = target_with_fewer_partitions()
    second = Process(world)
    second.turn(4)
    second.later(5)
    first.later(5)
    for process, held in ((first, 0), (second, None)):
        assert process.metrics.value("stopped_partitions", held="false") == 2
        assert process.metrics.value("stopped_partitions", held="true") in (held, 0)
        assert lag_of(process) == {"a/t/1": 10, "a/t/3": 10}


def test_the_lag_of_what_is_refused_grows_and_goes_with_the_refusal() -> None:
    world, process = target_with_fewer_partitions()
    process.later(5)
    world.put(10, 19, partition=3)
    process.later(30)
    process.later(5)
    assert gauges(process, "ingress_lag_records") == {"a/t/0": 0, "a/t/1": 10, "a/t/3": 20}
    assert gauges(process, "ingress_lag_seconds")["a/t/3"] == 40
    world.broker.create("copy", partitions=4)
    process.later(30)
    process.later(5)
    assert gauges(process, "ingress_lag_records") == {"a/t/0": 0}, "the group has not assigned the others yet"
    assert stopped_in_metrics(process) == 0
    assert process.stopped == {}
    process.placement.assign(D, TopicPartition("copy", 3))
    process.later(5, turns=8)
    process.later(60, turns=8)
    assert gauges(process, "ingress_lag_records") == {"a/t/0": 0, "a/t/1": 0, "a/t/3": 0}


def test_another_cluster_stops_every_partition() -> None:
    world = World()
    world.put(0, 9)
    world.put(0, 3, partition=1)
    process = joined(world)
    world.put(10, 14)
    world.admin.cluster = "another"
    process.later(30)
    process.later(5)
    assert set(process.stopped) == {"cluster", "a/t/0", "a/t/1"}
    assert stopped_in_metrics(process) == 2
    world.objects.away = {"list"}
    process.later(30)
    assert set(process.stopped) == {"cluster"}, "which partitions there are is not known"
    assert process.placement.topics, "and the process is still subscribed"
    world.objects.away = set()
    world.admin.cluster = "cluster"
    process.later(30, turns=8)
    process.later(5)
    assert (process.stopped, stopped_in_metrics(process)) == ({}, 0)


def test_an_incarnation_that_waits_for_the_one_before_has_its_lag() -> None:
    world = World(source_settings(on_recreate="follow"))
    world.claim(0)
    world.put(0, 3)
    process = joined(world)
    world.claim(1, "second")
    world.put(0, 9, incarnation="second")
    process.later(30)
    process.later(5)
    assert lag_of(process) == {"a/t@second/0": 10}
    assert {str(p.key.source): p.lag for p in world.status().partitions} == {"a/t/0": 0, "a/t@second/0": 10}
    assert (process.stopped, world.status().problems) == ({}, [])


def test_a_checkpoint_that_is_seeded_moves_the_lag_of_what_is_refused() -> None:
    world, process = target_with_fewer_partitions()
    process.later(5)
    world.target.checkpoints[key(3)] = replace(Checkpoint(7, "id-copy", world.clock.at))
    process.later(30)
    process.later(5)
    assert gauges(process, "ingress_lag_records")["a/t/3"] == 3


def test_retention_shortens_the_lag_of_what_is_refused() -> None:
    world, process = target_with_fewer_partitions()
    first = world.put(10, 19, partition=3)
    process.later(5)
    assert lag_of(process)["a/t/3"] == 20
    world.remove(Segment(SourcePartition("a", "t", 3), 0, OffsetRange(0, 9)), notify=False)
    process.later(300)
    process.later(5)
    assert lag_of(process)["a/t/3"] == 10
    assert {str(p.key.source): p.lag for p in world.status().partitions}["a/t/3"] == 10
    world.remove(first, notify=False)
    process.later(300)
    process.later(5)
    assert "a/t/3" not in lag_of(process)


def test_the_listing_of_the_archive_continues_and_does_not_start_again() -> None:
    """However much waits, a listing costs only the segments that arrived since."""
    world = World()
    world.broker.create("copy", partitions=1)
    world.put(0, 3)
    for start in range(0, 30_000, 10):
        world.peek.objects.put_new(f"data/a/t/1/0/{start:020d}-{start + 9:020d}", BytesIO(b""), 0)
    process = joined(world, C)
    process.later(5)
    assert lag_of(process) == {"a/t/1": 30_000}
    listed = world.objects.listed
    for _ in range(20):
        process.later(30)
    assert world.objects.listed - listed < 20 * 1_000
    assert lag_of(process) == {"a/t/1": 30_000}


def test_a_running_partition_with_more_segments_than_are_kept_has_a_lag() -> None:
    world = World()
    world.broker.create("copy", partitions=1)
    world.put(0, 3)
    process = joined(world, C)
    process.reading.holding = True  # the first of them is read for ever
    for start in range(4, 120_004, 10):
        world.peek.objects.put_new(f"data/a/t/0/0/{start:020d}-{start + 9:020d}", BytesIO(b""), 0)
    for _ in range(3):
        process.later(300)
    (assigned,) = process.controller._assignment
    assert assigned.view.truncated, "else the state proves nothing"
    assert not process.stopped
    assert lag_of(process)["a/t/0"] >= 10_000


@pytest.mark.parametrize("first_is_stored", [True, False])
def test_a_refused_topic_whose_first_incarnation_is_over(first_is_stored: bool) -> None:
    """False: retention has removed all of it."""
    world = World(source_settings(on_recreate="follow"))
    world.claim(0)
    world.claim(1, "life2")
    if first_is_stored:
        world.put(0, 9)
    process = joined(world, TopicPartition("copy", 0))
    for _ in range(6):
        process.later(DELAY, turns=6)
    world.put(0, 9, incarnation="life2")
    for _ in range(6):
        process.later(DELAY, turns=6)
    assert world.checkpoint(incarnation="life2") == 10
    process.stop()
    world.put(10, 99, incarnation="life2")
    world.admin.hides["copy"] = "no DESCRIBE"
    process = Process(world)
    for _ in range(10):
        process.later(40, turns=4)
    assert {str(p.key.source): p.lag for p in world.status().partitions if p.lag} == {"a/t@life2/0": 90}
    assert process.metrics.value("stopped_partitions", held="false") == 1
    gauges = process.metrics.gauges.items()
    lags = {dict(labels)["topic"]: lag for (name, labels), lag in gauges if name == "ingress_lag_records" and lag}
    assert lags == {"t@life2": 90}
    assert list(process.stopped) == ["a/t@life2/0"]
