"""What a merge holds does not grow with what it merges: measured in a worker of Spark, where merges run."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from compaction.delete_merged import Cleaner
from compaction.merge import Merger
from compaction.planner import MergePlan, plan_partition
from compaction.replicas import ReplicaCheck
from compaction.task_rows import decode_outcome, decode_plan, encode_outcome, encode_plan
from compaction.worker import Worker
from formats.parquet.writer import ParquetFormat
from formats.records.schema import CREATE_TIME, SCHEMA
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.archive import Archive
from infra.archive.segments import SegmentStore
from infra.archive.upload import Uploader
from infra.spark.driver import SparkSettings
from infra.spark.runner import SparkRunner
from infra.storage.memory_and_folder import DirectoryObjectStore
from tests.compaction.archive import job
from tests.formats.sample_records import ORIGIN
from tests.integration.answers import all_answered
from tests.integration.on_spark import QUICK

pytestmark = pytest.mark.integration

SEGMENTS = {"small": 2, "medium": 6, "large": 18}  # of each partition, each of two row groups
RECORDS, VALUE_BYTES = 8_000, 1_000
JOB = job(row_group_size=4 << 20)
GROWTH_MB = 20.0  # what is not the same from run to run: pages of libraries, the allocator
LIMIT_MB = 200.0  # with row groups of 4 MiB; of 32 MiB: docs/bench.md
MERGED = ParquetFormat(compression_level=1, row_group_bytes=JOB.row_group_size, row_group_records=JOB.batch_size)


# the worker has this module by no name
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # it has no types


@dataclass(frozen=True)
class Measured:
    """Carries out a plan, and reports the peak memory of the process meanwhile."""

    root: str

    def __call__(self, row: str) -> str:
        archive = Archive.of(DirectoryObjectStore(Path(self.root)), "", MERGED)
        merger = Merger(
            archive=archive,
            uploader=Uploader(archive, source_compacted=lambda _: True),
            row_group_bytes=JOB.row_group_size,
            writer="tests",
        )
        worker = Worker(
            merger=merger, cleaner=Cleaner(archive=archive, replicas=ReplicaCheck(original=archive.segments))
        )
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now on
        outcome = encode_outcome(worker.execute(decode_plan(row)))
        peak_kib = next(int(line.split()[1]) for line in status() if line.startswith("VmHWM:"))
        return json.dumps([outcome, peak_kib / 1000 * 1.024])


def status() -> list[str]:
    return Path("/proc/self/status").read_text().splitlines()


@pytest.fixture
def runner() -> Iterator[SparkRunner]:
    settings = SparkSettings(master="local[1]", properties=QUICK)
    with closing(SparkRunner(settings)) as running:
        yield running


@pytest.mark.long
def test_three_sizes_hold_the_same(runner: SparkRunner, tmp_path: Path) -> None:
    store = SegmentStore(DirectoryObjectStore(tmp_path), "")
    for partition, count in enumerate(SEGMENTS.values()):
        for number in range(count):
            write(store, SourcePartition("a", "t", partition), number)
    now = datetime.now(UTC) + timedelta(minutes=1)
    sources = [SourcePartition("a", "t", partition) for partition in range(len(SEGMENTS))]
    plans = [plan for source in sources for plan in plan_partition(store.list(source), JOB, now)]
    merges = [plan for plan in plans if isinstance(plan, MergePlan)]
    assert [len(plan.inputs) for plan in merges] == list(SEGMENTS.values())

    # once to load what is loaded once; then each by itself, in one process
    runner.run([encode_plan(merges[0])], Measured(str(tmp_path)))
    answers = all_answered(runner.run([encode_plan(plan)], Measured(str(tmp_path)))[0] for plan in merges)
    peaks = []
    for answer, plan in zip(answers, merges, strict=True):
        outcome, peak_mb = json.loads(answer)
        assert not decode_outcome(outcome).error
        assert store.stat(plan.output) is not None
        peaks.append(peak_mb)
    rounded = dict(zip(SEGMENTS, (round(peak) for peak in peaks), strict=True))
    print(f"MB at most: {rounded}")
    assert max(peaks) - min(peaks) < GROWTH_MB, rounded
    assert max(peaks) < LIMIT_MB, rounded


def write(store: SegmentStore, source: SourcePartition, number: int) -> None:
    random, first = Random(number), number * RECORDS
    some = [random.randbytes(VALUE_BYTES // 2) + bytes(VALUE_BYTES // 2) for _ in range(50)]
    batch = pa.record_batch(
        [
            pa.array(range(first, first + RECORDS), pa.int64()),
            pa.array(range(RECORDS), pa.int64()).view(SCHEMA.field("timestamp").type),
            pa.repeat(pa.scalar(CREATE_TIME, pa.int8()), RECORDS),
            pa.array([b"key-%d" % (n % 100) for n in range(RECORDS)], pa.binary()),
            pa.array([random.choice(some) for _ in range(RECORDS)], pa.binary()),
            pa.nulls(RECORDS, SCHEMA.field("headers").type),
        ],
        schema=SCHEMA,
    )
    body = io.BytesIO()
    name = Segment(source, 0, OffsetRange(first, first + RECORDS - 1))
    writer = ParquetFormat(row_group_bytes=JOB.row_group_size).create(body)
    writer.write([batch])
    writer.close(name, replace(ORIGIN, created_at=datetime.now(UTC)))
    store.store(name, body, body.tell())
