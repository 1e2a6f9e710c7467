"""Messages and control objects as versioned JSON: sorted keys and no whitespace, so that one value has one encoding.

    {"field": …, "v": 1}     a codec is built from a dataclass: fields by name, times in ISO 8601

A decoder ignores unknown fields, since a newer program may add some, and rejects another version.
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
QUOTED_BYTES = 200  # of the malformed input, in an error

T = TypeVar("T", bound="DataclassInstance")
FromJson = Callable[[Any], object]


def dump(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def load(data: bytes) -> dict[str, Any]:
    """Parse an object of this version. Raises only errors that `malformed` translates."""
    message: dict[str, Any] = json.loads(data)
    if message["v"] != VERSION:
        raise ValueError(f"version {message['v']}, this program reads {VERSION}")
    return message


@contextmanager
def malformed(what: str, data: bytes) -> Iterator[None]:
    """Around the block that decodes `data`: translates its errors to MalformedEvent, "not {what}: …"."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise MalformedEvent(f"not {what}: {data[:QUOTED_BYTES]!r} ({error})") from error


class Codec(Generic[T]):
    """Encodes and decodes one dataclass. Its fields are int, str, bool, datetime, StrEnum or a tuple of one of these,
    or None where the type allows it."""

    def __init__(
        self,
        kind: type[T],
        what: str,
        *,
        outside: Collection[str] = (),
        added: Collection[str] = (),
        omitted: Collection[str] = (),
    ) -> None:
        """`what` names the message in errors and may refer to `outside` fields as `{field}`. Field names in `outside`
        are not in the message but known from its key. Fields in `added` are absent from messages of older programs;
        fields in `omitted` are written only when they differ from their default. When a field of either kind is
        absent, the decoder uses its default."""
        hints = get_type_hints(kind)
        self._kind, self._what = kind, what
        self._written = tuple(field.name for field in fields(kind) if field.name not in outside)
        self._from_json = {name: _from_json(hints[name]) for name in self._written}
        self._defaults = {field.name: field.default for field in fields(kind) if field.name in {*added, *omitted}}
        self._omitted = frozenset(omitted)
        if MISSING in self._defaults.values():
            raise TypeError(f"{kind.__name__}: a field that may be absent needs a default")

    def encode(self, value: T) -> bytes:
        values = {name: getattr(value, name) for name in self._written}
        message = {
            name: _to_json(value)
            for name, value in values.items()
            if not (name in self._omitted and value == self._defaults[name])
        }
        return dump(message | {"v": VERSION})

    def decode(self, data: bytes, **outside: object) -> T:
        """Raises MalformedEvent, also for another version and for a value that the dataclass rejects."""
        with malformed(self._what.format_map(outside), data):
            message = load(data)
            values = {
                name: from_json(message[name])
                for name, from_json in self._from_json.items()
                if name in message or name not in self._defaults
            }
            return self._kind(**values, **outside)


def _to_json(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def parse_time(value: str) -> datetime:
    """Aware: one without a time zone cannot be compared with others. Raises ValueError."""
    found = datetime.fromisoformat(value)
    if found.tzinfo is None:
        raise ValueError(f"{value} has no time zone")
    return found


def _from_json(kind: Any) -> FromJson:
    """A function that converts a JSON value to the field's type."""
    if isinstance(kind, UnionType):
        (known,) = (one for one in get_args(kind) if one is not NoneType)
        inner = _from_json(known)
        return lambda value: None if value is None else inner(value)
    if get_origin(kind) is tuple:
        inner = _from_json(get_args(kind)[0])
        return lambda value: tuple(map(inner, value))
    if kind is datetime:
        return parse_time
    if kind in (int, str, bool) or issubclass(kind, StrEnum):
        plain: FromJson = kind
        return plain
    raise TypeError(f"no codec for {kind}")
