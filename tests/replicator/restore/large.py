"""Archives whose restore takes some time: segments larger than a run."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.segments import SegmentStore
from infra.contracts.storage import ObjectStore
from tests.formats.sample_records import ORIGIN
from tests.ingress.world import records
from tests.replicator.restore.history import REGION

ROWS = 12_000


def rows(first: int, next_segment: int, *, noise_bytes: int = 0) -> pa.RecordBatch:
    """The records of some segments; the same in every partition. `noise_bytes`: incompressible bytes of each value."""
    offsets = range(first * ROWS, next_segment * ROWS)
    batch = records(offsets, value=b"v" * 40)
    if not noise_bytes:
        return batch
    noise = [random.Random(offset).randbytes(noise_bytes) for offset in offsets]
    at = batch.schema.get_field_index("value")
    return batch.set_column(at, batch.schema.field(at), pa.array(noise, pa.binary()))


def fill(objects: ObjectStore, topic: str, partitions: int, segments: int, *, noise_bytes: int = 0) -> list[int]:
    """Sizes of the stored objects."""
    store, sizes = SegmentStore(objects, "data"), []
    for number in range(segments):
        batch = rows(number, number + 1, noise_bytes=noise_bytes)
        for partition in range(partitions):
            offsets = OffsetRange(number * ROWS, (number + 1) * ROWS - 1)
            name = Segment(SourcePartition(REGION, topic, partition), 0, offsets)
            body = io.BytesIO()
            writer = ParquetFormat().create(body)
            writer.write([batch])
            writer.close(name, replace(ORIGIN, created_at=datetime.now(UTC), source_partition_count=partitions))
            store.store(name, body, body.tell())
            sizes.append(body.tell())
    return sizes
