"""The controllers as a library: built from a configuration, started, stopped, joined, on the real brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from formats.errors import BrokerUnavailable, ConfigError
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.aws import create_bucket_with_queue
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.runtime.service import Service
from replicator.config import Config
from replicator.config.load import from_mapping
from replicator.services.egress import build_egress
from replicator.services.ingress import build_ingress
from replicator.services.sync import build_sync
from tests.integration.running import running_services

pytestmark = pytest.mark.integration

PATIENCE = timedelta(seconds=90)


class Flow:
    def __init__(self, stack: LocalStack, unique: Callable[[str], str]) -> None:
        self.stack, self.unique = stack, unique
        self.topic, self.bucket, self.queue = unique("topic"), unique("bucket"), unique("queue")
        create_bucket_with_queue(stack.moto.endpoint_url, self.bucket, self.queue)
        admin = AdminClient({"bootstrap.servers": stack.brokers["a"].bootstrap})
        for future in admin.create_topics([NewTopic(self.topic, 2, 1)]).values():
            future.result()

    def aws(self) -> dict[str, object]:
        return {
            "endpoint_url": self.stack.moto.endpoint_url,
            "region_name": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "test",
        }

    def config(self, region: str, **sections: object) -> Config:
        return from_mapping(
            {
                "region": region,
                "kafka": {"bootstrap.servers": self.stack.brokers[region].bootstrap},
                "s3": {"bucket": self.bucket, **self.aws()},
                **sections,
            },
            source="test",
        )

    def egress(self, **topic: object) -> Config:
        return self.config(
            "a",
            egress={
                "group_id": self.unique("egress"),
                "topic_refresh_interval": "1s",
                "topics": {self.topic: {"max_segment_age": "1s", **topic}},
            },
        )

    def ingress(self, *, groups: dict[str, object] | None = None, **settings: object) -> Config:
        return self.config(
            "b",
            sqs={"queue": self.queue, "wait": "1s", **self.aws()},
            ingress={
                "group_id": self.unique("ingress"),
                "segment_events_topic": self.unique("events"),
                "replication_factor": 1,
                "checkpoint_topic": self.unique("checkpoints"),
                "topic_refresh_interval": "1s",
                "relist_interval": "3s",
                "sources": [{"region": "a", "topic": self.topic, "first_segment_delay": "0s"}],
                **settings,
            },
            groups=groups or {},
        )

    def produce(self, count: int) -> None:
        # gapless, or a retry while the new topic finds its leader may swap two batches at the source
        producer = Producer({"bootstrap.servers": self.stack.brokers["a"].bootstrap, "enable.idempotence": True})
        for i in range(count):
            producer.produce(self.topic, b"%d" % i, key=None if i % 3 else b"k", partition=i % 2, headers=[("h", None)])
        assert producer.flush(20) == 0

    def arrived(self) -> dict[int, list[bytes | None]]:
        """Values by partition, as a consumer of the destination reads them."""
        name = f"{self.topic}.ingress"
        consumer = Consumer(
            {
                "bootstrap.servers": self.stack.brokers["b"].bootstrap,
                "group.id": self.unique("judge"),
                "enable.partition.eof": True,
            }
        )
        try:
            if name not in consumer.list_topics(timeout=10).topics:
                return {}
            values: dict[int, list[bytes | None]] = {0: [], 1: []}
            consumer.assign([TopicPartition(name, p, 0) for p in values])
            ended: set[int | None] = set()
            while len(ended) < 2:
                for message in consumer.consume(1000, 0.5):
                    if message.error() is None:
                        values[message.partition() or 0].append(message.value())
                    else:
                        ended.add(message.partition())
            return values
        finally:
            consumer.close()

    def arrived_when_complete(self, count: int) -> dict[int, list[bytes | None]]:
        """As soon as `count` records are there, or what is there when patience ends: the caller sees the difference."""
        arrived: dict[int, list[bytes | None]] = {}

        def complete() -> bool:
            nonlocal arrived
            arrived = self.arrived()
            return sum(map(len, arrived.values())) >= count

        wait_until(complete, PATIENCE)
        return arrived


@pytest.fixture
def flow(stack: LocalStack, unique: Callable[[str], str]) -> Flow:
    return Flow(stack, unique)


@pytest.fixture
def run() -> Iterator[Callable[[Service], Service]]:
    with running_services() as start:
        yield start


def test_a_topic_arrives_whole_and_in_order(flow: Flow, run: Callable[[Service], Service]) -> None:
    flow.produce(5000)
    run(build_egress(flow.egress()))
    run(build_ingress(flow.ingress()))
    wanted = {p: [b"%d" % i for i in range(p, 5000, 2)] for p in (0, 1)}
    assert flow.arrived_when_complete(5000) == wanted
    flow.produce(100)
    for p in (0, 1):
        wanted[p] += [b"%d" % i for i in range(p, 100, 2)]
    assert flow.arrived_when_complete(5100) == wanted


def test_stop_stores_and_commits_what_is_open(flow: Flow, run: Callable[[Service], Service]) -> None:
    """Two partitions are sealed by count, and what came after that is open when the service is stopped."""
    config = flow.egress(max_segment_age="1h", max_segment_messages=10)
    assert config.egress is not None
    consumer = Consumer({"bootstrap.servers": flow.stack.brokers["a"].bootstrap, "group.id": config.egress.group_id})
    partitions = [TopicPartition(flow.topic, p) for p in (0, 1)]

    def offsets() -> list[int]:
        return [p.offset for p in consumer.committed(partitions, timeout=10)]

    try:
        egress = build_egress(config)
        egress.start()
        flow.produce(26)
        assert wait_until(lambda: offsets() == [10, 10], PATIENCE)  # so the three behind them were fetched as well
        egress.stop()
        egress.join(timedelta(seconds=30))
        assert offsets() == [13, 13]
        run(build_ingress(flow.ingress()))
        assert wait_until(lambda: [len(v) for v in flow.arrived().values()] == [13, 13], PATIENCE)
    finally:
        consumer.close()


def test_what_cannot_be_built_says_why(flow: Flow) -> None:
    with pytest.raises(ConfigError, match="egress: missing"):
        build_egress(flow.ingress())
    with pytest.raises(ConfigError, match="ingress: missing"):
        build_ingress(flow.egress())
    with pytest.raises(ConfigError, match="sync: missing"):
        build_sync(flow.egress())


def test_no_broker_is_one_clear_error(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replicator.services.egress.KafkaAdmin", partial(KafkaAdmin, timeout=timedelta(seconds=3)))
    config = from_mapping(
        {
            "region": "a",
            "kafka": {
                "bootstrap.servers": "127.0.0.1:9",
                "socket.timeout.ms": 2000,
                "socket.connection.setup.timeout.ms": 2000,
            },
            "s3": {"bucket": flow.bucket, **flow.aws()},
            "egress": {"topics": {"t": {}}},
        },
        source="test",
    )
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:9"):
        build_egress(config)


ALTERS_NOTHING = {"create_topics": False, "add_partitions": False, "configs": "off", "acls": "off", "protect": False}


@pytest.mark.parametrize("groups", [{}, {"sync": True}])
def test_the_ledger_is_created_only_where_something_is_written_down(
    stack: LocalStack, unique: Callable[[str], str], groups: dict[str, object]
) -> None:
    flow, ledger = Flow(stack, unique), unique("ledger")
    with running_services() as start:
        start(build_ingress(flow.ingress(groups=groups, ledger_topic=ledger, **ALTERS_NOTHING)))
    assert (ledger in KafkaAdmin({"bootstrap.servers": stack.brokers["b"].bootstrap}).topics()) == bool(groups)
