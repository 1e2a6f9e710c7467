"""The benchmark's records as Arrow batches of one partition."""

from __future__ import annotations

import pyarrow as pa

from bench.data import GeneratedRecords
from formats.records.schema import CREATE_TIME, SCHEMA


def batch_of(made: GeneratedRecords, at: slice) -> pa.RecordBatch:
    """The records at the positions `at`, with a start and an end within `made`, which are their offsets, too."""
    headers = [[{"key": k, "value": v} for k, v in pairs or ()] for pairs in made.headers[at]]
    columns = [
        pa.array(range(at.start, at.stop), pa.int64()),
        pa.array(made.timestamps_ms[at], pa.int64()).view(SCHEMA.field("timestamp").type),
        pa.repeat(pa.scalar(CREATE_TIME, pa.int8()), at.stop - at.start),
        pa.array(made.keys[at], pa.binary()),
        pa.array(made.values[at], pa.binary()),
        pa.array(headers, SCHEMA.field("headers").type),
    ]
    return pa.record_batch(columns, schema=SCHEMA)
