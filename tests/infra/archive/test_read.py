"""Reading splits while the archive changes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.coverage import SegmentSlice, parts
from formats.errors import CorruptSegment, SegmentNotFound, StoreUnavailable
from formats.int_range import IntRange
from formats.parquet.writer import ParquetFormat
from formats.read_splits import read_splits
from formats.records.scope import RecordFilter
from formats.segment import OffsetRange, Segment
from infra.archive.read import SplitReader
from infra.archive.segments import SegmentStore
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.spark_source.rows import TABLE, table_of
from tests.fakes.archive import archive_of
from tests.formats.sample_records import BARE, SOURCE, Row, batch_of, rows_of, sample_rows, segment

FORMAT = ParquetFormat(row_group_records=5)
ALL = OffsetRange(0, 2**63 - 1)
ALL_TIMES = IntRange()


class Opened(MemoryObjectStore):
    """Records which objects were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []
        self.fails = False

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        self.keys.append(key)
        if self.fails:
            raise StoreUnavailable(key)
        return super().open(key, tail_bytes=tail_bytes)


class Archive:
    """Archive of one partition: records 0 to 99, with a timestamp of ten milliseconds for each offset."""

    def __init__(self, *ranges: tuple[int, int]) -> None:
        self.objects = Opened()
        self.store = SegmentStore(self.objects, "data")
        self.rows: list[Row] = [{**row, "timestamp": row["offset"] * 10} for row in sample_rows(100)]
        self.put(*(segment(start, end) for start, end in ranges))

    def put(self, *segments: Segment) -> None:
        for one in segments:
            body = io.BytesIO()
            writer = FORMAT.create(body)
            writer.write([batch_of([row for row in self.rows if row["offset"] in one.offsets])])
            writer.close(one, BARE)
            self.store.store(one, body, body.tell())

    def replace(self, new: Segment) -> None:
        """As compaction does: every segment of a lower level inside `new` is removed."""
        self.put(new)
        self.delete(new.offsets, below=new.level)

    def delete(self, offsets: OffsetRange, below: int = 100) -> None:
        known = [info.segment for info in self.store.list(SOURCE)]
        inside = [
            s for s in known if s.level < below and offsets.start <= s.offsets.start and s.offsets.end <= offsets.end
        ]
        self.store.delete_many(inside)

    def batches(
        self, within: OffsetRange = ALL, *, timestamps: IntRange = ALL_TIMES, max_bytes: int = 1 << 20
    ) -> Iterator[pa.RecordBatch]:
        infos = self.store.list(SOURCE)
        found = [part for part in parts((info.segment for info in infos), within) if isinstance(part, SegmentSlice)]
        planned = list(read_splits(SOURCE, found, {info.segment: info.size_bytes for info in infos}, max_bytes))
        reader = SplitReader(archive_of(self.store, FORMAT), RecordFilter(timestamps=timestamps))
        return (batch for stretch in planned for batch in reader.batches(stretch))

    def expected(self, offsets: OffsetRange, timestamps: IntRange = ALL_TIMES) -> list[Row]:
        return [r for r in self.rows if r["offset"] in offsets and timestamps.low <= r["timestamp"] <= timestamps.high]


def test_a_segment_outside_of_the_wanted_offsets_is_not_opened() -> None:
    archive = Archive((0, 29), (30, 59), (60, 99))
    assert rows_of(list(archive.batches(OffsetRange(35, 44)))) == archive.expected(OffsetRange(35, 44))
    assert archive.objects.keys == [f"data/{segment(30, 59)}"]


def test_times_are_exact() -> None:
    archive = Archive((0, 49), (50, 99))
    timestamps = IntRange(123, 456)
    assert rows_of(list(archive.batches(timestamps=timestamps))) == archive.expected(ALL, timestamps)
    assert list(archive.batches(timestamps=IntRange(2_000))) == []


def test_a_segment_of_other_times_is_not_decoded() -> None:
    """Otherwise its damage would be found."""
    archive = Archive((0, 49), (50, 99))
    key = f"data/{segment(0, 49)}"
    body = bytearray(archive.objects.open(key).read())
    body[20] ^= 1
    archive.objects.delete_many([key])
    archive.objects.put_new(key, io.BytesIO(body), len(body))
    assert rows_of(list(archive.batches(timestamps=IntRange(500)))) == archive.rows[50:]
    with pytest.raises(CorruptSegment):
        list(archive.batches(timestamps=IntRange(490)))


def test_replaced_before_it_is_read() -> None:
    archive = Archive((0, 29), (30, 59), (60, 99))
    batches = archive.batches()
    archive.replace(segment(0, 99, level=1))
    assert rows_of(list(batches)) == archive.rows
    assert archive.objects.keys == [f"data/{segment(0, 29)}", f"data/{segment(0, 99, level=1)}"], "listed once for all"


def test_replaced_in_the_middle_and_again() -> None:
    archive = Archive((0, 19), (20, 59), (60, 99))
    batches = archive.batches()
    read = [next(batches)]
    archive.replace(segment(0, 59, level=1))
    read += [next(batches) for _ in range(5)]
    archive.replace(segment(0, 99, level=2))
    assert rows_of([*read, *batches]) == archive.rows


def test_a_segment_without_a_replacement_is_an_error() -> None:
    archive = Archive((0, 19), (20, 59), (60, 99))
    batches = archive.batches()
    archive.delete(OffsetRange(20, 59))
    read: list[pa.RecordBatch] = []
    with pytest.raises(SegmentNotFound, match="20-"):
        read.extend(batches)


def test_a_failure_is_not_absence() -> None:
    archive = Archive((0, 99))
    batches = archive.batches()
    archive.objects.fails = True
    with pytest.raises(StoreUnavailable):
        next(batches)


_ranges = st.tuples(st.integers(0, 99), st.integers(0, 40)).map(lambda t: (t[0], min(t[0] + t[1], 99)))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(_ranges, min_size=1, max_size=8, unique=True),
    _ranges,
    st.tuples(st.integers(-10, 1_000), st.integers(0, 1_000)),
    st.lists(st.tuples(st.integers(0, 8), _ranges), max_size=3, unique_by=lambda change: change[1]),
    st.integers(200, 5_000),
)
def test_every_wanted_record_once_and_in_order(
    ranges: list[tuple[int, int]],
    within: tuple[int, int],
    times: tuple[int, int],
    changes: list[tuple[int, tuple[int, int]]],
    max_bytes: int,
) -> None:
    archive = Archive(*ranges)
    offsets, timestamps = OffsetRange(*within), IntRange(times[0], times[0] + times[1])
    stored = {o for start, end in ranges for o in range(start, end + 1)}
    batches, read = archive.batches(offsets, timestamps=timestamps, max_bytes=max_bytes), []
    for level, (after, (start, end)) in enumerate(changes, 1):
        if not set(range(start, end + 1)) <= stored:
            continue  # no compaction merges over a gap
        read += [batch for _, batch in zip(range(after), batches, strict=False)]
        archive.replace(segment(start, end, level))
    expected = [row for row in archive.expected(offsets, timestamps) if row["offset"] in stored]
    assert rows_of([*read, *batches]) == expected


def test_rows_of_the_table() -> None:
    rows = sample_rows(4)
    for row, stamp in zip(rows, (-(2**63), -1, 253_402_300_800_000, 2**63 - 1), strict=True):
        row["timestamp"] = stamp
    table = table_of(batch_of(rows).slice(1), SOURCE)
    assert table.schema.equals(TABLE)
    assert table.column("timestamp_ms").to_pylist() == [row["timestamp"] for row in rows[1:]]
    assert table.column("timestamp").view(pa.int64()).to_pylist() == [-1_000, 253_402_300_800_000_000, None]
    assert set(table.column("topic").to_pylist()) == {"orders"}
    assert table.column("value").to_pylist() == [row["value"] for row in rows[1:]]
    found = table.column("headers").to_pylist()
    pairs = [[(pair["key"], pair["value"]) for pair in headers or ()] or None for headers in found]
    assert pairs == [row["headers"] for row in rows[1:]]
