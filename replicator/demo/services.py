"""The services of the demo: their configuration files and their processes.

region a   egress   topic ──> bucket a            region b   ingress   bucket b ──> topic
           sync     bucket a ──> bucket b                      └ learns of new objects from b's queue
             └ learns of new objects from a's queue
           compact  bucket a: many small segments ──> few large ones, on Spark; sync carries them
region b   gc       bucket b: deletes small segments that the large ones are proven to cover, while ingress reads there
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from formats.topic_selection import TopicPattern
from infra.local.aws import AWS_VARIABLES, REGION, bucket_of, direct_hosts, queue_of
from infra.local.errors import LocalStackError, with_log
from replicator.config import load
from replicator.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infra.local.process import Process
    from infra.local.stack import LocalStack

SOURCE, TARGET = "a", "b"  # regions
CLEANED = (0, 3)  # exit codes; 3: some segments cannot be deleted yet
_STORED = re.compile(r" stored_bytes=([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names of topics, buckets and queues."""

    topic: str = "flights"
    copy: str = "flights.copy"
    prefix: str = "data"
    buckets: Mapping[str, str]
    queues: Mapping[str, str]

    @classmethod
    def usual(cls) -> Names:
        regions = (SOURCE, TARGET)
        return cls(buckets={one: bucket_of(one) for one in regions}, queues={one: queue_of(one) for one in regions})


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """When a segment is sealed: small and early, for a demo. The product's defaults are 5 minutes and 100 MiB."""

    max_messages: int = 20_000
    max_age: timedelta = timedelta(seconds=1)


def write_configs(
    folder: Path, *, brokers: Mapping[str, str], endpoint_url: str, names: Names, segments: Segments
) -> Mapping[str, Path]:
    """Write one file per region to `folder`. Raises ConfigError if one is invalid."""
    s3 = {region: _s3(bucket, names.prefix, endpoint_url) for region, bucket in names.buckets.items()}
    sqs = {region: _sqs(queue, endpoint_url) for region, queue in names.queues.items()}
    texts = {
        SOURCE: f"""\
# Region {SOURCE}: `replicator egress` archives its topic, `replicator sync` copies the archive to region {TARGET}.
region = {_text(SOURCE)}

[kafka]
"bootstrap.servers" = {_text(brokers[SOURCE])}

[s3]
{s3[SOURCE]}

[egress]
topic_refresh_interval = "2s"
spool_dir = {_text(str(folder / "spool"))}

[egress.topics.{_text(names.topic)}]  # small segments, quickly: the defaults are 5m and 100MiB
max_segment_messages = {segments.max_messages}
max_segment_age = "{segments.max_age.total_seconds():g}s"

[sync]
interval = "10s"

[sync.destination]
{s3[TARGET]}

[sync.queue]
{sqs[SOURCE]}

[compaction]
master = "local[2,4]"

[[compaction.jobs]]  # all segments, every other second: the defaults wait for an hour and a GiB
name = "demo"
cron = "*/2 * * * * *"
max_level = 100
min_segment_age = "0s"
min_segment_count = 2
min_segment_size = 0
delete_grace = "0s"

[log]
format = "text"
""",
        TARGET: f"""\
# Region {TARGET}: `replicator ingress` delivers the archive of region {SOURCE} to its own Kafka.
region = {_text(TARGET)}

[kafka]
"bootstrap.servers" = {_text(brokers[TARGET])}

[s3]
{s3[TARGET]}

[sqs]
{sqs[TARGET]}

[ingress]
replication_factor = 1
topic_refresh_interval = "1s"
relist_interval = "30s"

[[ingress.sources]]
region = {_text(SOURCE)}
topic = {_text(names.topic)}
destination_topic = {_text(names.copy)}

[retention]  # of region {SOURCE}'s archive in this bucket: sync does not copy deletions
region = {_text(SOURCE)}
owner = true
delete_grace = "0s"

[retention.topics.{_text(names.topic)}]  # without limits no record is removed: `gc --covered` deletes only duplicates

[log]
format = "text"
""",
    }
    files = {region: folder / f"region-{region}.toml" for region in texts}
    for region, file in files.items():
        file.write_text(texts[region], encoding="utf-8")
        load(file)  # reports errors here, and not in the log of a process that fails to start
    return files


def selection_of(names: Names) -> Selection:
    """The archived topic."""
    return Selection(region=SOURCE, topics=[TopicPattern(names.topic)])


def write_restore_config(folder: Path, *, broker: str, endpoint_url: str, names: Names) -> Path:
    """Write a configuration with region a's archive and a new, empty broker."""
    file = folder / "restore.toml"
    text = f"""\
# The archive of region {SOURCE}, and the new cluster.
region = {_text(SOURCE)}

[kafka]
"bootstrap.servers" = {_text(broker)}

[s3]
{_s3(names.buckets[SOURCE], names.prefix, endpoint_url)}
"""
    file.write_text(text, encoding="utf-8")
    load(file)
    return file


def _s3(bucket: str, prefix: str, endpoint_url: str) -> str:
    return (
        f"bucket = {_text(bucket)}\nprefix = {_text(prefix)}\n"
        f"endpoint_url = {_text(endpoint_url)}\nregion_name = {_text(REGION)}"
    )


def _sqs(queue: str, endpoint_url: str) -> str:
    return f'queue = {_text(queue)}\nwait = "1s"\nendpoint_url = {_text(endpoint_url)}\nregion_name = {_text(REGION)}'


def _text(value: str) -> str:
    """A TOML string; for the values used here, JSON strings are valid TOML."""
    return json.dumps(value, ensure_ascii=False)


class Services:
    """Processes of the stack: they end with it, however that ends."""

    def __init__(self, stack: LocalStack, configs: Mapping[str, Path]) -> None:
        """Starts egress, sync and ingress."""
        self._stack, self._configs = stack, configs
        self._processes: list[Process] = []
        self._cleaning: Process | None = None
        for name, region in (("egress", SOURCE), ("sync", SOURCE), ("ingress", TARGET)):
            self._start(name, region)

    def compact(self) -> None:
        """Start `replicator compact`, which merges on its schedule."""
        self._start("compact", SOURCE)

    def clean(self) -> None:
        """Start `replicator gc` on region b's bucket, unless it is running: it deletes segments that merged ones are
        proven to cover, and ends by itself. Raises LocalStackError, with the last lines of the log, if the last run
        failed."""
        if self._cleaning is not None:
            code = self._cleaning.poll()
            if code is None:
                return
            if code not in CLEANED:
                raise LocalStackError(with_log(f"gc ended with {code}", self._cleaning.log))
        self._cleaning = self._run("gc", TARGET, "--covered")

    def wait_for_clean(self, timeout: timedelta) -> None:
        """Wait until the last gc has ended. Raises LocalStackError, with the last lines of its log, if it has not, or
        if it failed."""
        if self._cleaning is None:
            return
        code = self._cleaning.wait(timeout)
        if code not in CLEANED:
            state = "is still running" if code is None else f"ended with {code}"
            raise LocalStackError(with_log(f"gc {state}", self._cleaning.log))

    def archived(self) -> Sequence[int]:
        """Sizes in bytes of the segments that egress stored, from its log: compaction deletes them later."""
        lines = (self._stack.log_dir / "egress.log").read_text(encoding="utf-8", errors="replace").splitlines()
        return [int(found[1]) for line in lines if " segment_stored " in line and (found := _STORED.search(line))]

    def _start(self, name: str, region: str) -> None:
        self._processes.append(self._run(name, region))

    def _run(self, name: str, region: str, *options: str) -> Process:
        config = str(self._configs[region])
        command = [sys.executable, "-P", "-m", "replicator", name, *options, "--config", config]
        temporary = self._stack.dir / "tmp"  # files that a killed process leaves are removed with the stack
        temporary.mkdir(exist_ok=True)
        return self._stack.start(name, command, env={**environment(), "TMPDIR": str(temporary)})

    def check(self) -> None:
        """Raises LocalStackError, with the last lines of the log, if a service has ended."""
        for process in self._processes:
            code = process.poll()
            if code is not None:
                raise LocalStackError(with_log(f"{process.name} ended with {code}", process.log))

    def kill(self) -> None:
        """SIGKILL to all."""
        for process in (*self._processes, *([self._cleaning] if self._cleaning else [])):
            process.signal(signal.SIGKILL)


def environment() -> dict[str, str]:
    """The user's environment without AWS settings, and without a proxy for this machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    direct = direct_hosts()
    return {**kept, **AWS_VARIABLES, "NO_PROXY": direct, "no_proxy": direct, "PYTHONUNBUFFERED": "1"}
