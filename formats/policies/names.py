"""Names of remote topics: what a replicated topic is called in the target, and where a name comes from.

    DefaultReplicationPolicy     orders of us-east ──> us-east.orders ──> eu.us-east.orders
    IdentityReplicationPolicy    orders ──> orders
    LegacyReplicationPolicy      orders ──> orders, for clusters that MirrorMaker 1 mirrored: nothing but records cross

The methods are those of MirrorMaker 2's `ReplicationPolicy`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

HEARTBEATS = "heartbeats"


class ReplicationPolicy(Protocol):
    """Names of remote topics. An implementation of a user is found by its entry point; its methods are pure."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """What `topic` of the cluster `source_alias` is called in the target."""

    def topic_source(self, topic: str) -> str | None:
        """Alias of the cluster that a remote topic comes from; None for a topic that is not remote."""

    def upstream_topic(self, topic: str) -> str | None:
        """What a remote topic is called in the cluster that it comes from; None for a topic that is not remote."""

    def is_internal_topic(self, topic: str) -> bool:
        """Whether the topic is never replicated because it belongs to Kafka, Connect or MirrorMaker."""


@dataclass(frozen=True, slots=True)
class DefaultReplicationPolicy:
    separator: str = "."

    def __post_init__(self) -> None:
        if not self.separator:
            raise ValueError("the separator must not be empty")

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        """Everything before the first separator: a local name with a separator is taken for a remote one."""
        alias, separator, rest = topic.partition(self.separator)
        return alias if separator and alias and rest else None

    def upstream_topic(self, topic: str) -> str | None:
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def is_internal_topic(self, topic: str) -> bool:
        return is_internal_name(topic, self.separator)


@dataclass(frozen=True, slots=True)
class IdentityReplicationPolicy:
    """Names do not change, except of heartbeats: those of several clusters would merge. A name does not say where a
    topic comes from, so cycles are found by the lineage of cluster ids alone."""

    source_alias: str
    separator: str = "."

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}{self.separator}{topic}" if is_heartbeats_topic(topic) else topic

    def topic_source(self, topic: str) -> str | None:
        """The configured alias for every topic, as in MirrorMaker 2; of heartbeats, the alias in their name."""
        if is_heartbeats_topic(topic):
            return DefaultReplicationPolicy(self.separator).topic_source(topic)
        return self.source_alias

    def upstream_topic(self, topic: str) -> str | None:
        if is_heartbeats_topic(topic):
            return DefaultReplicationPolicy(self.separator).upstream_topic(topic)
        return topic

    def is_internal_topic(self, topic: str) -> bool:
        return is_internal_name(topic, self.separator)


class LegacyReplicationPolicy(IdentityReplicationPolicy):
    """The name of IdentityReplicationPolicy in KIP-382."""


def is_heartbeats_topic(topic: str) -> bool:
    return topic == HEARTBEATS or topic.endswith(f".{HEARTBEATS}")


def is_internal_name(topic: str, separator: str = ".") -> bool:
    """MirrorMaker 2's rule: names that no filter can include."""
    return topic.startswith(("__", ".")) or topic.endswith(("-internal", ".internal", f"{separator}internal"))


def hops(policy: ReplicationPolicy, topic: str) -> Iterator[str]:
    """Aliases of the clusters that a remote topic went through, the nearest first. Ends where a name does not change
    any more."""
    current: str | None = topic
    while current is not None:
        source, upstream = policy.topic_source(current), policy.upstream_topic(current)
        if source is None or upstream is None:
            return
        yield source
        if upstream == current:
            return
        current = upstream


def original_topic(policy: ReplicationPolicy, topic: str) -> str:
    """The topic's name in the cluster where its records were produced."""
    current = topic
    while (upstream := policy.upstream_topic(current)) is not None and upstream != current:
        current = upstream
    return current


def is_cycle(policy: ReplicationPolicy, topic: str, target_alias: str) -> bool:
    """Whether the topic went through the target already, by its name."""
    return target_alias in hops(policy, topic)
