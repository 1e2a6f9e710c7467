"""Names of remote topics: what a replicated topic is called in the target, and where a name comes from.

    DefaultReplicationPolicy     orders of us-east ──> us-east.orders ──> eu.us-east.orders
    IdentityReplicationPolicy    orders ──> orders
    LegacyReplicationPolicy      orders ──> orders, for clusters that MirrorMaker 1 mirrored: nothing but records cross

The methods and their answers are those of MirrorMaker 2's `ReplicationPolicy`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

HEARTBEATS = "heartbeats"
LONGEST_WAY = 250  # hops: more than a topic name has characters


class ReplicationPolicy(Protocol):
    """Names of remote topics. Methods are pure.

    A user's class has the first three methods; those that it inherits from here, or lacks, answer as MirrorMaker 2's
    interface does.
    """

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """What `topic` of the cluster `source_alias` is called in the target."""

    def topic_source(self, topic: str) -> str | None:
        """Alias of the cluster that a remote topic comes from; None for a topic that is not remote."""

    def upstream_topic(self, topic: str) -> str | None:
        """What a remote topic is called in the cluster that it comes from; None for a topic that is not remote."""

    def original_topic(self, topic: str) -> str:
        """The topic's name in the cluster where its records were produced."""
        current = topic
        for _ in range(LONGEST_WAY):
            upstream = self.upstream_topic(current)
            if upstream is None or upstream == current:
                break
            current = upstream
        return current

    def heartbeats_topic(self) -> str:
        return HEARTBEATS

    def offset_syncs_topic(self, cluster_alias: str) -> str:
        return f"mm2-offset-syncs.{cluster_alias}.internal"

    def checkpoints_topic(self, cluster_alias: str) -> str:
        return f"{cluster_alias}.checkpoints.internal"

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Whether the topic holds heartbeats, of this cluster or of any upstream."""
        return self.original_topic(topic) == self.heartbeats_topic()

    def is_checkpoints_topic(self, topic: str) -> bool:
        return topic.endswith(".checkpoints.internal")

    def is_mm2_internal_topic(self, topic: str) -> bool:
        """Whether MirrorMaker 2 keeps its own data in the topic."""
        return (topic.startswith("mm2") and topic.endswith(".internal")) or self.is_checkpoints_topic(topic)

    def is_internal_topic(self, topic: str) -> bool:
        """Whether the topic belongs to Kafka or MirrorMaker, or is hidden: an expression never selects it."""
        return self.is_mm2_internal_topic(topic) or _is_hidden(topic)


@dataclass(frozen=True, slots=True)
class DefaultReplicationPolicy(ReplicationPolicy):
    separator: str = "."

    def __post_init__(self) -> None:
        if not self.separator:
            raise ValueError("the separator must not be empty")

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        """Everything before the first separator: a local name with a separator is taken for a remote one, and of a name
        that begins with it the alias is empty, as in MirrorMaker 2."""
        alias, separator, rest = topic.partition(self.separator)
        return alias if separator and rest else None

    def upstream_topic(self, topic: str) -> str | None:
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def offset_syncs_topic(self, cluster_alias: str) -> str:
        return self.separator.join(("mm2-offset-syncs", cluster_alias, "internal"))

    def checkpoints_topic(self, cluster_alias: str) -> str:
        return self.separator.join((cluster_alias, "checkpoints", "internal"))

    def is_checkpoints_topic(self, topic: str) -> bool:
        return topic.endswith(self.checkpoints_topic(""))

    def is_mm2_internal_topic(self, topic: str) -> bool:
        return is_mm2_internal_name(topic, self.separator)


@dataclass(frozen=True, slots=True)
class IdentityReplicationPolicy(ReplicationPolicy):
    """Names do not change, except of topics that end with `heartbeats`: those of several clusters would merge. A name
    does not say where a topic comes from, so cycles are found by the lineage of cluster ids alone."""

    source_alias: str
    separator: str = "."

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return self._default.format_remote_topic(source_alias, topic) if _like_heartbeats(topic) else topic

    def topic_source(self, topic: str) -> str | None:
        """The configured alias for every topic, as in MirrorMaker 2; of heartbeats, the alias in their name."""
        return self._default.topic_source(topic) if _like_heartbeats(topic) else self.source_alias

    def upstream_topic(self, topic: str) -> str | None:
        return self._default.upstream_topic(topic) if _like_heartbeats(topic) else topic

    def offset_syncs_topic(self, cluster_alias: str) -> str:
        return self._default.offset_syncs_topic(cluster_alias)

    def checkpoints_topic(self, cluster_alias: str) -> str:
        return self._default.checkpoints_topic(cluster_alias)

    def is_checkpoints_topic(self, topic: str) -> bool:
        return self._default.is_checkpoints_topic(topic)

    def is_mm2_internal_topic(self, topic: str) -> bool:
        return is_mm2_internal_name(topic, self.separator)

    @property
    def _default(self) -> DefaultReplicationPolicy:
        return DefaultReplicationPolicy(self.separator)


class LegacyReplicationPolicy(IdentityReplicationPolicy):
    """The name of IdentityReplicationPolicy in KIP-382. Who chooses it wants MirrorMaker 1: records, nothing else."""


def is_internal_name(topic: str, separator: str = ".") -> bool:
    """MirrorMaker 2's rule: names that none of its filters can include."""
    return is_mm2_internal_name(topic, separator) or _is_hidden(topic)


def is_mm2_internal_name(topic: str, separator: str = ".") -> bool:
    """Names of the topics in which MirrorMaker 2 keeps its own data: offset-syncs and checkpoints."""
    suffix = f"{separator}internal"
    return (topic.startswith("mm2") and topic.endswith(suffix)) or topic.endswith(f"{separator}checkpoints{suffix}")


def _is_hidden(topic: str) -> bool:
    return topic.startswith(("__", "."))


def _like_heartbeats(topic: str) -> bool:
    return topic.endswith(HEARTBEATS)


def hops(policy: ReplicationPolicy, topic: str) -> Iterator[str]:
    """Aliases of the clusters that a remote topic went through, the nearest first. Ends where a name does not change
    any more."""
    current = topic
    for _ in range(LONGEST_WAY):
        source, upstream = policy.topic_source(current), policy.upstream_topic(current)
        if source is None or upstream is None:
            return
        yield source
        if upstream == current:
            return
        current = upstream


def is_cycle(policy: ReplicationPolicy, topic: str, target_alias: str) -> bool:
    """Whether the topic went through the target already, by its name."""
    return target_alias in hops(policy, topic)
