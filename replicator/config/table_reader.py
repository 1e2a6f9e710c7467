"""Reads tables of a file into settings and collects every problem, each with its path.

An invalid value falls back to its default while reading continues, so that one mistake does not hide the next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from formats.topic_selection import TopicPattern, TopicRule
from infra.settings.field import UNKNOWN, Invalid, dotted, of, outside_limits, settings_of
from infra.settings.secrets import Path as KeyPath
from replicator.config.convert import convert, flattened, kind
from replicator.config.unknown_key import unknown_key

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")


class TableReader:
    """Reads the tables of one file and collects `problems`. Every method returns None for invalid or missing parts."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.variables: dict[str, list[str]] = {}  # unset variable -> paths that need it

    def problem(self, path: KeyPath, what: str) -> None:
        self.problems.append(f"{dotted(path)}: {what}" if path else what)

    def unset(self, path: KeyPath, variable: str) -> None:
        paths = self.variables.setdefault(variable, [])
        if dotted(path) not in paths:
            paths.append(dotted(path))

    def messages(self, where: Callable[[str], str]) -> list[str]:
        """All problems without duplicates. Problems of a setting whose variable is not set are left out. `where`: the
        path in the file of a path that was read."""
        lacking = {path for paths in self.variables.values() for path in paths}
        missing = [
            f"{where(first)}: the environment variable {name} is not set"
            + (f" (also for {', '.join(map(where, rest))})" if rest else "")
            for name, (first, *rest) in self.variables.items()
        ]
        split = [problem.partition(": ") for problem in self.problems]
        own = [f"{where(path)}: {what}" for path, _, what in split if path not in lacking or UNKNOWN in what]
        return list(dict.fromkeys([*missing, *own]))

    def values(
        self,
        cls: type[DataclassInstance],
        raw: object,
        path: KeyPath,
        *,
        own: Collection[str] = (),
        given: Collection[str] = (),
        partial: bool = False,
        deeper: type[DataclassInstance] | None = None,
    ) -> dict[str, Any] | None:
        """The valid settings of `cls` in the table `raw`; None if a required one is missing or invalid.

        Keys in `own` are read by the caller; those in `given` have a value already; with `partial` nothing is required.
        `deeper` are the settings of the first two of `own`: a key of theirs that is set here is one table too high.
        """
        if not isinstance(raw, dict):
            self.problem(path, f"must be a table, not {kind(raw)}")
            return None
        fields = settings_of(cls)
        for key, value in raw.items():
            if deeper is not None and key not in (*fields, *own) and key in settings_of(deeper):
                self.problem(
                    (*path, key), "belongs one table deeper, into " + " or ".join(f'"{one}"' for one in (*own,)[:2])
                )
            elif key not in fields and key not in own:
                self.problem((*path, key), unknown_key(key, value, path, [*fields, *own]))
        hints = get_type_hints(cls)
        values: dict[str, Any] = {}
        complete = True
        for name, field in fields.items():
            if name in own:
                continue
            if name in raw:
                try:
                    value = convert(hints[name], of(field), raw[name])
                    what = outside_limits(field, value)
                    if what is None:
                        values[name] = value
                        continue
                    self.problem((*path, name), what)
                except ValueError as error:
                    self.problem((*path, name), str(error))
                complete = complete and not _is_required(field)
            elif _is_required(field) and name not in given and not partial:
                self.problem((*path, name), f"missing: {of(field).doc}")
                complete = False
        return values if complete or partial else None

    def section(
        self, cls: type[S], raw: object, path: KeyPath, defaults: Mapping[str, object] | None = None
    ) -> S | None:
        values = self.values(cls, raw, path, given=defaults or {})
        return None if values is None else self.built(cls, {**(defaults or {}), **values}, path)

    def built(self, cls: type[S], values: Mapping[str, Any], path: KeyPath) -> S | None:
        try:
            return cls(**values)
        except Invalid as invalid:
            self.problems += [
                ".".join(filter(None, (dotted(path), where))) + f": {what}" for where, what in invalid.problems
            ]
            return None

    def properties(self, raw: object, path: KeyPath) -> dict[str, str]:
        """librdkafka properties as text. `a.b = 1` without quotes is nested tables in TOML, and means "a.b" here."""
        if not isinstance(raw, dict):
            self.problem(path, f"must be a table, not {kind(raw)}")
            return {}
        flat: dict[str, str] = {}
        for name, value in flattened(raw):
            if name in flat:
                self.problem((*path, name), "is set twice, with quotes and without")
            match value:
                case bool():
                    flat[name] = "true" if value else "false"
                case str() | int() | float():
                    flat[name] = str(value)
                case _:
                    self.problem((*path, name), f"must be a text, a number, true or false, not {kind(value)}")
        return flat

    def topic_rules(
        self, cls: type[S], raw: Mapping[str, object], path: tuple[str, ...]
    ) -> tuple[TopicRule[S], ...] | None:
        """The rules of the tables below `topics`, completed by the values of `defaults`."""
        defaults = self.values(cls, raw.get("defaults", {}), (*path, "defaults")) or {}
        topics = raw.get("topics", {})
        if not isinstance(topics, dict):
            self.problem((*path, "topics"), f'must be tables such as [{path[0]}.topics."name"], not {kind(topics)}')
            return None
        rules = []
        for text, table in topics.items():
            here = (*path, "topics", text)
            pattern = self.pattern(text, here)
            settings = self.section(cls, table, here, defaults)
            if pattern is not None and settings is not None:
                rules.append(TopicRule(pattern, settings))
        return None if topics and not rules else tuple(rules)

    def pattern(self, text: str, path: KeyPath) -> TopicPattern | None:
        try:
            return TopicPattern(text)
        except ValueError as error:
            self.problem(path, str(error))
            return None


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING
