"""Upstream clusters, hops and remote topics by the names of topics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.policies.names import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    LegacyReplicationPolicy,
    ReplicationPolicy,
)
from formats.policies.upstream import (
    checkpoint_topics,
    heartbeat_topics,
    offset_sync_topics,
    remote_topics,
    replication_hops,
    upstream_clusters,
)
from tests.examples import property_examples

POLICY = DefaultReplicationPolicy()
TOPICS = {
    "heartbeats",
    "us.heartbeats",
    "eu.us.heartbeats",
    "eu.ap.heartbeats",
    "us.orders",
    "eu.us.orders",
    "orders",
    "us.checkpoints.internal",
    "mm2-offset-syncs.us.internal",
    "__consumer_offsets",
}


def test_topics_by_kind() -> None:
    assert heartbeat_topics(POLICY, TOPICS) == {topic for topic in TOPICS if topic.endswith("heartbeats")}
    assert checkpoint_topics(POLICY, TOPICS) == {"us.checkpoints.internal"}
    assert offset_sync_topics(POLICY, {*TOPICS, "mm2-offset-syncs", "mm2-configs.us.internal"}) == {
        "mm2-offset-syncs.us.internal"
    }
    assert remote_topics(POLICY, TOPICS, "us") == {"us.heartbeats", "us.orders"}
    assert remote_topics(POLICY, TOPICS) == {topic for topic in TOPICS if topic[:3] in ("us.", "eu.")} - {
        "us.checkpoints.internal"
    }


@pytest.mark.parametrize("policy", [POLICY, IdentityReplicationPolicy("us"), LegacyReplicationPolicy("us")])
def test_topics_of_the_replicator_come_from_nowhere(policy: ReplicationPolicy) -> None:
    ours = {"replicator.checkpoint", "replicator.segmentevents", "replicator.ledger", "us.positions"}
    assert remote_topics(policy, {*ours, "us.orders"}, own=["us.positions"]) == {"us.orders"}
    assert remote_topics(policy, {*ours, "us.orders"}, "us") == {"us.orders", "us.positions"}


@pytest.mark.parametrize(("upstream", "hops"), [("us", 1), ("eu", 1), ("ap", 2), ("sa", None), ("", None)])
def test_the_shortest_way_counts(upstream: str, hops: int | None) -> None:
    assert replication_hops(POLICY, TOPICS, upstream) == hops


def test_upstream_clusters_are_those_whose_heartbeats_arrive() -> None:
    assert upstream_clusters(POLICY, TOPICS) == {"us", "eu", "ap"}
    assert upstream_clusters(POLICY, TOPICS - {"eu.ap.heartbeats"}) == {"us", "eu"}
    assert upstream_clusters(POLICY, {"us.orders"}) == frozenset()


def test_identity_knows_them_by_heartbeats_too() -> None:
    policy = IdentityReplicationPolicy("us")
    assert replication_hops(policy, {"us.heartbeats", "orders"}, "us") == 1
    assert upstream_clusters(policy, {"eu.us.heartbeats", "orders"}) == {"eu", "us"}


@property_examples()
@given(st.lists(st.sampled_from(["us", "eu", "ap"]), min_size=1, max_size=5))
def test_a_chain_has_as_many_hops_as_clusters(way: list[str]) -> None:
    topic = "heartbeats"
    for alias in reversed(way):
        topic = POLICY.format_remote_topic(alias, topic)
    assert upstream_clusters(POLICY, {topic}) == set(way)
    for alias in way:
        assert replication_hops(POLICY, {topic}, alias) == way.index(alias) + 1
