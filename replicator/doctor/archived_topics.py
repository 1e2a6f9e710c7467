"""Which topics of a cluster egress archives, and which of them lose records by their age. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from formats.topic_selection import select
from infra.contracts.deployment import ClusterTopic
from replicator.config import Config
from replicator.doctor.facts import Unread


def archived(config: Config, topics: Mapping[str, ClusterTopic | Unread]) -> Mapping[str, ClusterTopic]:
    """Those that egress selects: what is excluded is not archived, whatever expression matches it. Raises
    PluginFailed."""
    if config.egress is None:
        return {}
    found = {name: one for name, one in topics.items() if isinstance(one, ClusterTopic)}
    return {name: found[name] for name in select(found, config.egress.rules, config.own_topics)}


def kept_for(config: Config, topics: Mapping[str, ClusterTopic | Unread]) -> Mapping[str, timedelta]:
    """retention.ms of the archived topics of which it removes records. Raises PluginFailed."""
    return {
        name: timedelta(milliseconds=int(one.configs["retention.ms"]))
        for name, one in archived(config, topics).items()
        if "delete" in one.configs.get("cleanup.policy", "") and int(one.configs.get("retention.ms", "-1")) > 0
    }
