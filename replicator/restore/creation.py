"""Which configs a destination is created with. Pure.

    --configs target    what keeps every record and its timestamp, and room for the largest record
    --configs archive   the same, over what was set at the source's topic and crosses to another cluster
    --configs none      only room for the largest record; everything else is the cluster's default

Configs that the user gives replace any of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from formats.policies.topic_configs import (
    CREATED_WITH,
    RETENTION,
    ConfigFilter,
    ConfigSource,
    ConfigValue,
    wanted_configs,
)
from replicator.restore.choices import ConfigMode

ROOM = "max.message.bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreation:
    """`configs`: all that the destination is created with. The others explain them, by the source's topic."""

    configs: Mapping[str, str] = field(default_factory=dict)
    source: Mapping[str, str] = field(default_factory=dict)  # those of `configs` that are the source's
    held: Mapping[str, str] = field(default_factory=dict)  # the source's value of those that are another one here
    excluded: Mapping[str, str] = field(default_factory=dict)  # set at the source, and not taken
    refused: Mapping[str, str] = field(default_factory=dict)  # the reason of the target for what it does not take

    def without(self, refused: Mapping[str, str]) -> TopicCreation:
        """The same without the configs of the source that the target refuses. `refused`: with its reasons."""
        return replace(
            self,
            configs={name: value for name, value in self.configs.items() if name not in refused},
            source={name: value for name, value in self.source.items() if name not in refused},
            refused={**self.refused, **refused},
        )


def topic_creation(
    mode: ConfigMode,
    *,
    room: Mapping[str, str],
    given: Mapping[str, str],
    source: Mapping[str, ConfigValue] | None = None,
    config_filter: ConfigFilter,
) -> TopicCreation:
    """`room`: what the largest record needs. `given`: by the user. `source`: configs of the source's topic; None: not
    known, and `archive` is the same as `target`."""
    if mode != ConfigMode.ARCHIVE or source is None:
        kept = {} if mode == ConfigMode.NONE else CREATED_WITH
        return TopicCreation(configs={**kept, **room, **given})
    wanted, _ = wanted_configs(source, config_filter, "target")
    needed = {name: value for name, value in room.items() if _number(wanted.get(name)) < int(value)}
    configs = {**wanted, **CREATED_WITH, **needed, **given}
    return TopicCreation(
        configs=configs,
        source={name: value for name, value in wanted.items() if configs[name] == value and name not in given},
        held={
            name: config.value
            for name, config in source.items()
            if name in configs
            and configs[name] != config.value
            and (config.source is ConfigSource.TOPIC or name in RETENTION)
        },
        excluded={
            name: config.value
            for name, config in source.items()
            if config.source is ConfigSource.TOPIC and name not in configs
        },
    )


def _number(value: str | None) -> int:
    return int(value) if value is not None and value.isdecimal() else -1
