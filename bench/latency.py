"""How long a record takes from the producer at the source until it can be read at the target, and what that costs.

    python -m bench.latency                      writes latency.json and the table of docs/latency.md
    python -m bench.latency --age 1s --seconds 30 --warm-up 10

One broker for each region, `replicator egress` and `replicator ingress` as processes of their own, one bucket (regions
that replicate their buckets add what S3's replication takes). For each --age the same load: records of 1 kB at a
steady pace over the partitions; the first --warm-up seconds are not measured.

    producer ──> broker a ──> egress ──> S3 server ──(webhook)──> bridge ──> ingress ──> broker b ──> reader

With --server versitygw its webhook feeds `bench.queue_bridge`, which measures its own delay; with moto, moto is the S3
server, the notifications and the queue. CPU time is that of the measured seconds, from /proc.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench import child
from bench.__main__ import commit_of_tree, machine, software
from bench.arrivals import digests
from bench.bare_segments import STEPS
from bench.child import ROOT, ChildFailed
from bench.data import records
from bench.latency_report import LatencyRow, LatencyRun, page_with, table
from bench.latency_services import (
    BUCKET,
    SOURCE,
    TARGET,
    TOPICS,
    LatencyServices,
    LatencyStorage,
    asked,
    cpu_seconds,
    peak_rss_mib,
    reader_properties,
    start_services,
    storage_of,
)
from bench.queue_bridge import PROBE
from bench.topics import ClusterTopics
from infra.kafka.client.idempotent_producer import producer_properties
from infra.local.aws import CREDENTIALS, s3_client
from infra.local.errors import LocalStackError
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.runtime.java import JavaMissing
from ingress.delivery.sizes import PRODUCER_BYTES

DOCS = ROOT / "docs"
SETTLE_SECONDS = 15.0  # from the start of producer and reader to the first record: Python, records, metadata
PROBE_SECONDS = 2.0
BARE_SEGMENTS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPlan:
    seconds: int = 600  # measured
    warm_up: int = 45  # an ingress searches for topics every 30 s
    server: str = "versitygw"


@dataclass(frozen=True, slots=True)
class LatencyLoad:
    """`age`: max_segment_age of the topic."""

    age: str
    per_second: int = 5_000
    partitions: int = 50


LOADS = (LatencyLoad("200ms", per_second=1_000, partitions=10), LatencyLoad("1s"), LatencyLoad("5s"))
AGES = tuple(load.age for load in LOADS)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    if options.render:
        run = LatencyRun.from_json((DOCS / "latency.json").read_text(encoding="utf-8"))
    else:
        try:
            run = measure(options)
        except (ChildFailed, JavaMissing, LocalStackError) as error:
            print(error, file=sys.stderr)
            return 1
    print("\n".join(table(run)))
    whole = not options.render and (options.seconds, tuple(options.age or AGES)) == (LatencyPlan().seconds, AGES)
    output = options.output or (DOCS if options.render or whole else None)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "latency.json").write_text(run.as_json(), encoding="utf-8")
    if output == DOCS:
        page = DOCS / "latency.md"
        page.write_text(page_with(page.read_text(encoding="utf-8"), run), encoding="utf-8")
    return 0


def measure(options: argparse.Namespace) -> LatencyRun:
    """Raises ChildFailed, LocalStackError."""
    plan = LatencyPlan(
        seconds=options.seconds,
        warm_up=options.warm_up,
        server=options.server,
    )
    commit, is_clean = commit_of_tree()
    rows: list[LatencyRow] = []
    loads = [load for load in LOADS if load.age in (options.age or AGES)]
    for load in [*loads, *(LatencyLoad(age) for age in options.age or () if age not in AGES)]:
        changed = {"per_second": options.per_second, "partitions": options.partitions}
        rows.append(measured(plan, replace(load, **{name: value for name, value in changed.items() if value})))
        print(rows[-1].text(), flush=True)
    return LatencyRun(
        commit=commit,
        is_clean=is_clean,
        when=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        machine=machine(),
        software=software(),
        server=plan.server,
        rows=rows,
    )


def measured(plan: LatencyPlan, load: LatencyLoad) -> LatencyRow:
    with (
        tempfile.TemporaryDirectory(prefix="replicator-latency-") as folder,
        LocalStack(regions=(SOURCE, TARGET), java_options=("-Xmx1g",)) as stack,
        storage_of(plan.server, stack, Path(folder)) as storage,
    ):
        for region, topic in TOPICS.items():
            ClusterTopics(stack.brokers[region].bootstrap).create(topic, load.partitions)
        services = start_services(stack, storage, load.age)
        scene = _Scene(plan, load, stack, storage, services, Path(folder))
        return _row(scene, *_samples(scene))


@dataclass(slots=True)
class _Probes:
    """Puts small objects, and remembers when each was there: their notifications measure the way to the queue alone."""

    endpoint_url: str
    put_at: dict[str, float] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with closing(s3_client(self.endpoint_url)) as s3:
            while not self._stop.wait(PROBE_SECONDS):
                key = f"{PROBE}{len(self.put_at)}"
                s3.put_object(Bucket=BUCKET, Key=key, Body=b"")
                self.put_at[key] = time.time()

    def stop(self) -> None:
        self._stop.set()


@dataclass(frozen=True, slots=True)
class _Scene:
    plan: LatencyPlan
    load: LatencyLoad
    stack: LocalStack
    storage: LatencyStorage
    services: LatencyServices
    folder: Path

    @property
    def records(self) -> int:
        return self.load.per_second * (self.plan.warm_up + self.plan.seconds)

    @property
    def pids(self) -> Mapping[str, int]:
        brokers = {f"broker {region}": self.stack.pids()[f"broker-{region}"] for region in TOPICS}
        services = {name: process.pid for name, process in self.services.processes.items()}
        return {**services, **self.storage.pids, **brokers}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    at: float
    cpu: Mapping[str, float]
    log_position: int
    stages: Mapping[str, tuple[float, float]]
    queue: Mapping[str, Any]  # since the sample before


def _samples(scene: _Scene) -> tuple[_Sample, _Sample, child.Measurement, _Probes]:
    """At the begin and at the end of the measured seconds; what arrived; the probes."""
    plan, load, stack, storage, services = scene.plan, scene.load, scene.stack, scene.storage, scene.services
    count = scene.records
    begin_at = time.time() + SETTLE_SECONDS + count / 1_000_000
    measured_from = begin_at + plan.warm_up
    producing = {
        "properties": producer_properties(
            {"bootstrap.servers": stack.brokers[SOURCE].bootstrap}, memory_bytes=PRODUCER_BYTES
        ),
        "topic": TOPICS[SOURCE],
        "partitions": load.partitions,
        "records": count,
        "per_second": load.per_second,
        "begin_at": begin_at,
    }
    reading = {
        "properties": reader_properties(stack.brokers[TARGET].bootstrap),
        "topic": TOPICS[TARGET],
        "partitions": load.partitions,
        "records": count,
        "measured_from_ms": int(measured_from * 1000),
        "timeout_seconds": measured_from + plan.seconds + 120 - time.time(),
    }
    probes, patience = _Probes(storage.endpoint_url), plan.warm_up + plan.seconds + 300
    pids = scene.pids

    def run(module: str, what: str, spec: dict[str, Any]) -> child.Measurement:
        return child.run(module, what, spec, log=scene.folder / f"{what}.log", timeout_seconds=patience)

    with ThreadPoolExecutor(3) as beside:
        read = beside.submit(run, "bench.arrivals", "read", reading)
        produced = beside.submit(run, "bench.pace", "produce", producing)
        _sleep_until(measured_from, services.check, read.done)
        at_begin = _sample(storage, services, pids)
        probing = beside.submit(probes.run) if storage.bridge_port is not None else None
        _sleep_until(measured_from + plan.seconds, services.check, read.done)
        at_end = _sample(storage, services, pids)
        probes.stop()
        if probing is not None:
            probing.result()
        sent, arrived = produced.result(), read.result()
    if sent.other["unsent"]:
        raise ChildFailed(f"{sent.other['unsent']} records were not acknowledged")
    return at_begin, at_end, arrived, probes


def _sample(storage: LatencyStorage, services: LatencyServices, pids: Mapping[str, int]) -> _Sample:
    port = storage.bridge_port
    return _Sample(
        at=time.time(),
        cpu={name: cpu_seconds(pid) for name, pid in pids.items()},
        log_position=storage.log.position(),
        stages=services.stages(),
        queue=json.loads(asked(port, "/measured")) if port is not None else {},
    )


def _row(scene: _Scene, begin: _Sample, end: _Sample, arrived: child.Measurement, probes: _Probes) -> LatencyRow:
    load, pids = scene.load, scene.pids
    made = records("json", scene.records, load.partitions)
    in_order = [number % load.partitions for number in range(len(made.values))]
    wanted = {str(partition): crc for partition, crc in digests(made.keys, made.values, in_order).items()}
    stages = {name: (end.stages[name][0] - one[0], end.stages[name][1] - one[1]) for name, one in begin.stages.items()}
    segments = int(stages.get("put", (0, 0))[1])
    of_probes = [at - probes.put_at[key] for key, at in end.queue.get("probes", {}).items() if key in probes.put_at]
    return LatencyRow(
        age=load.age,
        seconds=end.at - begin.at,
        per_second=load.per_second,
        partitions=load.partitions,
        arrived=arrived.other["records"],
        is_whole=arrived.other["digests"] == wanted,
        ages=arrived.other["ages"],
        segments=segments,
        cpu={name: end.cpu[name] - begin.cpu[name] for name in pids},
        peak_rss_mib={name: peak_rss_mib(pids[name]) for name in ("egress", "ingress")},
        requests=scene.storage.log.requests(BUCKET, begin.log_position, end.log_position, without=PROBE),
        queue_requests=end.queue.get("requests"),
        queue_delay=_percentiles(end.queue.get("delays", ())),
        notification_delay=_percentiles(of_probes),
        stages={name: total / number for name, (total, number) in stages.items() if number},
        bare=_bare(scene, load.per_second * (end.at - begin.at) / max(segments, 1)),
    )


def _bare(scene: _Scene, segment_records: float) -> Mapping[str, float]:
    """What the libraries alone take, with the same S3 server, when the services have no more records."""
    s3 = {"endpoint_url": scene.storage.endpoint_url, **CREDENTIALS}
    spec = {"s3": s3, "bucket": BUCKET, "records": max(round(segment_records), 1), "segments": BARE_SEGMENTS}
    found = child.run("bench.bare_segments", "segments", spec, log=scene.folder / "bare.log", timeout_seconds=300)
    return {step: found.other[step] for step in STEPS}


def _percentiles(seconds: Sequence[float]) -> Mapping[str, float]:
    ordered = sorted(seconds)
    if not ordered:
        return {}
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)]}


def _sleep_until(at: float, check: Callable[[], None], ended: Callable[[], bool]) -> None:
    """Also until the reader has ended, whose result says why. Raises what `check` raises."""

    def over() -> bool:
        check()
        return time.time() >= at or ended()

    wait_until(over, timedelta(days=1), interval=timedelta(milliseconds=100))


def _options() -> argparse.ArgumentParser:
    default = LatencyPlan()
    parser = argparse.ArgumentParser(prog="python -m bench.latency", description=__doc__.partition("\n")[0])
    parser.add_argument("--age", action="append", help=f"max_segment_age, several times; default: {', '.join(AGES)}")
    parser.add_argument("--seconds", type=int, default=default.seconds, help="measured, of each age")
    parser.add_argument("--warm-up", type=int, default=default.warm_up, help="seconds before them")
    parser.add_argument("--per-second", type=int, help="records; default: that of each age")
    parser.add_argument("--partitions", type=int, help="default: those of each age")
    parser.add_argument("--server", choices=("versitygw", "moto"), default=default.server)
    parser.add_argument("--output", type=Path, help="folder for latency.json; default: docs, or none for a shorter run")
    parser.add_argument("--render", action="store_true", help="only write the table of docs/latency.md again")
    return parser


if __name__ == "__main__":
    sys.exit(main())
