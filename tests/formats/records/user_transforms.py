"""Transforms as a user writes them: some work, some do not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from formats.records.schema import SCHEMA
from formats.segment import SourcePartition

a_number = 5


def masked(batch: pa.RecordBatch, source: SourcePartition) -> pa.RecordBatch:
    """Every value is hidden."""
    values = pa.array([b"***"] * batch.num_rows, pa.binary())
    return batch.set_column(SCHEMA.get_field_index("value"), SCHEMA.field("value"), values)


def only_even(batch: pa.RecordBatch, source: SourcePartition) -> pa.Array:
    """Whether each offset is even."""
    return pc.equal(pc.bit_wise_and(batch.column("offset"), 1), 0)


def masked_even(batch: pa.RecordBatch, source: SourcePartition) -> pa.RecordBatch:
    return masked(batch.filter(only_even(batch, source)), source)


def nothing(batch: pa.RecordBatch, source: SourcePartition) -> pa.Array:
    return pc.less(batch.column("offset"), 0)


def fails_for_7(batch: pa.RecordBatch, source: SourcePartition) -> pa.Array:
    if pc.any(pc.equal(batch.column("offset"), 7)).as_py():
        raise ValueError("unlucky")
    return only_even(batch, source)


def with_partition(batch: pa.RecordBatch, source: SourcePartition) -> pa.RecordBatch:
    """Tries to route."""
    return batch.append_column("partition", pa.array([0] * batch.num_rows, pa.int32()))


def takes_one(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def takes_any(*given: Any, **named: Any) -> pa.RecordBatch:
    return given[0]
