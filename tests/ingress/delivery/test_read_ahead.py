"""Which reads are open at a time: how many of any size, of little, and of a first checkpoint alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest

from formats.coverage import SegmentSlice
from formats.segment import SourcePartition
from infra.archive.run_reader import SegmentRunReader
from infra.contracts.cluster import TopicPartition
from ingress.delivery import read_ahead
from ingress.delivery.events import DeliveryTarget, Progressed
from tests.ingress.delivery.hand import C, Hand
from tests.ingress.world import REGION, World


def test_no_more_pieces_are_open_than_the_width() -> None:
    world = World()
    hand = Hand(world, width=2)
    for partition in range(5):
        hand.begin(world.put(0, 3, partition=partition), epoch=partition)
    hand.pool.holding = True
    hand.delivery.run_round()
    assert hand.pool.waiting == 2
    hand.pool.holding = False
    hand.pool.run_all()
    while hand.delivery.run_round():
        pass
    assert all(world.offsets(TopicPartition("copy", p)) == [0, 1, 2, 3] for p in range(5))


def test_a_round_takes_many_partitions_once_they_are_known_to_have_little() -> None:
    world = World()
    hand = Hand(world, width=2, small_width=4)
    deliver(hand, world, range(8), 0, 3)
    assert world.target.rounds == [8, 8, 8, 8], "nothing is known of them"
    deliver(hand, world, range(8), 4, 7)
    assert world.target.rounds[4:] == [24, 8], "two places for any size, and four for small ones"


def test_what_may_be_large_waits_for_a_place_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "SMALL_BYTES", 4 * bytes_of_a_record())
    world = World()
    hand = Hand(world, width=2, small_width=4)
    deliver(hand, world, range(6), 0, 3)
    begun = len(world.target.rounds)
    deliver(hand, world, range(6), 4, 8)
    assert world.target.rounds[begun:] == [8, 2, 8, 2, 8, 2], "five records each: none is small"


def test_a_partition_of_which_nothing_was_read_may_have_much() -> None:
    world = World()
    hand = Hand(world, width=2, small_width=4)
    for partition in range(6):
        hand.begin(world.put(0, 3, partition=partition), epoch=partition)
    hand.pool.holding = True
    assert not hand.delivery.run_round()
    assert hand.pool.waiting == 2


def test_first_checkpoints_take_no_place_of_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the first records of many new partitions do not wait for the first checkpoints of all others."""
    monkeypatch.setattr(read_ahead, "FIRST_WIDTH", 5)
    world = World()
    hand = Hand(world, width=2)
    for partition in range(8):
        source = SourcePartition(REGION, "t", partition)
        given = DeliveryTarget(source, TopicPartition("copy", partition), "id", partition, clamp_timestamps=False)
        hand.delivery.begin(replace(given, begun_at=7), ())
    hand.begin(world.put(0, 3, partition=7), epoch=8)
    assert hand.delivery.run_round()
    assert [type(report) for report in hand.reports()] == [Progressed] * 5
    assert [world.checkpoint(partition) for partition in range(8)] == [7] * 5 + [None] * 3
    assert hand.delivery.run_round()
    assert len(hand.reports()) == 4, "the other three, and the segment behind them"
    assert world.offsets(TopicPartition("copy", 7)) == [0, 1, 2, 3]


def test_the_first_checkpoint_of_a_partition_that_keeps_offsets_takes_a_place() -> None:
    hand = Hand(World(), width=2)
    waiting = read_ahead._Waiting(
        DeliveryTarget(SourcePartition(REGION, "t", 0), C, "id", 1, clamp_timestamps=False, preserves_offsets=True), ()
    )
    assert hand.delivery._read_ahead._free_place(waiting) is read_ahead._Place.ANY


def deliver(hand: Hand, world: World, partitions: Iterable[int], start: int, end: int) -> None:
    """Of each partition a segment with these offsets, until all are delivered."""
    for partition in partitions:
        hand.begin(world.put(start, end, partition=partition), epoch=partition)
    while hand.delivery.run_round():
        pass


def bytes_of_a_record() -> int:
    """As the reader counts them, rounded up."""
    world = World()
    (run,) = SegmentRunReader(world.archive, 100, 1 << 20).runs([SegmentSlice.rest(world.put(0, 3), 0)])
    return -(-run.size_bytes // run.count)


def test_ownerships_that_are_over_take_no_memory() -> None:
    world = World()
    hand = Hand(world)
    segment = world.put(0, 3)
    for epoch in range(1, 101):
        hand.begin(segment, epoch=epoch)
        hand.delivery.release([epoch], timedelta())
        assert not hand.delivery.run_round()
    kept = hand.delivery._read_ahead
    assert (kept._released, len(kept._waiting), kept._record_bytes) == (set(), 0, {})
    assert world.offsets(C) == []
