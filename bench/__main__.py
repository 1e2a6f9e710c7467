"""Command line: exit code 0 when every target is met, 3 when one is missed, 1 when something failed."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench import report
from bench.child import ROOT, ChildFailed
from bench.data import KINDS
from bench.place import Place
from bench.suite import Plan, Suite
from infra.local.jars import KAFKA_VERSION
from infra.local.stack import LocalStack

DONE, FAILED, MISSED = 0, 1, 3
FULL = Plan()
LIBRARIES = ("confluent-kafka", "pyarrow", "boto3", "moto")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    plan = _plan(options)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="replicator-bench-") as folder, _place(options) as place:
        try:
            results = Suite(place, plan, Path(folder), say=lambda line: print(line, flush=True)).run()
        except ChildFailed as error:
            print(error, file=sys.stderr)
            return FAILED
    environment = _environment(time.monotonic() - began)
    print("", report.text(results), sep="\n")
    output = options.output or (ROOT / "docs" if plan == FULL else None)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "bench.md").write_text(report.markdown(results, plan, environment), encoding="utf-8")
        (output / "bench.json").write_text(report.as_json(results, plan, environment), encoding="utf-8")
    return DONE if all(target.met for target in report.targets(results)) else MISSED


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--records", type=int, help="records of 1 kB; of the small ones three times as many")
    parser.add_argument("--rounds", type=int, default=FULL.rounds)
    parser.add_argument("--partitions", type=int, default=FULL.many_partitions, help="of the many-partitions run")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this kind of record")
    parser.add_argument(
        "--output", type=Path, help="folder of the results; default: docs, and none for a shortened run"
    )
    parser.add_argument("--bootstrap", help="a broker that runs already; needs --endpoint-url")
    parser.add_argument("--endpoint-url", help="of an S3 and SQS server that runs already")
    return parser


def _plan(options: argparse.Namespace) -> Plan:
    records = options.records or FULL.records
    return Plan(
        records=records,
        small_records=3 * records,
        rounds=options.rounds,
        many_partitions=options.partitions,
        many_records=records,
        kinds=tuple(options.kind) if options.kind else KINDS,
    )


@contextmanager
def _place(options: argparse.Namespace) -> Iterator[Place]:
    """In a stack of its own, or in the one that the options name."""
    run = uuid.uuid4().hex[:8]
    if options.bootstrap is None:
        with LocalStack(regions=("a",), java_options=("-Xmx1g",)) as stack:
            place = Place(bootstrap=stack.brokers["a"].bootstrap, endpoint_url=stack.moto.endpoint_url, run=run)
            place.prepare()
            yield place
        return
    place = Place(bootstrap=options.bootstrap, endpoint_url=options.endpoint_url, run=run)
    place.prepare()
    try:
        yield place
    finally:
        place.clean()


def _environment(seconds: float) -> Mapping[str, str]:
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    return {
        "when": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {seconds / 60:.0f} minutes in all",
        "machine": f"{os.cpu_count()} cores, {_processor()}, {_memory_gib():.0f} GiB, {platform.system()}",
        "software": f"Python {platform.python_version()}, Kafka {KAFKA_VERSION}, {libraries}",
    }


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
