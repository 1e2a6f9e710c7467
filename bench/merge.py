"""Merging against the floor of the same bytes: `python -m bench.merge` writes docs/bench-compaction.md.

floor    pyarrow alone: decode each input's row groups, encode them again with the same options, no logic
merge    the product's merge of the same inputs, with its proofs and its store (a folder), in one process
spark    the same merges on Spark, local[2]; the session is started before

Each is a process of its own; floor and merge take turns.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from bench import child
from bench.child import Result
from bench.data import records
from compaction.clean import Cleaner
from compaction.copies import Copies
from compaction.merge import Merger
from compaction.planner import MergePlan, plan_partition
from compaction.rows import decode_outcome, decode_plan, encode_outcome, encode_plan
from compaction.worker import Worker
from formats.parquet import ParquetFormat
from formats.schema import CREATE_TIME, SCHEMA
from formats.uploads import Uploader
from infra.objects import DirectoryObjectStore
from replicator.config import CompactionJob
from replicator.footer import SegmentOrigin
from replicator.protocols import ObjectStore
from replicator.segment import OffsetRange, Segment, SourcePartition, format_key
from replicator.store import SegmentStore

JOB = CompactionJob(
    name="bench",
    min_segment_age=timedelta(0),
    min_segment_count=2,
    min_segment_size=0,
    delete_grace=timedelta(0),
)
MERGED = ParquetFormat(
    compression_level=JOB.compression_level, row_group_bytes=JOB.row_group_size, row_group_records=JOB.batch_size
)
FLOOR_SHARE, SPARK_GAIN, ANCESTOR_CPU, RSS_MB = 0.85, 1.6, 20.0, 300.0
TIMEOUT_SECONDS = 600.0


class Counting:
    """An object store that counts what it is asked."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.calls: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            self.calls[name] = self.calls.get(name, 0) + 1
            return method(*arguments, **named)

        return counted


def fill(store: SegmentStore, partitions: int, segments: int, count: int) -> int:
    """As egress would; the raw bytes of all."""
    made = records("json", count * segments, 1)
    origin = SegmentOrigin(created_at=datetime.now(UTC), writer="bench", source_partition_count=partitions)
    size = 0
    for partition in range(partitions):
        for n in range(segments):
            at = slice(n * count, (n + 1) * count)
            name = Segment(SourcePartition("a", "t", partition), 0, OffsetRange(n * count, (n + 1) * count - 1))
            batch = pa.record_batch(
                [
                    pa.array(range(name.offsets.start, name.offsets.next_offset), pa.int64()),
                    pa.array(made.stamps[at], pa.int64()).view(SCHEMA.field("timestamp").type),
                    pa.repeat(pa.scalar(CREATE_TIME, pa.int8()), count),
                    pa.array(made.keys[at], pa.binary()),
                    pa.array(made.values[at], pa.binary()),
                    pa.array(
                        [h and [{"key": k, "value": v} for k, v in h] for h in made.headers[at]],
                        SCHEMA.field("headers").type,
                    ),
                ],
                schema=SCHEMA,
            )
            with tempfile.TemporaryFile() as body:
                writer = ParquetFormat().create(body)
                writer.write([batch])
                size += writer.close(name, origin).raw_bytes
                store.store(name, body, body.tell())
    return size


@dataclass(frozen=True, slots=True)
class FolderWork:
    """What a Spark worker does, with a folder in place of a bucket."""

    root: str

    def __call__(self, row: str) -> str:
        return encode_outcome(worker(DirectoryObjectStore(Path(self.root))).carry_out(decode_plan(row)))


def worker(objects: ObjectStore) -> Worker:
    store = SegmentStore(objects, "")
    return Worker(
        merger=Merger(
            store=store,
            format=MERGED,
            uploader=Uploader(store, MERGED, may_thin=lambda _: True),
            row_group_bytes=JOB.row_group_size,
            writer="bench",
        ),
        cleaner=Cleaner(store=store, format=MERGED, copies=Copies(here=store)),
    )


def plans(root: Path) -> list[MergePlan]:
    store = SegmentStore(DirectoryObjectStore(root), "")
    sources = [SourcePartition("a", "t", p) for p in store.partitions("a", "t")]
    now = datetime.now(UTC) + timedelta(minutes=1)
    found = [plan for source in sources for plan in plan_partition(store.list(source, level=0), JOB, now)]
    return [plan for plan in found if isinstance(plan, MergePlan)]


# --- the measured programs -------------------------------------------------------------------------------------------


def floor(root: Path) -> dict[str, Any]:
    for plan in plans(root):
        with tempfile.TemporaryFile() as sink:
            _copy(root, plan, sink)
    return {}


def _copy(root: Path, plan: MergePlan, sink: BinaryIO) -> None:
    """Decode and encode, row groups as large as the merge makes them."""
    options: dict[str, Any] = {"compression": "zstd", "compression_level": MERGED.level, "use_dictionary": False}
    names = ["offset", "timestamp"]
    with pq.ParquetWriter(sink, SCHEMA, write_statistics=names, write_page_checksum=True, **options) as writer:
        pending: list[pa.Table] = []
        for piece in plan.inputs:
            with pq.ParquetFile(root / format_key("", piece.segment), page_checksum_verification=True) as file:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group, use_threads=False)
                    if pending and sum(t.nbytes for t in pending) + table.nbytes > MERGED.row_group_bytes:
                        whole = pa.concat_tables(pending)
                        writer.write_table(whole, row_group_size=whole.num_rows)
                        pending = []
                    pending.append(table)
        whole = pa.concat_tables(pending)
        writer.write_table(whole, row_group_size=whole.num_rows)


def merge(root: Path) -> dict[str, Any]:
    objects = Counting(DirectoryObjectStore(root))
    one = worker(objects)  # type: ignore[arg-type]
    outcomes = [one.carry_out(plan) for plan in plans(root)]
    assert not any(outcome.error for outcome in outcomes), outcomes
    return {
        "calls": objects.calls,
        "records": sum(outcome.records for outcome in outcomes),
        "read_bytes": sum(outcome.read_bytes for outcome in outcomes),
        "stored_bytes": sum(outcome.stored_bytes for outcome in outcomes),
    }


def spark(root: Path) -> dict[str, Any]:
    from infra.spark import SparkRunner, SparkSettings  # noqa: PLC0415 -- only this program pays for it

    with SparkRunner(SparkSettings(master="local[2,4]")) as runner:
        runner.run(["", ""], _nothing)  # Java and two Python workers are there
        began = time.perf_counter()
        answers = runner.run([encode_plan(plan) for plan in plans(root)], FolderWork(str(root)))
        seconds = time.perf_counter() - began
    assert not any(decode_outcome(answer).error for answer in answers), answers
    return {"seconds": seconds}


def _nothing(_row: str) -> str:
    import compaction.worker  # noqa: PLC0415 -- what a worker imports once

    return compaction.worker.__name__


PROGRAMS: Mapping[str, Callable[[Path], dict[str, Any]]] = {"floor": floor, "merge": merge, "spark": spark}


def measured(what: str) -> None:
    child.measured(lambda spec: PROGRAMS[what](Path(spec["root"])))


# --- the table -------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.merge", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--segments", type=int, default=10, help="of each partition")
    parser.add_argument("--records", type=int, default=10_000, help="of each segment")
    parser.add_argument("--output", type=Path, help="folder of the results; default: none")
    given = parser.parse_args(arguments)
    results: dict[str, list[Result]] = {name: [] for name in PROGRAMS}
    with tempfile.TemporaryDirectory(prefix="replicator-bench-") as folder:
        root = Path(folder) / "archive"
        root.mkdir()
        raw_bytes = fill(SegmentStore(DirectoryObjectStore(root), ""), given.partitions, given.segments, given.records)
        for number in range(given.rounds):
            for name in PROGRAMS:
                log = Path(folder) / f"{number}-{name}.log"
                found = child.run("bench.merge", name, {"root": str(root)}, log=log, timeout_seconds=TIMEOUT_SECONDS)
                results[name].append(found)
                for plan in plans(root):
                    (root / format_key("", plan.output)).unlink(missing_ok=True)
                print(f"round {number + 1}  {name:6} {raw_bytes / found.seconds / 1e6:8.1f} MB/s", flush=True)
    text = table(results, raw_bytes, given.partitions * given.segments * given.records)
    print("", text, sep="\n")
    if given.output is not None:
        (given.output / "bench-compaction.md").write_text(f"# Benchmark of merging\n\n{text}\n", encoding="utf-8")
    return 0


def table(results: Mapping[str, Sequence[Result]], raw_bytes: int, count: int) -> str:
    floors, merges, sparks = (results[name] for name in ("floor", "merge", "spark"))
    share = median(f.cpu_seconds / m.cpu_seconds for f, m in zip(floors, merges, strict=True))
    gain = median(m.seconds / s.seconds for m, s in zip(merges, sparks, strict=True))
    rss_mb = max(m.peak_rss_mib for m in merges) * 1.048576
    last = merges[-1].other
    gigabytes = raw_bytes / 1e9
    calls = ", ".join(f"{name} {number / gigabytes:.0f}" for name, number in sorted(last["calls"].items()))
    lines = [
        f"{count:,} records of 1 kB JSON with key and 2 headers, {raw_bytes / 1e6:.0f} MB; {len(merges)} rounds; "
        f"zstd {MERGED.level}, row groups of {MERGED.row_group_bytes >> 20} MiB; medians. MB: keys, values, headers.",
        "",
        "| what | measured | target |",
        "|---|---|---|",
        f"| merge, MB/s per core (CPU time) | {raw_bytes / 1e6 / median(m.cpu_seconds for m in merges):.1f} | |",
        f"| of pyarrow's decode and encode of the same bytes (CPU time) | {share:.2f} | ≥ {FLOOR_SHARE} |",
        f"| CPU-seconds per million records | {median(m.cpu_seconds for m in merges) * 1e6 / count:.1f} "
        f"| the ancestor: {ANCESTOR_CPU:.0f} |",
        f"| Spark local[2] against one process, by the clock | {gain:.2f} | ≥ {SPARK_GAIN} |",
        f"| peak RSS of the merging process, MB | {rss_mb:.0f} | ≤ {RSS_MB:.0f} |",
        f"| output bytes / input bytes | {last['stored_bytes'] / last['read_bytes']:.2f} | |",
        f"| store calls per GB | {calls} | |",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in PROGRAMS:
        measured(sys.argv[1])
    else:
        sys.exit(main(sys.argv[1:]))
