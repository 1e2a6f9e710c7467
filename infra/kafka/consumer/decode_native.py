"""Taken messages → Arrow, without a Python object for each: the same items as `decode` makes of the client's objects.

Compiled code (`infra/kafka/native/consume.c`) sorts the messages by partition, cuts them at errors and at leader epochs
and measures them, in one call; and copies each part into one piece of memory, laid out as the buffers of its columns,
in another. `decode` is the reference for every detail, and the fallback: a property test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import KafkaError

from formats.records.schema import HEADER, SCHEMA
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import PartitionFailed, Run
from infra.kafka.client.epochs import epoch_of
from infra.kafka.consumer import message_queue as mq
from infra.kafka.consumer.decode import UNDECODABLE_HEADER, Event, Item, undecodable
from infra.kafka.consumer.message_queue import Messages

_TIMESTAMP, _HEADERS = SCHEMA.field("timestamp").type, SCHEMA.field("headers").type
_OFFSETS, _TYPES, _DATA, _NAMES = pa.int64(), pa.int8(), pa.binary(), pa.string()
_HEADER_FIELDS = list(HEADER)


def items(messages: Messages) -> Iterator[tuple[TopicPartition, Item]]:
    """As `decode.items`, but with a leader epoch in each sequence of records. They are valid until `messages` is
    destroyed, and the runs of each may be asked for once."""
    names: dict[int, str] = {}
    for index, numbers in enumerate(messages.arrange()):
        topic = numbers[mq.TOPIC]
        name = names.get(topic)
        if name is None:
            name = names[topic] = messages.topic(numbers)
        partition = TopicPartition(name, numbers[mq.PARTITION])
        if numbers[mq.KIND] == mq.EVENT:
            error = KafkaError(numbers[mq.ERROR], messages.error_text(numbers))
            yield partition, Event(max(numbers[mq.FIRST], 0), error)
        else:
            yield partition, NativeRecords(partition, messages, index, numbers)


@dataclass(slots=True)
class NativeRecords:
    """Records, as a part of the taken messages."""

    partition: TopicPartition
    messages: Messages
    index: int
    numbers: list[int]

    @property
    def first_offset(self) -> int:
        return self.numbers[mq.FIRST]

    def from_offset(self, next_offset: int) -> NativeRecords | None:
        self.numbers = self.messages.trim(self.index, next_offset)
        return self if self.numbers[mq.BEGIN] < self.numbers[mq.END] else None

    def newer_in(self, hole: range, leader_epoch: int) -> tuple[int, int] | None:
        epoch = epoch_of(self.numbers[mq.EPOCH])
        if epoch is None or epoch <= leader_epoch:
            return None
        offset = self.messages.first_from(self.index, hole.start)
        return (offset, epoch) if offset in hole else None

    def runs(self) -> tuple[Run | PartitionFailed, ...]:
        if self.numbers[mq.KIND] != mq.UNDECODABLE:
            return (self._run(),)
        reason = undecodable(self.first_offset)
        return (PartitionFailed(self.partition, UNDECODABLE_HEADER, reason, self.first_offset),)

    def _run(self) -> Run:
        n = self.numbers
        size, begins, sizes = self.messages.layout(self.index)
        memory = pa.allocate_buffer(size)
        self.messages.fill(self.index, memory.address, size)
        b = [None if at < 0 else memory.slice(at, length) for at, length in zip(begins, sizes, strict=True)]
        count, array = n[mq.END] - n[mq.BEGIN], pa.Array.from_buffers
        if n[mq.HEADERS]:
            names = array(_NAMES, n[mq.HEADERS], [None, *b[11:13]], 0)
            values = array(_DATA, n[mq.HEADERS], b[13:16], n[mq.NULL_HEADER_VALUES])
            pairs = pa.StructArray.from_arrays([names, values], fields=_HEADER_FIELDS)
            headers = array(_HEADERS, count, b[9:11], count - n[mq.WITH_HEADERS], children=[pairs])
        else:
            headers = pa.nulls(count, _HEADERS)
        batch = pa.RecordBatch.from_arrays(
            [
                array(_OFFSETS, count, [None, b[0]], 0),
                array(_TIMESTAMP, count, [None, b[1]], 0),
                array(_TYPES, count, [None, b[2]], 0),
                array(_DATA, count, b[3:6], n[mq.NULL_KEYS]),
                array(_DATA, count, b[6:9], n[mq.NULL_VALUES]),
                headers,
            ],
            schema=SCHEMA,
        )
        size_bytes = n[mq.KEYS] + n[mq.VALUES] + n[mq.HEADER_KEYS] + n[mq.HEADER_VALUES]
        return Run(self.partition, batch, n[mq.FIRST], n[mq.LAST], count, size_bytes, epoch_of(n[mq.EPOCH]))
