"""Programs that work on an archive in the bucket, and their floors. `bench.child` starts each.

floor-merge    each input read and decoded by pyarrow, encoded again with the same options, put: without any proof
merge          the worker of `replicator compact`, with its proofs
spark-merge    the same plans on Spark, local[2]; the session is started before
floor-verify   each object read and decoded by pyarrow, in as many threads as `verify` has, with one read per row
               group, as in `verify`: nothing is compared
verify         `replicator.verify.verify` of the archive
restore        `replicator.restore.restore` of the archive, exactly once
spark-restore  the same on Spark, local[2]; the session is started before
"""

from __future__ import annotations

if __name__ == "__main__":  # before all else imports Arrow, as a command does
    from infra.runtime.tuning import tune

    tune()

import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from bench import child
from bench.batches import batch_of
from bench.data import RecordKind, records
from compaction.planner import MergePlan, plan_partition
from compaction.task_rows import PlanOutcome
from formats.footer import SegmentOrigin
from formats.parquet.compression_level import FAST
from formats.parquet.guarded_file import Window, read_range, size_of
from formats.parquet.reader import TAIL_BYTES, batch_rows
from formats.parquet.writer import ParquetFormat
from formats.records.schema import SCHEMA
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition, format_key
from formats.topic_selection import TopicPattern
from infra.archive.segments import SegmentStore
from infra.contracts.storage import ObjectStore
from infra.runtime.lifecycle import Stop
from infra.spark.driver import SparkSettings
from infra.spark.runner import SparkRunner, run_tasks
from replicator.config import CompactionJob, Config, from_mapping
from replicator.restore.restore import Options, Restore
from replicator.selection import Renaming, Selection
from replicator.services.compaction import MergeTask, build_worker
from replicator.services.wiring import archive_objects, for_workers
from replicator.verify.verify import THREADS, Verification

REGION, TOPIC = "bench", "archived"
SPARK = SparkSettings(master="local[2,4]")
JOB = CompactionJob(
    name="bench", min_segment_age=timedelta(0), min_segment_count=2, min_segment_size=0, delete_grace=timedelta(0)
)

CODEC_OPTIONS: Mapping[str, Any] = {
    "compression": "zstd",
    "compression_level": FAST,  # of egress, and what the merge finds for these records
    "use_dictionary": False,
    "column_encoding": {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
    "write_statistics": ["offset", "timestamp"],
}

Spec = Mapping[str, Any]  # `config`; for a restore also `name`, its target topic


def fill(store: SegmentStore, *, partitions: int, segments: int, count: int, kind: RecordKind = "json") -> int:
    """Store `segments` segments of `count` records for each partition, like egress. Returns the raw bytes of all."""
    made = records(kind, count * segments, 1)
    origin = SegmentOrigin(created_at=datetime.now(UTC), writer="bench", source_partition_count=partitions)
    raw_bytes = 0
    for partition in range(partitions):
        for start in range(0, segments * count, count):
            at = slice(start, start + count)
            name = Segment(SourcePartition(REGION, TOPIC, partition), 0, OffsetRange(start, start + count - 1))
            with tempfile.TemporaryFile() as body:
                writer = ParquetFormat().create(body)
                writer.write([batch_of(made, at)])
                raw_bytes += writer.close(name, origin).raw_bytes
                store.store(name, body, body.tell())
    return raw_bytes


def row_groups(source: BinaryIO) -> Iterator[pa.Table]:
    """Decode only: reads and batches as in the product's reader."""
    size = size_of(source)
    window, start = Window(size), max(size - TAIL_BYTES, 0)
    window.show(start, read_range(source, "", start, size - start))
    file = pq.ParquetFile(window, pre_buffer=False)
    for group in range(file.num_row_groups):
        stored = file.metadata.row_group(group)
        columns = [stored.column(number) for number in range(stored.num_columns)]
        first = min(column.dictionary_page_offset or column.data_page_offset for column in columns)
        length = sum(column.total_compressed_size for column in columns)
        window.show(first, read_range(source, "", first, length))
        batches = file.iter_batches(batch_size=batch_rows(stored), row_groups=[group], use_threads=False)
        yield pa.Table.from_batches(batches)


# --- merging ---------------------------------------------------------------------------------------------------------


def plans(store: SegmentStore) -> list[MergePlan]:
    now = datetime.now(UTC) + timedelta(minutes=1)
    sources = [SourcePartition(REGION, TOPIC, partition) for partition in store.partitions(REGION, TOPIC)]
    found = [plan for source in sources for plan in plan_partition(list(store.level(source, 0)), JOB, now)]
    return [plan for plan in found if isinstance(plan, MergePlan)]


def floor_merge(config: Config, objects: ObjectStore, _: Spec) -> dict[str, Any]:
    store, count = SegmentStore(objects, config.s3.prefix), 0
    for plan in plans(store):
        with tempfile.TemporaryFile() as sink:
            count += _encoded(plan, store, sink)
            objects.put_new(format_key(config.s3.prefix, plan.output), sink, sink.tell())
    return {"records": count}


def _encoded(plan: MergePlan, store: SegmentStore, sink: BinaryIO) -> int:
    """Encode with row groups as large as those of the merge. Returns the number of records."""
    count = 0
    with pq.ParquetWriter(sink, SCHEMA, **CODEC_OPTIONS) as writer:
        pending: list[pa.Table] = []

        def write() -> None:
            whole = pa.concat_tables(pending)
            writer.write_table(whole, row_group_size=whole.num_rows)
            pending.clear()

        for piece in plan.inputs:
            with closing(store.open(piece.segment)) as source:
                for table in row_groups(source):
                    if pending and sum(t.nbytes for t in pending) + table.nbytes > JOB.row_group_size:
                        write()
                    pending.append(table.cast(SCHEMA))
                    count += table.num_rows
        write()
    return count


def merge(config: Config, objects: ObjectStore, _: Spec) -> dict[str, Any]:
    with ExitStack() as opened:
        worker = build_worker(config, JOB, "bench", Stop(), opened)
        return _merged([worker.execute(plan) for plan in plans(SegmentStore(objects, config.s3.prefix))])


def spark_merge(config: Config, objects: ObjectStore, _: Spec) -> dict[str, Any]:
    task = MergeTask(for_workers(config, "compaction"), JOB, "bench", uuid.uuid4().hex)
    with SparkRunner(SPARK) as runner:
        runner.run(["", ""], _nothing)  # starts Java and two Python workers
        began = time.perf_counter()
        outcomes = run_tasks(runner, task, plans(SegmentStore(objects, config.s3.prefix)))
        seconds = time.perf_counter() - began
    return {"seconds": seconds, **_merged(outcomes)}


def _merged(outcomes: Sequence[PlanOutcome]) -> dict[str, Any]:
    if failed := [outcome for outcome in outcomes if outcome.error]:
        raise RuntimeError(f"merges failed: {failed}")
    names = ("records", "read_bytes", "stored_bytes")
    return {name: sum(getattr(outcome, name) for outcome in outcomes) for name in names}


def _nothing(_row: str) -> str:
    import compaction.worker  # noqa: PLC0415 -- a worker's imports, once
    import replicator.restore.worker  # noqa: PLC0415

    return compaction.worker.__name__ + replicator.restore.worker.__name__


# --- verifying and restoring -----------------------------------------------------------------------------------------


def floor_verify(config: Config, objects: ObjectStore, _: Spec) -> dict[str, Any]:
    store = SegmentStore(objects, config.s3.prefix)

    def decoded(infos: Sequence[SegmentInfo]) -> int:
        count = 0
        for info in infos:
            with closing(store.open(info.segment)) as source:
                count += sum(table.num_rows for table in row_groups(source))
        return count

    sources = [SourcePartition(REGION, TOPIC, partition) for partition in store.partitions(REGION, TOPIC)]
    with ThreadPoolExecutor(THREADS) as pool:
        return {"records": sum(pool.map(decoded, map(store.list, sources)))}


def verify(config: Config, _: ObjectStore, __: Spec) -> dict[str, Any]:
    with Verification(config, selection(TOPIC)) as verification:
        verdicts = list(verification.archive())
    if not all(verdict.is_whole for verdict in verdicts):
        raise RuntimeError(f"the archive is not whole: {verdicts}")
    return {"records": sum(proven.records for verdict in verdicts for proven in verdict.read.values())}


def restore(config: Config, _: ObjectStore, spec: Spec) -> dict[str, Any]:
    return restored(config, selection(spec["name"]), Options())


def spark_restore(config: Config, _: ObjectStore, spec: Spec) -> dict[str, Any]:
    return restored(config, selection(spec["name"]), Options(spark=SPARK))


def restored(config: Config, wanted: Selection, options: Options) -> dict[str, Any]:
    """Seconds and records of a whole restore. Raises RuntimeError when not all were restored."""
    with Restore(config, wanted, options=options) as restoring:
        if options.spark is not None:
            restoring.spark.runner = SparkRunner(options.spark)
            restoring.spark.runner.run(["", ""], _nothing)  # starts Java and two Python workers
        began = time.perf_counter()
        outcomes = restoring.run(restoring.plan())
        seconds = time.perf_counter() - began
    if not all(outcome.is_done and outcome.is_whole for outcome in outcomes):
        raise RuntimeError(f"not all records were restored: {outcomes}")
    return {"seconds": seconds, "records": sum(outcome.records for outcome in outcomes)}


def selection(name: str) -> Selection:
    return Selection(region=REGION, topics=[TopicPattern(TOPIC)], renaming=Renaming({TOPIC: name}))


PROGRAMS: Mapping[str, Callable[[Config, ObjectStore, Spec], dict[str, Any]]] = {
    "floor-merge": floor_merge,
    "merge": merge,
    "spark-merge": spark_merge,
    "floor-verify": floor_verify,
    "verify": verify,
    "restore": restore,
    "spark-restore": spark_restore,
}


def run(what: str, spec: Spec) -> dict[str, Any]:
    with ExitStack() as opened:
        config = from_mapping(spec["config"])
        return PROGRAMS[what](config, archive_objects(config, Stop(), opened), spec)


if __name__ == "__main__":
    child.measured(lambda spec: run(sys.argv[1], spec))
