from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from awscrt import checksums
from hypothesis import given
from hypothesis import strategies as st

from formats.footer import STREAMS, Digest, Stream
from formats.records.digest import EMPTY, Digester, combine, digest_of
from formats.records.schema import SCHEMA
from tests.examples import property_examples
from tests.formats.sample_records import Row, batch_of, cuts, rows, sample_rows, split

PROPERTY = property_examples()


def numbers(width_bytes: int, values: list[int]) -> bytes:
    return b"".join(value.to_bytes(width_bytes, "little", signed=True) for value in values)


def by_hand(records: list[Row]) -> Digest:
    """The definition, record by record."""

    def binary(values: list[bytes | None]) -> list[bytes]:
        sizes = numbers(4, [-1 if value is None else len(value) for value in values])
        return [sizes, b"".join(value for value in values if value is not None)]

    pairs = [pair for row in records for pair in row["headers"] or ()]
    streams = [
        numbers(8, [row["offset"] for row in records]),
        numbers(8, [row["timestamp"] for row in records]),
        numbers(1, [row["timestamp_type"] for row in records]),
        *binary([row["key"] for row in records]),
        *binary([row["value"] for row in records]),
        numbers(4, [len(row["headers"] or ()) for row in records]),
        *binary([key.encode() for key, _ in pairs]),
        *binary([value for _, value in pairs]),
    ]
    return Digest(count=len(records), streams=tuple(Stream(checksums.crc64nvme(s), len(s)) for s in streams))


@PROPERTY
@given(records=rows(), where=cuts)
def test_is_what_the_definition_says_however_records_are_cut(records: list[Row], where: list[int]) -> None:
    batch = batch_of(records)
    assert digest_of([batch]) == digest_of(split(batch, where)) == by_hand(records)


@PROPERTY
@given(records=rows(), where=cuts)
def test_digests_of_adjoining_runs_combine(records: list[Row], where: list[int]) -> None:
    batch = batch_of(records)
    parts = [digest_of([part]) for part in split(batch, where)]
    assert combine(*parts) == digest_of([batch])


@PROPERTY
@given(parts=st.lists(rows(max_size=6), min_size=3, max_size=3))
def test_combine_is_associative_and_empty_is_neutral(parts: list[list[Row]]) -> None:
    a, b, c = (digest_of([batch_of(part)]) for part in parts)
    assert combine(combine(a, b), c) == combine(a, combine(b, c)) == combine(a, b, c)
    assert combine(EMPTY, a) == combine(a, EMPTY) == combine(a) == a
    assert combine() == EMPTY == digest_of([]) == digest_of([batch_of([])])


def test_a_digester_returns_intermediate_digests() -> None:
    batch = batch_of(sample_rows(10))
    digester = Digester()
    digester.update(batch.slice(0, 4))
    assert digester.digest() == digest_of([batch.slice(0, 4)])
    digester.update(batch.slice(4))
    assert digester.digest() == digest_of([batch])


def rebuilt(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    columns = [column if field.name == name else batch.column(field.name) for field in SCHEMA]
    return pa.record_batch(columns, schema=SCHEMA)


def test_nothing_under_a_null_is_hashed() -> None:
    batch = batch_of(sample_rows(4))
    offsets = pa.array([0, 3, 6, 9, 9], pa.int32())
    holes = pa.array([True, False, True, True]).buffers()[1]
    dirty = pa.Array.from_buffers(pa.binary(), 4, [holes, offsets.buffers()[1], pa.py_buffer(b"abcXYZghi")])
    clean = pa.array([b"abc", None, b"ghi", b""], pa.binary())
    assert dirty.equals(clean)
    assert dirty.buffers()[2] != clean.buffers()[2]
    for name in ("key", "value"):
        for part in (slice(0, 4), slice(1, 4), slice(1, 2)):
            a, b = rebuilt(batch, name, dirty)[part], rebuilt(batch, name, clean)[part]
            assert digest_of([a]) == digest_of([b])


def test_nothing_under_a_null_list_is_hashed() -> None:
    batch = batch_of(sample_rows(3))
    kind = SCHEMA.field("headers").type
    pairs = pa.array([{"key": k, "value": b"v"} for k in "abc"], kind.value_type)
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), pairs, type=kind, mask=pa.array([False, True, False])
    )
    plain = pa.array([[{"key": "a", "value": b"v"}], None, [{"key": "c", "value": b"v"}]], kind)
    assert len(hidden.values) == 3
    assert digest_of([rebuilt(batch, "headers", hidden)]) == digest_of([rebuilt(batch, "headers", plain)])


def test_null_and_empty_headers_have_the_same_digest() -> None:
    batch = batch_of(sample_rows(2))
    kind = SCHEMA.field("headers").type
    assert digest_of([rebuilt(batch, "headers", pa.array([None, []], kind))]) == digest_of(
        [rebuilt(batch, "headers", pa.array([[], None], kind))]
    )


BASE: Row = {
    "offset": 5,
    "timestamp": 1_000,
    "timestamp_type": 0,
    "key": b"key",
    "value": b"",
    "headers": [("a", b"1"), ("b", None)],
}
CHANGES: list[tuple[dict[str, Any], set[str]]] = [
    ({"timestamp": 1_001}, {"timestamp"}),
    ({"timestamp_type": 1}, {"timestamp_type"}),
    ({"key": b"kez"}, {"key.data"}),
    ({"key": b"ke"}, {"key.length", "key.data"}),
    ({"key": None}, {"key.length", "key.data"}),
    ({"value": None}, {"value.length"}),
    ({"value": b"\0"}, {"value.length", "value.data"}),
    ({"headers": [("b", None), ("a", b"1")]}, {"headers.key.data", "headers.value.length"}),
    ({"headers": [("a", b"1"), ("b", b"")]}, {"headers.value.length"}),
    ({"headers": [("a", b"2"), ("b", None)]}, {"headers.value.data"}),
    ({"headers": [("ab", b"1"), ("", None)]}, {"headers.key.length"}),
    ({"headers": [("a", b"1")]}, {"headers.count", "headers.key.length", "headers.key.data", "headers.value.length"}),
]


@pytest.mark.parametrize(("change", "streams"), CHANGES)
@pytest.mark.parametrize("position", [0, 3, 9])
def test_a_change_shows_in_its_column_stream(change: dict[str, Any], streams: set[str], position: int) -> None:
    before = [BASE | {"offset": i} for i in range(10)]
    after = [row | change if row["offset"] == position else row for row in before]
    a, b = digest_of([batch_of(before)]), digest_of([batch_of(after)])
    assert {n for n, s, t in zip(STREAMS, a.streams, b.streams, strict=True) if s != t} == streams
    assert a.content != b.content
    assert a.whole != b.whole


def test_other_offsets_change_the_whole_but_not_the_content() -> None:
    here, there = (digest_of([batch_of(sample_rows(10, first_offset=first))]) for first in (0, 100))
    assert here.content == there.content
    assert here.whole != there.whole


def test_moving_a_byte_between_records_changes_the_digest() -> None:
    """The data stream alone does not detect this."""
    ab_c, a_bc = ([BASE | {"offset": i, "value": v} for i, v in enumerate(vs)] for vs in ([b"ab", b"c"], [b"a", b"bc"]))
    assert digest_of([batch_of(ab_c)]).content != digest_of([batch_of(a_bc)]).content
