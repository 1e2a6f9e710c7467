"""The topics that a backfill is of: those of the request that egress archives."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from egress.settings import EgressTopicSettings
from formats.errors import ConfigError
from formats.topic_selection import TopicPattern, select
from infra.contracts.cluster import ClusterAdmin, describe_each
from replicator.absent_topics import absent_from_cluster
from replicator.config import Config


def selected_topics(
    admin: ClusterAdmin, wanted: Sequence[TopicPattern], config: Config
) -> Mapping[str, EgressTopicSettings]:
    """The wanted topics with their settings in [egress.topics]. Raises ConfigError for names that are not selected, and
    when nothing is; BrokerUnavailable."""
    assert config.egress is not None
    listed = admin.topics()
    by_name = {pattern.text for pattern in wanted if not pattern.is_expression}
    names = {name for name in listed if any(pattern.matches(name) for pattern in wanted)} | by_name
    chosen = select(names, config.egress.rules, config.own_topics)
    if missing := sorted(by_name - chosen.keys()):
        found, denied = describe_each(admin, missing)
        problems = [
            f"{name}: [egress.topics] does not select it: add it, and egress goes on"
            if name in found or name in denied
            else f"{name}: {absent_from_cluster(name, listed)}"
            for name in missing
        ]
        raise ConfigError(problems, source=config.source)
    if not chosen:
        raise ConfigError(["no topic of [egress.topics] matches"], source=config.source)
    return chosen


def require_partitions(
    wanted: Sequence[TopicPattern], partitions: Collection[int] | None, counts: Mapping[str, int], config: Config
) -> None:
    """Raises ConfigError when none of the topics that one of `wanted` selects has a partition of that number.
    `partitions`: None: all; `counts`: how many partitions each topic has."""
    problems: list[str] = []
    for pattern in wanted:
        mine = {name: count for name, count in counts.items() if pattern.matches(name)}
        absent = [number for number in sorted(partitions or ()) if mine and number >= max(mine.values())]
        if absent:
            has = ", ".join(f"{name} has {count}" for name, count in sorted(mine.items()))
            numbers = ", ".join(map(str, absent))
            last = max(mine.values()) - 1
            problems.append(f"--partition {numbers}: {has} partitions: give numbers from 0 to {last}")
    if problems:
        raise ConfigError(problems, source=config.source)
