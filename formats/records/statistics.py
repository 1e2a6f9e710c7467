"""Statistics of records for the footer: count, sizes, offsets, time range. Computed from columns, not records."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from formats.segment import OffsetRange


class SegmentStatistics:
    """Computed incrementally, by batches in offset order. Not thread safe."""

    __slots__ = (
        "count",
        "first_offset",
        "keyless_count",
        "largest_record_bytes",
        "last_offset",
        "max_timestamp_ms",
        "min_timestamp_ms",
        "raw_bytes",
    )

    def __init__(self) -> None:
        self.count = 0
        self.keyless_count = 0
        self.first_offset: int | None = None
        self.last_offset: int | None = None
        self.raw_bytes = 0
        self.largest_record_bytes = 0
        self.min_timestamp_ms: int | None = None
        self.max_timestamp_ms: int | None = None

    def update(self, batch: pa.RecordBatch, sizes: pa.Int64Array) -> None:
        """Append the records of `batch`, which is not empty; `sizes` are its `record_bytes`."""
        first, last = edges(batch)
        timestamps = pc.min_max(batch.column("timestamp").view(pa.int64()))
        low, high = timestamps["min"].as_py(), timestamps["max"].as_py()
        self.count += batch.num_rows
        self.keyless_count += batch.column("key").null_count
        self.first_offset = first if self.first_offset is None else self.first_offset
        self.last_offset = last
        self.raw_bytes += pc.sum(sizes).as_py()
        self.largest_record_bytes = max(self.largest_record_bytes, pc.max(sizes).as_py())
        self.min_timestamp_ms = low if self.min_timestamp_ms is None else min(low, self.min_timestamp_ms)
        self.max_timestamp_ms = high if self.max_timestamp_ms is None else max(high, self.max_timestamp_ms)


def first_offset(batch: pa.RecordBatch) -> int:
    """The batch must not be empty, here and in the next two functions."""
    return int(batch.column("offset")[0].as_py())


def last_offset(batch: pa.RecordBatch) -> int:
    return int(batch.column("offset")[-1].as_py())


def first_timestamp_ms(batch: pa.RecordBatch) -> int:
    """Any int64; it may be outside the range of datetime."""
    return int(batch.column("timestamp")[0].value)


def edges(batch: pa.RecordBatch) -> tuple[int, int]:
    """First and last offset of a batch that is not empty."""
    return first_offset(batch), last_offset(batch)


def rises(batch: pa.RecordBatch) -> bool:
    """Whether every offset is greater than the one before it."""
    offsets = batch.column("offset")
    if len(offsets) < 2:
        return True
    return bool(pc.all(pc.greater(offsets.slice(1), offsets.slice(0, len(offsets) - 1))).as_py())


def after(batch: pa.RecordBatch, from_offset: int) -> pa.RecordBatch:
    """The records of `batch` from `from_offset` on; a slice."""
    offsets = batch.column("offset")
    view = memoryview(offsets.buffers()[1]).cast("q")[offsets.offset : offsets.offset + len(offsets)]
    skip = bisect_left(view, from_offset)
    return batch.slice(skip) if skip else batch


def within(batch: pa.RecordBatch, offsets: OffsetRange) -> pa.RecordBatch:
    """The records of `batch` inside `offsets`; a slice."""
    tail = after(batch, offsets.start)
    return tail.slice(0, tail.num_rows - after(tail, offsets.next_offset).num_rows)


def records_within(batches: Iterable[pa.RecordBatch], offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
    """`within` for the batches of a whole segment; reads no further than needed."""
    for batch in batches:
        part = within(batch, offsets)
        if part.num_rows:
            yield part
        if last_offset(batch) >= offsets.end:
            return


def record_bytes(batch: pa.RecordBatch) -> pa.Int64Array:
    """Size of key, value, header keys and header values of every record: the growth of running totals, which a binary
    column has already as the offsets of its elements."""
    totals = pc.add(_running_totals(batch.column("key")).cast(pa.int64()), _running_totals(batch.column("value")))
    headers = batch.column("headers")
    if headers.null_count < len(headers):
        pairs = headers.flatten()
        ends = list_ends(headers, len(pairs))
        for parts in (pairs.field(0), pairs.field(1)):
            totals = pc.add(totals, _running_totals(parts).take(ends))
    return pc.subtract(totals.slice(1), totals.slice(0, batch.num_rows))


def total_bytes(batch: pa.RecordBatch) -> int:
    """Size of the keys, values, header keys and header values of all records."""
    return int(pc.sum(record_bytes(batch)).as_py() or 0)


def is_any_before(batch: pa.RecordBatch, timestamp_ms: int) -> bool:
    """Whether a record has a timestamp before this one; none, which is -1, is before."""
    return bool(pc.any(pc.less(batch.column("timestamp").view(pa.int64()), timestamp_ms)).as_py())


def _running_totals(array: pa.Array) -> pa.Int32Array:
    """Bytes before each element of a binary or string array, and before its end; the first total may be above 0."""
    if not len(array):
        return pa.array([0], pa.int32())
    totals = pa.Array.from_buffers(pa.int32(), len(array) + 1, [None, array.buffers()[1]], offset=array.offset)
    if array.null_count and (pc.sum(pc.binary_length(array)).as_py() or 0) != totals[-1].as_py() - totals[0].as_py():
        return _running_totals(pc.fill_null(array, pa.scalar(b"", pa.binary()).cast(array.type)))  # bytes under a null
    return totals


def list_ends(lists: pa.ListArray, count: int) -> pa.Int32Array:
    """0, and where each list ends among the `count` elements of `lists.flatten()`."""
    ends = lists.offsets
    if ends[-1].as_py() - ends[0].as_py() == count:
        return pc.subtract(ends, ends[0])
    lengths = pc.fill_null(pc.list_value_length(lists), 0)  # elements lie under a null, and are not flattened
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])


def row_groups(
    batches: Sequence[tuple[pa.RecordBatch, pa.Int64Array]], *, limit_bytes: int, limit_records: int
) -> Iterator[list[tuple[pa.RecordBatch, pa.Int64Array]]]:
    """Runs within both limits (raw bytes, records); a record that alone exceeds `limit_bytes` is a run of its own.

    Each batch is paired with its `record_bytes` and is not empty; batches are sliced, not copied.
    """
    run: list[tuple[pa.RecordBatch, pa.Int64Array]] = []
    run_bytes = run_records = 0
    for batch, sizes in batches:
        totals = memoryview(pc.cumulative_sum(sizes).buffers()[1]).cast("q")[: len(sizes)]
        at = 0
        while at < len(sizes):
            done = totals[at - 1] if at else 0
            end = min(bisect_right(totals, done + limit_bytes - run_bytes, at), at + limit_records - run_records)
            if end == at and not run:
                end = at + 1
            if end > at:
                run.append((batch.slice(at, end - at), sizes.slice(at, end - at)))
                run_bytes += totals[end - 1] - done
                run_records += end - at
                at = end
            if at < len(sizes):
                yield run
                run, run_bytes, run_records = [], 0, 0
    if run:
        yield run
