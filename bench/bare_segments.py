"""pyarrow and boto3 alone with small segments: each is encoded and put, then each is got and decoded.

Nothing is checked, and no record comes from Kafka or goes there: the least that a segment costs a program in Python
with these libraries. `bench.child` starts it.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq

from bench.child import measured
from bench.data import records
from formats.records.schema import CREATE_TIME, SCHEMA
from infra.local.aws import local_config

PREFIX = "bare/"
STEPS = ("encode", "put", "get", "decode")


def segments(spec: dict[str, Any]) -> dict[str, Any]:
    """CPU milliseconds of this process for a segment, by step, over `segments` of `records` each, one after the other.
    The client's start is in none."""
    tables = list(_tables(spec["records"], spec["segments"]))
    keys = [f"{PREFIX}{number}" for number in range(len(tables))]
    bodies: list[bytes] = []
    marks: list[float] = []
    with closing(boto3.client("s3", config=local_config(), **spec["s3"])) as s3:
        s3.put_object(Bucket=spec["bucket"], Key=f"{PREFIX}first", Body=b"")  # connects
        began = time.perf_counter()
        marks.append(time.process_time())
        for table in tables:
            sink = io.BytesIO()
            pq.write_table(table, sink, compression="zstd", compression_level=1, use_dictionary=False)
            bodies.append(sink.getvalue())
        marks.append(time.process_time())
        for key, body in zip(keys, bodies, strict=True):
            s3.put_object(Bucket=spec["bucket"], Key=key, Body=body)
        marks.append(time.process_time())
        bodies = [s3.get_object(Bucket=spec["bucket"], Key=key)["Body"].read() for key in keys]
        marks.append(time.process_time())
        for body in bodies:
            pq.read_table(io.BytesIO(body), use_threads=False)
        marks.append(time.process_time())
    each = [(end - start) / len(tables) * 1000 for start, end in pairwise(marks)]
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": marks[-1] - marks[0],
        **dict(zip(STEPS, each, strict=True)),
    }


def _tables(size: int, count: int) -> Iterator[pa.Table]:
    """Slices of one table of ten segments, over and over."""
    made = records("json", size * 10, 1)
    headers = [[{"key": name, "value": value} for name, value in pairs] if pairs else None for pairs in made.headers]
    whole = pa.table(
        [
            pa.array(range(size * 10), pa.int64()),
            pa.array(made.timestamps_ms, pa.int64()).view(SCHEMA.field("timestamp").type),
            pa.array([CREATE_TIME] * (size * 10), pa.int8()),
            pa.array(made.keys, pa.binary()),
            pa.array(made.values, pa.binary()),
            pa.array(headers, SCHEMA.field("headers").type),
        ],
        schema=SCHEMA,
    )
    for number in range(count):
        yield whole.slice(number % 10 * size, size)


if __name__ == "__main__":
    measured({"segments": segments}[sys.argv[1]])
