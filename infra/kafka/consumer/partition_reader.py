"""Reads the records of a range of offsets of one partition, with a consumer of its own: for inspection, and for ranges
that are archived later.

The group id is random and nothing is committed, so that other consumers of the topic are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from formats.errors import BrokerUnavailable, TargetError
from formats.records.statistics import edges, total_bytes, within
from formats.segment import OffsetRange
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import PartitionFailed, Run
from infra.kafka.client.connect import connect
from infra.kafka.client.errors import UNAUTHORISED, describe_error, translate
from infra.kafka.client.librdkafka import is_fit
from infra.kafka.client.properties import for_bounded_reads, reader_properties
from infra.kafka.consumer import decode, decode_native
from infra.kafka.consumer.decode import Event, Item
from infra.kafka.consumer.message_queue import MessageQueue, Messages
from infra.runtime.lifecycle import Deadline

if TYPE_CHECKING:
    from pyarrow import RecordBatch

BATCH_RECORDS = 5_000  # of one call
POLL_SECONDS = 0.05  # the client waits so long for BATCH_RECORDS, although there are some records
PATIENCE = timedelta(seconds=60)  # without progress
MEMORY_KBYTES = 16 << 10


def read_partition(
    properties: Mapping[str, object],
    partition: TopicPartition,
    start: int,
    next_offset: int,
    *,
    patience: timedelta = PATIENCE,
) -> Iterator[RecordBatch]:
    """Committed records at offsets from `start` (inclusive) to `next_offset` (exclusive); no batch is empty. Raises as
    `read_runs` does."""
    for run in read_runs(properties, partition, start, next_offset, patience=patience):
        yield run.batch


def read_runs(
    properties: Mapping[str, object],
    partition: TopicPartition,
    start: int,
    next_offset: int,
    *,
    patience: timedelta = PATIENCE,
    isolation_level: str = "read_committed",
) -> Iterator[Run]:
    """The runs of the records at offsets from `start` (inclusive) to `next_offset` (exclusive). It ends when the broker
    has delivered everything before `next_offset`, or has answered that no record is there.

    Raises BrokerUnavailable when there is no progress for `patience` (an open transaction blocks all records after it),
    and TargetError when the log does not hold `start` any more, or when the client cannot decode a record."""
    if start >= next_offset:
        return
    wanted = OffsetRange(start, next_offset - 1)
    given: dict[str, Any] = {**properties}
    consumer = connect(
        Consumer,
        {
            **reader_properties(for_bounded_reads(given)),
            "isolation.level": isolation_level,
            "queued.max.messages.kbytes": MEMORY_KBYTES,
            "error_cb": lambda _error: None,  # what a message or a call does not say does not end a read
        },
    )
    gone: list[KafkaError] = []  # errors in our queue: the partition is not in its topic any more
    with closing(consumer), _queue_of(consumer, partition, gone.append) as queue:
        consumer.assign([ClientPartition(partition.topic, partition.partition, start)])
        at, deadline = start, Deadline(patience)
        while at < next_offset:
            before = at
            try:
                fetch = _fetch(consumer, queue)
            except (KafkaException, RuntimeError) as error:
                raise BrokerUnavailable(f"read {partition} from offset {at}: {error}") from error
            with fetch as found:
                for _, item in found:
                    if at >= next_offset:  # what lies behind is not asked for, whatever it is
                        break
                    if isinstance(item, Event):
                        at = max(at, _passed(partition, at, item))
                        continue
                    for run in item.runs():
                        if at >= next_offset:
                            break
                        if isinstance(run, PartitionFailed):
                            raise TargetError(f"read {partition}: {run.reason}")
                        at = run.last_offset + 1
                        part = _trimmed(run, wanted)
                        if part is not None:
                            yield part
            if gone and at < next_offset:
                raise TargetError(f"read {partition} from offset {at}: {describe_error(gone[0])}")
            if at > before:  # errors, and ends of the partition at the same offset, are no progress
                deadline = Deadline(patience)
            elif deadline.expired:
                raise BrokerUnavailable(
                    f"read {partition} from offset {at} to {next_offset}: nothing came for {patience}; is the broker "
                    "away, or a transaction open?"
                )


@contextmanager
def _queue_of(
    consumer: Consumer, partition: TopicPartition, on_error: Callable[[KafkaError], None]
) -> Iterator[MessageQueue | None]:
    """Where the partition is forwarded to, before it is assigned: nothing of it is ever in the client's queue. None if
    this process is not fit for it."""
    if not is_fit():
        yield None
        return
    with closing(MessageQueue(consumer, on_error)) as queue:
        queue.forward(partition.topic, partition.partition)
        yield queue


def _fetch(
    consumer: Consumer, queue: MessageQueue | None
) -> AbstractContextManager[Iterator[tuple[TopicPartition, Item]]]:
    """What arrives within POLL_SECONDS, valid inside the block."""
    if queue is None:
        return nullcontext(decode.items(consumer.consume(BATCH_RECORDS, POLL_SECONDS)))
    events = consumer.consume(BATCH_RECORDS, 0)  # errors of the topic, and of the client
    taken = queue.take(BATCH_RECORDS, linger=timedelta(seconds=POLL_SECONDS))
    if not taken.count and not events:
        queue.wait(timedelta(seconds=POLL_SECONDS))
    return _native(events, taken)


@contextmanager
def _native(events: Sequence[Message], taken: Messages) -> Iterator[Iterator[tuple[TopicPartition, Item]]]:
    with taken:
        yield chain(decode.items(events), decode_native.items(taken))


def _trimmed(run: Run, wanted: OffsetRange) -> Run | None:
    """The part of the run inside `wanted`; None when there is none."""
    if run.first_offset in wanted and run.last_offset in wanted:
        return run
    batch = within(run.batch, wanted)
    if not batch.num_rows:
        return None
    first, last = edges(batch)
    size_bytes = total_bytes(batch)
    return replace(run, batch=batch, first_offset=first, last_offset=last, count=batch.num_rows, size_bytes=size_bytes)


def _passed(partition: TopicPartition, at: int, event: Event) -> int:
    """Next offset according to a partition EOF, which lies after markers and aborted records. Raises for errors that
    are not temporary."""
    error = event.error
    if error.code() == KafkaError._PARTITION_EOF:
        return event.offset
    # GROUP_AUTHORIZATION_FAILED: the client looks up the coordinator of a group that it never joins
    passing = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.GROUP_AUTHORIZATION_FAILED)
    if error.retriable() or error.code() in passing:
        return at
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise TargetError(f"{partition} does not hold offset {at} any more: {describe_error(error)}")
    operation = f"read {partition} from offset {at}"
    if error.code() in UNAUTHORISED:
        raise translate(error, operation, needs="READ")
    raise TargetError(f"{operation}: {describe_error(error)}")
