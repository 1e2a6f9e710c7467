"""What the source dropped before it was archived: a stop, or a record of what is missing. Never a silent jump."""

from __future__ import annotations

import pytest

from formats.control.gap import RETENTION, RecordedGap
from formats.segment import OffsetRange
from infra.contracts.cluster import TopicPartition
from tests.egress.two_partitions import Make
from tests.egress.world import Process, World, rule, source
from tests.fakes.surroundings import T0

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
LABELS = {"topic": "t", "partition": "0"}


@pytest.fixture
def world(make: Make) -> World:
    return make(rule("t", on_gap="record"))


def joined(world: World) -> Process:
    process = world.process()
    process.join()
    return process


def gaps(world: World) -> list[OffsetRange]:
    return list(world.control.gaps.ranges(source(P)))


def test_retention_while_it_was_down(world: World) -> None:
    world.produce(P, 5)
    joined(world).stop()
    world.produce(P, 9)
    world.broker.trim(P, 11)
    process = joined(world)
    process.later()
    [gap] = world.control.gaps.of(source(P))
    assert (gap.offsets, gap.low, gap.high, gap.recorded_at) == (OffsetRange(5, 10), 11, 14, T0)
    assert "retention" in gap.reason
    assert world.ranges(P) == [(0, 4), (11, 13)]
    assert world.position(P) == 14
    assert process.stopped == {}
    assert process.metrics.by_label("egress_recorded_gaps", **LABELS) == 1
    assert process.metrics.by_label("egress_recorded_gap_offsets", **LABELS) == 6
    world.agree(P)
    process.stop()
    world.produce(P, 1)
    joined(world).stop()
    assert world.ranges(P)[2:] == [(14, 14)]
    assert len(gaps(world)) == 1


def test_retention_while_it_runs_and_the_store_is_slow(world: World) -> None:
    """What was read is stored first, and is no part of the gap."""
    process = joined(world)
    process.uploads.holding = True
    world.produce(P, 7)
    process.turn(2)
    world.produce(P, 5)
    world.broker.trim(P, 10)
    process.turn(2)
    process.later(30)
    assert gaps(world) == [], "recorded before what was read is stored"
    process.uploads.run_all()
    process.uploads.holding = False
    process.turn(3)
    process.later()
    assert gaps(world) == [OffsetRange(7, 9)]
    assert world.ranges(P) == [(0, 4), (5, 6), (10, 11)]
    assert process.stopped == {}
    world.agree(P)


def test_records_that_could_not_be_stored_are_in_the_gap(world: World) -> None:
    process = joined(world)
    process.uploads.holding = True
    world.produce(P, 5)
    process.turn(2)
    world.broker.trim(P, 5)
    world.produce(P, 5)
    world.broker.trim(P, 7)
    process.turn(2)
    world.objects.away = {"put_new"}
    process.uploads.run_all()
    process.turn(2)
    world.objects.away = set()
    process.uploads.holding = False
    process.later(1)
    process.later()
    process.later()
    assert gaps(world) == [OffsetRange(0, 6)]
    assert world.ranges(P) == [(7, 9)]


def test_a_gap_that_cannot_be_written_is_not_passed(world: World) -> None:
    world.produce(P, 5)
    joined(world).stop()
    world.produce(P, 5)
    world.broker.trim(P, 8)
    world.objects.away = {"put_new"}
    process = joined(world)
    process.later()
    assert (world.ranges(P), world.position(P)) == ([(0, 4)], 5)
    world.objects.away = set()
    process.later(1)
    process.later()
    assert gaps(world) == [OffsetRange(5, 7)]
    assert world.ranges(P)[1:] == [(8, 9)]


def test_crash_between_the_record_and_what_follows_it(world: World) -> None:
    world.produce(P, 5)
    joined(world).stop()
    world.produce(P, 5)
    world.broker.trim(P, 8)
    first = world.process()
    first.turn(2)
    first.pool.holding = True
    first.consumer.assign(P)
    first.turn(2)
    first.pool.run_all()
    first.crash()
    assert (gaps(world), world.position(P)) == ([OffsetRange(5, 7)], 5)
    world.broker.trim(P, 9)
    joined(world).stop()
    assert gaps(world) == [OffsetRange(5, 7), OffsetRange(8, 8)]
    assert world.ranges(P) == [(0, 4), (9, 9)]


def test_truncation_is_no_gap(world: World) -> None:
    """Offsets that were archived will be given to others: no record can make that right."""
    world.produce(P, 10)
    process = joined(world)
    world.broker.truncate(P, 6)
    process.consumer.disturb()
    process.turn(10)
    assert "leader epoch 0, which ends at 6 now" in process.stopped[str(source(P))]
    assert gaps(world) == []


def test_by_default_it_stops(world: World) -> None:
    world.rules = (rule("t"),)
    world.produce(P, 5)
    joined(world).stop()
    world.produce(P, 5)
    world.broker.trim(P, 8)
    process = joined(world)
    assert "[5,7] is gone" in process.stopped[str(source(P))]
    assert "on_gap = 'record'" in process.stopped[str(source(P))]
    process.later(300)
    assert gaps(world) == []
    assert world.position(P) == 5


def test_gaps_that_are_joined_while_they_are_read_are_found_joined(world: World) -> None:
    """`gc` replaces two records by one."""
    first, second, both = (
        RecordedGap(source=source(P), offsets=offsets, reason=RETENTION, low=0, high=20, recorded_at=T0)
        for offsets in (OffsetRange(0, 9), OffsetRange(10, 19), OffsetRange(0, 19))
    )
    world.control_peek.gaps.record(first)
    world.control_peek.gaps.record(second)

    def join(_key: str) -> None:
        world.control_peek.gaps.record(both)
        world.control_peek.gaps.remove([first, second])

    world.objects.before["open"] = join
    assert world.control.gaps.of(source(P)) == [both]
