"""Replication policies by the name that the configuration gives them.

    default, DefaultReplicationPolicy              <alias><separator><topic>
    identity, IdentityReplicationPolicy            <topic>
    LegacyReplicationPolicy                        <topic>, and nothing but records crosses
    package.module:Class                           a user's: Class(source_alias=…, separator=…)
    any other name                                 a user's: an entry point of replicator.policies

Kafka's class names are accepted with their Java packages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from formats.errors import PluginFailed
from formats.plugins import POLICIES, SIGN, Plugin, installed, plugin
from formats.policies.names import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    LegacyReplicationPolicy,
    ReplicationPolicy,
)

REQUIRED = ("format_remote_topic", "topic_source", "upstream_topic")
SAMPLE = "orders"  # the name that a policy is tried with

_Make = Callable[[str, str], ReplicationPolicy]  # of alias and separator
_POLICIES: Mapping[str, _Make] = {
    "default": lambda _, separator: DefaultReplicationPolicy(separator),
    "identity": IdentityReplicationPolicy,
    "DefaultReplicationPolicy": lambda _, separator: DefaultReplicationPolicy(separator),
    "IdentityReplicationPolicy": IdentityReplicationPolicy,
    "LegacyReplicationPolicy": LegacyReplicationPolicy,
}


@lru_cache(maxsize=256)
def replication_policy(name: str, source_alias: str, separator: str) -> ReplicationPolicy:
    """The policy for topics of the cluster `source_alias`. Raises ValueError for a name or a class that is no policy,
    and for an alias that the policy would not find again in the names that it gives."""
    make = None if SIGN in name else _POLICIES.get(name.rpartition(".")[2])
    policy: ReplicationPolicy
    if make is not None:
        policy = make(source_alias, separator)
    elif SIGN in name or name in (own := installed(POLICIES)):
        arguments = {"source_alias": source_alias, "separator": separator}
        policy = UserPolicy(plugin(name, REQUIRED, arguments, group=POLICIES))
    else:
        known = ", ".join(f'"{one}"' for one in ("default", "identity", "LegacyReplicationPolicy", *own))
        raise ValueError(f'{name!r} is no replication policy: must be {known} or "package.module:Class"')
    _try(policy, name, source_alias, separator)
    return policy


def _try(policy: ReplicationPolicy, name: str, alias: str, separator: str) -> None:
    """Raises ValueError unless the policy finds alias and topic again in a name that it gave."""
    try:
        remote = policy.format_remote_topic(alias, SAMPLE)
        found = policy.topic_source(remote), policy.upstream_topic(remote)
    except PluginFailed as error:
        raise ValueError(str(error)) from error
    if found != (alias, SAMPLE):
        hint = ""
        if isinstance(policy, DefaultReplicationPolicy):
            hint = f": an alias must not contain the separator {separator!r}; set another alias or separator"
        raise ValueError(
            f"{name!r} calls {SAMPLE} of {alias} {remote}, and takes that name for {found[1]} of {found[0]}{hint}"
        )


@dataclass(frozen=True, slots=True)
class UserPolicy(ReplicationPolicy):
    """A user's class. Methods that it lacks answer as MirrorMaker 2's interface does. Each raises PluginFailed."""

    plugin: Plugin

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return self.plugin.text("format_remote_topic", source_alias, topic)

    def topic_source(self, topic: str) -> str | None:
        return self.plugin.text_or_none("topic_source", topic)

    def upstream_topic(self, topic: str) -> str | None:
        return self.plugin.text_or_none("upstream_topic", topic)

    def original_topic(self, topic: str) -> str:
        if self.plugin.has("original_topic"):
            return self.plugin.text("original_topic", topic)
        return ReplicationPolicy.original_topic(self, topic)

    def heartbeats_topic(self) -> str:
        if self.plugin.has("heartbeats_topic"):
            return self.plugin.text("heartbeats_topic")
        return ReplicationPolicy.heartbeats_topic(self)

    def offset_syncs_topic(self, cluster_alias: str) -> str:
        if self.plugin.has("offset_syncs_topic"):
            return self.plugin.text("offset_syncs_topic", cluster_alias)
        return ReplicationPolicy.offset_syncs_topic(self, cluster_alias)

    def checkpoints_topic(self, cluster_alias: str) -> str:
        if self.plugin.has("checkpoints_topic"):
            return self.plugin.text("checkpoints_topic", cluster_alias)
        return ReplicationPolicy.checkpoints_topic(self, cluster_alias)

    def is_heartbeats_topic(self, topic: str) -> bool:
        if self.plugin.has("is_heartbeats_topic"):
            return self.plugin.boolean("is_heartbeats_topic", topic)
        return ReplicationPolicy.is_heartbeats_topic(self, topic)

    def is_checkpoints_topic(self, topic: str) -> bool:
        if self.plugin.has("is_checkpoints_topic"):
            return self.plugin.boolean("is_checkpoints_topic", topic)
        return ReplicationPolicy.is_checkpoints_topic(self, topic)

    def is_mm2_internal_topic(self, topic: str) -> bool:
        if self.plugin.has("is_mm2_internal_topic"):
            return self.plugin.boolean("is_mm2_internal_topic", topic)
        return ReplicationPolicy.is_mm2_internal_topic(self, topic)

    def is_internal_topic(self, topic: str) -> bool:
        if self.plugin.has("is_internal_topic"):
            return self.plugin.boolean("is_internal_topic", topic)
        return ReplicationPolicy.is_internal_topic(self, topic)
