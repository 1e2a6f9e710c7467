"""Arrow records → calls of the client's `produce`, with no Python frame per record.

A batch becomes one Python list per column, and `map` calls `produce` over the lists: loop, arguments and records stay
in C. A full queue stops such a `map` in the middle; which record was refused is read off the list iterator that `map`
pulls in step with the calls, and the next `map` begins with exactly that record.

Timestamps: the client turns 0 into "now", so 0 cannot be expressed; every other number can. −1 is Kafka's "none", also
as a record of our archive (`timestamp_type` −1), and brokers never refuse it. `timestamp_type` itself is not produced:
the target topic decides between the producer's stamp and its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from operator import length_hint
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, Message

from infra.contracts.cluster import TopicPartition
from infra.runtime.gc_pause import no_collection

PIECE_RECORDS = 4096  # lists made at a time: enough to make their cost vanish, few enough to stay in the cache
NONE = -1  # a record without a timestamp
EARLIEST, LATEST = -(2**63), 2**63 - 1

DeliveryCallback = Callable[[KafkaError | None, Message], None]
Header = tuple[str, str | bytes | None]  # values are bytes; the wider type is the client's


class Produce(Protocol):
    """`confluent_kafka.Producer.produce`: takes all of these by position, the delivery report as the fifth. Raises
    BufferError, and takes nothing, when the queue is full."""

    def __call__(  # noqa: PLR0917
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        callback: DeliveryCallback,
        on_delivery: None,
        timestamp: int,
        headers: list[Header] | None,
        /,
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsupportedTimestamps:
    """Records of a batch whose stamp the target would change or refuse."""

    count: int
    first_offset: int
    first_timestamp_ms: int


def pieces(batch: pa.RecordBatch, *, piece_bytes: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices of about `piece_bytes`, at least one record each: what `send` may copy at a time."""
    rows = max(1, min(PIECE_RECORDS, piece_bytes * batch.num_rows // max(batch.nbytes, 1)))
    return (batch.slice(first, rows) for first in range(0, batch.num_rows, rows))


def send(
    piece: pa.RecordBatch,
    *,
    produce: Produce,
    partition: TopicPartition,
    report: DeliveryCallback,
    wait_for_room: Callable[[], bool],
) -> bool:
    """Hand every record to the client, in order, each exactly once. Copies the whole of `piece`.

    A full queue calls `wait_for_room`, which lets the client work for a moment, or answers False to give up: then this
    answers False too, and any number of the first records were handed over. Raises KafkaException when the client
    refuses a record for good; the records before it were handed over.
    """
    with no_collection():
        values: list[bytes | None] = piece.column("value").to_pylist()
        keys: list[bytes | None] = piece.column("key").to_pylist()
        stamps: list[int] = _stamps(piece).to_pylist()
        rows = headers(piece.column("headers"))
    first = 0
    while first < len(values):
        taken: Iterator[bytes | None] = iter(values[first:])
        calls = map(
            produce,
            repeat(partition.topic),
            taken,
            keys[first:],
            repeat(partition.partition),
            repeat(report),
            repeat(None),
            stamps[first:],
            repeat(None) if rows is None else rows[first:],
        )
        try:
            deque(calls, maxlen=0)
            return True
        except BufferError:
            # `map` had taken the refused record's value already, so that record is one before what is left
            first = len(values) - length_hint(taken) - 1
            if not wait_for_room():
                return False
    return True


def unsupported_timestamps(
    batch: pa.RecordBatch, *, before_max_ms: int, after_max_ms: int, now_ms: int
) -> UnsupportedTimestamps | None:
    """What the target would not store as it is: 0, and stamps that the topic's `message.timestamp.before.max.ms` and
    `…after.max.ms` refuse. None when it would store all. Ask only for topics that keep the producer's stamps."""
    low = EARLIEST if before_max_ms >= LATEST else now_ms - before_max_ms
    high = LATEST if after_max_ms >= LATEST else now_ms + after_max_ms
    stamps = _stamps(batch)
    bad = pc.or_(pc.equal(stamps, 0), _outside(stamps, low, high))
    count = pc.sum(bad).as_py() or 0
    if not count:
        return None
    first = pc.index(bad, value=True).as_py()
    return UnsupportedTimestamps(
        count=count, first_offset=batch.column("offset")[first].as_py(), first_timestamp_ms=stamps[first].as_py()
    )


def clamp_timestamps(batch: pa.RecordBatch, low_ms: int, high_ms: int) -> tuple[pa.RecordBatch, int]:
    """The batch with every stamp within `low_ms..high_ms`, 0 as 1, and −1 left alone; and how many were changed."""
    if low_ms > high_ms or high_ms < 1:
        raise ValueError(f"not a range of timestamps that ends after 1970: {low_ms}..{high_ms}")
    stamps = _stamps(batch)
    low, high = max(low_ms, EARLIEST), min(high_ms, LATEST)
    fitted = pc.min_element_wise(pc.max_element_wise(stamps, pa.scalar(low, pa.int64())), pa.scalar(high, pa.int64()))
    fitted = pc.if_else(pc.equal(stamps, NONE), stamps, fitted)
    fitted = pc.if_else(pc.equal(fitted, 0), pa.scalar(1, pa.int64()), fitted)
    changed = pc.sum(pc.not_equal(fitted, stamps)).as_py() or 0
    if not changed:
        return batch, 0
    index = batch.schema.get_field_index("timestamp")
    return batch.set_column(index, batch.schema.field(index), fitted.view(batch.schema.field(index).type)), changed


def headers(column: pa.ListArray) -> Sequence[list[Header] | None] | None:
    """One list of (key, value) per record, None for a null; None for all when no record has any. The flattened pairs
    are made once and then sliced."""
    elements = column.flatten()
    if not len(elements):
        return None
    pairs: list[Header] = list(zip(elements.field("key").to_pylist(), elements.field("value").to_pylist(), strict=True))
    ends = list(accumulate(pc.fill_null(pc.list_value_length(column), 0).to_pylist(), initial=0))
    rows: list[list[Header] | None] = list(map(pairs.__getitem__, map(slice, ends, ends[1:])))
    nulls = pc.indices_nonzero(column.is_null()).to_pylist()
    deque(map(rows.__setitem__, nulls, repeat(None)), maxlen=0)
    return rows


def _stamps(batch: pa.RecordBatch) -> pa.Int64Array:
    """Milliseconds as they are: a datetime cannot hold them all."""
    return batch.column("timestamp").view(pa.int64())


def _outside(stamps: pa.Int64Array, low: int, high: int) -> pa.BooleanArray:
    out = pc.or_(
        pc.less(stamps, pa.scalar(max(low, EARLIEST), pa.int64())),
        pc.greater(stamps, pa.scalar(min(high, LATEST), pa.int64())),
    )
    return pc.and_(out, pc.not_equal(stamps, NONE))
