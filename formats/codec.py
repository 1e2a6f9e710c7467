"""Messages and control objects as JSON with a version: sorted keys and no blanks, so that one value has one form.

    {"field": …, "v": 1}     a codec is made of a dataclass: its fields by their names, times as ISO 8601

A decoder passes over fields that it does not know, since a newer program may add some, and refuses another version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from datetime import datetime
from enum import StrEnum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from formats.errors import MalformedEvent

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

VERSION = 1
SHOWN = 200  # bytes of what is malformed

T = TypeVar("T", bound="DataclassInstance")
FromJson = Callable[[Any], object]


def dump(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def load(data: bytes) -> dict[str, Any]:
    """Of this version. Raises what `malformed` translates."""
    said: dict[str, Any] = json.loads(data)
    if said["v"] != VERSION:
        raise ValueError(f"version {said['v']}, this program reads {VERSION}")
    return said


@contextmanager
def malformed(what: str, data: bytes) -> Iterator[None]:
    """For the block that decodes `data`: whatever is wrong with it is a MalformedEvent, "not {what}: …"."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedEvent(f"not {what}: {data[:SHOWN]!r} ({error})") from error


class Codec(Generic[T]):
    """Values of one dataclass, whose fields are numbers, text, truth values, times, words of an enumeration, lists of
    text, or None where their type allows it."""

    def __init__(
        self,
        kind: type[T],
        what: str,
        *,
        outside: Collection[str] = (),
        added: Collection[str] = (),
        omitted: Collection[str] = (),
    ) -> None:
        """`what`: for errors; may name fields that are `outside`, which means: not in the message, but known from its
        key. Older programs did not write the fields that were `added`; those that are `omitted` are in the message only
        when they are not at their default. A decoder takes the default of both where they are absent."""
        hints = get_type_hints(kind)
        self._kind, self._what = kind, what
        self._written = tuple(field.name for field in fields(kind) if field.name not in outside)
        self._from_json = {name: _from_json(hints[name]) for name in self._written}
        self._defaults = {field.name: field.default for field in fields(kind) if field.name in {*added, *omitted}}
        self._omitted = frozenset(omitted)
        if MISSING in self._defaults.values():
            raise TypeError(f"{kind.__name__}: a field that may be absent has a default")

    def encode(self, value: T) -> bytes:
        found = {name: getattr(value, name) for name in self._written}
        said = {
            name: _to_json(one)
            for name, one in found.items()
            if not (name in self._omitted and one == self._defaults[name])
        }
        return dump(said | {"v": VERSION})

    def decode(self, data: bytes, **outside: object) -> T:
        """Raises MalformedEvent, also for another version and for a value that its dataclass refuses."""
        with malformed(self._what.format_map(outside), data):
            said = load(data)
            read = {
                name: from_json(said[name])
                for name, from_json in self._from_json.items()
                if name in said or name not in self._defaults
            }
            return self._kind(**read, **outside)


def _to_json(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _from_json(kind: Any) -> FromJson:
    """What makes a field's value of what JSON says."""
    if isinstance(kind, UnionType):
        (known,) = (one for one in get_args(kind) if one is not NoneType)
        inner = _from_json(known)
        return lambda said: None if said is None else inner(said)
    if get_origin(kind) is tuple:
        inner = _from_json(get_args(kind)[0])
        return lambda said: tuple(map(inner, said))
    if kind is datetime:
        return datetime.fromisoformat
    if kind in (int, str, bool) or issubclass(kind, StrEnum):
        plain: FromJson = kind
        return plain
    raise TypeError(f"no codec for {kind}")
