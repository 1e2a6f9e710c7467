"""Segments written by the Go ancestor, and forged ones with content that it never writes."""

from __future__ import annotations

from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from formats.errors import CorruptSegment, StoreUnavailable
from formats.parquet import ancestor
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition
from tests.contracts.format import BrokenSource
from tests.formats.ancestor_samples import FILES, after_its_losses, segment_of, truth
from tests.formats.sample_records import Row, rows_of


def test_the_samples_hold_what_the_ancestor_loses() -> None:
    records = truth()
    assert len(FILES) == 4
    assert any(r["key"] is None for r in records)
    assert any(r["value"] is None for r in records)
    assert any(h["value"] is None for r in records for h in r["headers"] or ())
    assert any(after_its_losses(r)["timestamp"] != r["timestamp"] for r in records)


@pytest.mark.parametrize("file", FILES, ids=[f"{segment_of(f).level}-{segment_of(f).offsets.start}" for f in FILES])
def test_samples_read_exactly(file: Path) -> None:
    name = segment_of(file)
    reader = ParquetFormat().open(file.open("rb"), name)
    wanted = [after_its_losses(r) for r in truth() if r["offset"] in name.offsets]
    assert rows_of(list(reader.batches())) == wanted
    assert rows_of(list(reader.batches(name.offsets.start + 13))) == wanted[13:]
    footer = reader.footer
    assert footer.segment == name
    assert footer.origin.fidelity == "ancestor"
    assert footer.digest is None
    assert footer.count == len(wanted)
    assert (footer.first_offset, footer.last_offset) == (name.offsets.start, name.offsets.end)
    assert footer.origin.created_at.year == 2026
    assert footer.origin.topic_id == ""
    reader.close()


# --- forged ones ------------------------------------------------------------------------------------------------------

NAME = Segment(SourcePartition("src", "t", 1), 0, OffsetRange(5, 9))
KEYS = {
    "region": "src",
    "topic": "t",
    "partition": "1",
    "level": "0",
    "startOffset": "5",
    "endOffset": "9",
    "messageCount": "3",
    "createdTimestamp": "2024-02-29T23:59:59.123456789Z",
}
OFFSETS, STAMPS = [5, 7, 9], [1_700_000_000_123_000_000, 0, 1]


def forged(
    keys: dict[str, str],
    offsets: list[int] = OFFSETS,
    stamps: list[int] = STAMPS,
    header_key: bytes = b"h",
    schema: pa.Schema = ancestor._STORED,
) -> bytes:
    columns = {
        "key": [b"k"] * len(offsets),
        "value": [b"v"] * len(offsets),
        "offset": offsets,
        "timestamp": stamps,
        "headers": [[{"key": header_key, "value": b""}], *[[]] * (len(offsets) - 1)],
    }
    arrays = [pa.array(columns.get(field.name, offsets), field.type) for field in schema]
    sink = BytesIO()
    with pq.ParquetWriter(sink, schema, store_schema=False, compression="snappy") as writer:
        writer.write_table(pa.table(arrays, schema=schema))
        writer.add_key_value_metadata(keys)
    return sink.getvalue()


def read(data: bytes, name: Segment = NAME) -> list[Row]:
    reader = ParquetFormat().open(BytesIO(data), name)
    try:
        return rows_of(list(reader.batches()))
    finally:
        reader.close()


def test_a_valid_forged_segment_is_read() -> None:
    assert [row["offset"] for row in read(forged(KEYS))] == OFFSETS
    reader = ParquetFormat().open(BytesIO(forged(KEYS)), NAME)
    assert reader.footer.origin.created_at == datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=UTC)
    reader.close()


def test_nanoseconds_round_down_on_both_sides_of_1970() -> None:
    stamps = [-1, -1_000_000, -1_000_001, 999_999, -(2**63), 2**63 - 1]
    keys = KEYS | {"startOffset": "0", "endOffset": "5", "messageCount": "6"}
    name = Segment(NAME.source, 0, OffsetRange(0, 5))
    seen = [row["timestamp"] for row in read(forged(keys, offsets=list(range(6)), stamps=stamps), name)]
    assert seen == [stamp // 1_000_000 for stamp in stamps]


@pytest.mark.parametrize("key", sorted(KEYS))
def test_every_footer_key_is_required(key: str) -> None:
    without = {k: v for k, v in KEYS.items() if k != key}
    for keys in (without, KEYS | {key: "x!"}, KEYS | {key: ""}, KEYS | {key: "-1"}):
        with pytest.raises(CorruptSegment):
            read(forged(keys))


@pytest.mark.parametrize("key", sorted(key for key, value in KEYS.items() if value.isdigit()))
def test_only_one_notation_of_numbers_is_accepted(key: str) -> None:
    """Python reads more notations of the same number than the ancestor writes."""
    value = KEYS[key]
    arabic = "".join(chr(0x660 + int(digit)) for digit in value)
    assert int(arabic) == int(value)
    for other in (arabic, f"+{value}", f" {value}"):
        with pytest.raises(CorruptSegment):
            read(forged(KEYS | {key: other}))


@pytest.mark.parametrize(
    "other",
    [
        {"region": "dst"},
        {"topic": "u"},
        {"partition": "2"},
        {"level": "1"},
        {"startOffset": "4"},
        {"endOffset": "10"},
        {"messageCount": "2"},
        {"messageCount": "4"},
    ],
)
def test_footer_keys_with_other_names(other: dict[str, str]) -> None:
    with pytest.raises(CorruptSegment):
        ParquetFormat().open(BytesIO(forged(KEYS | other)), NAME)


@pytest.mark.parametrize("offsets", [[5, 9, 7], [5, 5, 9], [5, 7, 8], [6, 7, 9], [4, 7, 9], [5, 7, 10], [5, 7, 2**63]])
def test_offsets_outside_the_footers_range(offsets: list[int]) -> None:
    with pytest.raises(CorruptSegment):
        read(forged(KEYS, offsets=offsets))


def test_a_header_key_that_is_not_utf8_is_rejected() -> None:
    with pytest.raises(CorruptSegment, match="UTF8"):
        read(forged(KEYS, header_key=b"\xff"))


def test_other_columns_are_refused() -> None:
    schema = ancestor._STORED.set(3, pa.field("timestamp", pa.int64()))
    with pytest.raises(CorruptSegment, match="columns"):
        read(forged(KEYS, schema=schema))


def test_errors_of_the_source_are_not_corruption() -> None:
    error = StoreUnavailable("gone for now")
    data = FILES[0].read_bytes()
    outcomes: list[Exception | None] = []
    while not outcomes or outcomes[-1] is not None:
        source = BrokenSource(data, error, after=len(outcomes))
        try:
            list(ParquetFormat().open(source, segment_of(FILES[0])).batches())
            outcomes.append(None)
        except Exception as raised:
            outcomes.append(raised)
        source.close()
    assert outcomes == [error] * (len(outcomes) - 1) + [None]
    assert len(outcomes) > 2
