"""Where partitions' logs begin and end, and how old an open transaction is: LogProbe on the Kafka client."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from infra.kafka.admin import KafkaAdmin
from infra.kafka.client_log import client_log
from infra.kafka.errors import translate
from infra.kafka.settings import lookup_properties
from replicator.lifecycle import Deadline
from replicator.protocols import LogEnds, TopicPartition

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SLICE = timedelta(milliseconds=200)


class KafkaLogProbe:
    """A LogProbe. A question about many partitions is asked in batches; each waits at most `timeout`."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        timeout: timedelta = timedelta(seconds=30),
        read_within: timedelta = timedelta(seconds=5),
    ) -> None:
        """`read_within` bounds `stamps`."""
        self._admin = KafkaAdmin(properties, timeout=timeout)
        self._properties, self._read_within = properties, read_within

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        return self._admin.ends(partitions)

    def stamps(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, datetime]:
        if not offsets:
            return {}
        found: dict[TopicPartition, datetime] = {}
        waiting, deadline = set(offsets), Deadline(self._read_within)
        consumer = Consumer(
            {
                **lookup_properties(self._properties),
                "group.id": f"replicator.probe.{uuid.uuid4().hex}",
                "isolation.level": "read_uncommitted",  # what is asked for is not committed yet
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": False,
                "queued.max.messages.kbytes": 1024,
            },
            logger=client_log,
        )
        try:
            consumer.assign([ClientPartition(p.topic, p.partition, offset) for p, offset in offsets.items()])
            while waiting and not deadline.expired:
                for message in consumer.consume(1000, SLICE.total_seconds()):
                    partition = TopicPartition(message.topic() or "", message.partition() or 0)
                    if partition not in waiting:
                        continue
                    waiting.discard(partition)
                    consumer.incremental_unassign([ClientPartition(partition.topic, partition.partition)])
                    kind, stamp_ms = message.timestamp()
                    if message.error() is None and kind != TIMESTAMP_NOT_AVAILABLE:
                        found[partition] = EPOCH + timedelta(milliseconds=stamp_ms)
        except KafkaException as error:
            raise translate(error, "read the first records of open transactions") from error
        finally:
            consumer.close()
        return found
