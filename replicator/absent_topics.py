"""The messages about the name of a topic that a user gave, and that does not exist. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from formats.topic_selection import TopicPattern, is_internal
from infra.settings.field import suggestion

MOST_NAMED = 5  # topics, or regions, in one message


def absent_from_cluster(name: str, existing: Iterable[str]) -> str:
    """That the cluster has no topic `name`, with those of the `existing` topics that are nearest to it."""
    return f"no topic of this name is on the cluster{_nearest(name, existing)}"


def absent_from_source(name: str, region: str, existing: Iterable[str]) -> str:
    """That neither archive nor catalogue of the region, which have the `existing` topics, has a topic `name`."""
    return f"neither the archive nor the catalogue of {region} has a topic {name}{_nearest(name, existing)}"


def _nearest(name: str, existing: Iterable[str]) -> str:
    return suggestion(name, sorted(topic for topic in existing if not is_internal(topic, ())))


def absent_from_archive(pattern: TopicPattern, stored: Collection[str]) -> str:
    """What follows the place where nothing is stored of `pattern`: the `stored` topic that was probably meant, and a
    few of those that there are; empty where nothing is stored."""
    if not stored:
        return ""
    near = "" if pattern.is_expression else suggestion(pattern, sorted(stored))
    return f"{near}; stored there: {some_names(stored)}"


def some_names(names: Collection[str]) -> str:
    """The first of `names`, in their order by text."""
    return ", ".join(sorted(names)[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
