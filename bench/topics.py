"""Topics of a cluster, changed and read as their owner does it: by the Kafka client alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide what it documents
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from infra.local.waiting import wait_until

SECONDS = 30.0
NO_CONFIGS: Mapping[str, str] = {}
KEPT: Mapping[str, str] = {"retention.ms": "-1"}  # timestamps of generated records are old
QUIET = {"log_level": 0}


@dataclass(slots=True)
class ClusterTopics:
    bootstrap: str
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})

    def create(self, topic: str, partitions: int, configs: Mapping[str, str] = NO_CONFIGS) -> None:
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=dict(configs))])[topic].result(SECONDS)
        assert wait_until(lambda: self._exists(topic), timedelta(seconds=SECONDS))

    def create_again(self, topic: str, partitions: int) -> None:
        self.admin.delete_topics([topic])[topic].result(SECONDS)
        assert wait_until(lambda: not self._exists(topic), timedelta(seconds=SECONDS))
        self.create(topic, partitions)

    def grow(self, topic: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result(SECONDS)

    def produce(self, topic: str, partition: int, values: Sequence[str]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, **QUIET})
        for value in values:
            producer.produce(topic, value.encode(), partition=partition)
        assert producer.flush(SECONDS) == 0

    def values(self, topic: str, partition: int) -> list[str]:
        """All committed values of a partition; none where it does not exist."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "behaviour", "enable.partition.eof": True, **QUIET}
        )
        try:
            try:
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=SECONDS)
            except KafkaException:
                return []
            if low == high:
                return []
            consumer.assign([TopicPartition(topic, partition, low)])
            found: list[str] = []
            while (message := consumer.poll(SECONDS)) is not None and message.error() is None:
                found.append((message.value() or b"").decode())
                if (message.offset() or 0) >= high - 1:
                    break  # it may grow faster than it is read
            return found
        finally:
            consumer.close()

    def config(self, topic: str, name: str) -> str | None:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            found: Any = self.admin.describe_configs([resource])[resource].result(SECONDS)
        except KafkaException:
            return None
        return None if name not in found else str(found[name].value)

    def set_config(self, topic: str, name: str, value: str | None) -> None:
        """None: unset."""
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value or "", incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(SECONDS)

    def allow_reading(self, topic: str, principal: str) -> None:
        for future in self.admin.create_acls([_reading(AclBinding, topic, principal)]).values():
            future.result(SECONDS)

    def revoke_reading(self, topic: str, principal: str) -> None:
        for future in self.admin.delete_acls([_reading(AclBindingFilter, topic, principal)]).values():
            future.result(SECONDS)

    def readers(self, topic: str) -> set[str]:
        anything: Any = None
        every = AclBindingFilter(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            anything,
            anything,
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        return {one.principal for one in self.admin.describe_acls(every).result(SECONDS)}

    def _exists(self, topic: str) -> bool:
        return topic in self.admin.list_topics(timeout=SECONDS).topics


def _reading(kind: Any, topic: str, principal: str) -> Any:
    return kind(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        principal,
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
