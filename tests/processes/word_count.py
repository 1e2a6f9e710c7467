"""Kafka's own demo application of Kafka Streams, as a process: it counts the words of a topic, in a store of its own.

    streams-plaintext-input ──words──> <id>-…-repartition ──counts──> streams-wordcount-output
                                                             └──────> <id>-…-changelog

Its jars come by the resolver that fetches Kafka's, without RocksDB: the store is in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from infra.local.cache import cache_dir
from infra.local.jars import KAFKA_VERSION, RESOLVER, JarSet, fetched, kafka_jars, without_logging
from infra.local.process import Process
from infra.local.stack import LocalStack
from infra.runtime.java import find_java
from replicator.demo.services import environment

INPUT, OUTPUT = "streams-plaintext-input", "streams-wordcount-output"
STORE = "KSTREAM-AGGREGATE-STATE-STORE-0000000003"  # as Kafka Streams names it

PACKAGE = f"org.apache.kafka:kafka-streams-examples:{KAFKA_VERSION}"
MAIN = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
SETTINGS = {
    "replication.factor": "1",
    "commit.interval.ms": "100",
    "statestore.cache.max.bytes": "0",
    "session.timeout.ms": "6000",  # of the classic protocol: its members do not leave the group when they end
    "dsl.store.suppliers.class": "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers",
}


def inner_topics_of(application: str) -> Sequence[str]:
    return [f"{application}-{STORE}-{kind}" for kind in ("changelog", "repartition")]


def class_path() -> str:
    """Fetches the jars at the first call on a machine. Raises LocalStackError."""
    java, folder = find_java(), cache_dir() / f"streams-{KAFKA_VERSION}"
    without_rocksdb = RESOLVER.replace(
        ".getOrCreate()", '.config("spark.jars.excludes", "org.rocksdb:rocksdbjni")\n    .getOrCreate()'
    )
    ours = fetched(java, JarSet(f"Kafka Streams {KAFKA_VERSION}", PACKAGE, folder, without_logging), without_rocksdb)
    return ":".join(map(str, [*ours, *kafka_jars(java)]))


def start(stack: LocalStack, region: str, application: str, protocol: str) -> Process:
    """`protocol`: of its group, classic or streams."""
    name = f"{application}-{region}-{protocol}"
    folder = Path(stack.dir) / name
    folder.mkdir()
    given = {
        **SETTINGS,
        "application.id": application,
        "bootstrap.servers": stack.brokers[region].bootstrap,
        "group.protocol": protocol,
        "state.dir": str(folder / "state"),
    }
    if protocol != "classic":
        del given["session.timeout.ms"]  # the broker decides it
    (folder / "streams.properties").write_text(
        "".join(f"{name} = {value}\n" for name, value in given.items()), encoding="utf-8"
    )
    command = [str(find_java().executable), "-Xmx256m", "-cp", class_path(), MAIN, str(folder / "streams.properties")]
    return stack.start(name, command, env=environment())
