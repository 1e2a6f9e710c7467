"""Tests specific to Parquet segments; the others are in the format contract."""

from __future__ import annotations

import struct
from dataclasses import replace
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from awscrt import checksums
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.errors import CorruptSegment
from formats.footer import SchemaIds, SegmentFooter
from formats.parquet import footer_json as footers
from formats.parquet.footer_json import RowGroup
from formats.parquet.reader import BATCH_BYTES, seal
from formats.parquet.writer import ParquetFormat
from formats.records.digest import digest_of
from formats.records.schema import SCHEMA
from tests.contracts.format import read, write
from tests.formats.sample_records import ORIGIN, Row, batch_of, raw_bytes, rows, rows_of, sample_rows, segment

NAME = segment(0, 99)


class CountingSource(BytesIO):
    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reads: list[tuple[int, int]] = []

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads.append((self.tell(), size or 0))
        return super().read(size)


class HalfSource(BytesIO):
    """Returns half of the requested bytes, as raw files and network streams may."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(max(1, (size or 0) // 2) if size else 0)


class HalfSink(BytesIO):
    """Writes half of the given bytes, as raw files may."""

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        return super().write(data[: max(1, len(data) // 2)])


def row_groups(data: bytes) -> list[list[Row]]:
    """By pyarrow alone, the way any other Parquet reader sees the file."""
    with pq.ParquetFile(BytesIO(data), page_checksum_verification=True) as file:
        return [
            rows_of(file.read_row_group(i).combine_chunks().cast(SCHEMA).to_batches())
            for i in range(file.num_row_groups)
        ]


# --- row groups -------------------------------------------------------------------------------------------------------


def test_one_call_makes_one_row_group() -> None:
    records = sample_rows(100)
    calls = [records[:10], [], records[10:11], records[11:]]
    stored, _ = write(ParquetFormat(), [[batch_of(call)] for call in calls], NAME)
    assert row_groups(stored) == [call for call in calls if call]


@settings(max_examples=100, deadline=None)
@given(records=rows(min_size=1), limit=st.integers(1, 200), most=st.integers(1, 10), at=st.integers(0, 30))
def test_row_groups_are_bounded_and_as_few_as_their_order_allows(
    records: list[Row], limit: int, most: int, at: int
) -> None:
    fmt = ParquetFormat(row_group_bytes=limit, row_group_records=most)
    batch = batch_of(records)
    name = segment(records[0]["offset"], records[-1]["offset"])
    groups = row_groups(write(fmt, [[batch.slice(0, at), batch.slice(at)]], name)[0])
    assert [row for group in groups for row in group] == records
    sizes = [sum(map(raw_bytes, group)) for group in groups]
    assert all(size <= limit or len(group) == 1 for size, group in zip(sizes, groups, strict=True))
    assert all(len(group) <= most for group in groups)
    for group, size, following in zip(groups, sizes, groups[1:], strict=False):
        assert len(group) == most or size + raw_bytes(following[0]) > limit


def test_reading_costs_one_request_for_the_tail_and_one_for_each_row_group() -> None:
    stored, _ = write(ParquetFormat(row_group_bytes=200_000), [[batch_of(big_rows(60))]], segment(0, 59))
    assert len(stored) > 3 * 200_000
    source = CountingSource(stored)
    reader = ParquetFormat().open(source, segment(0, 59))
    assert source.reads == [(len(stored) - 65_536, 65_536)]
    count = len(list(reader.batches()))
    assert count > 3
    assert len(source.reads) == 1 + count
    assert sum(length for _, length in source.reads[1:]) < len(stored)
    reader.close()


def test_row_groups_before_the_offset_are_not_read() -> None:
    records = big_rows(60)
    stored, _ = write(ParquetFormat(row_group_bytes=200_000), [[batch_of(records)]], segment(0, 59))
    source = CountingSource(stored)
    reader = ParquetFormat().open(source, segment(0, 59))
    assert rows_of(list(reader.batches(55))) == records[55:]
    assert len(source.reads) == 2
    assert list(reader.batches(60)) == []
    assert len(source.reads) == 2
    reader.close()


def big_rows(count: int) -> list[Row]:
    values = [
        b"".join(struct.pack("<Q", checksums.crc64nvme(b"%d-%d" % (i, j))) for j in range(2_000)) for i in range(count)
    ]
    return [row | {"value": value} for row, value in zip(sample_rows(count), values, strict=True)]


def test_memory_is_about_one_row_group() -> None:
    stored, footer = write(ParquetFormat(row_group_bytes=100_000), [[batch_of(big_rows(200))]], segment(0, 199))
    reader = ParquetFormat().open(BytesIO(stored), segment(0, 199))
    before, most = pa.total_allocated_bytes(), 0
    for batch in reader.batches():
        del batch
        most = max(most, pa.total_allocated_bytes() - before)
    assert footer.raw_bytes > 3_000_000
    assert most < 400_000
    reader.close()


def test_a_large_row_group_is_decoded_in_small_batches() -> None:
    """Their buffers are used again; those of a whole row group grow into new memory."""
    records = big_rows(300)
    stored, footer = write(ParquetFormat(), [[batch_of(records)]], segment(0, 299))
    reader = ParquetFormat().open(BytesIO(stored), segment(0, 299))
    batches = list(reader.batches())
    assert footer.raw_bytes > 4 * BATCH_BYTES
    assert len(batches) >= 4
    assert all(batch.nbytes < 1.5 * BATCH_BYTES for batch in batches)
    assert rows_of(batches) == records
    reader.close()


def test_metadata_larger_than_the_first_read_is_read_completely() -> None:
    records = sample_rows(600)
    fmt = ParquetFormat(row_group_records=5)
    stored, footer = write(fmt, [[batch_of(records)]], segment(0, 599))
    (length,) = struct.unpack_from("<I", stored, len(stored) - 8)
    assert length > 65_536
    assert read(fmt, stored, segment(0, 599)) == (records, footer)


def test_metadata_that_no_reader_takes_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tens of thousands of row groups: it would be stored, and be a corrupt segment for ever."""
    for module in ("reader", "writer"):
        monkeypatch.setattr(f"formats.parquet.{module}.METADATA_LIMIT_BYTES", 65_536)
    records = sample_rows(600)
    stored, footer = write(ParquetFormat(row_group_records=50), [[batch_of(records)]], segment(0, 599))
    assert read(ParquetFormat(), stored, segment(0, 599)) == (records, footer)
    with pytest.raises(ValueError, match=r"row groups, whose metadata .* raise row_group_bytes"):
        write(ParquetFormat(row_group_records=5), [[batch_of(records)]], segment(0, 599))


def test_short_reads_and_short_writes_are_continued() -> None:
    records = sample_rows(50)
    sink = HalfSink()
    writer = ParquetFormat().create(sink)
    writer.write([batch_of(records)])
    writer.close(NAME, ORIGIN)
    reader = ParquetFormat().open(HalfSource(sink.getvalue()), NAME)
    assert rows_of(list(reader.batches())) == records
    reader.close()


# --- what the file looks like to others -------------------------------------------------------------------------------


def test_other_readers_see_plain_parquet() -> None:
    stored, _ = write(ParquetFormat(), [[batch_of(sample_rows(100))]], NAME)
    with pq.ParquetFile(BytesIO(stored)) as file:
        assert file.schema_arrow.equals(SCHEMA)
        assert set(file.metadata.metadata) == {b"replicator.segment.v1"}
        columns = [file.metadata.row_group(0).column(i) for i in range(7)]
    assert {c.path_in_schema for c in columns if c.is_stats_set} == {"offset", "timestamp"}
    assert not any(c.has_dictionary_page for c in columns)
    assert {c.compression for c in columns} == {"ZSTD"}


def test_bytes_under_nulls_are_not_written() -> None:
    batch = batch_of(sample_rows(3))
    kind = SCHEMA.field("headers").type
    pairs = pa.array([{"key": k, "value": b"v"} for k in "abc"], kind.value_type)
    mask = pa.array([False, True, False])
    headers = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), pairs, type=kind, mask=mask)
    ends = pa.array([0, 3, 6, 9], pa.int32()).buffers()[1]
    valid = pa.array([True, False, True]).buffers()[1]
    key = pa.Array.from_buffers(pa.binary(), 3, [valid, ends, pa.py_buffer(b"abcXYZghi")])
    dirty = pa.record_batch([*batch.columns[:3], key, batch.column("value"), headers], schema=SCHEMA)
    stored, footer = write(ParquetFormat(), [[dirty]], NAME)
    back, _ = read(ParquetFormat(), stored, NAME)
    assert [row["key"] for row in back] == [b"abc", None, b"ghi"]
    assert [row["headers"] for row in back] == [[("a", b"v")], None, [("c", b"v")]]
    assert footer.raw_bytes == sum(map(raw_bytes, back))


# --- the writer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["offset", "timestamp", "timestamp_type"])
def test_a_null_in_a_required_field_is_rejected(column: str) -> None:
    batch = batch_of(sample_rows(3))
    nulls = pa.nulls(3, SCHEMA.field(column).type)
    columns = [nulls if name == column else batch.column(name) for name in SCHEMA.names]
    with pytest.raises(ValueError, match="null"):
        write(ParquetFormat(), [[pa.record_batch(columns, schema=SCHEMA)]], NAME)


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="schema"):
        write(ParquetFormat(), [[pa.record_batch([pa.array([1])], names=["offset"])]], NAME)


def test_after_a_failed_step_only_abort_is_allowed() -> None:
    class FullDisk(BytesIO):
        def write(self, data: bytes, /) -> int:  # type: ignore[override]
            if self.tell() > 1_000:
                raise OSError(28, "No space left on device")
            return super().write(data)

    writer = ParquetFormat().create(FullDisk())
    with pytest.raises(OSError, match="No space left"):
        writer.write([batch_of(big_rows(5))])
    with pytest.raises(ValueError, match="cannot write"):
        writer.write([batch_of(sample_rows(5, first_offset=50))])
    with pytest.raises(ValueError, match="cannot close"):
        writer.close(NAME, ORIGIN)
    writer.abort()


def test_a_closed_writer_is_closed() -> None:
    writer = ParquetFormat().create(BytesIO())
    writer.close(NAME, ORIGIN)
    with pytest.raises(ValueError, match="cannot write"):
        writer.write([])
    with pytest.raises(ValueError, match="cannot close"):
        writer.close(NAME, ORIGIN)


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zip"},
        {"compression_level": 99},
        {"compression_level": 3, "compression": "snappy"},
        {"compression_level": 3, "compression": "none"},
        {"row_group_bytes": 0},
        {"page_bytes": -1},
        {"row_group_records": 0},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options)).split("_")[0]):
        ParquetFormat(**options)


@pytest.mark.parametrize(
    ("codec", "level"), [("none", None), ("lz4", None), ("snappy", None), ("zstd", 1), ("gzip", 6)]
)
def test_codecs(codec: str, level: int | None) -> None:
    fmt = ParquetFormat(compression=codec, compression_level=level)
    records = sample_rows(20)
    stored, footer = write(fmt, [[batch_of(records)]], NAME)
    assert read(ParquetFormat(), stored, NAME) == (records, footer)


# --- files that are whole, but not what they say ----------------------------------------------------------------------


def forged(
    records: list[Row],
    footer: SegmentFooter,
    groups: list[RowGroup],
    *,
    key: str = footers.KEY,
    schema: pa.Schema = SCHEMA,
) -> bytes:
    """A sealed file with these records and any footer, as a faulty writer could write it."""
    sink = BytesIO()
    with pq.ParquetWriter(sink, schema, store_schema=False) as writer:
        if records:
            writer.write_table(pa.Table.from_batches([batch_of(records)]).cast(schema))
        writer.add_key_value_metadata({key: footers.encode(footer, [group.pack() for group in groups])})
    data = sink.getvalue()
    (length,) = struct.unpack_from("<I", data, len(data) - 8)
    body, tail = data[: -length - 8], data[-length - 8 :]
    return body + seal(tail) + tail


def honest(records: list[Row]) -> tuple[SegmentFooter, RowGroup]:
    """The correct footer for `forged` records."""
    _, footer = write(ParquetFormat(), [[batch_of(records)]], NAME)
    body = forged(records, footer, [])
    end = body.index(b"KSRSEAL1")
    group = RowGroup(
        first_offset=records[0]["offset"],
        last_offset=records[-1]["offset"],
        stored_bytes=end,
        stored_crc=checksums.crc64nvme(body[:end]),
        digest=digest_of([batch_of(records)]),
    )
    return footer, group


RECORDS = sample_rows(10)
ALTERED = [row | {"value": b"other"} if row["offset"] == 4 else row for row in RECORDS]


def test_the_forgery_itself_is_readable() -> None:
    footer, group = honest(RECORDS)
    assert read(ParquetFormat(), forged(RECORDS, footer, [group]), NAME) == (RECORDS, footer)


def test_records_that_do_not_match_the_digest_are_not_yielded() -> None:
    footer, group = honest(RECORDS)
    _, other = honest(ALTERED)
    stored = forged(ALTERED, footer, [replace(other, digest=group.digest)])
    reader = ParquetFormat().open(BytesIO(stored), NAME)
    with pytest.raises(CorruptSegment, match="digest"):
        next(reader.batches())
    reader.close()


def test_stored_bytes_that_do_not_match_the_footer_are_not_decoded() -> None:
    footer, group = honest(RECORDS)
    reader = ParquetFormat().open(BytesIO(forged(RECORDS, footer, [replace(group, stored_crc=1)])), NAME)
    with pytest.raises(CorruptSegment, match="stored bytes"):
        next(reader.batches())
    reader.close()


def test_records_out_of_order_are_not_yielded() -> None:
    """The digest alone does not detect this: a faulty writer hashes what it writes."""
    mixed = [RECORDS[0], RECORDS[2], RECORDS[1], *RECORDS[3:]]
    footer, group = honest(RECORDS)
    digest = digest_of([batch_of(mixed)])
    body = forged(mixed, replace(footer, digest=digest), [])
    end = body.index(b"KSRSEAL1")
    group = replace(group, digest=digest, stored_bytes=end, stored_crc=checksums.crc64nvme(body[:end]))
    reader = ParquetFormat().open(BytesIO(forged(mixed, replace(footer, digest=digest), [group])), NAME)
    with pytest.raises(CorruptSegment, match="unordered"):
        next(reader.batches())
    reader.close()


def test_every_row_group_is_verified_before_it_is_yielded() -> None:
    """A streaming reader yields the valid part and stops before the corrupt one."""
    records = sample_rows(100)
    stored, _ = write(ParquetFormat(row_group_records=25), [[batch_of(records)]], NAME)
    with pq.ParquetFile(BytesIO(stored)) as file:
        at = file.metadata.row_group(2).column(4).data_page_offset + 40
    damaged = stored[:at] + bytes([stored[at] ^ 4]) + stored[at + 1 :]
    reader = ParquetFormat().open(BytesIO(damaged), NAME)
    batches = reader.batches()
    assert rows_of([next(batches), next(batches)]) == records[:50]
    with pytest.raises(CorruptSegment, match="row group 2"):
        next(batches)
    assert rows_of(list(reader.batches(75))) == records[75:]
    reader.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"count": 9}, "combine"),
        ({"count": 0}, "0 records"),
        ({"first_offset": 1}, "10 records with offsets 1 to 9"),
        ({"last_offset": 10}, "span"),
        ({"first_offset": None}, "None"),
        ({"last_offset": 200}, "outside"),
        ({"digest": digest_of([batch_of(ALTERED)])}, "combine"),
    ],
)
def test_facts_that_contradict_each_other(change: dict[str, object], says: str) -> None:
    footer, group = honest(RECORDS)
    stored = forged(RECORDS, replace(footer, **change), [group])  # type: ignore[arg-type]
    with pytest.raises(CorruptSegment, match=says):
        ParquetFormat().open(BytesIO(stored), NAME)


def test_row_groups_that_do_not_match_the_file() -> None:
    footer, group = honest(RECORDS)
    for groups in ([group, group], [replace(group, stored_bytes=group.stored_bytes - 1)], []):
        with pytest.raises(CorruptSegment):
            ParquetFormat().open(BytesIO(forged(RECORDS, footer, groups)), NAME)
    with pytest.raises(CorruptSegment, match="row groups of"):
        ParquetFormat().open(BytesIO(forged(RECORDS[:5], footer, [group])), NAME)


@pytest.mark.parametrize("position", range(len(SCHEMA)))
def test_another_schema_is_not_ours(position: int) -> None:
    footer, group = honest(RECORDS)
    field = SCHEMA.field(position)
    for schema in (
        SCHEMA.set(position, field.with_name("other")),
        SCHEMA.set(position, field.with_nullable(not field.nullable)),
    ):
        columns = [pa.array([]).cast(f.type) for f in schema]
        assert len(columns) == len(SCHEMA)
        sink = BytesIO()
        with pq.ParquetWriter(sink, schema, store_schema=False) as writer:
            writer.add_key_value_metadata({footers.KEY: footers.encode(footer, [group.pack()])})
        data = sink.getvalue()
        (length,) = struct.unpack_from("<I", data, len(data) - 8)
        stored = data[: -length - 8] + seal(data[-length - 8 :]) + data[-length - 8 :]
        with pytest.raises(CorruptSegment, match="columns"):
            ParquetFormat().open(BytesIO(stored), NAME)


def test_a_newer_version_says_both_versions() -> None:
    footer, group = honest(RECORDS)
    with pytest.raises(CorruptSegment) as caught:
        ParquetFormat().open(BytesIO(forged(RECORDS, footer, [group], key="replicator.segment.v2")), NAME)
    assert "replicator.segment.v2" in str(caught.value.found)
    assert caught.value.wanted == "replicator.segment.v1"


def test_a_foreign_parquet_file() -> None:
    sink = BytesIO()
    pq.write_table(pa.table({"a": [1, 2, 3]}), sink)
    with pytest.raises(CorruptSegment, match="footer keys"):
        ParquetFormat().open(BytesIO(sink.getvalue()), NAME)


def test_a_file_without_a_seal_is_not_ours() -> None:
    footer, group = honest(RECORDS)
    stored = forged(RECORDS, footer, [group])
    at = stored.index(b"KSRSEAL1")
    with pytest.raises(CorruptSegment, match="footer keys"):
        ParquetFormat().open(BytesIO(stored[:at] + stored[at + 16 :]), NAME)


# --- ids of schemas ---------------------------------------------------------------------------------------------------


def test_the_ids_of_schemas_are_in_the_footer() -> None:
    records = [row | {"value": b"\0\0\0\0\x29" + b"x" * 9} for row in sample_rows(20)]
    stored, written = write(ParquetFormat(), [[batch_of(records[:10])], [batch_of(records[10:])]], NAME)
    _, footer = read(ParquetFormat(), stored, NAME)
    assert footer == written
    assert footer.schema_ids == SchemaIds(sampled=20, carrying=20, ids=(41,))


def test_a_segment_without_ids_says_nothing_of_them() -> None:
    records = [row | {"value": b"plain"} for row in sample_rows(20)]
    stored, footer = write(ParquetFormat(), [[batch_of(records)]], NAME)
    assert footer.schema_ids is None
    assert b"schema_ids" not in stored
