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

from bench.batches import batch_of
from bench.child import measured
from bench.data import records
from infra.local.aws import local_config

PREFIX = "bare/"
STEPS = ("encode", "put", "get", "decode")


def segments(spec: dict[str, Any]) -> dict[str, Any]:
    """CPU milliseconds of this process for a segment, by step, over `segments` of `records` each, one after the other.
    The client's start is in none."""
    tables = list(_tables(spec["records"], spec["segments"]))
    keys = [f"{PREFIX}{number}" for number in range(len(tables))]
    with closing(boto3.client("s3", config=local_config(), **spec["s3"])) as s3:
        s3.put_object(Bucket=spec["bucket"], Key=f"{PREFIX}first", Body=b"")  # connects
        marks = [time.process_time()]
        bodies = [_encoded(table) for table in tables]
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
    return dict(zip(STEPS, each, strict=True))


def _encoded(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", compression_level=1, use_dictionary=False)
    return sink.getvalue()


def _tables(size: int, count: int) -> Iterator[pa.Table]:
    """Slices of one table of ten segments, over and over."""
    whole = pa.Table.from_batches([batch_of(records("json", size * 10, 1), slice(0, size * 10))])
    for number in range(count):
        yield whole.slice(number % 10 * size, size)


if __name__ == "__main__":
    measured({"segments": segments}[sys.argv[1]])
