"""The size of each record, from columns, is the size of its key, value, header keys and header values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from formats.records.schema import SCHEMA
from formats.records.statistics import record_bytes
from tests.examples import property_examples
from tests.formats.sample_records import Row, batch_of, cuts, raw_bytes, rows, split

PROPERTY = property_examples()


@PROPERTY
@given(records=rows(max_size=10), where=cuts)
def test_is_the_size_of_each_record_however_they_are_cut(records: list[Row], where: list[int]) -> None:
    parts = split(batch_of(records), where)
    assert [size for part in parts for size in record_bytes(part).to_pylist()] == [raw_bytes(row) for row in records]


def hidden(array: pa.Array, *, null_at: int) -> pa.Array:
    """`array`, with one element null whose content stays in the buffers."""
    bits = sum(1 << i for i in range(len(array)) if i != null_at)
    children: dict[str, Any] = {"children": [array.values]} if pa.types.is_list(array.type) else {}
    buffers = [pa.py_buffer(bits.to_bytes(8, "little")), *array.buffers()[1 : array.type.num_buffers]]
    return pa.Array.from_buffers(array.type, len(array), buffers, **children)


@pytest.mark.parametrize("column", ["key", "value", "headers"])
@pytest.mark.parametrize("null_at", [0, 1, 2])
def test_what_lies_under_a_null_is_not_counted(column: str, null_at: int) -> None:
    full = [
        {
            "offset": i,
            "timestamp": 0,
            "timestamp_type": 0,
            "key": b"k" * (i + 1),
            "value": b"v" * 10,
            "headers": [("h", b"x" * 100), ("i", None)],
        }
        for i in range(3)
    ]
    batch = batch_of(full)
    at = SCHEMA.get_field_index(column)
    having = batch.set_column(at, SCHEMA.field(at), hidden(batch.column(column), null_at=null_at))
    expected = [raw_bytes(row | {column: None} if i == null_at else row) for i, row in enumerate(full)]
    assert record_bytes(having).to_pylist() == expected
    assert record_bytes(having.slice(1)).to_pylist() == expected[1:]
