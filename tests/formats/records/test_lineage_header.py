"""The lineage header: last of each record, with the right offset, and everything else as it was."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.records.lineage_header import with_lineage, without_header
from formats.records.schema import SCHEMA
from formats.segment import SourcePartition
from tests.examples import property_examples
from tests.formats.sample_records import Row, batch_of, rows, rows_of, sample_rows

SOURCE = SourcePartition("a", "orders", 3)
NAME = "replicator.source"


def slices_of(batch: pa.RecordBatch, first: int, count: int) -> pa.RecordBatch:
    """Some of the records, of columns whose buffers hold more."""
    return batch.slice(first, count)


def expected(row: Row, cluster: str = "c", where: str = "orders/3") -> Row:
    return {**row, "headers": [*(row["headers"] or []), (NAME, f"{cluster}/{where}/{row['offset']}".encode())]}


def without(row: Row, name: str = NAME) -> Row:
    return {**row, "headers": [one for one in row["headers"] or [] if one[0] != name] or None}


@property_examples()
@given(given=rows(), first=st.integers(0, 5), count=st.integers(0, 30))
def test_it_comes_last_and_everything_else_is_as_it_was(given: list[Row], first: int, count: int) -> None:
    batch = slices_of(batch_of(given), first, count)
    before = rows_of([batch])
    found = with_lineage(batch, NAME, "c", SOURCE)
    found.validate(full=True)
    assert found.schema == SCHEMA
    assert rows_of([found]) == [expected(row) for row in before]
    assert rows_of([batch]) == before
    assert [row | {"headers": row["headers"] or None} for row in rows_of([without_header(found, NAME)])] == [
        without(row) for row in before
    ]


@property_examples()
@given(given=rows(), first=st.integers(0, 5), names=st.sampled_from(["", "a", "source", NAME]))
def test_every_header_of_a_name_is_left_out_and_no_other(given: list[Row], first: int, names: str) -> None:
    batch = slices_of(with_lineage(batch_of(given), "source", "c", SOURCE), first, 30)
    found = without_header(batch, names)
    found.validate(full=True)
    assert [row | {"headers": row["headers"] or None} for row in rows_of([found])] == [
        without(row, names) for row in rows_of([batch])
    ]


def test_what_lies_under_a_null_is_no_header() -> None:
    """A list may be null, and still have elements in its buffers."""
    headers = batch_of(sample_rows(20)).column("headers")
    masked = pa.ListArray.from_buffers(
        headers.type, 20, [pa.array([True, False] * 10).buffers()[1], headers.buffers()[1]], children=[headers.values]
    )
    batch = batch_of(sample_rows(20)).set_column(5, SCHEMA.field(5), masked)
    assert len(masked.flatten()) < len(headers.values)
    assert rows_of([with_lineage(batch, NAME, "c", SOURCE)]) == [expected(row) for row in rows_of([batch])]


def test_a_chain_has_one_of_each_hop_and_a_later_incarnation_is_named() -> None:
    batch = batch_of(sample_rows(3, first_offset=7))
    later = SourcePartition("b", "us.orders", 3, "bR1uYcXNQ6yUZqv1DmYw5A")
    found = rows_of([with_lineage(with_lineage(batch, NAME, "c", SOURCE), NAME, "", later)])
    assert [row["headers"][-2:] for row in found] == [
        [
            (NAME, f"c/orders/3/{offset}".encode()),
            (NAME, f"/us.orders@bR1uYcXNQ6yUZqv1DmYw5A/3/{offset}".encode()),
        ]
        for offset in (7, 8, 9)
    ]


@pytest.mark.parametrize("name", ["absent", ""])
def test_nothing_is_copied_where_there_is_nothing_to_do(name: str) -> None:
    plain = batch_of([row | {"headers": [("a", b"1")]} for row in sample_rows(3)])
    assert without_header(plain, name) is plain
    assert with_lineage(plain.slice(0, 0), NAME, "c", SOURCE).num_rows == 0
