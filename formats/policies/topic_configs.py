"""Which configs of a source topic cross, and what changes at the target.

    source                                  target has      change
    set at the source's topic               another value   set
    default there, use_defaults = target    a topic config  unset     if we set it: `ingress.catalog.differ`
    default there, use_defaults = source    another value   set
    excluded, or of the source's brokers    anything        none

Pure. The rules are MirrorMaker 2's, with one difference: configs that the source's brokers set for all of their topics
(dynamic and static broker configs) do not become configs of the target's topics, since they describe those brokers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from formats.topic_selection import NameMatcher

UseDefaults = Literal["target", "source"]

DEFAULT_EXCLUDES = (  # MirrorMaker 2's, as its class has them: replication of the brokers, and what protects a cluster
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "message.timestamp.difference.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms",
    "message.timestamp.type",
    "unclean.leader.election.enable",
    "min.insync.replicas",
)
FOREVER = str(2**63 - 1)
KEEPS_TIMESTAMPS: Mapping[str, str] = {
    # old and future timestamps pass unchanged, and a timestamp of last year does not make the broker delete the record
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": FOREVER,
    "message.timestamp.after.max.ms": FOREVER,
}
"""What a destination needs; the source's values never replace it."""
RETENTION_MS = "retention.ms"
RETENTION = (RETENTION_MS, "retention.bytes")
FLOORS = frozenset({"max.message.bytes"})
"""Configs whose value in force at the source is the least that the target needs, wherever it is set there; a larger one
stays, since an operator raised it."""
CREATED_WITH: Mapping[str, str] = {**KEEPS_TIMESTAMPS, **dict.fromkeys(RETENTION, "-1")}
"""Configs of every topic that we create, over those of its source: it keeps everything until its first copy is
through."""


class ConfigSource(StrEnum):
    """Where a config's value comes from, as Kafka reports it."""

    TOPIC = "topic"
    DYNAMIC_BROKER = "dynamic-broker"
    DYNAMIC_DEFAULT_BROKER = "dynamic-default-broker"
    STATIC_BROKER = "static-broker"
    DEFAULT = "default"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, order=True)
class ConfigValue:
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """What has to change at one target topic."""

    set: Mapping[str, str] = field(default_factory=dict)
    unset: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.set or self.unset)


@dataclass(frozen=True, slots=True)
class ConfigFilter:
    """Names of configs that cross. Raises ValueError for an expression that does not compile."""

    exclude: Sequence[str] = DEFAULT_EXCLUDES  # expressions that match a whole name
    refused: NameMatcher | None = None  # by a user's filter
    # one by one: joined, an expression that begins with a flag does not compile, and groups have other numbers
    _compiled: Sequence[re.Pattern[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_compiled", tuple(map(_compile, self.exclude)))

    def crosses(self, name: str) -> bool:
        """Raises PluginFailed."""
        if name in KEEPS_TIMESTAMPS or any(one.fullmatch(name) is not None for one in self._compiled):
            return False
        return self.refused is None or not self.refused.matches(name)


def _compile(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{expression!r} is not an expression: {error}") from error


def wanted_configs(
    source: Mapping[str, ConfigValue], filter_: ConfigFilter, use_defaults: UseDefaults
) -> tuple[Mapping[str, str], frozenset[str]]:
    """The configs that the target's topic should have, and those that it should not have. Raises PluginFailed."""
    wanted: dict[str, str] = {}
    unwanted: set[str] = set()
    for name, config in source.items():
        if not filter_.crosses(name):
            continue
        is_default = use_defaults == "source" and config.source is ConfigSource.DEFAULT
        if config.source is ConfigSource.TOPIC or is_default:
            wanted[name] = config.value
        else:
            unwanted.add(name)
    return wanted, frozenset(unwanted)


def with_floors(
    sources: Sequence[Mapping[str, ConfigValue]], wanted: Mapping[str, str], unwanted: Collection[str]
) -> tuple[Mapping[str, str], frozenset[str]]:
    """The same with the configs in FLOORS as they are in force at the sources of the topic, also by their brokers or by
    default, so that records which any of them accepted are delivered."""
    floors = {
        name: max(values, key=_as_number)
        for name in FLOORS
        if (values := [source[name].value for source in sources if name in source])
    }
    return {**wanted, **floors}, frozenset(unwanted) - floors.keys()


def _as_number(value: str) -> int:
    """Of a floor; what is no number is below any."""
    return int(value) if value.isdecimal() else -1


def config_change(
    wanted: Mapping[str, str],
    unwanted: Collection[str],
    actual: Mapping[str, ConfigValue],
    *,
    keep: Collection[str] = (),
) -> ConfigChange:
    """What makes the target's topic as wanted. `keep`: names that are decided elsewhere, such as a retention that is
    held back until the first copy is through."""
    set_ = {
        name: value
        for name, value in wanted.items()
        if name not in keep and not _is_there(name, value, actual.get(name))
    }
    unset = {
        name
        for name in unwanted
        if name not in keep and (now := actual.get(name)) is not None and now.source is ConfigSource.TOPIC
    }
    return ConfigChange(set_, frozenset(unset))


def _is_there(name: str, value: str, now: ConfigValue | None) -> bool:
    if now is None:
        return False
    if name in FLOORS and value.isdecimal() and now.value.isdecimal():
        return int(now.value) >= int(value)
    return now.value == value
