"""Archives that take a restore some time: segments larger than a run."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from formats.parquet import ParquetFormat
from replicator.protocols import ObjectStore
from replicator.segment import OffsetRange, Segment, SourcePartition
from replicator.store import SegmentStore
from tests.formats.records import ORIGIN
from tests.ingress.world import records
from tests.restore.history import REGION

ROWS = 12_000


def rows(first: int, next_segment: int) -> pa.RecordBatch:
    """Those of some segments; the same in every partition."""
    return records(range(first * ROWS, next_segment * ROWS), value=b"v" * 40)


def fill(objects: ObjectStore, topic: str, partitions: int, segments: int) -> None:
    store = SegmentStore(objects, "data")
    for number in range(segments):
        batch = rows(number, number + 1)
        for partition in range(partitions):
            offsets = OffsetRange(number * ROWS, (number + 1) * ROWS - 1)
            name = Segment(SourcePartition(REGION, topic, partition), 0, offsets)
            body = io.BytesIO()
            writer = ParquetFormat().create(body)
            writer.write([batch])
            writer.close(name, replace(ORIGIN, created_at=datetime.now(UTC), source_partition_count=partitions))
            store.store(name, body, body.tell())
