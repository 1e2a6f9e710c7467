"""Whether partitions hold committed records: TargetRecords on the Kafka client.

The start and end offsets of a log do not answer this: aborted records and transaction markers have offsets, too.
Therefore the first committed record is read; a partition without one is read to its end, by a client that drops aborted
records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from datetime import timedelta

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from formats.errors import TargetError
from infra.contracts.cluster import Occupancy, TopicPartition, Watermarks
from infra.kafka.client.connect import connect
from infra.kafka.client.errors import describe_error, translate
from infra.kafka.client.properties import for_bounded_reads, lookup_properties, reader_properties
from infra.kafka.cluster.admin import KafkaAdmin
from infra.runtime.lifecycle import Deadline

POLL_TIMEOUT = timedelta(milliseconds=200)
MAX_MESSAGES = 100  # of one call
EMPTY, FULL = Occupancy(holds_records=False), Occupancy(holds_records=True)


class KafkaTargetRecords:
    """Safe to call from several threads: each call that needs a consumer creates one of its own, of a few MB."""

    def __init__(
        self, admin: KafkaAdmin, properties: Mapping[str, str], *, read_within: timedelta = timedelta(seconds=30)
    ) -> None:
        """`properties`: those of a consumer. `read_within` should exceed the transaction timeout of writers that may
        have been killed, since the read waits for the end of their open transactions."""
        self._admin, self._properties, self._read_within = admin, properties, read_within

    def occupancies(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Occupancy]:
        marks = self._admin.watermarks(partitions)
        found = {partition: EMPTY for partition, mark in marks.items() if mark.low == mark.high}
        if left := {partition: mark for partition, mark in marks.items() if mark.low < mark.high}:
            found |= self._read(left)
        return found

    def _read(self, marks: Mapping[TopicPartition, Watermarks]) -> Mapping[TopicPartition, Occupancy]:
        reader = connect(
            Consumer,
            {
                **reader_properties(for_bounded_reads(lookup_properties(self._properties))),
                "queued.max.messages.kbytes": 1024,
                "fetch.max.bytes": 4 << 20,
                "max.partition.fetch.bytes": 64 << 10,  # larger records are delivered nevertheless
            },
        )
        found: dict[TopicPartition, Occupancy] = {}
        deadline = Deadline(self._read_within)
        with closing(reader):
            try:
                reader.assign([ClientPartition(p.topic, p.partition, mark.low) for p, mark in marks.items()])
                while len(found) < len(marks) and not deadline.expired:
                    for message in reader.consume(MAX_MESSAGES, min(POLL_TIMEOUT, deadline.left).total_seconds()):
                        partition = TopicPartition(message.topic() or "", message.partition() or 0)
                        if partition not in marks or partition in found:
                            continue
                        if (answer := _answer(message, marks[partition])) is not None:
                            found[partition] = answer
                            reader.incremental_unassign([ClientPartition(partition.topic, partition.partition)])
            except KafkaException as error:
                raise translate(error, "check whether the target holds records", needs="READ") from error
        unknown = Occupancy(
            None,
            f"neither a record nor the end was reached within {self._read_within.total_seconds():.0f} s: too many "
            "aborted records, or an open transaction",
        )
        return {partition: found.get(partition, unknown) for partition in marks}


def _answer(message: Message, mark: Watermarks) -> Occupancy | None:
    """What a message shows about its partition; None: nothing yet."""
    error = message.error()
    if error is None:
        return FULL
    if error.code() == KafkaError._PARTITION_EOF:
        return EMPTY if (message.offset() or 0) >= mark.high else None
    if error.retriable() or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
        return None
    problem = translate(KafkaException(error), f"read {message.topic()}/{message.partition()}", needs="READ")
    if isinstance(problem, TargetError):
        return Occupancy(None, str(problem))
    return Occupancy(None, describe_error(error))
