"""The measure of what crosses can fail: each mistake that it is for is planted, and found."""

from __future__ import annotations

import base64
import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.segments import SegmentStore
from infra.local.aws import s3_client
from infra.local.stack import LocalStack
from infra.spark.driver import SparkSettings
from infra.spark.runner import SparkRunner
from infra.storage.s3 import S3ObjectStore
from tests.formats.sample_records import ORIGIN
from tests.integration.answers import all_answered
from tests.integration.crossing import Crossing
from tests.integration.on_spark import QUICK
from tests.replicator.restore.large import rows

pytestmark = pytest.mark.integration

# A worker cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # it has no types

SEGMENTS = 8
NOISE_BYTES = 350  # of each record: 4 MB a segment


@dataclass(frozen=True)
class Archive:
    endpoint_url: str
    bucket: str

    def read(self, segment: str) -> bytes:
        client = s3_client(self.endpoint_url)
        try:
            return client.get_object(Bucket=self.bucket, Key=f"data/{segment}")["Body"].read()
        finally:
            client.close()


@dataclass(frozen=True)
class Returns:
    """Says how long a segment is. The mistake: for one of them the answer is its bytes."""

    archive: Archive
    only: str

    def __call__(self, row: str) -> str:
        body = self.archive.read(row)
        return base64.b64encode(body).decode() if row == self.only else str(len(body))


def measured(row: str) -> str:
    """For the mistake of a row that carries a segment's bytes."""
    return str(len(base64.b64decode(row)))


@dataclass(frozen=True)
class Stored:
    archive: Archive
    names: Sequence[str]
    sizes: Sequence[int]


@pytest.fixture(scope="module")
def stored(stack: LocalStack) -> Stored:
    made = Archive(stack.moto.endpoint_url, "crossing")
    client = s3_client(made.endpoint_url)
    client.create_bucket(Bucket=made.bucket)
    store = SegmentStore(S3ObjectStore(client, made.bucket), "data")
    names, sizes = [], []
    for number in range(SEGMENTS):
        batch = rows(number, number + 1, noise_bytes=NOISE_BYTES)
        name = Segment(SourcePartition("a", "orders", 0), 0, _range(batch))
        body = io.BytesIO()
        writer = ParquetFormat().create(body)
        writer.write([batch])
        writer.close(name, ORIGIN)
        store.store(name, body, body.tell())
        names.append(str(name))
        sizes.append(body.tell())
    client.close()
    return Stored(made, names, sizes)


def _range(batch: pa.RecordBatch) -> OffsetRange:
    offsets = batch.column("offset")
    return OffsetRange(offsets[0].as_py(), offsets[-1].as_py())


@pytest.fixture
def crossing(tmp_path: Path) -> Crossing:
    return Crossing(tmp_path / "events")


def run(crossing: Crossing, rows: Callable[[], Sequence[str]], work: Callable[[str], str]) -> Sequence[str]:
    settings = SparkSettings(master="local[2,4]", properties={**QUICK, **crossing.properties})
    with crossing.watched(), SparkRunner(settings) as runner:
        return all_answered(runner.run(rows(), work))


@pytest.mark.long
def test_a_task_that_returns_a_segment_is_found(crossing: Crossing, stored: Stored) -> None:
    """One task of many is enough."""
    run(crossing, lambda: stored.names, Returns(stored.archive, only=stored.names[3]))
    with pytest.raises(AssertionError, match="a task returned"):
        crossing.assert_only_plans(stored.sizes)


@pytest.mark.long
def test_a_row_that_carries_a_segment_is_found(crossing: Crossing, stored: Stored) -> None:
    run(crossing, lambda: [base64.b64encode(stored.archive.read(name)).decode() for name in stored.names], measured)
    with pytest.raises(AssertionError, match="the driver fetched"):
        crossing.assert_only_plans(stored.sizes)
    crossing.fetched_bytes = 0  # had they come to it in another way
    with pytest.raises(AssertionError, match="the driver grew"):
        crossing.assert_only_plans(stored.sizes)
