"""What is said of the name of a topic that a user gave, and that does not exist. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from formats.topic_selection import is_internal
from infra.settings.field import suggestion


def absent_from_cluster(name: str, existing: Iterable[str]) -> str:
    """That the cluster has no topic `name`, with those of the `existing` topics that are nearest to it."""
    near = suggestion(name, sorted(topic for topic in existing if not is_internal(topic, ())))
    return f"no topic of this name is on the cluster{near}"
