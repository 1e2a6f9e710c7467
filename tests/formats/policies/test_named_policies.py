"""Replication policies as the configuration names them, and a user's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import PluginFailed
from formats.policies.named_policies import replication_policy
from formats.policies.names import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    LegacyReplicationPolicy,
    ReplicationPolicy,
    hops,
    is_cycle,
)

USER = "tests.formats.policies.user_policies"
NAMES = ("default", "identity", "LegacyReplicationPolicy", f"{USER}:Suffixed")

aliases = st.text("abc", min_size=1, max_size=5)
topics = st.text("xyz._-", min_size=1, max_size=12)
separators = st.sampled_from([".", "_", "__", "-to-", ".-."])


def chosen(name: str, alias: str = "a", separator: str = ".") -> ReplicationPolicy:
    return replication_policy(name, alias, separator)


@given(st.sampled_from(NAMES), separators, aliases, topics)
def test_m04_the_upstream_topic_of_a_remote_one_is_the_source_topic(
    name: str, separator: str, alias: str, topic: str
) -> None:
    policy = chosen(name, alias, separator)
    remote = policy.format_remote_topic(alias, topic)
    assert (policy.topic_source(remote), policy.upstream_topic(remote)) == (alias, topic)


@given(st.sampled_from(NAMES), separators, st.lists(aliases, min_size=3, max_size=3, unique=True), topics)
def test_three_hops_and_back(name: str, separator: str, path: list[str], topic: str) -> None:
    remote = topic
    for alias in path:  # each region's own policy
        remote = chosen(name, alias, separator).format_remote_topic(alias, remote)
    policy = chosen(name, path[-1], separator)
    if name in ("identity", "LegacyReplicationPolicy"):
        assert (remote, list(hops(policy, remote))) == (topic, path[-1:])
    else:
        assert list(hops(policy, remote))[:3] == path[::-1]
        assert all(is_cycle(policy, remote, alias) for alias in path)
    for alias in path[::-1]:
        upstream = chosen(name, alias, separator).upstream_topic(remote)
        assert upstream is not None
        remote = upstream
    assert remote == topic


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("default", DefaultReplicationPolicy),
        ("org.apache.kafka.connect.mirror.DefaultReplicationPolicy", DefaultReplicationPolicy),
        ("identity", IdentityReplicationPolicy),
        ("org.apache.kafka.connect.mirror.IdentityReplicationPolicy", IdentityReplicationPolicy),
        ("org.apache.kafka.mirror.LegacyReplicationPolicy", LegacyReplicationPolicy),
    ],
)
def test_kafkas_names(name: str, kind: type) -> None:
    assert type(chosen(name)) is kind


@pytest.mark.parametrize(
    ("name", "alias", "separator", "why"),
    [
        ("defualt", "a", ".", 'must be "default", "identity"'),
        ("default", "eu.west", ".", "must not contain the separator '.'"),
        ("default", "a_", "__", "must not contain the separator '__'"),
        (":x", "a", ".", "':x' is not found: not package.module:Class"),
        ("nowhere.at_all:X", "a", ".", "No module named 'nowhere'"),
        (f"{USER}:Absent", "a", ".", "has no attribute 'Absent'"),
        (f"{USER}:NO_CLASS", "a", ".", "is no class"),
        (f"{USER}:LacksMethods", "a", ".", "lacks topic_source(), upstream_topic()"),
        (f"{USER}:TakesNothing", "a", ".", "(source_alias='a', separator='.') raised TypeError"),
        (f"{USER}:Forgets", "a", ".", "takes that name for orders-from-a of a"),
        (f"{USER}:ReturnsNothing", "a", ".", "format_remote_topic('a', 'orders') returned None, which is no text"),
        (f"{USER}:Raises", "a", ".", "topic_source('orders-from-a') raised RuntimeError: not today"),
    ],
)
def test_what_is_refused_at_the_start(name: str, alias: str, separator: str, why: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        chosen(name, alias, separator)
    assert why in str(caught.value)


def test_a_users_class_that_fails_later_says_where() -> None:
    with pytest.raises(PluginFailed, match=r"Suffixed.format_remote_topic\('a', 'forbidden'\) raised KeyError"):
        chosen(f"{USER}:Suffixed").format_remote_topic("a", "forbidden")


def test_methods_that_a_users_class_lacks_answer_as_mirrormaker_does() -> None:
    policy = chosen(f"{USER}:Suffixed")
    assert policy.original_topic("orders-from-a-from-b") == "orders"
    assert (policy.heartbeats_topic(), policy.checkpoints_topic("a")) == ("heartbeats", "a.checkpoints.internal")
    assert policy.offset_syncs_topic("a") == "mm2-offset-syncs.a.internal"
    assert policy.is_heartbeats_topic("heartbeats-from-a")
    assert not policy.is_heartbeats_topic("my-heartbeats")
    assert policy.is_internal_topic("a.checkpoints.internal")
    own = chosen(f"{USER}:OwnHeartbeats")
    assert (own.heartbeats_topic(), own.is_heartbeats_topic("pulse-from-a")) == ("pulse", True)
