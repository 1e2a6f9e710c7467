"""Records for tests of formats: as rows (what a reader must give back), as batches, and as a Hypothesis strategy."""

from __future__ import annotations

import base64
import random
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from formats.footer import SegmentOrigin
from formats.records.schema import SCHEMA
from formats.segment import OffsetRange, Segment, SourcePartition

Row = dict[str, Any]  # the columns of SCHEMA; timestamp as int milliseconds, headers as list of (key, value) or None

SOURCE = SourcePartition("eu-1", "orders", 3)
ORIGIN = SegmentOrigin(
    topic_id="a1b2c3d4e5f6g7h8i9j0kk",
    cluster_id="cluster-1",
    source_partition_count=12,
    last_leader_epoch=4,
    catalog_generation=17,
    created_at=datetime(2026, 3, 4, 5, 6, 7, 890123, tzinfo=UTC),
    writer="replicator tests",
)
BARE = SegmentOrigin(created_at=datetime(2026, 1, 1, tzinfo=UTC), writer="")


def segment(start: int, end: int, level: int = 0) -> Segment:
    return Segment(SOURCE, level, OffsetRange(start, end))


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    columns: list[pa.Array] = []
    for field in SCHEMA:
        values = [row[field.name] for row in rows]
        if field.name == "timestamp":
            columns.append(pa.array(values, pa.int64()).view(field.type))
        elif field.name == "headers":
            pairs = [None if v is None else [{"key": k, "value": d} for k, d in v] for v in values]
            columns.append(pa.array(pairs, field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.record_batch(columns, schema=SCHEMA)


def rows_of(batches: list[pa.RecordBatch]) -> list[Row]:
    """Empty and null headers are equal and become None."""
    rows = []
    for batch in batches:
        assert batch.schema.equals(SCHEMA)
        columns = {name: batch.column(name) for name in SCHEMA.names}
        columns["timestamp"] = columns["timestamp"].view(pa.int64())
        for i in range(batch.num_rows):
            row = {name: column[i].as_py() for name, column in columns.items()}
            row["headers"] = [(h["key"], h["value"]) for h in row["headers"]] if row["headers"] else None
            rows.append(row)
    return rows


def raw_bytes(row: Row) -> int:
    pairs = [part for key, value in row["headers"] or () for part in (key.encode(), value)]
    return sum(len(part) for part in (row["key"], row["value"], *pairs) if part is not None)


def to_json(row: Row) -> dict[str, Any]:
    headers = row["headers"]
    return {
        **row,
        "key": _text(row["key"]),
        "value": _text(row["value"]),
        "headers": headers and [[key, _text(value)] for key, value in headers],
    }


def from_json(value: dict[str, Any]) -> Row:
    headers = value["headers"]
    return {
        **value,
        "key": _bytes(value["key"]),
        "value": _bytes(value["value"]),
        "headers": headers and [(key, _bytes(data)) for key, data in headers],
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def sample_rows(count: int, *, first_offset: int = 0, step: int = 1, seed: int = 7) -> list[Row]:
    """Records that cover every kind of value."""
    rng = random.Random(seed)
    rows: list[Row] = []
    for i in range(count):
        headers: list[tuple[str, bytes | None]] | None = [
            (rng.choice(["source", "trace", "", "ключ"]), rng.choice([None, b"", rng.randbytes(8)]))
            for _ in range(rng.randrange(4))
        ] or None
        rows.append(
            {
                "offset": first_offset + i * step,
                "timestamp": 1_700_000_000_000 + rng.randrange(-5_000, 5_000),
                "timestamp_type": rng.choice([0, 0, 1]),
                "key": rng.choice([None, b"", b"key-%d" % rng.randrange(50)]),
                "value": rng.choice([None, b"", rng.randbytes(30), b'{"n": %d}' % i * 6]),
                "headers": headers,
            }
        )
    return rows


def split(batch: pa.RecordBatch, cuts: list[int]) -> list[pa.RecordBatch]:
    """Slices of `batch` between `cuts`; some may be empty."""
    edges = [0, *sorted(min(cut, batch.num_rows) for cut in cuts), batch.num_rows]
    return [batch.slice(a, b - a) for a, b in pairwise(edges)]


_data = st.none() | st.binary(max_size=40)
_header = st.tuples(st.text(st.characters(codec="utf-8"), max_size=6), _data)
_stamps = st.sampled_from([-(2**63), -1, 0, 253_402_300_799_999, 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1)
_steps = st.just(1) | st.integers(1, 5) | st.integers(1, 2**56)


@st.composite
def rows(draw: st.DrawFn, min_size: int = 0, max_size: int = 30) -> list[Row]:
    """Records with rising offsets up to 2^62, and anything Kafka can hold besides."""
    offset = draw(st.integers(0, 2**61)) - 1
    result: list[Row] = []
    for _ in range(draw(st.integers(min_size, max_size))):
        offset += draw(_steps)
        result.append(
            {
                "offset": offset,
                "timestamp": draw(_stamps),
                "timestamp_type": draw(st.sampled_from([-1, 0, 1])),
                "key": draw(_data),
                "value": draw(_data),
                "headers": draw(st.none() | st.lists(_header, min_size=1, max_size=4)),
            }
        )
    return result


cuts = st.lists(st.integers(0, 30), max_size=4)
