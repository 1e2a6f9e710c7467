"""The client of mirrored clusters, on a cluster in memory."""

from __future__ import annotations

import pytest

from formats.errors import TargetError
from formats.messages.mirrormaker import (
    MirrorCheckpoint,
    MirrorHeartbeat,
    encode_checkpoint,
    encode_heartbeat,
)
from infra.contracts.cluster import TopicPartition
from replicator.client import MirrorClient, Records
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker

BEATS = [MirrorHeartbeat(source_alias="us", target_alias="eu", timestamp_ms=n) for n in range(3)]


def checkpoint(group: str, upstream: int, downstream: int, partition: int = 0) -> MirrorCheckpoint:
    return MirrorCheckpoint(
        group=group,
        topic="us.orders",
        partition=partition,
        upstream_offset=upstream,
        downstream_offset=downstream,
    )


@pytest.fixture
def client() -> MirrorClient:
    broker = FakeBroker()
    for topic in ("us.heartbeats", "us.orders", "orders", "us.checkpoints.internal"):
        broker.create(topic, partitions=1)
    records: dict[str, Records] = {
        "us.heartbeats": [*map(encode_heartbeat, BEATS), (b"rubbish", b"rubbish"), (None, b""), (b"", None)],
        "us.checkpoints.internal": [
            encode_checkpoint(one)
            for one in (
                checkpoint("g", 5, 3),
                checkpoint("other", 9, 9),
                checkpoint("g", 8, 6),
                checkpoint("g", 1, 1, 2),
            )
        ],
    }
    return MirrorClient({}, admin=FakeAdmin(broker), read=records.__getitem__)


def test_what_names_say(client: MirrorClient) -> None:
    assert client.heartbeat_topics() == {"us.heartbeats"}
    assert client.checkpoint_topics() == {"us.checkpoints.internal"}
    assert client.upstream_clusters() == {"us"}
    assert client.remote_topics("us") == client.remote_topics() == {"us.heartbeats", "us.orders"}
    assert (client.replication_hops("us"), client.replication_hops("eu")) == (1, None)


def test_records_that_are_none_are_left_out(client: MirrorClient) -> None:
    assert client.heartbeats("us.heartbeats") == BEATS


def test_the_last_checkpoint_of_a_partition_counts(client: MirrorClient) -> None:
    assert client.translated_offsets("us", "g") == {
        TopicPartition("us.orders", 0): 6,
        TopicPartition("us.orders", 2): 1,
    }
    assert client.translated_offsets("us", "nobody") == {}


def test_a_cluster_without_checkpoints_is_named(client: MirrorClient) -> None:
    with pytest.raises(TargetError, match="no checkpoints of ap arrive"):
        client.translated_offsets("ap", "g")
