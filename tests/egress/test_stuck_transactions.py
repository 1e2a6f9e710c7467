"""Open transactions at the source: how long they hold a partition back, reported once, and forgotten at their end."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from egress.open_transactions import StuckTransactions
from infra.contracts.cluster import TopicPartition
from tests.egress.world import STUCK, World
from tests.fakes.surroundings import T0

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
LABELS = {"topic": "t", "partition": "0"}


def test_age_is_since_the_stable_offset_last_changed() -> None:
    stuck = StuckTransactions(timedelta(seconds=60))

    def age(stable: int, high: int, seconds: float) -> float:
        [tail] = stuck.seen({P: stable}, {P: high, Q: 0}, T0 + timedelta(seconds=seconds))
        assert (tail.partition, tail.stable, tail.high) == (P, stable, high)
        return tail.age.total_seconds()

    assert [age(5, 5, 0), age(5, 9, 10), age(5, 30, 40), age(7, 30, 50), age(7, 40, 70)] == [0, 0, 30, 0, 20]
    assert [age(40, 40, 80), age(40, 40, 90), age(40, 41, 100)] == [0, 0, 0]


def test_a_stuck_transaction_is_reported_once_until_it_moves() -> None:
    stuck = StuckTransactions(timedelta(seconds=60))
    news = []
    for stable, seconds in ((5, 0), (5, 59), (5, 60), (5, 120), (6, 130), (6, 190), (6, 200)):
        [tail] = stuck.seen({P: stable}, {P: 9}, T0 + timedelta(seconds=seconds))
        if stuck.is_news(tail):
            news.append(seconds)
    assert news == [60, 190]


def test_a_stuck_transaction_is_a_metric_and_one_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    process = world.process()
    process.join()
    transaction = world.broker.begin(P, b"open")
    world.produce(P, 3)
    with caplog.at_level(logging.WARNING, "egress.lag"):
        for _ in range(100):
            process.later(30)
    gauge = process.metrics.value("stuck_transaction_seconds", **LABELS)
    assert gauge is not None
    assert gauge > STUCK.total_seconds()
    assert process.metrics.value("stuck_transaction_seconds", topic="t", partition="1") == 0
    [stuck] = [record for record in caplog.records if record.message == "transaction_stuck"]
    assert (stuck.__dict__["topic"], stuck.__dict__["offset"], stuck.__dict__["count"]) == ("t", 0, 4)
    assert world.ranges(P) == []
    transaction.abort()
    process.later(30)
    process.later(30)
    assert process.metrics.value("stuck_transaction_seconds", **LABELS) == 0
    world.expect(P)
    process.consumer.revoke(P)
    process.turn()
    assert process.metrics.value("stuck_transaction_seconds", **LABELS) is None


def test_only_partitions_with_uncommitted_records_are_asked_for_their_last_stable_offset(world: World) -> None:
    process = world.process()
    process.join()
    world.produce(P, 3)
    world.produce(Q, 3)
    for _ in range(4):
        process.later(30)
    assert world.ranges(P) == world.ranges(Q)
    world.admin.asked_stable.clear()
    for _ in range(4):
        process.later(30)
    assert not world.admin.asked_stable
    assert process.metrics.value("stuck_transaction_seconds", **LABELS) == 0
    world.broker.begin(P, b"open")
    for _ in range(4):
        process.later(30)
    assert set(world.admin.asked_stable) == {P}
    gauge = process.metrics.value("stuck_transaction_seconds", **LABELS)
    assert gauge is not None
    assert gauge > 0
