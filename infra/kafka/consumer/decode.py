"""Converts fetched messages to Arrow: the hot path of every reader of Kafka.

No Python code here runs once per record: columns are built by C-level `map` over the messages. How the client treats
records, each seen on a broker:
  - The timestamp type is librdkafka's number (0 none, 1 create, 2 append); a timestamp of −1 or below is passed on.
  - No headers and an empty list of headers are the same bytes in a record batch: both are delivered as None.
  - A header name that is not UTF-8 makes `Message.headers` fail, and **a second call on that message returns a broken
    list**, so it is called once per message.
  - The client ends a header name at its first NUL byte, which cannot be detected here; `decode_native` reads all of it.

`decode_native` does the same, but for that, without the client's message objects; this module is its reference and
its fallback.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, groupby
from operator import itemgetter
from typing import Protocol, TypeAlias, cast

import pyarrow as pa
from confluent_kafka import KafkaError, Message

from formats.records.schema import HEADER, SCHEMA
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import PartitionFailed, Run
from infra.kafka.client.epochs import epoch_of
from infra.kafka.client.errors import PARTITION_EOF
from infra.runtime.collector import gc_paused

UNDECODABLE_HEADER = "UNDECODABLE_HEADER"

_TYPES = bytes([0xFF, 0, 1]) + bytes(range(3, 256))  # librdkafka's timestamp type -> Kafka's, as int8
_HEADERS = SCHEMA.field("headers").type
_HEADER_MAP = pa.map_(pa.string(), pa.binary())  # the Arrow type that accepts lists of pairs, with repeated names
_FIRST, _SECOND = itemgetter(0), itemgetter(1)


@dataclass(frozen=True, slots=True)
class Event:
    """An error, or the end of a partition, in the place of a record."""

    offset: int
    error: KafkaError


class Records(Protocol):
    """Consecutively fetched records of one partition, at least one."""

    @property
    def first_offset(self) -> int: ...

    def from_offset(self, next_offset: int) -> Records | None:
        """Those at or after `next_offset`, instead of these; None if there is none."""

    def newer_in(self, hole: range, leader_epoch: int) -> tuple[int, int] | None:
        """Offset and epoch of the first record inside `hole` that is of a newer epoch."""

    def runs(self) -> tuple[Run | PartitionFailed, ...]:
        """One for each leader epoch. If the client cannot deliver one of the records: the records before it, if any,
        followed by the failure that names it."""


@dataclass(frozen=True, slots=True)
class MessageRecords:
    """Records, as the client's message objects."""

    partition: TopicPartition
    messages: Sequence[Message]

    @property
    def first_offset(self) -> int:
        return self.messages[0].offset() or 0

    def from_offset(self, next_offset: int) -> MessageRecords | None:
        left = [message for message in self.messages if (message.offset() or 0) >= next_offset]
        return MessageRecords(self.partition, left) if left else None

    def newer_in(self, hole: range, leader_epoch: int) -> tuple[int, int] | None:
        for message in self.messages:
            offset, epoch = message.offset() or 0, epoch_of(message.leader_epoch())
            if offset in hole and epoch is not None and epoch > leader_epoch:
                return offset, epoch
        return None

    def runs(self) -> tuple[Run | PartitionFailed, ...]:
        return convert(self.partition, self.messages)


Item: TypeAlias = "Records | Event"


def items(messages: Sequence[Message]) -> Iterator[tuple[TopicPartition, Item]]:
    """Split the result of `consume` by partition, and at messages that carry an error instead of a record.

    Each item is a non-empty sequence of records of one partition, or an event.
    A partition's items are in log order. A partition EOF that is followed by more records is left out: otherwise, with
    a slow stream, every record would be an item of its own. Errors of the client as a whole have an empty topic.
    """
    groups: dict[tuple[str | None, int | None], list[Message]] = {}
    for topic, of_topic in groupby(messages, Message.topic):
        for partition, of_partition in groupby(of_topic, Message.partition):
            groups.setdefault((topic, partition), []).extend(of_partition)
    for (topic, partition), group in groups.items():
        partition_key = TopicPartition(topic or "", -1 if partition is None else partition)
        for item in _split(group):
            if isinstance(item, tuple):
                yield partition_key, Event(item[0].offset() or 0, item[1])
            else:
                yield partition_key, MessageRecords(partition_key, item)


def _split(group: list[Message]) -> Iterator[list[Message] | tuple[Message, KafkaError]]:
    """The items of one partition."""
    errors = _errors(group)
    if not errors:
        yield group
        return
    records: list[Message] = []
    end: tuple[Message, KafkaError] | None = None
    begin = 0
    for at, error in [*errors, (len(group), None)]:
        if at > begin:
            records.extend(group[begin:at])
            end = None
        begin = at + 1
        if error is not None and error.code() == PARTITION_EOF:
            end = group[at], error
            continue
        if records:
            yield records
        if end is not None:
            yield end
        if error is not None:
            yield group[at], error
        records, end = [], None


def _errors(messages: Sequence[Message]) -> list[tuple[int, KafkaError]]:
    """Indexes and errors of the messages that are not records."""
    errors = list(map(Message.error, messages))
    return [(at, error) for at in compress(range(len(errors)), errors) if (error := errors[at]) is not None]


def runs(messages: Sequence[Message]) -> Iterator[Run | PartitionFailed]:
    """The records among `messages`, one run for each consecutive part of a partition. After a PartitionFailed the rest
    of that part is left out; the caller has to reject later parts of the partition."""
    for _, item in items(messages):
        if not isinstance(item, Event):
            yield from item.runs()


def convert(partition: TopicPartition, messages: Sequence[Message]) -> tuple[Run | PartitionFailed, ...]:
    """Records of one partition as runs, one for each leader epoch. If the client cannot deliver one of the records: the
    records before it, if any, followed by the failure that names it."""
    headers, failure = _headers(partition, messages)
    if failure is not None:
        messages = messages[: len(headers)]
    found: list[Run | PartitionFailed] = []
    begin = 0
    for end in _epoch_ends(messages):
        found.append(_run(partition, messages[begin:end], headers[begin:end]))
        begin = end
    return (*found, failure) if failure else tuple(found)


def _epoch_ends(messages: Sequence[Message]) -> list[int]:
    """End index of each leader epoch. Epochs never decrease in a log: if the first and the last are equal, there is
    only one."""
    if not messages:
        return []
    if messages[0].leader_epoch() == messages[-1].leader_epoch():
        return [len(messages)]
    counts = [len(list(some)) for _, some in groupby(map(Message.leader_epoch, messages))]
    return list(accumulate(counts))


def _run(partition: TopicPartition, messages: Sequence[Message], headers: list[object]) -> Run:
    count = len(messages)
    offsets = cast("list[int]", list(map(Message.offset, messages)))  # None occurs in error messages only
    keys = pa.array(list(map(Message.key, messages)), pa.binary(), size=count)
    values = pa.array(list(map(Message.value, messages)), pa.binary(), size=count)
    timestamps = list(map(Message.timestamp, messages))
    times = pa.array(list(map(_SECOND, timestamps)), pa.int64(), size=count)
    types = bytes(map(_FIRST, timestamps)).translate(_TYPES)
    header_column, header_bytes = _header_column(headers)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(offsets, pa.int64(), size=count),
            times.view(SCHEMA.field("timestamp").type),
            pa.Array.from_buffers(pa.int8(), count, [None, pa.py_buffer(types)]),
            keys,
            values,
            header_column,
        ],
        schema=SCHEMA,
    )
    return Run(
        partition,
        batch,
        offsets[0],
        offsets[-1],
        count,
        _data_bytes(keys) + _data_bytes(values) + header_bytes,
        epoch_of(messages[-1].leader_epoch()),
    )


def _headers(partition: TopicPartition, messages: Sequence[Message]) -> tuple[list[object], PartitionFailed | None]:
    """Headers of each message, up to the first that the client cannot deliver."""
    headers: list[object] = []
    try:
        with gc_paused():
            headers.extend(map(Message.headers, messages))  # on failure, the headers before it stay in the list
    except (SystemError, UnicodeDecodeError) as error:
        offset = messages[len(headers)].offset()
        reason = f"{undecodable(offset)} ({error.__cause__ or error})"
        return headers, PartitionFailed(partition, UNDECODABLE_HEADER, reason, offset)
    return headers, None


def undecodable(offset: int | None) -> str:
    return (
        f"the client cannot read the headers of the record at offset {offset}: the name of one is not UTF-8, or there "
        "are more than 100,000"
    )


def _header_column(headers: list[object]) -> tuple[pa.Array, int]:
    """The column, and the size of the header names and values in bytes."""
    if headers.count(None) == len(headers):
        return pa.nulls(len(headers), _HEADERS), 0
    pairs = pa.array(headers, _HEADER_MAP, size=len(headers))
    entries = pa.StructArray.from_arrays([pairs.keys, pairs.items], fields=list(HEADER))
    column = pa.Array.from_buffers(_HEADERS, len(pairs), pairs.buffers()[:2], pairs.null_count, children=[entries])
    return column, _data_bytes(pairs.keys) + _data_bytes(pairs.items)


def _data_bytes(array: pa.Array) -> int:
    """Size of the data of a newly built string or binary array: its last offset."""
    return memoryview(array.buffers()[1]).cast("i")[len(array)] if len(array) else 0
