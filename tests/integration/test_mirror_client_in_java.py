"""Java's own connect-mirror-client, asked about a cluster whose topics we write, answers as `MirrorClient` does.

Both are asked with the same properties; Java in a process of its own (`tests/golden/mm2/ask_client.py`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from formats.messages.mirrormaker import (
    MirrorCheckpoint,
    MirrorHeartbeat,
    OffsetSync,
    encode_checkpoint,
    encode_heartbeat,
    encode_offset_sync,
)
from infra.contracts.cluster import Committed, TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.stack import LocalStack
from replicator.client import MirrorClient
from replicator.config.client_properties import mirror_client_properties
from tests.golden.mm2.ask_client import MIRROR_CLIENT, UTILS

ROOT = Path(__file__).resolve().parent.parent.parent
JAVA_SECONDS = 300  # the first time on a machine it fetches MirrorMaker 2's jars
POLICY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
GROUPS = ("billing", "a group of é and €", "billing.2")

pytestmark = [pytest.mark.integration, pytest.mark.long]


class Cluster:
    """A cluster downstream of `us`, which is downstream of `ap`; once named with a dot, and once with two dashes."""

    def __init__(self, servers: str, us: str) -> None:
        self.servers, self.us, self.ap = servers, us, f"{us}-ap"
        self._admin = KafkaAdmin({"bootstrap.servers": servers})

    def write(self) -> None:
        for sign in (".", "--"):
            heartbeats, checkpoints, syncs = self.own_topics(sign)
            self._put(heartbeats, map(encode_heartbeat, self._heartbeats()))
            self._put(checkpoints, map(encode_checkpoint, self._checkpoints(sign)))
            self._put(syncs, map(encode_offset_sync, self._offset_syncs()))
            self._put(sign.join((self.us, self.ap, "heartbeats")), ())
            self._put(sign.join((self.us, self.us, "heartbeats")), ())  # as a loop would name it
            self._put(sign.join((self.us, "orders")), ())
        self._put(f"my-{self.us}-heartbeats", ())
        self._put(f"local-{self.us}", ())

    def own_topics(self, sign: str) -> tuple[str, str, str]:
        """Of heartbeats, checkpoints and offset syncs."""
        return (
            sign.join((self.us, "heartbeats")),
            sign.join((self.us, "checkpoints", "internal")),
            sign.join(("mm2-offset-syncs", self.us, "internal")),
        )

    def _put(self, topic: str, records: Iterable[tuple[bytes, bytes]]) -> None:
        self._admin.create_topic(topic, partitions=1, replication_factor=1, configs={"cleanup.policy": "compact"})
        producer = Producer({"bootstrap.servers": self.servers})
        for key, value in records:
            producer.produce(topic, value, key)
        assert producer.flush(30) == 0

    def _heartbeats(self) -> Iterable[MirrorHeartbeat]:
        for stamp in (0, 1_700_000_000_000, -1, 2**63 - 1):
            yield MirrorHeartbeat(source_alias=self.us, target_alias="eu-é", timestamp_ms=stamp)

    def _checkpoints(self, sign: str) -> Iterable[MirrorCheckpoint]:
        for number, group in enumerate((*GROUPS, *GROUPS)):
            for partition in (0, 7):
                yield MirrorCheckpoint(
                    group=group,
                    topic=f"{self.us}{sign}orders",
                    partition=partition,
                    upstream_offset=10 * number,
                    downstream_offset=number + partition,
                    metadata="" if number % 2 else f"€ {number}",
                )

    def _offset_syncs(self) -> Iterable[OffsetSync]:
        for offset in (0, 5, 2**40):
            yield OffsetSync(topic="orders-é", partition=3, upstream_offset=offset, downstream_offset=offset // 2)


@pytest.fixture
def cluster(stack: LocalStack, unique: Callable[[str], str]) -> Cluster:
    made = Cluster(stack.brokers["b"].bootstrap, unique("us"))
    made.write()
    return made


def questions(cluster: Cluster) -> Sequence[Mapping[str, Any]]:
    formatters = ("HeartbeatFormatter", "CheckpointFormatter", "OffsetSyncFormatter")
    cases = [
        (".", {}),
        ("--", {"replication.policy.separator": "--"}),
        (".", {"replication.policy.class": POLICY, "source.cluster.alias": cluster.us}),
    ]
    return [
        {
            "properties": {"bootstrap.servers": cluster.servers, **properties},
            "aliases": [cluster.us, cluster.ap, "none"],
            "groups": [(cluster.us, group) for group in (*GROUPS, "none", "billing..")],
            "patterns": [(cluster.us, pattern) for pattern in (".*", "billing.*", "none")],
            "topics": dict(zip(cluster.own_topics(sign), formatters, strict=True)),
        }
        for sign, properties in cases
    ]


def java_answers(asked: Sequence[Mapping[str, Any]], folder: Path) -> Sequence[Mapping[str, Any]]:
    given, answers = folder / "questions.json", folder / "answers.json"
    given.write_text(json.dumps(asked), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tests.golden.mm2.ask_client", str(given), str(answers)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=JAVA_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: Sequence[Mapping[str, Any]] = json.loads(answers.read_text(encoding="utf-8"))
    return found


def our_answers(question: Mapping[str, Any]) -> Mapping[str, Any]:
    given = mirror_client_properties("\n".join(f"{name}={value}" for name, value in question["properties"].items()))
    with MirrorClient(given.client, given.policy) as client:
        read = {
            "HeartbeatFormatter": client.heartbeats,
            "CheckpointFormatter": client.checkpoints,
            "OffsetSyncFormatter": client.offset_syncs,
        }
        hops = {alias: client.replication_hops(alias) for alias in question["aliases"]}
        return {
            "hops": {alias: -1 if count is None else count for alias, count in hops.items()},
            "upstream": sorted(client.upstream_clusters()),
            "heartbeats": sorted(client.heartbeat_topics()),
            "checkpoints": sorted(client.checkpoint_topics()),
            "remote": sorted(client.remote_topics()),
            "remote_of": {alias: sorted(client.remote_topics(alias)) for alias in question["aliases"]},
            "offsets": [
                offset_rows(client.remote_consumer_offsets(alias, group)) for alias, group in question["groups"]
            ],
            "offsets_of_groups": [
                {group: offset_rows(found) for group, found in client.remote_offsets_of_groups(alias, pattern).items()}
                for alias, pattern in question["patterns"]
            ],
            "printed": {
                topic: "".join(f"{record}\n" for record in read[formatter](topic))
                for topic, formatter in question["topics"].items()
            },
        }


def offset_rows(found: Mapping[TopicPartition, Committed]) -> list[list[object]]:
    return [[at.topic, at.partition, found[at].next_offset, found[at].metadata] for at in sorted(found)]


def test_java_gives_the_same_answers(cluster: Cluster, tmp_path: Path) -> None:
    asked = questions(cluster)
    ours = list(map(our_answers, asked))
    for question, java, our in zip(asked, java_answers(asked, tmp_path), ours, strict=True):
        properties = question["properties"]
        for who in (MIRROR_CLIENT, UTILS):
            assert {name: our[name] for name in java[who]} == java[who], (who, properties)
        assert our["printed"] == java["printed"], properties
    first, dashes, identity = ours
    assert [one["hops"] for one in ours] == 3 * [{cluster.us: 1, cluster.ap: 2, "none": -1}]
    assert f"{cluster.us}--orders" in dashes["remote_of"][cluster.us]
    assert f"local-{cluster.us}" in identity["remote"]
    assert f"local-{cluster.us}" not in first["remote"]
    assert [len(found) for found in first["offsets"]] == [2, 2, 2, 0, 0]
    assert all(text.count("\n") >= 3 for one in ours for text in one["printed"].values())
