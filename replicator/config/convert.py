"""Converts a value of a file to the type of its setting, or raises ValueError with the expected type."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Literal

from compaction.retention_settings import HeldOffsets
from egress.settings import StartPolicy
from formats.group_selection import GroupPattern
from formats.topic_selection import TopicPattern
from infra.settings.field import FieldInfo, suggestion
from infra.settings.units import DURATION_EXAMPLES, SIZE_EXAMPLES, parse_duration, parse_size

_LARGEST = 2**63 - 1  # TOML's own limit


def convert(hint: object, known: FieldInfo, raw: object) -> object:
    """Convert `raw` to `hint`, the resolved annotation. Errors never quote a text of the wrong type: it may be a
    secret."""
    hint, optional = _without_none(hint)
    if raw is None and optional:
        return None
    if hint == StartPolicy:
        return _start(raw)
    if typing.get_origin(hint) is Literal:
        return _choice(typing.get_args(hint), known, raw)
    if typing.get_origin(hint) is tuple:
        return _list(typing.get_args(hint)[0], known, raw)
    if typing.get_origin(hint) is Mapping:
        if not isinstance(raw, dict):
            raise ValueError(f"must be a table, not {kind(raw)}")
        return dict(raw)
    if hint is timedelta:
        return _duration(raw)
    if hint is bool:
        if not isinstance(raw, bool):
            raise ValueError(f"must be true or false, not {kind(raw)}")
        return raw
    if hint is int:
        return _size(raw) if known.is_size else _integer(raw)
    if hint is Path and isinstance(raw, Path):
        return raw
    if hint in (HeldOffsets, TopicPattern, GroupPattern) and isinstance(raw, HeldOffsets | TopicPattern):
        return raw
    text = _text(raw)
    if hint is Path:
        if not text or "\0" in text:
            raise ValueError("must be a path")
        return Path(text)
    if hint is HeldOffsets:
        return HeldOffsets.parse(text)
    if hint is GroupPattern:
        return GroupPattern(text)
    return TopicPattern(text) if hint is TopicPattern else text


def flattened(table: Mapping[str, object], head: str = "") -> Iterator[tuple[str, object]]:
    """The values of nested tables, by dotted names."""
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from flattened(value, f"{head}{key}.")
        else:
            yield f"{head}{key}", value


def kind(raw: object) -> str:
    """The name of the type for an author of TOML."""
    match raw:
        case bool():
            return "true or false"
        case int():
            return "a whole number"
        case float():
            return "a decimal number"
        case str():
            return "a text"
        case dict():
            return "a table"
        case list() | tuple():
            return "a list"
        case date():
            return "a date"
        case None:
            return "nothing"
        case _:
            return f"a {type(raw).__name__}"


def _without_none(hint: object) -> tuple[object, bool]:
    if typing.get_origin(hint) not in (types.UnionType, typing.Union) or hint == StartPolicy:
        return hint, False
    rest = [arg for arg in typing.get_args(hint) if arg is not type(None)]
    return (rest[0], True) if len(rest) == 1 else (hint, False)


def _text(raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError(f"must be a text in quotes, not {kind(raw)}")
    return raw


def _integer(raw: object) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise ValueError(f"must be a whole number, not {kind(raw)}")
    if abs(raw) > _LARGEST:
        raise ValueError(f"must be at most {_LARGEST}")
    return raw


def _size(raw: object) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        raise ValueError(f"must be a size, such as {SIZE_EXAMPLES}, not {kind(raw)}")
    return _integer(parse_size(raw))


def _duration(raw: object) -> timedelta:
    if isinstance(raw, timedelta):
        return raw
    if isinstance(raw, str):
        return parse_duration(raw)
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        raise ValueError(f"needs a unit, such as {DURATION_EXAMPLES}")
    raise ValueError(f"must be a duration, such as {DURATION_EXAMPLES}, not {kind(raw)}")


def _choice(choices: tuple[str, ...], known: FieldInfo, raw: object) -> str:
    listed = " or ".join(f'"{choice}"' for choice in choices)
    if not isinstance(raw, str):
        raise ValueError(f"must be {listed}, not {kind(raw)}")
    if raw in known.refused:
        raise ValueError(f"{raw!r} {known.refused[raw]}")
    if raw not in choices:
        raise ValueError(f"must be {listed}, not {raw!r}{suggestion(raw, choices)}")
    return raw


def _start(raw: object) -> object:
    if isinstance(raw, datetime) or raw in ("earliest", "latest"):
        return raw
    wanted = 'must be "earliest", "latest" or a time with zone such as "2026-01-31T12:00:00Z"'
    if not isinstance(raw, str):
        raise ValueError(f"{wanted}, not {kind(raw)}")
    try:
        return datetime.fromisoformat(raw)
    except ValueError:
        raise ValueError(f"{wanted}, not {raw!r}{suggestion(raw, ('earliest', 'latest'))}") from None


def _list(hint: object, known: FieldInfo, raw: object) -> tuple[object, ...]:
    if not isinstance(raw, list | tuple):
        raise ValueError(f"must be a list, not {kind(raw)}")
    values, problems = [], []
    for n, item in enumerate(raw):
        try:
            values.append(convert(hint, known, item))
        except ValueError as error:
            problems.append(f"item {n}: {error}")
    if problems:
        raise ValueError("; ".join(problems))
    return tuple(values)
