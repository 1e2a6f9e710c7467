"""Where partitions' logs begin and end, and how old an open transaction is: LogProbe on the Kafka client."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import UTC, datetime, timedelta
from itertools import islice

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from infra.kafka.admin import ABSENT, BATCH, EARLIEST, GRACE, LATEST
from infra.kafka.client_log import client_log
from infra.kafka.errors import error_of, translate
from infra.kafka.settings import lookup_properties
from replicator.errors import BrokerUnavailable
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
        self._client = AdminClient(dict(properties), logger=client_log)
        self._properties = properties
        self._timeout, self._read_within = timeout, read_within

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        """Asked in this order, so that low <= stable <= high unless the log was truncated meanwhile."""
        lows = self._offsets(partitions, EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        stables = self._offsets(lows, LATEST, IsolationLevel.READ_COMMITTED)
        highs = self._offsets(stables, LATEST, IsolationLevel.READ_UNCOMMITTED)
        return {p: LogEnds(low=lows[p], stable=stables[p], high=high) for p, high in highs.items()}

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

    def _offsets(
        self, partitions: Collection[TopicPartition], spec: object, isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        rest = iter(partitions)
        while some := list(islice(rest, BATCH)):
            asked = self._client.list_offsets(
                {ClientPartition(p.topic, p.partition): spec for p in some},  # type: ignore[misc]
                isolation_level=isolation,
                request_timeout=self._timeout.total_seconds(),
            )
            for where, future in asked.items():
                partition = TopicPartition(where.topic, where.partition)
                doing = f"list offsets of {partition}"
                try:
                    found[partition] = future.result((self._timeout + GRACE).total_seconds()).offset
                except FutureTimeout as error:
                    raise BrokerUnavailable(f"{doing}: no answer within {self._timeout}") from error
                except KafkaException as error:
                    if error_of(error).code() not in ABSENT:
                        raise translate(error, doing) from error
        return found
