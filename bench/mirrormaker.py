"""MirrorMaker 2 as a process: its jars, by the resolver that fetches Kafka's, and its properties."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from infra.local.cache import cache_dir
from infra.local.jars import KAFKA_VERSION, JarSet, fetched, kafka_jars, without_logging
from infra.local.process import Process
from infra.local.stack import LocalStack
from infra.runtime.java import find_java
from replicator.demo.services import environment

PACKAGES = ",".join(f"org.apache.kafka:{name}:{KAFKA_VERSION}" for name in ("connect-mirror", "connect-runtime"))
MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
INTERVAL = "5"  # seconds, of each search for changes
LOGGING = """\
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
"""
SMALL = {  # for clusters of one broker
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
}
QUICK = {
    "refresh.topics.interval.seconds": INTERVAL,
    "sync.topic.configs.interval.seconds": INTERVAL,
    "sync.topic.acls.interval.seconds": INTERVAL,
    "offset.flush.interval.ms": "5000",
}


def class_path() -> str:
    """MirrorMaker's jars before Kafka's. Fetches them at the first call on a machine. Raises LocalStackError."""
    java, folder = find_java(), cache_dir() / f"mirrormaker-{KAFKA_VERSION}"
    ours = fetched(java, JarSet(f"MirrorMaker {KAFKA_VERSION}", PACKAGES, folder, without_logging))
    return ":".join(map(str, [*ours, *kafka_jars(java)]))


def properties(stack: LocalStack, flows: Mapping[tuple[str, str], str], **more: str) -> str:
    """Of `mm2.properties`. `flows`: the expression of topics that go from one cluster to another."""
    aliases = sorted({alias for flow in flows for alias in flow})
    lines = [f"clusters = {', '.join(aliases)}"]
    lines += [f"{alias}.bootstrap.servers = {stack.brokers[alias].bootstrap}" for alias in aliases]
    for (source, target), topics in flows.items():
        lines += [f"{source}->{target}.enabled = true", f"{source}->{target}.topics = {topics}"]
    return "\n".join([*lines, *(f"{name} = {value}" for name, value in {**SMALL, **QUICK, **more}.items()), ""])


def start(stack: LocalStack, name: str, text: str) -> Process:
    folder = Path(stack.dir) / name
    folder.mkdir()
    (folder / "mm2.properties").write_text(text, encoding="utf-8")
    (folder / "log4j2.properties").write_text(LOGGING, encoding="utf-8")
    options = [f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}", "-Xmx512m"]
    command = [str(find_java().executable), *options, "-cp", class_path(), MAIN, str(folder / "mm2.properties")]
    return stack.start(name, command, env=environment())
