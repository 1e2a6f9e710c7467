"""The same actions at the source, beside MirrorMaker 2: how long until the target shows them, or never.

    python -m bench.behaviour        writes the table of docs/mm2-comparison.md

Both programs replicate from broker a to broker b of one stack, one after the other, and search for changes
every five seconds; records are sealed after one second here. Each is warm: a first topic has crossed before.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from bench import mirrormaker
from bench.child import ROOT
from bench.report import replaced
from bench.topics import ClusterTopics
from infra.local.aws import REGION, create_bucket_with_queue
from infra.local.jars import KAFKA_VERSION
from infra.local.process import Process
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from replicator.config.show import to_toml
from replicator.demo.services import environment

PAGE = ROOT / "docs" / "mm2-comparison.md"
BEGIN, END = "<!-- written by `make bench-mm2-behaviour` -->", "<!-- end -->"
PATIENCE = timedelta(seconds=60)  # after it, never
CYCLE = timedelta(seconds=30)
WARM_UP = timedelta(minutes=3)
RECORDS = 10
SOURCE, TARGET = "a", "b"


@dataclass(frozen=True, slots=True)
class ActionTimes:
    action: str
    cells: tuple[str, str]  # of ours, and of MirrorMaker 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedProgram:
    """One of the two programs."""

    name: str
    start: Callable[[LocalStack, str], Sequence[Process]]  # gets what begins the names of its topics
    start_cycle: Callable[[LocalStack, str], Sequence[Process]]  # both directions, under identity naming


def remote(topic: str) -> str:
    """Its name at the target, as both programs give it."""
    return f"{SOURCE}.{topic}"


def seconds(condition: Callable[[], bool]) -> str:
    began = time.monotonic()
    return f"{time.monotonic() - began:.1f} s" if wait_until(condition, PATIENCE) else "never"


def measured(stack: LocalStack, subject: ComparedProgram) -> Iterator[tuple[str, str]]:
    """Actions and their times, in the order of the table."""
    source, target = ClusterTopics(stack.brokers[SOURCE].bootstrap), ClusterTopics(stack.brokers[TARGET].bootstrap)
    topic = f"{subject.name}.orders"
    copy, warm = remote(topic), f"{subject.name}.warm"
    with running(subject.start(stack, subject.name)):
        source.create(warm, 1)
        source.produce(warm, 0, ["warm"])
        if not wait_until(lambda: target.values(remote(warm), 0) == ["warm"], WARM_UP):
            raise RuntimeError(f"{subject.name} does not replicate; see {stack.log_dir}")

        source.create(topic, 1)
        source.produce(topic, 0, ["first"])
        yield "a new topic: its first record", seconds(lambda: target.values(copy, 0) == ["first"])
        source.grow(topic, 2)
        source.produce(topic, 1, ["second"])
        yield "a partition is added: its first record", seconds(lambda: target.values(copy, 1) == ["second"])
        source.set_config(topic, "retention.ms", "90000000")
        yield "a config is set", seconds(lambda: target.config(copy, "retention.ms") == "90000000")
        source.set_config(topic, "retention.ms", None)
        yield "a config is unset", seconds(lambda: target.config(copy, "retention.ms") != "90000000")
        source.allow_reading(warm, "User:other")  # a cluster that lists no ACL at all is not believed
        source.allow_reading(topic, "User:reader")
        yield "READ is granted", seconds(lambda: "User:reader" in target.readers(copy))
        source.revoke_reading(topic, "User:reader")
        yield "READ is revoked, another ACL stays", seconds(lambda: "User:reader" not in target.readers(copy))
        source.create_again(topic, 1)
        values = [f"again {n}" for n in range(3)]
        source.produce(topic, 0, values)
        done = seconds(lambda: target.values(copy, 0)[-len(values) :] == values)
        arrived = sum(value in target.values(copy, 0) for value in values)
        yield (
            "a topic is created again, with three records: all of them",
            done if done != "never" else f"never: {arrived} of {len(values)} arrived",
        )
    topic = f"{subject.name}-cycle.orders"
    source.create(topic, 1)
    with running(subject.start_cycle(stack, f"{subject.name}-cycle")):
        source.produce(topic, 0, [f"{n}" for n in range(RECORDS)])
        wait_until(lambda: len(target.values(topic, 0)) >= RECORDS, WARM_UP)
        wait_until(lambda: False, CYCLE)
        count = len(source.values(topic, 0))
        cell = (
            f"stays at {RECORDS}"
            if count == RECORDS
            else f"grows: {count:,} records after {CYCLE.total_seconds():.0f} s"
        )
        yield "two regions mirror each other under identity naming: a topic of ten records", cell


@contextmanager
def running(processes: Sequence[Process]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.stop()


# --- the programs -----------------------------------------------------------------------------------------------------


def ours(stack: LocalStack, word: str) -> Sequence[Process]:
    return our_processes(stack, word, {TARGET: SOURCE}, policy="default", notified=True)


def our_cycle(stack: LocalStack, word: str) -> Sequence[Process]:
    return our_processes(stack, word, {TARGET: SOURCE, SOURCE: TARGET}, policy="identity", notified=False)


def our_processes(
    stack: LocalStack,
    word: str,
    source_of: Mapping[str, str],
    *,
    policy: str,
    notified: bool,
    egress: Mapping[str, Any] = MappingProxyType({}),
    of_target: Mapping[str, Any] = MappingProxyType({}),
) -> Sequence[Process]:
    """`egress`: settings of the source's besides; `of_target`: sections of its file besides."""
    bucket, aws = f"{word}-bucket", {"endpoint_url": stack.moto.endpoint_url, "region_name": REGION}
    create_bucket_with_queue(stack.moto.endpoint_url, bucket, f"{word}-events", prefix="data/")
    processes = []
    for region, source in source_of.items():
        tables: Mapping[str, Mapping[str, Any]] = {
            source: {
                "egress": {
                    "group_id": f"{word}-egress",
                    "topic_refresh_interval": "5s",
                    "topics": {f"^{word}[.].*": {"max_segment_age": "1s"}},
                    **egress,
                }
            },
            region: {
                **of_target,
                "sqs": {"queue": f"{word}-events", "wait": "1s", **aws},
                "ingress": {
                    "group_id": f"{word}-ingress",
                    "checkpoint_topic": f"{word}-checkpoints",
                    "segment_events_topic": f"{word}-events",
                    "replication_factor": 1,
                    "topic_refresh_interval": "5s",
                    "relist_interval": "5m" if notified else "2s",
                    "replication_policy": policy,
                    "sources": [
                        {
                            "region": source,
                            "topic": f"^{word}[.].*",
                            "first_segment_delay": "5s",
                            "on_recreate": "follow",
                        }
                    ],
                },
            },
        }
        for where, sections in tables.items():
            service = next(name for name in ("egress", "ingress") if name in sections)
            file = stack.dir / f"{word}-{where}-{service}.toml"
            kafka = {"bootstrap.servers": stack.brokers[where].bootstrap}
            content = {"region": where, "kafka": kafka, "s3": {"bucket": bucket, "prefix": "data", **aws}, **sections}
            file.write_text(to_toml(content), encoding="utf-8")
            command = [sys.executable, "-P", "-m", "replicator", service, "--config", str(file)]
            processes.append(stack.start(file.stem, command, env=environment()))
    return processes


def mirror_maker(stack: LocalStack, word: str) -> Sequence[Process]:
    text = mirrormaker.properties(stack, {(SOURCE, TARGET): f"{word}[.].*"})
    return [mirrormaker.start(stack, word, text)]


def mirror_maker_cycle(stack: LocalStack, word: str) -> Sequence[Process]:
    policy = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}
    flows = {(SOURCE, TARGET): f"{word}[.].*", (TARGET, SOURCE): f"{word}[.].*"}
    return [mirrormaker.start(stack, word, mirrormaker.properties(stack, flows, **policy))]


OURS = ComparedProgram(name="ours", start=ours, start_cycle=our_cycle)
MIRROR_MAKER = ComparedProgram(name="mm2", start=mirror_maker, start_cycle=mirror_maker_cycle)


# --- the page ---------------------------------------------------------------------------------------------------------


def table(results: Sequence[ActionTimes], *, at: datetime, commit: str) -> str:
    lines = [
        f"One run at {commit}, {at:%Y-%m-%d %H:%M} UTC, MirrorMaker {KAFKA_VERSION}; never: not within "
        f"{PATIENCE.total_seconds():.0f} s.",
        "",
        "| at the source | at the target, here | MirrorMaker 2 |",
        "|---|---|---|",
        *(f"| {one.action} | {one.cells[0]} | {one.cells[1]} |" for one in results),
    ]
    return "\n".join(lines)


def with_table(page: str, text: str) -> str:
    """The page with its table replaced. Raises ValueError without the markers."""
    return replaced(page, BEGIN, END, f"{BEGIN}\n{text}\n{END}")


def described_commit() -> str:
    describe = ["git", "describe", "--always", "--dirty=+", "--abbrev=10"]
    return subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    mirrormaker.class_path()  # fetched before anything is measured
    cells: list[dict[str, str]] = []
    for subject in (OURS, MIRROR_MAKER):
        with LocalStack(regions=(SOURCE, TARGET), secured=True) as stack:
            found: dict[str, str] = {}
            for action, cell in measured(stack, subject):
                print(f"{subject.name}: {action}: {cell}", flush=True)
                found[action] = cell
            cells.append(found)
    results = [ActionTimes(action, (cell, cells[1][action])) for action, cell in cells[0].items()]
    text = table(results, at=datetime.now(UTC), commit=described_commit())
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
