"""Floors do the minimum of the work, with the same reads as the program compared with them."""

from __future__ import annotations

import io
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench import archive
from bench.archive import REGION, TOPIC, row_groups
from bench.batches import batch_of
from bench.data import records
from bench.field_programs import codec
from formats.parquet.writer import ParquetFormat
from formats.records.schema import SCHEMA
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


def test_encoding_alone_is_the_encoding_of_egress() -> None:
    """The same codec, level and encodings, so nearly the same bytes."""
    store = SegmentStore(MemoryObjectStore(), "p")
    archive.fill(store, partitions=1, segments=1, count=10_000)
    with store.open(Segment(SourcePartition(REGION, TOPIC, 0), 0, OffsetRange(0, 9_999))) as source:
        product = io.BytesIO(source.read())
    floor = io.BytesIO()
    with pq.ParquetWriter(floor, SCHEMA, **archive.CODEC_OPTIONS) as writer:
        writer.write_table(pa.Table.from_batches([batch_of(records("json", 10_000, 1), slice(0, 10_000))]))
    ours, bare = (pq.ParquetFile(file).metadata.row_group(0) for file in (product, floor))
    for number in range(bare.num_columns):
        found, wanted = ours.column(number), bare.column(number)
        assert (found.path_in_schema, found.compression) == (wanted.path_in_schema, wanted.compression)
        assert set(found.encodings) == set(wanted.encodings)
        assert wanted.total_compressed_size == pytest.approx(found.total_compressed_size, rel=0.02, abs=300)


def test_both_halves_of_the_codec_are_measured() -> None:
    found = codec({"kind": "small", "records": 5_000, "segment_records": 2_000})
    assert found["records"] == 5_000
    assert found["encode"] > 0
    assert found["decode"] > 0


def test_the_benchmark_merges_like_the_product() -> None:
    store = SegmentStore(MemoryObjectStore(), "p")
    archive.fill(store, partitions=2, segments=3, count=10)
    plans = archive.plans(store)
    assert [len(plan.inputs) for plan in plans] == [3, 3]
    assert [plan.output.offsets for plan in plans] == [OffsetRange(0, 29)] * 2
