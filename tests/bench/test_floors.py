"""Floors do the minimum of the work, with the same reads as the program compared with them."""

from __future__ import annotations

import io
from contextlib import closing

from bench import archive
from bench.archive import REGION, TOPIC, row_groups
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.segments import SegmentStore
from infra.storage.memory_and_folder import MemoryObjectStore

RECORDS = 40_000  # three row groups


class Reads(io.BytesIO):
    """Counts the reads that return bytes."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self.spans: list[tuple[int, int]] = []

    def read(self, size: int | None = -1) -> bytes:
        at, found = self.tell(), super().read(size)
        self.spans.append((at, len(found)))
        return found


def test_decoding_has_the_reads_and_the_records_of_the_reader() -> None:
    store = SegmentStore(MemoryObjectStore(), "p")
    raw_bytes = archive.fill(store, partitions=1, segments=1, count=RECORDS)
    assert raw_bytes > 1000 * RECORDS
    segment = Segment(SourcePartition(REGION, TOPIC, 0), 0, OffsetRange(0, RECORDS - 1))
    with store.open(segment) as source:
        body = source.read()
    floor, product = Reads(body), Reads(body)
    decoded = [table.to_batches() for table in row_groups(floor)]
    with closing(ParquetFormat().open(product, segment)) as reader:
        proved = list(reader.batches())
    assert [batch for batches in decoded for batch in batches] == proved
    assert len(decoded) == 3  # row groups, each in many batches
    assert len(proved) > 3 * len(decoded)
    starts, lengths = zip(*floor.spans, strict=True)
    assert len(floor.spans) == len(product.spans) == 1 + len(decoded)
    assert sum(lengths) <= sum(length for _, length in product.spans)
    assert starts[0] == product.spans[0][0]


def test_the_benchmark_merges_like_the_product() -> None:
    store = SegmentStore(MemoryObjectStore(), "p")
    archive.fill(store, partitions=2, segments=3, count=10)
    plans = archive.plans(store)
    assert [len(plan.inputs) for plan in plans] == [3, 3]
    assert [plan.output.offsets for plan in plans] == [OffsetRange(0, 29)] * 2
