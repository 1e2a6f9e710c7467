"""Converts records to the rows of the Spark table: the source partition and the fields of a record."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from formats.segment import SourcePartition

_HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])

TABLE = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("incarnation", pa.string(), nullable=False),  # empty: the plain path
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),  # null if it is out of range for microseconds
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("timestamp_type", pa.int8(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        # Spark's elements may always be null, ours are not
        pa.field("headers", pa.list_(pa.field("element", _HEADER))),
    ]
)

KAFKA = pa.schema(  # as Spark's own source "kafka" has them, with includeHeaders
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))),
    ]
)

_RENAMED = {"timestampType": "timestamp_type"}  # by the name in `KAFKA`

_LARGEST_MS = (2**63 - 1) // 1_000  # about 292,000 years before and after 1970


def table_of(batch: pa.RecordBatch, source: SourcePartition) -> pa.RecordBatch:
    """`batch`, of `formats.records.schema.SCHEMA`, as rows of `TABLE`. Keys and values are not copied."""
    count = batch.num_rows
    timestamps = batch.column("timestamp").view(pa.int64())
    fits = pc.and_(pc.greater_equal(timestamps, -_LARGEST_MS), pc.less_equal(timestamps, _LARGEST_MS))
    micros = pc.multiply(pc.if_else(fits, timestamps, pa.scalar(None, pa.int64())), 1_000)
    columns = {
        "topic": pa.repeat(pa.scalar(source.topic), count),
        "partition": pa.repeat(pa.scalar(source.partition, pa.int32()), count),
        "incarnation": pa.repeat(pa.scalar(source.incarnation), count),
        "timestamp": micros.view(TABLE.field("timestamp").type),
        "timestamp_ms": timestamps,
        "headers": batch.column("headers").cast(TABLE.field("headers").type),
    }
    return pa.record_batch([columns[n] if n in columns else batch.column(n) for n in TABLE.names], schema=TABLE)


def chosen(rows: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The columns of `wanted`, part of `TABLE` or of `KAFKA`, from rows of `TABLE`."""
    columns = [rows.column(_RENAMED.get(field.name, field.name)).cast(field.type) for field in wanted]
    return pa.record_batch(columns, schema=wanted)
