"""What is known of logs when brokers give no answer, or another one the second time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event

import pytest

import egress.start.log_lookup
from egress.start.log_lookup import OneByOne, check_points, marks_of
from formats.errors import BrokerUnavailable
from formats.log_point import LogPoint
from infra.contracts.cluster import LogTruncated, TopicPartition, Watermarks
from tests.fakes.executors import HandExecutor
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.kafka_probe import BrokerProbe

P, Q, ABSENT = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)
POINTS = {P: LogPoint(5, 0), Q: LogPoint(5, 0)}


@pytest.fixture
def broker() -> FakeBroker:
    broker = FakeBroker()
    for partition in broker.create("t", partitions=2):
        broker.append(partition, *[b"x"] * 10)
    return broker


def test_marks_of_all_but_the_leaderless(broker: FakeBroker) -> None:
    admin = FakeAdmin(broker)
    assert marks_of(admin, [P, Q, ABSENT], HandExecutor(), OneByOne()) == (
        {P: Watermarks(0, 10), Q: Watermarks(0, 10)},
        {},
    )
    admin.leaderless.add(Q)
    found, failed = marks_of(admin, [P, Q, ABSENT], HandExecutor(), OneByOne())
    assert found == {P: Watermarks(0, 10)}
    assert list(failed) == [Q]
    admin.leaderless.add(P)
    with pytest.raises(BrokerUnavailable, match="LEADER_NOT_AVAILABLE"):
        marks_of(admin, [P, Q], HandExecutor(), OneByOne())


def test_an_answer_that_does_not_come_is_not_waited_for_without_end(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    comes = Event()

    class Slow(FakeAdmin):
        def watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
            if Q in partitions and len(partitions) == 1:
                comes.wait(60)
            return super().watermarks(partitions)

    monkeypatch.setattr(egress.start.log_lookup, "ONE_BY_ONE", timedelta(milliseconds=100))
    admin = Slow(broker, leaderless={Q})
    with ThreadPoolExecutor(2) as pool:
        found, failed = marks_of(admin, [P, Q], pool, OneByOne())
        comes.set()
    assert (found, list(failed)) == ({P: Watermarks(0, 10)}, [Q])
    assert "no answer within" in failed[Q]


def test_all_requests_of_a_lookup_share_the_time_for_partitions_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress.start.log_lookup, "ONE_BY_ONE", timedelta(0))
    patience = OneByOne()
    assert patience.left() == timedelta(0)
    monkeypatch.setattr(egress.start.log_lookup, "ONE_BY_ONE", timedelta(hours=1))
    assert patience.left() == timedelta(0), "it began with the first of them"
    assert OneByOne().left() > timedelta(0)


def test_a_log_is_another_one_when_it_is_refused_twice(broker: FakeBroker) -> None:
    probe = BrokerProbe(broker)
    assert check_points(probe, {}) == {}
    assert check_points(probe, POINTS) == {P: None, Q: None}
    broker.truncate(P, 2)
    answer = check_points(probe, POINTS)
    assert {p: t and t.end_offset for p, t in answer.items()} == {P: 2, Q: None}
    probe.after_answer = lambda: probe.silent.add(P)
    assert check_points(probe, POINTS) == {Q: None}, "refused once, and then no answer"


def test_a_failure_is_no_answer(broker: FakeBroker) -> None:
    class Away(BrokerProbe):
        def compare_points(
            self, points: Mapping[TopicPartition, LogPoint]
        ) -> Mapping[TopicPartition, LogTruncated | None]:
            raise BrokerUnavailable("compare leader epochs: planned")

    assert check_points(Away(broker), POINTS) == {}
