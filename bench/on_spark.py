"""What egress and ingress cost and gain on Spark: `python -m bench.on_spark [--records N] [--rounds K]`.

    start ──first progress──> a backlog ──all of it──> idle ──as much again, live──> end

Each form works on a backlog of its own, then on records that come while it runs. Time and shares are of the backlog;
CPU for each record is that of the live part, since nothing of the start is in it. Prints the table of docs/spark.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench import child
from bench.resources import BenchResources
from formats.incarnation import CONTROL
from formats.segment import parse_key
from infra.local.aws import s3_client
from infra.local.spark import DRIVER_PROPERTIES, SparkCluster, spark_cluster
from infra.local.stack import LocalStack
from infra.runtime.logs import configure
from infra.runtime.service import run_until_signalled
from infra.runtime.tuning import tune
from replicator.config import from_mapping
from replicator.services.flow_task import Flow

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import CopySourceTypeDef

PARTITIONS, SEGMENT_RECORDS = 4, 2_500
POLL_SECONDS, PATIENCE_SECONDS = 0.1, 300.0
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
TICKS = os.sysconf("SC_CLK_TCK")
SHARES = ("start-up", "tasks", "driver", "executors", "broker", "store")


@dataclass(frozen=True, slots=True)
class Form:
    """`members`: of the consumer group, each a process. `master`: where they are tasks of Spark, `CLUSTER` for that of
    two workers with a core each; empty for the plain service."""

    name: str
    members: int
    master: str = ""


CLUSTER = "standalone"
FORMS = (
    Form("plain, one process", 1),
    Form("`local[1]`, 1 task", 1, "local[1]"),
    Form("plain, two processes", 2),
    Form("`local[2]`, 2 tasks", 2, "local[2]"),
    Form("standalone, 2 tasks", 2, CLUSTER),
)
PLAIN = {form.members: form.name for form in FORMS if not form.master}  # a task is compared with a process of as many


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkMeasurement:
    """`shares`: CPU seconds by role, from the start of the command to the backlog's end; "start-up" is what the driver
    with its Java, the executors' Java and the tasks took until the first progress. `cpu_micros`: of the service's
    processes or of its tasks, for each record that came while it ran."""

    start_seconds: float
    records_per_second: float
    shares: Mapping[str, float]
    cpu_micros: float


@dataclass(frozen=True, slots=True)
class SparkWork:
    """`progress`: records done. `more`: brings as many records again, while the service runs."""

    flow: Flow
    form: Form
    tables: Mapping[str, Any]
    progress: Callable[[], int]
    more: Callable[[], None]


@dataclass(slots=True)
class SparkBench:
    resources: BenchResources
    stack: LocalStack
    cluster: SparkCluster
    records: int
    folder: Path
    results: dict[tuple[Flow, str], list[SparkMeasurement]] = field(default_factory=dict)

    def round(self, number: int) -> None:
        turn = number % len(FORMS)
        for form in FORMS[turn:] + FORMS[:turn]:
            name = f"{FORMS.index(form)}.{number}"
            with self.resources.topic(f"source.{name}", PARTITIONS) as topic:
                self._egress(form, topic, name)
                self._ingress(form, topic, name)
            for prefix in (f"{name}/", f"{name}.in/"):
                self.resources.empty(prefix)

    def _egress(self, form: Form, topic: str, name: str) -> None:
        def archived() -> int:
            keys = (key for key in self._keys(name) if f"/{topic}/" in key and f"/{CONTROL}/" not in key)
            return sum(parse_key(name, key).offsets.next_offset - parse_key(name, key).offsets.start for key in keys)

        self._produce(topic)
        # what a rebalance cut short is followed by segments that end before or after the backlog's last record
        settings = {"max_segment_messages": SEGMENT_RECORDS, "max_segment_age": "10s"}
        tables = self.resources.egress(
            topic, prefix=name, group=f"{name}.{self.resources.run}", topic_settings=settings
        )
        self._measure(SparkWork("egress", form, tables, archived, lambda: self._produce(topic)), name)

    def _ingress(self, form: Form, topic: str, name: str) -> None:
        target, prefix = f"target.{name}.{self.resources.run}", f"{name}.in"
        half = self.records // PARTITIONS

        def copy(wanted: Callable[[str], bool]) -> None:
            with closing(s3_client(self.resources.endpoint_url)) as s3:
                for key in filter(wanted, list(self._keys(name))):
                    source: CopySourceTypeDef = {"Bucket": self.resources.bucket, "Key": key}
                    s3.copy_object(
                        Bucket=self.resources.bucket, Key=f"{prefix}{key.removeprefix(name)}", CopySource=source
                    )

        def is_backlog(key: str) -> bool:
            return f"/{CONTROL}/" in key or parse_key(name, key).offsets.start < half

        copy(is_backlog)
        tables = self.resources.ingress(topic, prefix=prefix, group=f"{target}.group", destination=target)
        tables["ingress"] |= {"relist_interval": "1s", "topic_refresh_interval": "1s"}
        try:
            delivered = self._delivered(target)
            self._measure(
                SparkWork("ingress", form, tables, delivered, lambda: copy(lambda k: not is_backlog(k))), name
            )
        finally:
            self.resources.drop(*(f"{target}{own}" for own in ("", ".events", ".checkpoint")))

    def _measure(self, work: SparkWork, name: str) -> None:
        before, began = self._cpu(()), time.monotonic()
        with self._served(work, name) as pids:
            first = _until(lambda: work.progress() > 0)
            at_first, done = self._cpu(pids), work.progress()
            ended = _until(lambda: work.progress() >= self.records)
            at_end = self._cpu(pids)
            work.more()
            _until(lambda: work.progress() >= 2 * self.records)
            live = self._cpu(pids)["tasks"] - at_end["tasks"]
        shares = {role: at_end[role] - before.get(role, 0.0) for role in ("broker", "store")}
        own = ("tasks", "driver", "executors")
        shares |= {role: at_end[role] - at_first[role] for role in own}
        shares["start-up"] = sum(at_first[role] - before.get(role, 0.0) for role in own)
        one = SparkMeasurement(
            start_seconds=first - began,
            records_per_second=(self.records - done) / max(ended - first, POLL_SECONDS),
            shares=shares,
            cpu_micros=1e6 * live / self.records,
        )
        print(work.flow, work.form.name, one, file=sys.stderr, flush=True)
        self.results.setdefault((work.flow, work.form.name), []).append(one)

    # --- what runs

    @contextmanager
    def _served(self, work: SparkWork, name: str) -> Iterator[Sequence[int]]:
        """The process ids of the plain services, or that of the driver. They are stopped at the end, as an operator
        does it."""
        flow, form, tables = work.flow, work.form, work.tables
        properties = {"spark.driver.extraJavaOptions": QUICK}
        if form.master == CLUSTER:
            properties |= {**DRIVER_PROPERTIES, "spark.executor.memory": "512m"}
        master = self.cluster.master if form.master == CLUSTER else form.master
        spec = {
            "flow": flow,
            "tasks": form.members if form.master else 0,
            "tables": {**tables, **({"compaction": {"master": master, "spark": properties}} if form.master else {})},
        }
        log = self.folder / f"{flow}.{name}.log"
        with log.open("wb") as output:
            running = [
                subprocess.Popen(
                    [sys.executable, "-m", "bench.on_spark", "--serve"],
                    cwd=child.ROOT,
                    stdin=subprocess.PIPE,
                    stderr=output,
                )
                for _ in range(1 if form.master else form.members)
            ]
        try:
            for process in running:
                assert process.stdin is not None
                process.stdin.write(json.dumps(spec).encode())
                process.stdin.close()
            yield [process.pid for process in running]
        except TimeoutError as error:
            raise child.ChildFailed(f"{error}:\n{log.read_text(errors='replace')[-child.LOG_END :]}") from error
        finally:
            for process in running:
                process.send_signal(signal.SIGTERM)
            for process in running:
                process.wait(PATIENCE_SECONDS)

    def _produce(self, topic: str) -> None:
        spec = {
            "topic": topic,
            "kind": "json",
            "records": self.records,
            "partitions": PARTITIONS,
            "properties": self.resources.producer_properties(),
        }
        child.run("bench.bare", "produce", spec, log=self.folder / "produce.log", timeout_seconds=PATIENCE_SECONDS)

    def _keys(self, prefix: str) -> Iterator[str]:
        with closing(s3_client(self.resources.endpoint_url)) as s3:
            for page in s3.get_paginator("list_objects_v2").paginate(Bucket=self.resources.bucket, Prefix=f"{prefix}/"):
                yield from (item["Key"] for item in page.get("Contents", ()))

    def _delivered(self, target: str) -> Callable[[], int]:
        """The records of a topic that readers of committed ones see the end of, about: markers count, too."""
        consumer = Consumer({"bootstrap.servers": self.resources.bootstrap, "group.id": "bench", "log_level": 0})

        def found() -> int:
            try:
                ends = [
                    consumer.get_watermark_offsets(TopicPartition(target, number), timeout=5)[1]
                    for number in range(PARTITIONS)
                ]
            except KafkaException:  # it does not exist yet
                return 0
            return sum(ends)

        return found

    def _cpu(self, pids: Sequence[int]) -> Mapping[str, float]:
        """CPU seconds so far by role. `pids`: of the plain services, or of the driver; empty: none runs."""
        below, commands = processes()
        stack = self.stack.pids()
        found = dict.fromkeys(("tasks", "driver", "executors"), 0.0)
        found |= {"broker": seconds_of(stack["broker-a"]), "store": seconds_of(stack["moto"])}
        is_plain = not any(commands.get(one) == "java" for pid in pids for one in descendants(below, pid))
        for root in (*pids, *self.cluster.pids()):
            for one in descendants(below, root):
                if one in pids:
                    role = "tasks" if is_plain else "driver"
                elif commands.get(one) == "java":
                    role = "driver" if root in pids else "executors"
                else:
                    role = "tasks"
                found[role] += seconds_of(one)
        return found


def processes() -> tuple[Mapping[int, Sequence[int]], Mapping[int, str]]:
    """Of this machine: the children of each process, and each one's program."""
    below: dict[int, list[int]] = {}
    commands = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            text = Path(f"/proc/{name}/stat").read_text()
            commands[int(name)] = text[text.index("(") + 1 : text.rindex(")")]
            below.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(name))
    return below, commands


def descendants(below: Mapping[int, Sequence[int]], root: int) -> Iterator[int]:
    """`root`, and all that descend from it."""
    yield root
    for one in below.get(root, ()):
        yield from descendants(below, one)


def seconds_of(pid: int) -> float:
    """User and system time of a process; 0 when it has ended."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / TICKS
    return 0.0


def _until(check: Callable[[], bool]) -> float:
    """When it was so, in monotonic seconds. Raises TimeoutError."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while not check():
        if time.monotonic() > ends:
            raise TimeoutError("no progress")
        time.sleep(POLL_SECONDS)
    return time.monotonic()


# --- the tables


def tables_of(results: Mapping[tuple[Flow, str], Sequence[SparkMeasurement]]) -> str:
    heads = ("", "start, s", "records/s", "times plain", "CPU a record, µs", "over plain", *SHARES)
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for flow in ("egress", "ingress"):
        for form in FORMS:
            found, plain = results[flow, form.name], results[flow, PLAIN[form.members]]
            rate, micros = _median(found, "records_per_second"), _median(found, "cpu_micros")
            beside = _median(plain, "records_per_second")  # 0: too few records to measure it
            over = micros / _median(plain, "cpu_micros") - 1  # of a task, over a process of as many
            parts = {name: median(one.shares[name] for one in found) for name in found[0].shares}
            shares = [f"{100 * parts[name] / sum(parts.values()):.0f} %" for name in SHARES]
            lines.append(
                f"| {flow}, {form.name} | {_median(found, 'start_seconds'):.1f} | {rate:,.0f} "
                f"| {f'{rate / beside:.2f}' if beside else ''} | {micros:.1f} "
                f"| {'' if not form.master else f'{100 * over:+.0f} %'}{' **MISS** (< 5 %)' if over >= 0.05 else ''} "
                f"| {' | '.join(shares)} |"
            )
    return "\n".join(lines)


def _median(found: Sequence[SparkMeasurement], name: str) -> float:
    return float(median(getattr(one, name) for one in found))


def serve() -> int:
    """A measured service: its specification comes on stdin."""
    spec = json.load(sys.stdin)
    config = from_mapping(spec["tables"])
    configure("warning", "text", sys.stderr)
    if spec["tasks"]:
        from replicator.services.on_spark import build_on_spark  # noqa: PLC0415 -- the plain service has no PySpark

        return run_until_signalled(build_on_spark(config, spec["flow"], tasks=spec["tasks"]))
    from replicator.services.egress import build_egress  # noqa: PLC0415
    from replicator.services.ingress import build_ingress  # noqa: PLC0415

    return run_until_signalled({"egress": build_egress, "ingress": build_ingress}[spec["flow"]](config))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        tune()
        return serve()
    with ExitStack() as opened:
        stack = opened.enter_context(LocalStack(regions=("a",)))
        cluster = opened.enter_context(spark_cluster(workers=2, cores=1, memory="1g"))
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="bench-spark-")))
        bootstrap, run = stack.brokers["a"].bootstrap, uuid.uuid4().hex[:8]
        resources = BenchResources(bootstrap=bootstrap, endpoint_url=stack.moto.endpoint_url, run=run)
        resources.prepare()
        bench = SparkBench(resources, stack, cluster, options.records, folder)
        for number in range(options.rounds):
            bench.round(number)
    print(tables_of(bench.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
