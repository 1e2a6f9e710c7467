"""Restoring and verifying against the bare loops of the same bytes: `python -m bench.restore`.

bare     the client's own loop: prebuilt lists into a topic, no archive
restore  `replicator.restore` of the same records from the bucket, exactly once, in one process
pair     two such processes at a time, each with half of the partitions
spark    the same on Spark, local[2]; the session is started before
decode   pyarrow alone: each object read and decoded, nothing looked at
verify   `replicator.verify` of the archive, each object proven

Each is a process of its own; they take turns. Writes docs/bench-restore.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from bench import child
from bench.child import Result
from bench.merge import fill
from bench.place import Place
from infra.local.aws import s3_client
from infra.local.stack import LocalStack
from infra.s3 import S3ObjectStore
from infra.tuning import one_arena, tune
from ingress.selection import Renaming, Selection
from replicator.config import from_mapping
from replicator.restore import Options, Restore
from replicator.topics import TopicPattern
from replicator.verify import Verification

ARCHIVE, TOPIC, PREFIX = "a", "t", "restore"  # as `fill` names them
PRODUCE_SHARE, DECODE_SHARE, SPARK_GAIN, RSS_MB = 0.75, 0.8, 1.6, 400.0
TIMEOUT_SECONDS = 600.0

Spec = Mapping[str, Any]


def selection(name: str) -> Selection:
    return Selection(region=ARCHIVE, topics=[TopicPattern(TOPIC)], renaming=Renaming({TOPIC: name}))


# --- the measured programs -------------------------------------------------------------------------------------------


def restore(spec: Spec) -> dict[str, Any]:
    return _restore(spec, Options())


def spark(spec: Spec) -> dict[str, Any]:
    from infra.spark import SparkSettings  # noqa: PLC0415 -- only this program pays for it

    return _restore(spec, Options(spark=SparkSettings(master="local[2,4]")))


def _restore(spec: Spec, options: Options) -> dict[str, Any]:
    chosen = replace(selection(spec["name"]), partitions=spec.get("partitions"))
    with Restore(from_mapping(spec["config"]), chosen, options=options) as restoring:
        if options.spark is not None:
            from infra.spark import SparkRunner  # noqa: PLC0415 -- only this program pays for it

            restoring.spark = SparkRunner(options.spark)
            restoring.spark.run(["", ""], _nothing)  # Java and two Python workers are there
        began = time.perf_counter()
        outcomes = restoring.run(restoring.plan())
        seconds = time.perf_counter() - began
    assert all(outcome.is_done and outcome.is_whole for outcome in outcomes), outcomes
    return {"seconds": seconds, "records": sum(outcome.records for outcome in outcomes)}


def _nothing(_row: str) -> str:
    import replicator.restore_worker  # noqa: PLC0415 -- what a worker imports once

    return replicator.restore_worker.__name__


def decode(spec: Spec) -> dict[str, Any]:
    config = from_mapping(spec["config"])
    with closing(s3_client(str(config.s3.endpoint_url))) as client:
        objects, count = S3ObjectStore(client, config.s3.bucket), 0
        for item in objects.list(f"{config.s3.prefix}/"):
            with pq.ParquetFile(objects.open(item.key), page_checksum_verification=True) as file:
                for group in range(file.num_row_groups):
                    count += file.read_row_group(group, use_threads=False).num_rows
    return {"records": count}


def verify(spec: Spec) -> dict[str, Any]:
    with Verification(from_mapping(spec["config"]), selection(TOPIC)) as verification:
        verdicts = list(verification.archive())
    assert all(verdict.is_whole for verdict in verdicts), verdicts
    return {"records": sum(proven.records for verdict in verdicts for proven in verdict.read.values())}


PROGRAMS: Mapping[str, Callable[[Spec], dict[str, Any]]] = {
    "restore": restore,
    "spark": spark,
    "decode": decode,
    "verify": verify,
}


def measured(what: str) -> None:
    one_arena()  # as the commands do
    tune()
    child.measured(PROGRAMS[what])


# --- the table -------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.restore", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--segments", type=int, default=2, help="of each partition")
    parser.add_argument("--records", type=int, default=80_000, help="of each segment")
    parser.add_argument("--output", type=Path, help="folder of the results; default: none")
    given = parser.parse_args(arguments)
    count = given.partitions * given.segments * given.records
    results: dict[str, list[Result]] = {name: [] for name in ("bare", "pair", *PROGRAMS)}
    with (
        tempfile.TemporaryDirectory(prefix="replicator-bench-") as folder,
        LocalStack(regions=("a",), java_options=("-Xmx1g",)) as stack,
    ):
        run = uuid.uuid4().hex[:8]
        place = Place(bootstrap=stack.brokers["a"].bootstrap, endpoint_url=stack.moto.endpoint_url, run=run)
        place.prepare()
        raw_bytes = fill(place.archive(PREFIX), given.partitions, given.segments, given.records)
        for number in range(given.rounds):
            for name, found in results.items():
                log = Path(folder) / f"{number}-{name}.log"
                found.append(one(place, name, number, count=count, partitions=given.partitions, log=log))
                print(f"round {number + 1}  {name:8} {raw_bytes / found[-1].seconds / 1e6:8.1f} MB/s", flush=True)
    text = table(results, raw_bytes, count)
    print("", text, sep="\n")
    if given.output is not None:
        head = "# Benchmark of restoring and verifying"
        (given.output / "bench-restore.md").write_text(f"{head}\n\n{text}\n", encoding="utf-8")
    return 0


def one(place: Place, name: str, number: int, *, count: int, partitions: int, log: Path) -> Result:
    if name == "bare":
        with place.topic(f"bare-{number}", partitions) as topic:
            spec = {
                "properties": place.producer_properties(),
                "topic": topic,
                "partitions": partitions,
                "records": count,
                "kind": "json",
            }
            return child.run("bench.bare", "produce", spec, log=log, timeout_seconds=TIMEOUT_SECONDS)
    target = f"{name}-{number}.restored"
    spec = {"config": place.archived(PREFIX), "name": target}
    if name == "pair":
        with place.topic(target, partitions) as topic:
            return pair({**spec, "name": topic}, partitions, log)
    try:
        return child.run("bench.restore", name, spec, log=log, timeout_seconds=TIMEOUT_SECONDS)
    finally:
        place.drop(target)


def pair(spec: Spec, partitions: int, log: Path) -> Result:
    """As long as the slower one took; CPU time of both."""

    def half(number: int) -> Result:
        part = {**spec, "partitions": list(range(number, partitions, 2))}
        log_file = log.with_name(f"{log.stem}-{number}.log")
        return child.run("bench.restore", "restore", part, log=log_file, timeout_seconds=TIMEOUT_SECONDS)

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(half, range(2))
    slower = max(one, two, key=lambda result: result.seconds)
    return replace(slower, cpu_seconds=one.cpu_seconds + two.cpu_seconds)


def table(results: Mapping[str, Sequence[Result]], raw_bytes: int, count: int) -> str:
    def rate(name: str) -> str:
        seconds = median(result.seconds for result in results[name])
        return f"{raw_bytes / seconds / 1e6:.0f} MB/s, {count / seconds:,.0f} records/s"

    def share(name: str, other: str) -> float:
        pairs = zip(results[other], results[name], strict=True)
        return median(slow.seconds / fast.seconds for slow, fast in pairs)

    def cpu_share(name: str, other: str) -> float:
        pairs = zip(results[other], results[name], strict=True)
        return median(floor.cpu_seconds / ours.cpu_seconds for floor, ours in pairs)

    def rss(name: str) -> float:
        return max(result.peak_rss_mib for result in results[name]) * 1.048576

    lines = [
        f"{count:,} records of 1 kB JSON with key and 2 headers, {raw_bytes / 1e6:.0f} MB; {len(results['bare'])} "
        "rounds; medians. MB: keys, values, headers. Broker and S3 server (moto) share the two cores.",
        "",
        "| what | measured | target |",
        "|---|---|---|",
        f"| bare produce loop | {rate('bare')} | |",
        f"| restore, exactly once | {rate('restore')} | |",
        f"| … of the bare produce loop | {share('restore', 'bare'):.2f} | ≥ {PRODUCE_SHARE} |",
        f"| two processes against one, half of the partitions each | {share('pair', 'restore'):.2f} | |",
        f"| restore on Spark local[2] against one process | {share('spark', 'restore'):.2f} | ≥ {SPARK_GAIN} |",
        f"| decode alone | {rate('decode')} | |",
        f"| verify the archive | {rate('verify')} | |",
        f"| … of decoding alone | {share('verify', 'decode'):.2f} | ≥ {DECODE_SHARE} |",
        f"| … by CPU time | {cpu_share('verify', 'decode'):.2f} | |",
        f"| peak RSS, MB: restore, verify | {rss('restore'):.0f}, {rss('verify'):.0f} | ≤ {RSS_MB:.0f} |",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in PROGRAMS:
        measured(sys.argv[1])
    else:
        sys.exit(main(sys.argv[1:]))
