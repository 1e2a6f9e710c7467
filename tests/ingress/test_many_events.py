"""Many segments of one partition at once: what is announced together is decided about once."""

from __future__ import annotations

import time

import pytest

from formats.segment import OffsetRange, Segment, SourcePartition
from infra.contracts.cluster import TopicPartition
from tests.ingress.process import Process
from tests.ingress.world import REGION, World

SOURCE = SourcePartition(REGION, "t", 0)
KNOWN, LATE = 9_000, 1_000
MOST_SECONDS = 1  # of processor time


def announce(world: World, first: int, count: int) -> None:
    for number in range(first, first + count):
        world.notify(Segment(SOURCE, 0, OffsetRange(10 * number, 10 * number + 9)))


@pytest.mark.cpu
def test_a_thousand_late_events_of_a_partition_that_waits_for_a_gap() -> None:
    world = World()
    world.broker.create("copy", partitions=1)
    world.put(0, 9, partitions=1)
    process = Process(world)
    process.join(TopicPartition("copy", 0))
    process.later(0.1, turns=5)
    assert world.checkpoint() == 10
    began = time.process_time()
    announce(world, 2, KNOWN)  # 1 is missing
    process.control()
    announce(world, 2 + KNOWN, LATE)
    process.control()
    took = time.process_time() - began
    (assigned,) = process.controller._assignment
    assert len(assigned.view) == KNOWN + LATE
    assert assigned.sequencer is not None
    assert assigned.sequencer.gap == OffsetRange(10, 19)
    assert took < MOST_SECONDS
    world.put(10, 19, partitions=1)
    process.turn(3)
    assert world.checkpoint() == 20
