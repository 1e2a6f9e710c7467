"""Arrow records → calls of the client's `produce`, with no Python frame per record.

A batch becomes one Python list per column, and `map` calls `produce` over the lists: loop, arguments and records stay
in C. A full queue stops such a `map` in the middle. The list iterator that `map` advances in step with the calls shows
which record was rejected, and the next `map` starts with exactly that record.

Timestamps: the client replaces 0 by the current time, so 0 cannot be produced; every other value can. −1 is Kafka's
"no timestamp", also for a record of the archive (`timestamp_type` −1), and brokers never reject it. `timestamp_type`
itself is not produced: the target topic decides between the producer's timestamp and its own.

Header names: the client ends one at its first NUL byte, so a record with such a name is rejected here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from operator import length_hint
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message

from formats.records.distribution import extremes
from infra.contracts.cluster import TopicPartition
from infra.runtime.collector import gc_paused

SLICE_RECORDS = 4096  # length of the lists: long enough to amortise their cost, short enough to stay in the CPU cache
NONE = -1  # a record without a timestamp
EARLIEST, LATEST = -(2**63), 2**63 - 1

CUT_NAME = KafkaError._BAD_MSG  # the client itself uses this code for what it reads only

DeliveryCallback = Callable[[KafkaError | None, Message], None]
Header = tuple[str, str | bytes | None]  # our values are bytes; the client's type is wider


class Produce(Protocol):
    """`confluent_kafka.Producer.produce` with positional arguments; the delivery callback is the fifth. Raises
    BufferError, without queueing the record, when the queue is full."""

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
    """Records of a batch whose timestamps the target would change or reject."""

    count: int
    first_offset: int
    first_timestamp_ms: int


def slices(batch: pa.RecordBatch, *, slice_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cut the batch into slices of about `slice_bytes`, at least one record each: `send` copies a slice at once."""
    rows = max(1, min(SLICE_RECORDS, slice_bytes * batch.num_rows // max(batch.nbytes, 1)))
    return (batch.slice(first, rows) for first in range(0, batch.num_rows, rows))


def send(
    batch: pa.RecordBatch,
    *,
    produce: Produce,
    partition: TopicPartition,
    reports: tuple[DeliveryCallback, DeliveryCallback],
    wait_for_room: Callable[[], bool],
) -> bool:
    """Queue every record of `batch` in the client, in order, each exactly once. Copies the whole of `batch`. `reports`:
    the delivery callback of the first record, and that of the others.

    When the queue is full, `wait_for_room` is called: it lets the client work for a moment, or returns False to give
    up. In that case `send` returns False too, with any number of the first records queued. Raises KafkaException when
    the client rejects a record permanently, with the records before it queued; and with the code CUT_NAME, with none
    of them queued, when a header name contains NUL.
    """
    with gc_paused():
        values: list[bytes | None] = batch.column("value").to_pylist()
        keys: list[bytes | None] = batch.column("key").to_pylist()
        timestamps: list[int] = _timestamps(batch).to_pylist()
        rows = headers(batch.column("headers"))
    _check_names(batch)
    first = 0
    while first < len(values):
        remaining: Iterator[bytes | None] = iter(values[first:])
        calls = map(
            produce,
            repeat(partition.topic),
            remaining,
            keys[first:],
            repeat(partition.partition),
            chain(reports[first > 0 :], repeat(reports[1])),
            repeat(None),
            timestamps[first:],
            repeat(None) if rows is None else rows[first:],
        )
        try:
            deque(calls, maxlen=0)
            return True
        except BufferError:
            # `map` has already consumed the rejected record's value: that record precedes the remaining ones by one
            first = len(values) - length_hint(remaining) - 1
            if not wait_for_room():
                return False
    return True


def unsupported_timestamps(
    batch: pa.RecordBatch, *, before_max_ms: int, after_max_ms: int, now_ms: int
) -> UnsupportedTimestamps | None:
    """Timestamps that the target would not store unchanged: 0, and those that the topic's
    `message.timestamp.before.max.ms` and `…after.max.ms` reject. None when it would store all of them. Call only for
    topics that keep the producer's timestamps (CreateTime)."""
    low = EARLIEST if before_max_ms >= LATEST else now_ms - before_max_ms
    high = LATEST if after_max_ms >= LATEST else now_ms + after_max_ms
    timestamps = _timestamps(batch)
    if not len(timestamps):
        return None
    least, greatest = extremes(timestamps)
    if max(low, 1) <= least and greatest <= high:  # almost always
        return None
    unsupported = pc.or_(pc.equal(timestamps, 0), _outside(timestamps, low, high))
    count = pc.sum(unsupported).as_py() or 0
    if not count:
        return None
    first = pc.index(unsupported, value=True).as_py()
    return UnsupportedTimestamps(
        count=count, first_offset=batch.column("offset")[first].as_py(), first_timestamp_ms=timestamps[first].as_py()
    )


def clamp_timestamps(batch: pa.RecordBatch, low_ms: int, high_ms: int) -> tuple[pa.RecordBatch, int]:
    """Return the batch with every timestamp clamped to `low_ms..high_ms`, 0 replaced by 1 and −1 unchanged, and the
    number of changed records."""
    if low_ms > high_ms or high_ms < 1:
        raise ValueError(f"not a range of timestamps that ends after 1970: {low_ms}..{high_ms}")
    timestamps = _timestamps(batch)
    low, high = max(low_ms, EARLIEST), min(high_ms, LATEST)
    fitted = pc.min_element_wise(
        pc.max_element_wise(timestamps, pa.scalar(low, pa.int64())), pa.scalar(high, pa.int64())
    )
    fitted = pc.if_else(pc.equal(timestamps, NONE), timestamps, fitted)
    fitted = pc.if_else(pc.equal(fitted, 0), pa.scalar(1, pa.int64()), fitted)
    changed = pc.sum(pc.not_equal(fitted, timestamps)).as_py() or 0
    if not changed:
        return batch, 0
    index = batch.schema.get_field_index("timestamp")
    return batch.set_column(index, batch.schema.field(index), fitted.view(batch.schema.field(index).type)), changed


def headers(column: pa.ListArray) -> Sequence[list[Header] | None] | None:
    """One list of (key, value) pairs per record, or None for a null list; None altogether when no record has headers.
    The flattened pairs are built once and then sliced."""
    elements = column.flatten()
    if not len(elements):
        return None
    pairs: list[Header] = list(zip(elements.field("key").to_pylist(), elements.field("value").to_pylist(), strict=True))
    ends = list(accumulate(pc.fill_null(pc.list_value_length(column), 0).to_pylist(), initial=0))
    rows: list[list[Header] | None] = list(map(pairs.__getitem__, map(slice, ends, ends[1:])))
    nulls = pc.indices_nonzero(column.is_null()).to_pylist()
    deque(map(rows.__setitem__, nulls, repeat(None)), maxlen=0)
    return rows


def _check_names(batch: pa.RecordBatch) -> None:
    column = batch.column("headers")
    cut = pc.index(pc.match_substring(column.flatten().field("key"), "\0"), value=True).as_py()
    if cut < 0:
        return
    first = pc.list_parent_indices(column)[cut].as_py()
    raise KafkaException(
        KafkaError(
            CUT_NAME,
            f"a header name of the record at source offset {batch.column('offset')[first]} contains a NUL byte, at "
            "which the Kafka client would end it",
        )
    )


def _timestamps(batch: pa.RecordBatch) -> pa.Int64Array:
    """Milliseconds as integers: `datetime` cannot represent all of them."""
    return batch.column("timestamp").view(pa.int64())


def _outside(timestamps: pa.Int64Array, low: int, high: int) -> pa.BooleanArray:
    out = pc.or_(
        pc.less(timestamps, pa.scalar(max(low, EARLIEST), pa.int64())),
        pc.greater(timestamps, pa.scalar(min(high, LATEST), pa.int64())),
    )
    return pc.and_(out, pc.not_equal(timestamps, NONE))
