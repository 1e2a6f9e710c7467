"""Log start and end offsets, the age of open transactions, and log truncation: LogProbe on the Kafka client."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cached_property

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from formats.log_point import LogPoint
from formats.records.milliseconds import time_of_ms
from infra.contracts.cluster import LogEnds, LogTruncated, TopicPartition
from infra.kafka.client.connect import connect
from infra.kafka.client.epochs import parse_truncation
from infra.kafka.client.errors import PARTITION_EOF, translate
from infra.kafka.client.properties import for_bounded_reads, lookup_properties
from infra.kafka.cluster.admin import KafkaAdmin
from infra.runtime.lifecycle import Deadline

POLL_TIMEOUT = timedelta(milliseconds=200)


class KafkaLogProbe:
    """A LogProbe. Requests about many partitions are sent in batches; each batch waits at most `timeout`."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        admin: Mapping[str, str],
        timeout: timedelta = timedelta(seconds=30),
        read_within: timedelta = timedelta(seconds=5),
    ) -> None:
        """`properties`: of consumers. `admin`: of admin clients, which warn of a consumer's.
        `read_within`: time limit of `timestamps`, of `without_records` and of `truncated`."""
        self._admin_properties = admin
        self._properties, self._timeout, self._read_within = properties, timeout, read_within

    @cached_property
    def _admin(self) -> KafkaAdmin:
        """Created on first use: it keeps connections to all brokers."""
        return KafkaAdmin(self._admin_properties, timeout=self._timeout)

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        return self._admin.ends(partitions)

    def timestamps(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, datetime]:
        found: dict[TopicPartition, datetime] = {}
        positions = [ClientPartition(p.topic, p.partition, offset) for p, offset in offsets.items()]
        for partition, message in self._first_answers(positions, "read the first records of open transactions"):
            kind, timestamp_ms = message.timestamp()
            if message.error() is None and kind != TIMESTAMP_NOT_AVAILABLE:
                found[partition] = time_of_ms(timestamp_ms)
        return found

    def without_records(self, offsets: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
        positions = [ClientPartition(p.topic, p.partition, offset) for p, offset in offsets.items()]
        found: set[TopicPartition] = set()
        for partition, message in self._first_answers(positions, "read the first records that wait", end_counts=True):
            error = message.error()
            if error is not None and error.code() == PARTITION_EOF:
                found.add(partition)
        return found

    def truncated(self, points: Mapping[TopicPartition, LogPoint]) -> Mapping[TopicPartition, LogTruncated]:
        return {p: truncated for p, truncated in self.compare_points(points).items() if truncated is not None}

    def compare_points(self, points: Mapping[TopicPartition, LogPoint]) -> Mapping[TopicPartition, LogTruncated | None]:
        found: dict[TopicPartition, LogTruncated | None] = {}
        positions = [
            ClientPartition(p.topic, p.partition, point.next_offset, leader_epoch=point.leader_epoch)
            for p, point in points.items()
        ]
        for partition, message in self._first_answers(positions, "compare leader epochs", end_counts=True):
            error = message.error()
            if error is None or error.code() == PARTITION_EOF:  # the client fetches only once the point is confirmed
                found[partition] = None
            elif (answer := parse_truncation(error)) is not None and answer.point == points[partition]:
                found[partition] = LogTruncated(partition, points[partition], answer.end_offset, error.str())
        return found

    def _first_answers(
        self, positions: list[ClientPartition], operation: str, *, end_counts: bool = False
    ) -> Iterator[tuple[TopicPartition, Message]]:
        """The first message of each partition at or after its position; partitions without one in time are left out.
        Each call creates a client: a new client knows no leader yet and therefore validates every position before it
        fetches. `end_counts`: the end of a partition counts as a message."""
        if not positions:
            return
        waiting, deadline = {TopicPartition(p.topic, p.partition) for p in positions}, Deadline(self._read_within)
        consumer = connect(
            Consumer,
            {
                **for_bounded_reads(lookup_properties(self._properties)),
                "group.id": f"replicator.probe.{uuid.uuid4().hex}",
                "isolation.level": "read_uncommitted",  # the records wanted may not be committed yet
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": end_counts,
                "queued.max.messages.kbytes": 1024,
            },
        )
        try:
            consumer.assign(positions)
            while waiting and not deadline.expired:
                for message in consumer.consume(1000, POLL_TIMEOUT.total_seconds()):
                    partition = TopicPartition(message.topic() or "", message.partition() or 0)
                    if partition not in waiting:
                        continue
                    waiting.discard(partition)
                    consumer.incremental_unassign([ClientPartition(partition.topic, partition.partition)])
                    yield partition, message
        except KafkaException as error:
            raise translate(error, operation, needs="READ") from error
        finally:
            consumer.close()
