"""A user's topic filter: decides about each topic, besides the rules of the configuration.

It is named `package.module:Class`, and created without arguments. What it refuses is excluded, as by the user's own
excludes: it beats names and expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from formats.plugins import Plugin, plugin

METHOD = "should_replicate_topic"  # the name in MirrorMaker 2's TopicFilter, in Python's spelling


class TopicFilter(Protocol):
    """A user's class. Its method is pure: the same answer for the same name, in every process."""

    def should_replicate_topic(self, topic: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class RefusedByFilter:
    """Matches the topics that a user's filter refuses."""

    plugin: Plugin

    def matches(self, name: str) -> bool:
        """Raises PluginFailed."""
        return not self.plugin.boolean(METHOD, name)

    def __str__(self) -> str:
        return f"of topic_filter {self.plugin.name}"


@lru_cache(maxsize=64)
def topic_filter(name: str) -> RefusedByFilter:
    """The filter of the class `name`. Raises ValueError when it is not found, lacks its method, or cannot be
    created."""
    return RefusedByFilter(plugin(name, (METHOD,), {}))
