"""A user's filters: each decides about a topic, a consumer group or a config, besides the rules of the configuration.

A filter is named `package.module:Class`, or by an entry point of `replicator.filters`, and created without arguments.
What it refuses is excluded, as by the user's own excludes: it beats names and expressions. The methods are those of
MirrorMaker 2's `TopicFilter`, `GroupFilter` and `ConfigPropertyFilter`, in Python's spelling; one may have several.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from formats.plugins import FILTERS, Plugin, plugin


class TopicFilter(Protocol):
    """A user's class. Its method is pure: the same answer for the same name, in every process."""

    def should_replicate_topic(self, topic: str) -> bool: ...


class GroupFilter(Protocol):
    """As `TopicFilter`, of consumer groups."""

    def should_replicate_group(self, group: str) -> bool: ...


class ConfigPropertyFilter(Protocol):
    """As `TopicFilter`, of names of topic configs."""

    def should_replicate_config_property(self, prop: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class RefusedByFilter:
    """Matches the names that a user's filter refuses."""

    plugin: Plugin
    setting: str
    method: str

    def matches(self, name: str) -> bool:
        """Raises PluginFailed."""
        return not self.plugin.boolean(self.method, name)

    def __str__(self) -> str:
        return f"of {self.setting} {self.plugin.name}"


def topic_filter(name: str) -> RefusedByFilter:
    """The filter of the class `name`. Raises ValueError when it is not found, lacks its method, or cannot be
    created."""
    return _filter(name, "topic_filter", "should_replicate_topic")


def group_filter(name: str) -> RefusedByFilter:
    """As `topic_filter`."""
    return _filter(name, "group_filter", "should_replicate_group")


def config_property_filter(name: str) -> RefusedByFilter:
    """As `topic_filter`."""
    return _filter(name, "config_property_filter", "should_replicate_config_property")


@lru_cache(maxsize=64)
def _filter(name: str, setting: str, method: str) -> RefusedByFilter:
    return RefusedByFilter(plugin(name, (method,), {}, group=FILTERS), setting, method)
