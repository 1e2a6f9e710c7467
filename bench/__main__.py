"""Command line: exit code 0 when every target is met, 3 when one is missed, 1 after a failure."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench import report
from bench.child import ROOT, ChildFailed
from bench.data import KINDS
from bench.resources import BenchResources
from bench.rows import BenchRun
from bench.server_log import ServerLog
from bench.suite import BenchPlan, Suite
from infra.local.errors import LocalStackError
from infra.local.jars import KAFKA_VERSION
from infra.local.stack import LocalStack
from infra.runtime.java import JavaMissing

DONE, FAILED, MISSED = 0, 1, 3
FULL = BenchPlan()
LIBRARIES = ("confluent-kafka", "pyarrow", "pyspark", "boto3", "moto")
DOCS = ROOT / "docs"
PERFORMANCE = DOCS / "performance.md"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    if options.render:
        run = BenchRun.from_json((DOCS / "bench.json").read_text(encoding="utf-8"))
    else:
        try:
            run = measure(options)
        except (ChildFailed, JavaMissing, LocalStackError) as error:
            print(error, file=sys.stderr)
            return FAILED
        except Exception:  # for example, a broker or server died: nothing is known about the targets
            traceback.print_exc()
            return FAILED
    print("", report.text(run), sep="\n")
    output = options.output or (DOCS if options.render or _plan(options) == FULL else None)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "bench.json").write_text(run.as_json(), encoding="utf-8")
        (output / "bench.md").write_text(report.page(run), encoding="utf-8")
    if output == DOCS:
        PERFORMANCE.write_text(report.with_section(PERFORMANCE.read_text(encoding="utf-8"), run), encoding="utf-8")
    return DONE if all(met for _, _, met in run.verdicts()) else MISSED


def measure(options: argparse.Namespace) -> BenchRun:
    """Raises ChildFailed, LocalStackError."""
    plan, load, began = _plan(options), os.getloadavg()[0], time.monotonic()
    commit, is_clean = commit_of_tree()  # of the measured code, therefore read before
    with (
        tempfile.TemporaryDirectory(prefix="replicator-bench-") as folder,
        _resources(options) as (resources, server_log),
    ):
        suite = Suite(resources, plan, Path(folder), server_log, say=lambda line: print(line, flush=True))
        rows = suite.run()
    cores = os.cpu_count() or 1
    return BenchRun(
        commit=commit,
        is_clean=is_clean,
        when=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        minutes=(time.monotonic() - began) / 60,
        load=load,
        cores=cores,
        machine=machine(),
        software=software(),
        plan=plan.as_mapping(),
        rows=rows,
        stored_ratio=suite.stored_ratio,
    )


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--records", type=int, help="number of records of 1 kB; three times as many small ones")
    parser.add_argument("--rounds", type=int, default=FULL.rounds)
    parser.add_argument("--partitions", type=int, default=FULL.many_partitions, help="of the many-partitions run")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this kind, for egress and ingress")
    parser.add_argument("--no-spark", action="store_true", help="leave out the rows on Spark")
    parser.add_argument(
        "--output", type=Path, help="folder for the results; default: docs, or none for a shortened run"
    )
    parser.add_argument(
        "--render", action="store_true", help="only generate docs/bench.md and docs/performance.md again"
    )
    parser.add_argument("--bootstrap", help="bootstrap.servers of a running broker; needs --endpoint-url")
    parser.add_argument("--endpoint-url", help="of a running S3 and SQS server")
    parser.add_argument("--server-log", type=Path, help="log of that server, if it is moto, for counting its requests")
    return parser


def _plan(options: argparse.Namespace) -> BenchPlan:
    records = options.records or FULL.records
    return BenchPlan(
        records=records,
        small_records=3 * records,
        rounds=options.rounds,
        many_partitions=options.partitions,
        many_records=records,
        trickle_seconds=min(max(records // 2_000, 1), FULL.trickle_seconds),
        merge_records=records * FULL.merge_records // FULL.records,
        first_segments=min(max(records // 100, 8), FULL.first_segments),
        kinds=tuple(options.kind) if options.kind else KINDS,
        spark=not options.no_spark,
    )


@contextmanager
def _resources(options: argparse.Namespace) -> Iterator[tuple[BenchResources, ServerLog | None]]:
    """Yield a new embedded stack, or the servers that the options name."""
    run = uuid.uuid4().hex[:8]
    if options.bootstrap is None:
        with LocalStack(regions=("a",), java_options=("-Xmx1g",)) as stack:
            resources = BenchResources(
                bootstrap=stack.brokers["a"].bootstrap, endpoint_url=stack.moto.endpoint_url, run=run
            )
            resources.prepare()
            yield resources, ServerLog(stack.log_dir / "moto.log")
        return
    resources = BenchResources(bootstrap=options.bootstrap, endpoint_url=options.endpoint_url, run=run)
    resources.prepare()
    try:
        yield resources, ServerLog(options.server_log) if options.server_log else None
    finally:
        resources.clean()


def machine() -> str:
    return f"{os.cpu_count() or 1} cores, {_processor()}, {_memory_gib():.0f} GiB, {platform.system()}"


def software() -> str:
    versions = [f"Python {platform.python_version()}", f"Kafka {KAFKA_VERSION}"]
    return ", ".join([*versions, *(f"{name} {version(name)}" for name in LIBRARIES)])


def commit_of_tree() -> tuple[str, bool]:
    """The commit of the working tree, and whether what is measured is unchanged: all but `docs`, which has the results.
    Outside a repository "unknown"."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else "unknown"

    return git("rev-parse", "HEAD"), not git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


if __name__ == "__main__":
    sys.exit(main())
