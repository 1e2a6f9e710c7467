"""The event log: the contract, and behaviour that only a real topic has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta

import pytest

from formats.errors import BrokerUnavailable, TargetError
from formats.messages.segment_events import SegmentEvent, encode_key
from infra.contracts.cluster import TopicPartition
from infra.contracts.internal_topics import EventLog, LogReset
from infra.kafka.internal_topics.event_log import KafkaEventLog
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from tests.contracts.event_log import PATIENCE, EventLogContract, created, read
from tests.fakes.kafka_target import FakeLog
from tests.infra.cluster import Cluster
from tests.infra.principal import READ, TOPIC, WRITE, Principal

SOON = timedelta(seconds=1)


class TestFakeLog(EventLogContract):
    @pytest.fixture
    def log(self) -> FakeLog:
        self._log = FakeLog()
        return self._log

    @pytest.fixture
    def open_log(self, log: FakeLog) -> Callable[[], EventLog]:
        return log.open

    def put(self, value: bytes) -> None:
        self._log.put(value)

    def lose(self) -> None:
        self._log.lose()

    def test_away(self, log: FakeLog) -> None:
        one = log.open()
        one.start()
        one.publish([created(0)])
        log.away = True
        assert list(one.poll(SOON)) == []
        with pytest.raises(BrokerUnavailable):
            one.publish([created(1)])
        log.away = False
        assert list(one.poll(SOON)) == [created(0)]


@pytest.mark.integration
class TestKafkaEventLog(EventLogContract):
    @pytest.fixture
    def cluster(self, stack: LocalStack) -> Cluster:
        self._cluster = Cluster(stack.brokers["b"])
        return self._cluster

    @pytest.fixture
    def topic(self, cluster: Cluster, unique: Callable[[str], str]) -> str:
        self._topic = unique("segmentevents")
        cluster.create(self._topic)
        return self._topic

    @pytest.fixture
    def open_log(self, cluster: Cluster, topic: str) -> Iterator[Callable[..., KafkaEventLog]]:
        opened: list[KafkaEventLog] = []

        def open_log(*, check_every: timedelta = timedelta(minutes=5), patience: timedelta = PATIENCE) -> KafkaEventLog:
            # a reader that fetches little ahead, so that it can lose its position
            little = {"queued.min.messages": 1, "queued.max.messages.kbytes": 1, "max.partition.fetch.bytes": 1000}
            quick = {
                "log_level": 0,
                "fetch.wait.max.ms": 50,
                "fetch.queue.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
            }
            quick |= little
            opened.append(
                KafkaEventLog(
                    {**cluster.properties, **quick},
                    topic,
                    producer={**cluster.properties, "log_level": 0, "reconnect.backoff.max.ms": 200},
                    publish_within=patience,
                    answer_within=patience,
                    check_every=check_every,
                )
            )
            return opened[-1]

        yield open_log
        for log in opened:
            log.close()

    def put(self, value: bytes) -> None:
        self._cluster.put(self._topic, b"foreign", value)

    def lose(self) -> None:
        with self._cluster.producer(**{"batch.size": 1}) as producer:
            for _ in range(50):
                producer.produce(self._topic, bytes(2000), b"foreign", 0)
        self._cluster.cut(self._topic)

    def test_records_are_keyed_by_segment(
        self, open_log: Callable[..., KafkaEventLog], cluster: Cluster, topic: str
    ) -> None:
        log = open_log()
        log.publish([created(0), created(1)])
        keys = [m.key() for m in cluster.messages(TopicPartition(topic, 0))]
        assert keys == [encode_key(created(0)), encode_key(created(1))]

    def test_a_new_partition_is_noticed(
        self, open_log: Callable[..., KafkaEventLog], cluster: Cluster, topic: str
    ) -> None:
        log = open_log(check_every=timedelta(milliseconds=50))
        log.start()
        cluster.add_partition(topic, 3)
        [reset] = read(log, 1)
        assert isinstance(reset, LogReset)
        assert "partition" in reset.reason
        events = [created(n, partition=n) for n in range(20)]
        log.publish(events)
        found = read(log, 20)
        assert sorted(found, key=str) == sorted(events, key=str)

    def test_another_incarnation_of_the_topic_is_noticed(
        self, open_log: Callable[..., KafkaEventLog], cluster: Cluster, topic: str
    ) -> None:
        log = open_log(check_every=timedelta(milliseconds=50))
        log.start()
        cluster.delete(topic)
        cluster.create(topic)
        assert any(isinstance(item, LogReset) for item in read(log, 1))
        log.publish([created(7)])
        assert created(7) in read(log, 1)

    def test_connection_problems_lose_no_position(
        self, open_log: Callable[..., KafkaEventLog], cluster: Cluster
    ) -> None:
        log, other = open_log(), open_log(patience=SOON)
        log.start()
        log.publish([created(0)])
        with cluster.frozen():
            early = list(log.poll(timedelta(milliseconds=200)))
            with pytest.raises(BrokerUnavailable):
                other.publish([created(1)])
            with pytest.raises(BrokerUnavailable):
                other.start()
            assert list(other.poll(timedelta())) == []
        log.publish([created(2)])
        seen = early + read(log, 2 - len(early))
        while seen[-1:] != [created(2)]:  # the abandoned record may have been in flight
            seen += read(log, 1)
        assert seen in ([created(0), created(2)], [created(0), created(1), created(2)])

    @pytest.mark.long
    def test_events_written_during_a_broker_restart_are_read(
        self, open_log: Callable[..., KafkaEventLog], cluster: Cluster
    ) -> None:
        log = open_log()
        log.start()
        log.publish([created(0)])
        cluster.broker.stop()
        early = [item for _ in range(3) for item in log.poll(timedelta(milliseconds=20))]
        cluster.broker.start()
        log.publish([created(1)])
        seen = early + read(log, 2 - len(early))
        assert seen == [created(0), created(1)]


@pytest.mark.integration
def test_a_lost_read_permission_loses_no_position(
    stack: LocalStack, unique: Callable[[str], str], topic_name: str
) -> None:
    """It is logged once, causes no listing, and later events are read once the permission is back."""
    broker = stack.brokers["b"]
    Cluster(broker).create(topic_name)
    principal = Principal(broker, unique("worker"))
    principal.allow(TOPIC, topic_name, READ, WRITE)
    with (
        closing(KafkaEventLog({**principal.properties, "log_level": 0}, topic_name)) as log,
        closing(KafkaEventLog({"bootstrap.servers": broker.bootstrap}, topic_name)) as other,
    ):
        log.start()
        log.publish([created(0)])
        assert read(log, 1) == [created(0)]
        principal.forbid(TOPIC, topic_name, READ)
        found: list[SegmentEvent | LogReset] = []

        def polled() -> bool:
            found.extend(log.poll(timedelta(milliseconds=50)))
            return bool(log.problem)

        assert wait_until(polled, PATIENCE)
        assert re.search(f"read {topic_name}.*TOPIC_AUTHORIZATION_FAILED.*allow READ on the topic", log.problem)
        other.publish([created(1)])
        for _ in range(20):
            assert polled()
        principal.allow(TOPIC, topic_name, READ)
        assert wait_until(lambda: not polled(), PATIENCE)
        assert found == [created(1)]
        principal.forbid(TOPIC, topic_name, WRITE)
        with pytest.raises(TargetError, match=f"write to {topic_name}.*allow WRITE on the topic"):
            log.publish([created(2)])


def test_an_unreachable_broker_is_no_answer() -> None:
    log = KafkaEventLog(
        {"bootstrap.servers": "127.0.0.1:9", "log_level": 0},
        "topic",
        publish_within=timedelta(milliseconds=200),
        answer_within=timedelta(milliseconds=200),
    )
    with pytest.raises(BrokerUnavailable):
        log.start()
    with pytest.raises(BrokerUnavailable):
        log.publish([created(0)])
    assert list(log.poll(timedelta())) == []
    log.close()


@pytest.mark.parametrize(("alarm", "problem"), [(timedelta(), "topic has not been readable"), (SOON * 1000, "")])
def test_a_log_that_stays_unreadable_is_a_problem(alarm: timedelta, problem: str) -> None:
    """Until then only listings find new segments, and nothing else says so."""
    properties = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0}
    with closing(KafkaEventLog(properties, "topic", answer_within=timedelta(milliseconds=200), alarm=alarm)) as log:
        with pytest.raises(BrokerUnavailable):
            log.start()
        assert log.problem == "", "it is asked again at once"
        assert list(log.poll(timedelta())) == []
        assert log.problem.startswith(problem)
        assert bool(log.problem) == bool(problem)
