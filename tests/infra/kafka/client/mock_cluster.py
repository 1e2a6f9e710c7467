"""librdkafka's own mock cluster, in this process: it stores what is produced, hands it out, and fails on demand. Cheap
where what is tested is the client's half; what a real broker does is tested on one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from infra.contracts.cluster import TopicPartition
from infra.kafka.client.librdkafka import function, handle

PRODUCE = 0  # Kafka's API key


@dataclass(frozen=True, slots=True)
class MockCluster:
    bootstrap: str
    _address: int

    @property
    def properties(self) -> dict[str, object]:
        return {"bootstrap.servers": self.bootstrap, "log_level": 0}

    def fail_produce(self, *codes: int) -> None:
        """Answer the next requests with these errors, one each."""
        kind = ctypes.c_int * len(codes)
        push = function(
            "rd_kafka_mock_push_request_errors_array", None, ctypes.c_void_p, ctypes.c_int16, ctypes.c_size_t, kind
        )
        push(self._address, PRODUCE, len(codes), kind(*codes))

    def create_topic(self, name: str, partitions: int) -> None:
        create = function(
            "rd_kafka_mock_topic_create", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int
        )
        assert create(self._address, name.encode(), partitions, 1) == 0

    def records(self, partition: TopicPartition, count: int, start: int = 0) -> list[Message]:
        """So many records of the partition, from the offset `start` on."""
        with self.reader(partition, start) as read:
            return read(count, start)

    @contextmanager
    def reader(self, partition: TopicPartition, start: int = 0) -> Iterator[Callable[[int, int], list[Message]]]:
        """Gives so many records from an offset on, again and again, each time further behind in the partition."""
        consumer = Consumer(
            self.properties | {"group.id": "reader", "auto.offset.reset": "earliest", "check.crcs": True,
                               "fetch.wait.max.ms": 10}
        )  # fmt: skip

        def read(count: int, start: int) -> list[Message]:
            found: list[Message] = []
            while len(found) < count:
                messages = [one for one in consumer.consume(count - len(found), 1) if not one.error()]
                found += [one for one in messages if cast("int", one.offset()) >= start]
            return found

        try:
            consumer.assign([ClientPartition(partition.topic, partition.partition, start)])
            yield read
        finally:
            consumer.close()


@contextmanager
def mock_cluster(brokers: int = 1) -> Iterator[MockCluster]:
    owner = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": brokers, "log_level": 0})
    of_client = function("rd_kafka_handle_mock_cluster", ctypes.c_void_p, ctypes.c_void_p)
    bootstraps = function("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p, ctypes.c_void_p)
    address = of_client(handle(owner))
    try:
        yield MockCluster(bootstraps(address).decode(), address)
    finally:
        owner.close()
