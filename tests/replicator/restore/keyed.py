"""A user function for `--map` that adds keys to records without one."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from formats.segment import SourcePartition


def by_offset(batch: pa.RecordBatch, _source: SourcePartition) -> pa.RecordBatch:
    keys = pc.coalesce(batch.column("key"), batch.column("offset").cast(pa.string()).cast(pa.binary()))
    index = batch.schema.get_field_index("key")
    return batch.set_column(index, batch.schema.field(index), keys)
