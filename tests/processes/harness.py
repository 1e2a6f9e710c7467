"""Real processes of the product, and the names they work under.

    Site: region a's topics ──egress──> bucket ──(sync ──> other bucket)──> queue ──ingress──> region b's topics

Everything of a site has names of its own on the shared stack. Its processes belong to a supervisor which ends them,
whatever becomes of the tests.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from formats.policies.topic_configs import DEFAULT_EXCLUDES
from infra.local.aws import CREDENTIALS, REGION, create_bucket_with_queue, s3_client
from infra.local.errors import tail
from infra.local.process import Supervisor
from infra.local.waiting import wait_until
from tests.processes import judge

if TYPE_CHECKING:
    from infra.local.process import Process
    from infra.local.stack import LocalStack

ROOT = Path(__file__).resolve().parent.parent.parent
PREFIX = "data"
A, B = "a", "b"  # regions, as the stack calls them
ASK_SECONDS = 5.0
PATIENCE = timedelta(seconds=120)
STOPS_WITHIN = timedelta(seconds=30)
ASK_AGAIN = timedelta(milliseconds=100)  # the process that answers has work to do, on the same two cores

Tables = Mapping[str, Any]


# --- metrics ---------------------------------------------------------------------------------------------------------

_SAMPLE = re.compile(
    r"replicator_(?P<name>\w+?)(?P<part>_total|_count|_sum|_bucket|_created)?(\{(?P<labels>.*)\})? (?P<value>\S+)"
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Metrics:
    """One scrape of `/metrics`."""

    def __init__(self, text: str) -> None:
        self._samples: list[tuple[str, Mapping[str, str], float]] = []
        for line in text.splitlines():
            match = _SAMPLE.fullmatch(line)
            if match is None or match["part"] in ("_sum", "_bucket", "_created"):
                continue
            self._samples.append((match["name"], dict(_LABEL.findall(match["labels"] or "")), float(match["value"])))

    def value(self, name: str, **labels: str) -> float:
        """The sum over all samples with these labels; of a histogram, how many it counted. 0 when there is none."""
        return sum(
            value for found, having, value in self._samples if found == name and labels.items() <= having.items()
        )

    def moved(self) -> set[str]:
        """Names that differ from what a process that did nothing shows."""
        return {name for name, _, value in self._samples if value}


# --- processes -------------------------------------------------------------------------------------------------------


def log_lines(data: bytes, event: str = "") -> list[Mapping[str, Any]]:
    """The JSON lines of a log: of one event, or all. Others are not ours, or cut short by a kill."""
    lines: list[Mapping[str, Any]] = []
    for line in data.decode(errors="replace").splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and (not event or found.get("event") == event):
            lines.append(found)
    return lines


class Worker:
    """One process slot: the same command, configuration and log through all its lives."""

    def __init__(self, site: Site, name: str, command: Sequence[str], tables: Tables) -> None:
        self._log_start = 0  # of this life
        self._address = ""  # where this life serves, once it has logged it
        self.tables = tables
        self.name = name
        self.log = site.stack.log_dir / f"{site.name}.{name}.log"
        self._site = site
        self._config = site.folder / f"{name}.toml"
        self._command = [*command, "--config", str(self._config)]
        self._process: Process | None = None
        self.kills = 0
        self.doomed = False  # this life ends by its own hand: see `start`

    def start(
        self, *, module: str = "replicator", environment: Mapping[str, str] | None = None, program: Path = ROOT
    ) -> Worker:
        """`module`: what runs the command in this life; `program`: the folder of the packages that it runs. With an
        `environment` it may kill itself at any time; who gave it asks `exit_code`, and calls `kill` or `end` then."""
        self.doomed = environment is not None
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._address = ""
        self.write(self.tables)
        self._process = self._site.supervisor.start(
            f"{self._site.name}.{self.name}",
            [sys.executable, "-m", module, *self._command],
            log=self.log,
            cwd=program,
            env={**self._site.environment, **(environment or {})},
        )
        return self

    def write(self, tables: Tables) -> None:
        """Its file, as an editor does it: another one takes the place of the one before."""
        self.tables = tables
        # a free port, which the system picks; and `logged` reads JSON, also of a command that ends by itself
        ours = {
            "metrics": {"listen": "127.0.0.1:0", **tables.get("metrics", {})},
            "log": {"level": "info", **tables.get("log", {}), "format": "json"},
        }
        of_several = {"cluster_defaults": ours} if "clusters" in tables else ours
        self.write_text(to_toml({**tables, **of_several}))

    def write_text(self, text: str) -> None:
        new = self._config.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        new.replace(self._config)

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._running.poll()

    def signal(self, number: signal.Signals) -> None:
        self._running.signal(number)

    def kill(self) -> None:
        """SIGKILL; gone when this returns."""
        self.watch()
        self.kills += 1
        self._running.kill()
        self._process = None

    def wait(self, timeout: timedelta) -> int | None:
        """Exit code, None if it still runs after `timeout`."""
        code = self._running.wait(timeout)
        if code is not None:
            self._process = None
        return code

    def stop(self, timeout: timedelta = STOPS_WITHIN) -> None:
        """SIGTERM, and it ends as it should. No error if it does not run."""
        self.tell_to_stop()
        self.stopped(timeout)

    def tell_to_stop(self) -> None:
        if self._process is not None:
            self.watch()
            self.signal(signal.SIGTERM)

    def stopped(self, timeout: timedelta = STOPS_WITHIN) -> None:
        """It was asked to stop, and ends as it should."""
        if self._process is not None:
            code = self.wait(timeout)
            assert code == 0, self.explain(f"ended with {code} after SIGTERM, not with 0")

    def run(self, *arguments: str, seconds: float = PATIENCE.total_seconds(), program: Path = ROOT) -> tuple[int, str]:
        """Another command with this slot's configuration file: its exit code, and what it printed. `program`: the
        folder of the packages that it runs."""
        done = subprocess.run(
            [sys.executable, "-m", "replicator", *arguments, "--config", str(self._config)],
            capture_output=True,
            text=True,
            check=False,
            cwd=program,
            env=self._site.environment,
            timeout=seconds,
        )
        return done.returncode, done.stdout + done.stderr

    def end(self) -> None:
        """In any case, and without a question."""
        if self._process is not None:
            self.watch()
            self._process.kill()
            self._process = None

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def expected(self) -> bool:
        """It was started and not ended by the test."""
        return self._process is not None

    @property
    def address(self) -> tuple[str, int]:
        """Where this life serves, by its log."""
        if not self._address:
            self._address = str(self.logged("listening", since=self._log_start)[-1]["address"])
        host, _, port = self._address.rpartition(":")
        return host, int(port)

    def metrics(self) -> Metrics:
        """What it shows now; nothing while it does not answer. Remembered for the test of all metrics."""
        found = Metrics(self._ask("/metrics").decode())
        self._site.moved.update(found.moved())
        return found

    def watch(self) -> None:
        self.metrics()

    def readiness(self) -> Mapping[str, Any]:
        """What `/readyz` says, whatever its status; empty while it does not answer."""
        return dict(json.loads(self._ask("/readyz") or "{}"))

    def _ask(self, path: str) -> bytes:
        """The answer, whatever its status; empty while there is none."""
        if not self._address:
            entries = self.logged("listening", since=self._log_start)
            if not entries:
                return b""
            self._address = str(entries[-1]["address"])
        try:
            with urllib.request.urlopen(f"http://{self._address}{path}", timeout=ASK_SECONDS) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.read()
        except (urllib.error.URLError, OSError, http.client.HTTPException):  # it may serve TLS only
            return b""

    def logged(self, event: str = "", *, since: int = 0) -> list[Mapping[str, Any]]:
        """Lines of its log, through all its lives (or from byte `since` on): of one event, or all."""
        if not self.log.exists():
            return []
        return log_lines(self.log.read_bytes()[since:], event)

    def explain(self, what: str) -> str:
        return f"{self.name} {what}\nlog: {self.log}, its end:\n{tail(self.log)}"

    @property
    def _running(self) -> Process:
        assert self._process is not None, f"{self.name} was not started"
        return self._process


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSpark:
    """A service runs as so many tasks on a master."""

    tasks: int
    master: str = "local[2,4]"
    properties: Tables = field(default_factory=dict)

    @property
    def options(self) -> Sequence[str]:
        return ["--spark", "--tasks", str(self.tasks)]

    @property
    def tables(self) -> Tables:
        java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # half the time to start
        ours = {"spark.driver.extraJavaOptions": java, "spark.executor.extraJavaOptions": java}
        return {"compaction": {"master": self.master, "spark": {**ours, **self.properties}}}


# --- sites -----------------------------------------------------------------------------------------------------------


class Site:
    """Names, configuration files and processes of one test. A context manager: nothing runs after it."""

    def __init__(
        self,
        stack: LocalStack,
        supervisor: Supervisor,
        moved: set[str],
        name: str,
        *,
        bootstrap: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`moved`: names of metrics that were seen to move, of all sites. `bootstrap`: by region, where it is not the
        stack's broker of that name."""
        self.stack, self.supervisor, self.moved, self.name = stack, supervisor, moved, name
        self.folder = stack.dir / "sites" / name
        (self.folder / "spool").mkdir(parents=True)
        (self.folder / "tmp").mkdir()
        self.bucket, self.queue = f"{name}-bucket", f"{name}-queue"
        self.egress_group, self.ingress_group = f"{name}.egress", f"{name}.ingress"
        self._bootstrap = dict(bootstrap)
        self.workers: list[Worker] = []
        self.planted: set[str] = set()  # keys that a test put there itself, and that are no segment's
        self.queue_url = create_bucket_with_queue(stack.moto.endpoint_url, self.bucket, self.queue)
        self._s3 = s3_client(stack.moto.endpoint_url)
        self.environment = {n: v for n, v in os.environ.items() if not n.lower().endswith("_proxy")} | {
            "AWS_ACCESS_KEY_ID": CREDENTIALS["aws_access_key_id"],
            "AWS_SECRET_ACCESS_KEY": CREDENTIALS["aws_secret_access_key"],
            "AWS_DEFAULT_REGION": REGION,
            "PYTHONFAULTHANDLER": "1",
            "TMPDIR": str(self.folder / "tmp"),  # what a killed process leaves goes with the site
        }

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.end()
        self._s3.close()

    def bootstrap(self, region: str) -> str:
        return self._bootstrap.get(region) or self.stack.brokers[region].bootstrap

    # --- processes

    def egress(
        self,
        name: str,
        topics: Tables,
        *,
        endpoint_url: str = "",
        session_ms: int = 3000,
        kafka: Tables | None = None,
        s3: Tables | None = None,
        spark: OnSpark | None = None,
        **egress: Any,
    ) -> Worker:
        """`topics`: settings by name or expression, over those that suit a test; `kafka` and `s3` likewise. Not
        started."""
        quick = {"max_segment_age": "1s", "max_segment_messages": 2000, "max_segment_size": "2MiB"}
        settings = {
            "group_id": self.egress_group,
            "topic_refresh_interval": "1s",
            "lag_interval": "1s",
            "shutdown_timeout": "10s",
            "memory_budget": "64MiB",
            "spool_dir": str(self.folder / "spool"),
            "topics": {topic: {**quick, **own} for topic, own in topics.items()},
        }
        tables = {
            **self._cluster(A, session_ms, kafka),
            "s3": {**self.s3(endpoint_url), **(s3 or {})},
            "egress": {**settings, **egress},
            **(spark.tables if spark else {}),
        }
        return self._worker(name, ["egress", *(spark.options if spark else ())], tables)

    def ingress(
        self,
        name: str,
        *sources: Tables,
        endpoint_url: str = "",
        session_ms: int = 3000,
        bucket: str = "",
        queue: str = "",
        queue_endpoint_url: str = "",
        kafka: Tables | None = None,
        command: Sequence[str] = (),
        spark: OnSpark | None = None,
        **ingress: Any,
    ) -> Worker:
        """`sources`: over those that suit a test; `kafka` likewise; `command`: what stands behind "ingress". Not
        started."""
        quick = {"region": A, "first_segment_delay": "0s"}
        settings = {
            "group_id": self.ingress_group,
            "segment_events_topic": f"{self.name}.events",
            "replication_factor": 1,
            # the judges want every record that was delivered: the target's log cleaner may remove none
            "config_properties_exclude": [*DEFAULT_EXCLUDES, "cleanup\\.policy"],
            "checkpoint_topic": f"{self.name}.checkpoints",
            "offset_map_topic": f"{self.name}.offsetmap",
            "ledger_topic": f"{self.name}.ledger",
            "topic_refresh_interval": "1s",
            "relist_interval": "3s",
            "transaction_timeout": "6s",  # so long the partitions of a killed process wait
            "shutdown_timeout": "10s",
            "batch_size": 500,
            "sources": [{**quick, **own} for own in sources],
        }
        tables = {
            **self._cluster(B, session_ms, kafka),
            "s3": self.s3(endpoint_url, bucket),
            "sqs": {**self._endpoint(queue_endpoint_url), "queue": queue or self.queue, "wait": "1s"},
            "ingress": {**settings, **ingress},
            **(spark.tables if spark else {}),
        }
        return self._worker(name, ["ingress", *command, *(spark.options if spark else ())], tables)

    def sync(
        self,
        name: str,
        bucket: str,
        *,
        endpoint_url: str = "",
        once: bool = False,
        kafka: Tables | None = None,
        **sync: Any,
    ) -> Worker:
        """From the site's bucket to `bucket`; with `once` it ends by itself. Not started."""
        tables = {
            **self._cluster(A, 3000, kafka),
            "s3": self.s3(endpoint_url),
            "sync": {"interval": "1s", **sync, "destination": self.s3("", bucket)},
        }
        return self._worker(name, ["sync", "--once"] if once else ["sync"], tables)

    def compaction(self, name: str, *, endpoint_url: str = "", **job: Any) -> Worker:
        """Of the site's bucket, every second, as much and as early as can be. Not started."""
        eager = {
            "name": "all",
            "cron": "* * * * * *",
            "max_level": 1000,
            "min_segment_age": "0s",
            "min_segment_count": 2,
            "min_segment_size": 0,
            "delete_grace": "0s",
            "topics": [f"^{re.escape(self.name)}[.].*"],
        }
        java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # half the time to start
        settings = {"master": "local[2,4]", "spark": {"spark.driver.extraJavaOptions": java}}
        tables = {
            "region": A,
            "s3": self.s3(endpoint_url),
            "compaction": {**settings, "jobs": [{**eager, **job}]},
        }
        return self._worker(name, ["compact"], tables)

    def gc(self, name: str) -> Worker:
        """Of the site's bucket: deletes what larger segments hold, and no record. Not started; it ends by itself."""
        tables = {
            "region": A,
            "s3": self.s3(),
            "retention": {"delete_grace": "0s", "topics": {f"^{re.escape(self.name)}[.].*": {}}},
        }
        return self._worker(name, ["gc", "--covered"], tables)

    def command(self, name: str, like: Worker, *command: str) -> Worker:
        """A command of an operator, with the configuration of `like`. Not started; it ends by itself."""
        return self._worker(name, command, like.tables)

    def s3(self, endpoint_url: str = "", bucket: str = "") -> Tables:
        return {**self._endpoint(endpoint_url), "bucket": bucket or self.bucket, "prefix": PREFIX}

    def _worker(self, name: str, command: Sequence[str], tables: Tables) -> Worker:
        worker = Worker(self, name, command, tables)
        self.workers.append(worker)
        return worker

    def _endpoint(self, endpoint_url: str = "") -> Tables:
        return {"endpoint_url": endpoint_url or self.stack.moto.endpoint_url, "region_name": REGION}

    def _cluster(self, region: str, session_ms: int, kafka: Tables | None) -> Tables:
        """`kafka`: over ours; its "consumer" is taken as it is."""
        consumer = {"session.timeout.ms": str(session_ms), "heartbeat.interval.ms": "500"}
        quick = {"reconnect.backoff.max.ms": "1000"}
        ours = {"bootstrap.servers": self.bootstrap(region), **quick, "consumer": consumer}
        return {"region": region, "kafka": {**ours, **(kafka or {})}}

    def stop(self, *workers: Worker) -> None:
        """All at once, each as `Worker.stop` says."""
        for worker in workers:
            worker.tell_to_stop()
        for worker in workers:
            worker.stopped()

    # --- waiting

    def wait(self, what: str, check: Callable[[], bool], timeout: timedelta = PATIENCE) -> None:
        """Until `check`. Fails at once when a process ends by itself, and after `timeout`."""

        def checked() -> bool:
            self.check()
            return check()

        if not wait_until(checked, timeout, interval=ASK_AGAIN):
            logs = "\n".join(worker.explain("says") for worker in self.workers)
            raise AssertionError(f"{what}: not within {timeout.total_seconds():.0f} s\n{logs}")

    def check(self) -> None:
        """No process ended by itself."""
        for worker in self.workers:
            if worker.expected and not worker.doomed and (code := worker.exit_code) is not None:
                raise AssertionError(worker.explain(f"died: exit code {code}"))

    # --- the archive

    def keys(self, bucket: str = "") -> Mapping[str, str]:
        """Every object's ETag by key."""
        found: dict[str, str] = {}
        for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket or self.bucket):
            found |= {item["Key"]: item["ETag"] for item in page.get("Contents", ())}
        return found

    def ranges(self, topic: str, bucket: str = "") -> Mapping[int, Sequence[tuple[int, int]]]:
        keys = self.keys(bucket).keys() - self.planted
        return judge.ranges(keys, prefix=PREFIX, region=A, topic=topic)

    def archived(self, topic: str, ends: Mapping[int, int]) -> bool:
        """Whether every partition's archive reaches its end; `ends` are next offsets."""
        found = self.ranges(topic)
        return all(judge.archive_end(found.get(p, ())) >= end for p, end in ends.items())

    def spool_files(self) -> list[Path]:
        """What egress processes wait to store, as far as it is on disk."""
        return [path for path in (self.folder / "spool").glob("*/*") if path.name.isdecimal()]

    # --- groups

    def committed(self, region: str, group: str, topic: str, partitions: int) -> Mapping[int, int]:
        """Next offsets by partition; those without a commit are left out."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap(region), "log_level": 0})
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p) for p in range(partitions)])
        (future,) = admin.list_consumer_group_offsets([asked]).values()
        found = future.result(ASK_SECONDS).topic_partitions or []
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def members(self, region: str, group: str) -> Mapping[str, Collection[tuple[str, int]]]:
        """Assigned partitions by member id; empty while the group rebalances or its broker is away."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap(region), "log_level": 0})
        (future,) = admin.describe_consumer_groups([group], request_timeout=ASK_SECONDS).values()
        try:
            found = future.result(ASK_SECONDS * 2)
        except KafkaException:
            return {}
        if found.state.name != "STABLE":
            return {}
        return {
            m.member_id: sorted((p.topic, p.partition) for p in m.assignment.topic_partitions) for m in found.members
        }

    def holds(self, region: str, group: str, *, members: int, partitions: int) -> bool:
        """Whether so many members share so many partitions, each having some."""
        shares = self.members(region, group)
        return len(shares) == members and all(shares.values()) and sum(map(len, shares.values())) == partitions


# --- configuration files ---------------------------------------------------------------------------------------------


def to_toml(tables: Tables, path: tuple[str, ...] = ()) -> str:
    """JSON's way to write text, numbers and truth is TOML's too."""
    plain = [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in tables.items() if not _is_table(v) and not _are_tables(v)]
    parts = ["\n".join(plain)]
    for name, value in tables.items():
        here = (*path, name)
        title = ".".join(map(json.dumps, here))
        if _is_table(value):
            parts.append(f"[{title}]\n{to_toml(value, here)}")
        elif _are_tables(value):
            parts += [f"[[{title}]]\n{to_toml(each, here)}" for each in value]
    return "\n".join(parts) + "\n"


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _are_tables(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_table, value)) and bool(value)


def total(workers: Iterable[Worker], name: str, **labels: str) -> float:
    """A metric's sum over processes."""
    return sum(worker.metrics().value(name, **labels) for worker in workers)
