"""The client of mirrored clusters, on a cluster in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import pytest

from formats.errors import MalformedEvent, TargetError
from formats.messages.mirrormaker import (
    MirrorCheckpoint,
    MirrorHeartbeat,
    OffsetSync,
    encode_checkpoint,
    encode_heartbeat,
    encode_offset_sync,
)
from infra.contracts.cluster import Committed, TopicPartition
from infra.kafka.internal_topics.whole_topic import KeyValue
from replicator.client import MirrorClient
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker

BEATS = [MirrorHeartbeat(source_alias="us", target_alias="eu", timestamp_ms=n) for n in range(3)]
SYNC = OffsetSync(topic="orders", partition=0, upstream_offset=7, downstream_offset=5)
SYNCS = "mm2-offset-syncs.us.internal"
FIRST, THIRD = TopicPartition("us.orders", 0), TopicPartition("us.orders", 2)


def checkpoint(group: str, upstream: int, downstream: int, partition: int = 0) -> MirrorCheckpoint:
    return MirrorCheckpoint(
        group=group,
        topic="us.orders",
        partition=partition,
        upstream_offset=upstream,
        downstream_offset=downstream,
        metadata=f"at {upstream}",
    )


CHECKPOINTS = [
    checkpoint("g.1", 5, 3),
    checkpoint("gx1", 9, 9),
    checkpoint("g.1", 8, 6),
    checkpoint("g.1", 1, 1, 2),
]


class Records:
    """Topics in memory. `opened`: how each was read."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, bool]] = []
        self.topics: dict[str, Sequence[KeyValue]] = {
            "us.heartbeats": [*map(encode_heartbeat, BEATS), (b"rubbish", b"rubbish"), (None, b""), (b"deleted", None)],
            "us.checkpoints.internal": [*map(encode_checkpoint, CHECKPOINTS)],
            SYNCS: [encode_offset_sync(SYNC)],
        }

    def __call__(self, topic: str, *, follow: bool) -> Iterable[KeyValue]:
        self.opened.append((topic, follow))
        yield from self.topics[topic]
        if follow:
            raise AssertionError("read on, though the next record is not wanted")


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def client(records: Records) -> MirrorClient:
    broker = FakeBroker()
    for topic in ("us.orders", "orders", *records.topics):
        broker.create(topic, partitions=1)
    return MirrorClient({}, admin=FakeAdmin(broker), read=records)


def test_what_names_say(client: MirrorClient) -> None:
    assert client.heartbeat_topics() == {"us.heartbeats"}
    assert client.checkpoint_topics() == {"us.checkpoints.internal"}
    assert client.offset_sync_topics() == {SYNCS}
    assert client.upstream_clusters() == {"us"}
    assert client.remote_topics("us") == client.remote_topics() == {"us.heartbeats", "us.orders"}
    assert (client.replication_hops("us"), client.replication_hops("eu")) == (1, None)


def test_topics_of_the_replicator_come_from_nowhere(records: Records) -> None:
    broker = FakeBroker()
    for topic in ("us.orders", "us.positions", "replicator.checkpoint"):
        broker.create(topic, partitions=1)
    client = MirrorClient({}, admin=FakeAdmin(broker), read=records, own_topics=["us.positions"])
    assert client.remote_topics() == {"us.orders"}


def test_records_that_are_none_are_left_out_and_counted(client: MirrorClient) -> None:
    left_out: list[MalformedEvent] = []
    assert list(client.heartbeats("us.heartbeats", on_malformed=left_out.append)) == BEATS
    assert len(left_out) == 2, "a deletion is no record"
    assert "rubbish" in str(left_out[0])


def test_records_of_every_kind(client: MirrorClient) -> None:
    assert list(client.checkpoints("us.checkpoints.internal")) == CHECKPOINTS
    assert list(client.offset_syncs(SYNCS)) == [SYNC]


def test_a_topic_is_read_one_record_after_the_other(client: MirrorClient, records: Records) -> None:
    found = client.heartbeats("us.heartbeats", follow=True)
    assert records.opened == []
    assert list(islice(found, 3)) == BEATS
    assert records.opened == [("us.heartbeats", True)]


def test_the_last_checkpoint_of_a_partition_counts(client: MirrorClient) -> None:
    assert client.remote_consumer_offsets("us", "g.1") == {FIRST: Committed(6, "at 8"), THIRD: Committed(1, "at 1")}
    assert client.remote_consumer_offsets("us", "none") == {}


def test_a_checkpoint_that_was_deleted_is_no_position(client: MirrorClient, records: Records) -> None:
    key, _ = encode_checkpoint(CHECKPOINTS[0])
    records.topics["us.checkpoints.internal"] = [*map(encode_checkpoint, CHECKPOINTS), (key, None)]
    assert client.remote_consumer_offsets("us", "g.1") == {THIRD: Committed(1, "at 1")}
    assert client.remote_offsets_of_groups("us").keys() == {"g.1", "gx1"}


def test_a_name_is_no_expression(client: MirrorClient) -> None:
    assert client.remote_consumer_offsets("us", "g..") == client.remote_consumer_offsets("us", "g(") == {}


def test_groups_by_an_expression_of_the_whole_name(client: MirrorClient) -> None:
    assert client.remote_offsets_of_groups("us").keys() == {"g.1", "gx1"}
    assert client.remote_offsets_of_groups("us", "gx.").keys() == {"gx1"}
    assert client.remote_offsets_of_groups("us", "g") == {}


def test_a_cluster_without_checkpoints_is_named(client: MirrorClient) -> None:
    with pytest.raises(TargetError, match="no checkpoints of ap arrive"):
        client.remote_consumer_offsets("ap", "g.1")
