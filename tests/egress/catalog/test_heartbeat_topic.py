"""Heartbeats in the topic of the source cluster: written by the writer of the catalogue, if it may."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from egress.catalog.heartbeat_topic import HeartbeatTopic
from egress.settings import EgressSettings, EgressTopicSettings
from formats.errors import BrokerUnavailable, ReplicatorError, TargetError
from formats.messages.mirrormaker import MirrorHeartbeat
from formats.records.milliseconds import ms_at_or_before
from formats.topic_selection import TopicPattern, TopicRule, explain, select
from infra.kafka.internal_topics.heartbeats import OwnHeartbeats
from infra.settings.field import Invalid
from tests.egress.catalog.published_region import Process, Region
from tests.fakes.heartbeats import FakeHeartbeats
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.surroundings import T0

TOPIC = "heartbeats"


@dataclass
class Written:
    at: list[datetime] = field(default_factory=list)
    error: ReplicatorError | None = None

    def __call__(self, at: datetime) -> None:
        self.at.append(at)
        if self.error is not None:
            raise self.error


def with_topic(region: Region, name: str) -> tuple[Process, Written]:
    process, written = region.process(name), Written()
    process.publisher.topic = HeartbeatTopic(written, process.pool)
    return process, written


def test_every_heartbeat_is_written_by_the_writer_alone() -> None:
    region = Region()
    (one, first), (two, second) = with_topic(region, "one"), with_topic(region, "two")
    region.turn(one, two, times=5)
    assert (first.at, second.at) == ([T0 + timedelta(seconds=5 * n) for n in range(5)], [])
    one.publisher.stop.set()
    one.publisher.run()  # writes that it is the last
    region.turn(two, times=2)
    assert len(first.at) == 6
    assert second.at


def test_a_cluster_that_does_not_answer_delays_no_heartbeat() -> None:
    region = Region()
    process, written = with_topic(region, "one")
    region.turn(process)
    process.pool.holding = True
    region.turn(process, times=10)
    assert len(list(region.store.memory.list("heartbeat/"))) == 11
    assert len(written.at) == 1, "one at a time"


def test_what_is_refused_is_logged_once_and_tried_again_later(caplog: pytest.LogCaptureFixture) -> None:
    region = Region()
    process, written = with_topic(region, "one")
    written.error = TargetError("allow WRITE on the topic")
    region.turn(process, times=60)
    assert len(written.at) == 5, "five minutes"
    assert [one.message for one in caplog.records].count("heartbeats_not_written") == 1
    assert process.publisher.health.snapshot().problems == {}
    written.error = None
    region.turn(process, times=13)
    assert len(written.at) > 6


def test_a_broker_that_is_away_is_asked_with_the_next_heartbeat() -> None:
    region = Region()
    process, written = with_topic(region, "one")
    written.error = BrokerUnavailable("away")
    region.turn(process, times=4)
    assert len(written.at) == 4


class TestTheTopic:
    def test_is_created_compacted_and_gets_records_of_mirrormaker(self) -> None:
        broker = FakeBroker()
        admin, topics = FakeAdmin(broker), FakeHeartbeats(broker)
        own = OwnHeartbeats(admin, topics, "a")
        own.write(T0)
        assert admin.configs(TOPIC) == {"cleanup.policy": "compact"}
        stamp = ms_at_or_before(T0)
        assert topics.beats(TOPIC) == [MirrorHeartbeat(source_alias="a", target_alias="a", timestamp_ms=stamp)]

    def test_is_created_again_when_it_was_deleted(self) -> None:
        broker = FakeBroker()
        topics = FakeHeartbeats(broker)
        own = OwnHeartbeats(FakeAdmin(broker), topics, "a")
        own.write(T0)
        broker.delete(TOPIC)
        with pytest.raises(BrokerUnavailable):
            own.write(T0)
        own.write(T0)
        assert len(topics.beats(TOPIC)) == 2

    def test_of_a_user_is_left_alone(self) -> None:
        broker = FakeBroker()
        broker.create(TOPIC, partitions=2)
        topics = FakeHeartbeats(broker)
        with pytest.raises(TargetError, match="may be a user's"):
            OwnHeartbeats(FakeAdmin(broker), topics, "a").write(T0)
        assert topics.records == []


def egress(*topics: str, **changes: object) -> EgressSettings:
    rules = tuple(TopicRule(TopicPattern(one), EgressTopicSettings()) for one in topics)
    return EgressSettings(topics=rules, **changes)  # type: ignore[arg-type]


class TestSettings:
    def test_what_is_written_here_is_not_archived_by_an_expression(self) -> None:
        assert list(select([TOPIC, "t"], egress("^.*").rules, ())) == [TOPIC, "t"], "it may be a user's"
        written = egress("^.*", write_heartbeats=True).rules
        assert list(select([TOPIC, "t"], written, ())) == ["t"]
        assert not explain(TOPIC, written, ()).selected
        assert list(select([TOPIC], egress("^.*", TOPIC, write_heartbeats=True).rules, ())) == [TOPIC]

    def test_there_are_none_to_write_without_an_interval(self) -> None:
        with pytest.raises(Invalid, match="heartbeat_interval"):
            egress("t", write_heartbeats=True, heartbeat_interval=timedelta())
