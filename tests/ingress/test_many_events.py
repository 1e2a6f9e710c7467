"""Many segments of one partition at once: what is announced together is decided about once."""

from __future__ import annotations

import time

import pytest

from formats.messages.segment_events import Created, Removed
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from infra.contracts.cluster import TopicPartition
from tests.ingress.process import Process
from tests.ingress.world import REGION, World

SOURCE = SourcePartition(REGION, "t", 0)
KNOWN, LATE = 9_000, 1_000
MOST_SECONDS = 1  # of processor time


def announce(world: World, first: int, count: int) -> None:
    for number in range(first, first + count):
        world.notify(Segment(SOURCE, 0, OffsetRange(10 * number, 10 * number + 9)))


def delivered_first() -> tuple[World, Process]:
    """A process that has delivered offsets 0 to 9 of the only partition, and waits for more."""
    world = World()
    world.broker.create("copy", partitions=1)
    world.put(0, 9, partitions=1)
    process = Process(world)
    process.join(TopicPartition("copy", 0))
    process.later(0.1, turns=5)
    assert world.checkpoint() == 10
    return world, process


def relists(process: Process) -> float:
    return sum(count for (name, _), count in process.metrics.labelled.items() if name == "relists")


def test_segments_that_are_announced_out_of_order_are_no_gap() -> None:
    world, process = delivered_first()
    before = relists(process)
    later, sooner = world.put(20, 29, partitions=1, notify=False), world.put(10, 19, partitions=1, notify=False)
    world.notify(later, sooner)
    process.turn(3)
    assert world.checkpoint() == 30
    assert relists(process) == before


def test_a_segment_that_is_announced_with_its_removal_is_not_read() -> None:
    world, process = delivered_first()
    before = relists(process)
    merged = world.put(10, 29, level=1, partitions=1, notify=False)
    small = Segment(SOURCE, 0, OffsetRange(10, 19))
    world.publish(Created(SegmentInfo(small, 1, world.clock.at)), Removed(small, world.clock.at))
    world.notify(merged)
    opened = len(world.objects.asked)
    process.turn(3)
    assert world.checkpoint() == 30
    assert not any(key.endswith(str(small)) for what, key in world.objects.asked[opened:] if what == "open")
    assert relists(process) == before


@pytest.mark.cpu
def test_a_thousand_late_events_of_a_partition_that_waits_for_a_gap() -> None:
    for _ in range(3):  # what else works on these cores only adds to it
        world, process = delivered_first()
        began = time.process_time()
        announce(world, 2, KNOWN)  # 1 is missing
        process.control()
        announce(world, 2 + KNOWN, LATE)
        process.control()
        took = time.process_time() - began
        if took < MOST_SECONDS:
            break
    (assigned,) = process.controller._assignment
    assert len(assigned.view) == KNOWN + LATE
    assert assigned.sequencer is not None
    assert assigned.sequencer.gap == OffsetRange(10, 19)
    assert took < MOST_SECONDS
    world.put(10, 19, partitions=1)
    process.turn(3)
    assert world.checkpoint() == 20
