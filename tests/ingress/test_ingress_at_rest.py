"""Which partitions a turn of the loop visits: those with something to do, however many are assigned. That none of
those is left out is checked after each turn, by `tests.ingress.process`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from tests.ingress.process import Process
from tests.ingress.world import LOST, REGION, RELIST, World

MANY = 100
FIRST = SourcePartition(REGION, "t", 0)


def busy(process: Process) -> set[SourcePartition]:
    return {assigned.delivery_target.source for assigned in process.controller._assignment.busy()}


@pytest.fixture
def world() -> World:
    """Its topics are refreshed rarely: a refresh has all partitions visited, too."""
    world = World()
    world.settings = replace(world.settings, topic_refresh_interval=timedelta(hours=1))
    return world


@pytest.fixture
def process(world: World) -> Process:
    """All of many partitions, each with a segment that is delivered: at rest."""
    world.broker.create("copy", partitions=MANY)
    for partition in range(MANY):
        world.put(0, 4, partition=partition, partitions=MANY)
    process = Process(world)
    process.join(*(TopicPartition("copy", partition) for partition in range(MANY)))
    for _ in range(MANY):
        process.later(0.1, turns=1)
    assert world.checkpoint(MANY - 1) == 5
    process.later(0.1, turns=2)
    assert busy(process) == set()
    return process


def test_partitions_whose_segments_wait_for_the_target_are_at_rest(world: World, process: Process) -> None:
    """A turn for each round of eight partitions would else visit all that wait for theirs."""
    for partition in range(MANY):
        world.put(5, 9, partition=partition, partitions=MANY)
    process.control()
    assert busy(process) == set()
    for _ in range(MANY):
        process.later(0.1, turns=1)
    assert [world.checkpoint(partition) for partition in range(MANY)] == [10] * MANY
    process.control()
    assert busy(process) == set()


def test_a_partition_that_waits_for_a_late_segment_is_busy_until_it_comes(world: World, process: Process) -> None:
    world.put(10, 14)
    process.later(LOST / 10)
    assert busy(process) == {FIRST}
    world.put(5, 9)
    process.later(1)
    assert world.checkpoint() == 15
    assert busy(process) == set()


def test_a_partition_whose_listing_failed_is_busy_until_one_succeeds(world: World, process: Process) -> None:
    world.put(5, 9, notify=False)
    world.objects.away = {"list"}
    process.later(2 * RELIST, turns=2)
    process.later(0.6)
    assert len(busy(process)) == MANY, "although their sequencers wait for nothing"
    world.objects.away = set()
    process.later(1)
    process.later(1)
    assert world.checkpoint() == 10
    process.later(1)
    assert busy(process) == set()


def test_a_segment_without_an_event_is_found_by_the_timer_of_its_partition_at_rest(
    world: World, process: Process
) -> None:
    world.put(5, 9, notify=False)
    process.later(1)
    assert busy(process) == set()
    process.later(2 * RELIST)
    assert world.checkpoint() == 10
