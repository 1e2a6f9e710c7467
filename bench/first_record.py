"""Measures a user's wait from the start of `replicator restore` until the first record can be read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from bench.archive import TOPIC
from bench.child import LOG_END, ROOT, ChildFailed, Measurement
from bench.resources import BenchResources

POLL_SECONDS = 0.05  # between checks that the topic exists: the largest error of the result
SECRET = "REPLICATOR_BENCH_SECRET"  # environment variable: a configuration file may not contain a secret


def wait_for_first_record(
    resources: BenchResources, prefix: str, target: str, *, partitions: int, log: Path, timeout_seconds: float
) -> Measurement:
    """Restore to topic `target`, and end the command once a consumer that reads committed records has a record."""
    file = log.with_suffix(".toml")
    config = resources.archived(prefix)
    secret, config["s3"] = config["s3"]["secret_access_key"], config["s3"] | {"secret_access_key": f"${{{SECRET}}}"}
    file.write_text("\n".join(toml(config)), encoding="utf-8")
    consumer = Consumer(
        {
            "bootstrap.servers": resources.bootstrap,
            "group.id": target,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    consumer.list_topics(timeout=30)  # connected
    command = [sys.executable, "-m", "replicator", "restore", TOPIC, "--rename", f"{TOPIC}={target}"]
    local = "127.0.0.1,localhost"
    environment = {**os.environ, "NO_PROXY": local, "no_proxy": local, SECRET: secret}
    with log.open("wb") as output:
        began, cpu = time.monotonic(), _children_cpu()
        process = subprocess.Popen(
            [*command, "--config", str(file)], cwd=ROOT, env=environment, stdout=output, stderr=output
        )
        try:
            while not _has_record(consumer, target, partitions):
                if time.monotonic() > began + timeout_seconds or process.poll() not in (None, 0):
                    raise ChildFailed(f"no record was restored:\n{log.read_text(errors='replace')[-LOG_END:]}")
            seconds = time.monotonic() - began
        finally:
            consumer.close()
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    used = _children_cpu() - cpu
    return Measurement(
        seconds=seconds,
        cpu_seconds=used,
        whole_cpu_seconds=used,
        peak_rss_mib=0.0,
        other={"wait_seconds": {"first record": seconds}},
    )


def _has_record(consumer: Consumer, topic: str, partitions: int) -> bool:
    """Whether there is a record; waits a short time for one."""
    if not consumer.assignment():
        known = consumer.list_topics(timeout=30).topics.get(topic)
        if known is None or len(known.partitions) < partitions:
            time.sleep(POLL_SECONDS)
            return False
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    message = consumer.poll(POLL_SECONDS)
    return message is not None and message.error() is None


def _children_cpu() -> float:
    times = os.times()
    return times.children_user + times.children_system


def toml(tables: Mapping[str, Any]) -> Iterator[str]:
    """Strings and tables of strings as TOML: JSON strings are valid TOML."""
    for name, value in tables.items():
        if not isinstance(value, Mapping):
            yield f"{json.dumps(name)} = {json.dumps(value)}"
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield f"[{json.dumps(name)}]"
            yield from toml(value)
