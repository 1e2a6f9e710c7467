"""Direct access to a real cluster, without the adapters under test: creates topics; deletes, reads, writes records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide what it documents
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from infra.contracts.cluster import TopicPartition
from infra.local.broker import Broker
from infra.runtime.lifecycle import Deadline
from tests.fakes.kafka_target import TargetRecord

PATIENCE = timedelta(seconds=60)
QUIET = {"log_level": 0}


@dataclass(frozen=True, slots=True)
class Cluster:
    broker: Broker

    @property
    def properties(self) -> dict[str, str]:
        return {"bootstrap.servers": self.broker.bootstrap}

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> list[TopicPartition]:
        deadline = Deadline(PATIENCE)
        made = late = False
        while not made:
            # retried: a broker that was frozen for longer than its controller waits may never answer the first request
            admin = self._admin()  # kept until the answer is there: the client ends with its last reference
            new = NewTopic(topic, partitions, 1, config=dict(configs or {}))
            try:
                admin.create_topics([new], request_timeout=10)[topic].result(15)
                made = True
            except (KafkaException, FutureTimeout) as error:
                made = late and _is(error, KafkaError.TOPIC_ALREADY_EXISTS)
                late = not isinstance(error, KafkaException) or _is(error, KafkaError._TIMED_OUT) or made
                if not late or deadline.expired:
                    raise
        deadline = Deadline(PATIENCE)
        # the answer comes before the topic is visible
        while not self._is_visible(topic):
            assert not deadline.expired, f"{topic} was created, but is not visible"
        return [TopicPartition(topic, n) for n in range(partitions)]

    def _is_visible(self, topic: str) -> bool:
        """A request on a connection that has just ended fails (seen): the next client is asked."""
        try:
            return topic in self.topics()
        except KafkaException as error:
            if not _is(error, KafkaError._TRANSPORT):
                raise
            return False

    def topics(self) -> set[str]:
        return set(self._admin().list_topics(timeout=PATIENCE.total_seconds()).topics)

    def delete(self, topic: str) -> None:
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(PATIENCE.total_seconds())

    def add_partition(self, topic: str, total: int) -> None:
        admin = self._admin()
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(PATIENCE.total_seconds())

    def alter(self, topic: str, configs: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin = self._admin()
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE.total_seconds())

    def cut(self, topic: str, before: int = -1) -> None:
        """Delete the records of partition 0 below offset `before`; −1: all records."""
        place = Place(topic, 0, before)
        admin = self._admin()
        admin.delete_records([place])[place].result(PATIENCE.total_seconds())

    def messages(self, partition: TopicPartition) -> list[Message]:
        """All records in the partition now, committed or not transactional. Waits for the markers of transactions that
        are ending: the answer to a commit may precede them."""
        consumer = Consumer(
            self.properties
            | QUIET
            | {
                "group.id": "past-the-adapters",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
            }
        )
        try:
            here = Place(partition.topic, partition.partition, 0)
            high = self._high(here)
            consumer.assign([here])
            found: list[Message] = []
            deadline = Deadline(PATIENCE)
            while not deadline.expired:
                for message in consumer.consume(1000, 0.2):
                    error = message.error()
                    if error is None:
                        found.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF and (message.offset() or 0) >= high:
                        return found
            raise AssertionError(f"{partition} was not read to its end within {PATIENCE}")
        finally:
            consumer.close()

    def _high(self, place: Place) -> int:
        """The high watermark. A reader of committed records would get the start of the first open transaction, which
        may have ended except for its marker."""
        admin = self._admin()  # kept until the answer is there
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # it has no types
        deadline = Deadline(PATIENCE)
        while True:
            asked = admin.list_offsets(
                {place: latest}, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=30
            )
            try:
                return int(asked[place].result(PATIENCE.total_seconds()).offset)
            except KafkaException as error:  # of a new topic: its leader may not know that it leads (seen)
                if deadline.expired or not _is(error, KafkaError.NOT_LEADER_FOR_PARTITION):
                    raise

    def end(self, partition: TopicPartition) -> int:
        return self._high(Place(partition.topic, partition.partition))

    def records(self, partition: TopicPartition) -> list[TargetRecord]:
        return [
            TargetRecord(
                timestamp_ms=message.timestamp()[1],
                key=message.key(),
                value=message.value(),
                headers=_headers(message),
            )
            for message in self.messages(partition)
        ]

    def put(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        with self.producer() as producer:
            producer.produce(topic, value, key, 0)

    @contextmanager
    def producer(self, **properties: object) -> Iterator[Producer]:
        producer = Producer(self.properties | QUIET | {"linger.ms": 0} | properties)
        try:
            yield producer
            assert producer.flush(PATIENCE.total_seconds()) == 0
        finally:
            producer.purge()
            producer.close()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze the broker: connections stay open, nothing answers."""
        admin = self._admin()
        admin.list_topics(timeout=PATIENCE.total_seconds())
        self.broker.freeze()
        try:
            while _answers(admin):  # on a busy machine a signal takes time to reach every thread
                pass
            yield
        finally:
            self.broker.thaw()

    def _admin(self) -> AdminClient:
        return AdminClient({**self.properties, **QUIET})


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    pairs: Any = message.headers() or ()  # the stubs name what `produce` takes; `consume` returns pairs with bytes
    return tuple(pairs)


def _is(error: Exception, code: int) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() == code


def _answers(admin: AdminClient) -> bool:
    try:
        admin.list_topics(timeout=0.3)
    except KafkaException:
        return False
    return True
