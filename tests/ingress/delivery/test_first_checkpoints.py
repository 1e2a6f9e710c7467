"""First checkpoints that share a round: what is released, what is written again, and whose topic is suspected."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind
from ingress.delivery.events import DeliveryFailed, DeliveryTarget, Progressed
from tests.ingress.delivery.hand import Hand
from tests.ingress.world import REGION, World

BEGUN_AT = 7


def begin(hand: Hand, partition: int, *, epoch: int, topic: str = "copy") -> DeliveryTarget:
    source = SourcePartition(REGION, "t", partition)
    given = DeliveryTarget(source, TopicPartition(topic, partition), "id", epoch, clamp_timestamps=False)
    given = replace(given, begun_at=BEGUN_AT)
    hand.delivery.begin(given, ())
    return given


def written(world: World) -> list[int]:
    """Partitions that have their first checkpoint."""
    return sorted(key.source.partition for key, one in world.target.checkpoints.items() if one.next_offset == BEGUN_AT)


def test_a_released_partition_gets_none() -> None:
    world = World()
    hand = Hand(world)
    kept = [begin(hand, partition, epoch=partition + 1) for partition in (0, 2)]
    begin(hand, 1, epoch=2)
    assert hand.delivery.release([2], timedelta())
    while hand.delivery.run_round():
        pass
    reports = sorted(hand.reports(), key=lambda report: report.delivery_target.epoch)
    assert reports == [Progressed(given, BEGUN_AT, done=True) for given in kept]
    assert written(world) == [0, 2]


def test_a_released_partition_that_is_back_gets_one() -> None:
    world = World()
    hand = Hand(world)
    begin(hand, 0, epoch=1)
    assert hand.delivery.release([1], timedelta())
    again = begin(hand, 0, epoch=2)
    while hand.delivery.run_round():
        pass
    assert hand.reports() == [Progressed(again, BEGUN_AT, done=True)]


def test_those_beside_a_failure_are_written_again_at_once() -> None:
    world = World()
    hand = Hand(world)
    good = [begin(hand, partition, epoch=partition + 1) for partition in (0, 1)]
    bad = begin(hand, 2, epoch=3)
    world.target.fail_next(bad.target)
    assert hand.delivery.run_round()
    assert [report.delivery_target for report in hand.reports() if isinstance(report, DeliveryFailed)] == [bad]
    assert written(world) == []
    assert hand.delivery.run_round()
    assert {report.delivery_target.epoch for report in hand.reports()} == {given.epoch for given in good}
    assert written(world) == [0, 1]


def test_their_topics_are_suspected_beside_one_with_records() -> None:
    """An abort without a named cause: the group's offset was sent of all of them, for which each topic needs READ."""
    world = World()
    world.broker.create("refused", partitions=2)
    hand = Hand(world)
    world.target.denied.add("refused")
    for partition in (1, 2, 3):
        begin(hand, partition, epoch=partition)
    refused = hand.begin(world.put(0, 3), epoch=9, target=TopicPartition("refused", 0))
    assert hand.delivery.run_round()
    assert hand.reports() == []
    assert hand.delivery._read_ahead._apart == {"refused", "copy"}
    while hand.delivery.run_round():
        pass
    (failed,) = [report for report in hand.reports() if isinstance(report, DeliveryFailed)]
    assert (failed.delivery_target, failed.kind) == (refused, FailureKind.DENIED)
    assert written(world) == [1, 2, 3]


def test_a_refused_first_checkpoint_ends_alone() -> None:
    world = World()
    world.broker.create("refused", partitions=4)
    hand = Hand(world)
    world.target.denied.add("refused")
    begin(hand, 1, epoch=1)
    begin(hand, 2, epoch=2, topic="refused")
    for _ in range(4):
        hand.delivery.run_round()
    assert written(world) == [1]
    assert [report.kind for report in hand.reports() if isinstance(report, DeliveryFailed)] == [FailureKind.DENIED]
