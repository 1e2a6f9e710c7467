"""Names of remote topics, as MirrorMaker 2's policies give them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.policies.names import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    LegacyReplicationPolicy,
    ReplicationPolicy,
    hops,
    is_cycle,
)

aliases = st.text("abcxyz-", min_size=1, max_size=6)
topics = st.text("abc._-", min_size=1, max_size=12)
separators = st.sampled_from([".", "_", "__", "-to-"])


@given(separators, st.text("abc", min_size=1, max_size=5), topics)
def test_the_upstream_topic_of_a_remote_one_is_the_source_topic(separator: str, alias: str, topic: str) -> None:
    policy = DefaultReplicationPolicy(separator)
    remote = policy.format_remote_topic(alias, topic)
    assert (policy.topic_source(remote), policy.upstream_topic(remote)) == (alias, topic)


@given(st.lists(st.text("abc", min_size=1, max_size=5), min_size=3, max_size=3), st.text("xyz", min_size=1))
def test_three_hops_and_back(path: list[str], topic: str) -> None:
    policy = DefaultReplicationPolicy()
    remote = topic
    for alias in path:
        remote = policy.format_remote_topic(alias, remote)
    assert list(hops(policy, remote)) == path[::-1]
    assert policy.original_topic(remote) == topic
    assert all(is_cycle(policy, remote, alias) for alias in path)
    assert not is_cycle(policy, remote, "elsewhere")


@pytest.mark.parametrize("policy", [IdentityReplicationPolicy("a"), LegacyReplicationPolicy("a")])
class TestIdentity:
    def test_names_stay(self, policy: ReplicationPolicy) -> None:
        assert policy.format_remote_topic("a", "orders") == "orders"
        assert (policy.topic_source("orders"), policy.upstream_topic("orders")) == ("a", "orders")
        assert policy.original_topic("orders") == "orders"
        assert list(hops(policy, "orders")) == ["a"]

    def test_heartbeats_are_named_after_their_cluster(self, policy: ReplicationPolicy) -> None:
        assert policy.format_remote_topic("b", "heartbeats") == "b.heartbeats"
        assert policy.format_remote_topic("c", "b.heartbeats") == "c.b.heartbeats"
        assert list(hops(policy, "c.b.heartbeats")) == ["c", "b"]
        assert (policy.topic_source("heartbeats"), policy.upstream_topic("heartbeats")) == (None, None)


def test_a_local_name_with_a_separator_is_taken_for_a_remote_one() -> None:
    assert DefaultReplicationPolicy().topic_source("prod.orders") == "prod"
    assert DefaultReplicationPolicy("__").topic_source("prod.orders") is None
    for name in ("orders.", "orders"):
        assert DefaultReplicationPolicy().topic_source(name) is None
    assert DefaultReplicationPolicy().topic_source(".orders") == ""


@pytest.mark.parametrize(
    ("name", "internal"),
    [
        ("__consumer_offsets", True),
        (".hidden", True),
        ("mm2-offset-syncs.b.internal", True),
        ("b.checkpoints.internal", True),
        ("connect-internal", False),
        ("a.internal", False),
        ("internal", False),
        ("orders", False),
        ("foo.replica", False),
        ("_schemas", False),
    ],
)
def test_internal_names(name: str, internal: bool) -> None:
    assert DefaultReplicationPolicy().is_internal_topic(name) is internal


def test_an_empty_separator_is_refused() -> None:
    with pytest.raises(ValueError, match="separator"):
        DefaultReplicationPolicy("")
