"""What a running service takes over of a changed configuration, and what needs a restart. Pure.

    running ─┬─> differences ─> settings that reload      applied: `merged` has them
    changed ─┘                  settings that do not      named; `merged` has those of before

`infra.settings.field.setting` says which settings reload.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from formats.topic_selection import TopicRule
from infra.settings.field import dotted, of, settings_of
from infra.settings.secrets import Path as KeyPath
from replicator.config.settings import Config

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")

_ALL = ("region", "s3", "encryption", "kafka", "format", "format_options", "metrics", "log")
_OWN_NAMES = tuple(
    ("ingress", name)
    for name in ("segment_events_topic", "checkpoint_topic", "offset_map_topic", "ledger_topic", "group_id")
)
EGRESS: Collection[KeyPath] = frozenset(
    {*((name,) for name in (*_ALL, "created_by", "egress", "schema_registry")), *_OWN_NAMES}
)
INGRESS: Collection[KeyPath] = frozenset((name,) for name in (*_ALL, "sqs", "ingress", "groups"))
"""What each service reads of the file: a section, or one of its settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """`config` is in force from now on. The others are the paths of the settings that differ."""

    config: Config
    applied: Sequence[str]
    needs_restart: Sequence[str]


def reload(running: Config, changed: Config, reads: Collection[KeyPath]) -> Reload:
    """`reads`: EGRESS or INGRESS; other settings are of no interest. Raises Invalid when what reloads contradicts what
    would need a restart, too."""
    found = [(path, reloads) for path, reloads in differences(running, changed) if _is_read(path, reads)]
    applied = [dotted(path) for path, reloads in found if reloads]
    return Reload(
        config=merged(running, changed) if applied else running,
        applied=applied,
        needs_restart=[dotted(path) for path, reloads in found if not reloads],
    )


def differences(
    before: DataclassInstance, after: DataclassInstance, path: KeyPath = ()
) -> Iterator[tuple[KeyPath, bool]]:
    """The path of each setting that differs, and whether it reloads, in the order of the file."""
    for name, field in settings_of(type(before)).items():
        one, other = getattr(before, name), getattr(after, name)
        if one == other:
            continue
        here = path if name == "base" else (*path, name)  # [kafka] holds the properties of every client itself
        if of(field).reloads:
            yield from ((each, True) for each in _parts(one, other, here))
        elif _is_settings(one) and _is_settings(other):
            yield from differences(one, other, here)
        else:
            yield from ((each, False) for each in _parts(one, other, here))


def merged(before: S, after: S) -> S:
    """`before` with the settings of `after` that reload. Raises Invalid."""
    values: dict[str, Any] = {}
    for name, field in settings_of(type(before)).items():
        one, other = getattr(before, name), getattr(after, name)
        if one == other:
            continue
        if of(field).reloads:
            values[name] = other
        elif _is_settings(one) and _is_settings(other):
            values[name] = merged(one, other)
    return replace(before, **values) if values else before


def _parts(one: object, other: object, path: KeyPath) -> Iterator[KeyPath]:
    """The paths below a setting that differs: of properties and of topics' tables those that differ, else itself."""
    before, after = _by_name(one), _by_name(other)
    names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    if names:
        yield from ((*path, name) for name in names)
    else:
        yield path  # one value, or tables in another order: the first expression that matches wins


def _by_name(value: object) -> Mapping[str, object]:
    match value:
        case Mapping():
            return value
        case tuple() if any(isinstance(one, TopicRule) for one in value):
            return {rule.pattern.text: rule.settings for rule in value}
        case _:
            return {}


def _is_settings(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type) and bool(settings_of(type(value)))


def _is_read(path: KeyPath, reads: Collection[KeyPath]) -> bool:
    return any(path[: len(one)] == one for one in reads)
