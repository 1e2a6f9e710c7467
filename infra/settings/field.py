"""The description of a setting besides its type and default: its documentation and its limits.

It is stored in the metadata of the dataclass field, so that the parser, the printed schema and the constructor use the
same texts and the same limits.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from infra.settings.secrets import CREDENTIALS_IN_URL, has_credentials
from infra.settings.units import format_duration, format_size

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

import typing
from difflib import SequenceMatcher, get_close_matches

UNKNOWN = "unknown to the Kafka client"


_KEY = "replicator"
MAX_DURATION = timedelta(days=3650)  # well below the longest timeout in Python or Kafka

Problem = tuple[str, str]
"""Path, as formatted by `dotted`, and the problem with its value."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldInfo:
    doc: str
    minimum: int | timedelta | None = None
    maximum: int | timedelta | None = None
    is_size: bool = False
    is_secret: bool = False
    reloads: bool = False  # a running service takes a change over; else it needs a restart
    check: Callable[[Any], str | None] | None = None  # returns the problem with a value of the right type
    # values that users may expect to work, and why they do not
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Invalid(ValueError):
    """Settings that violate their limits or contradict each other. Contains every problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{name}: {what}" if name else what for name, what in self.problems))


def setting(  # a function, so that a field reads as one line
    doc: str,
    *,
    minimum: int | timedelta | None = None,
    maximum: int | timedelta | None = None,
    size: bool = False,
    secret: bool = False,
    reloads: bool = False,
    check: Callable[[Any], str | None] | None = None,
    refused: Mapping[str, str] | None = None,
) -> dict[str, FieldInfo]:
    """Metadata for `dataclasses.field`. Limits are inclusive; a duration without a minimum must be longer than 0.
    `reloads`: of a table of tables, all settings below it reload."""
    known = FieldInfo(
        doc=doc,
        minimum=minimum,
        maximum=maximum,
        is_size=size,
        is_secret=secret,
        reloads=reloads,
        check=check,
        refused=refused or {},
    )
    return {_KEY: known}


def of(field: dataclasses.Field[Any]) -> FieldInfo:
    """Raises KeyError for a field that is not a setting."""
    known: FieldInfo = field.metadata[_KEY]
    return known


def settings_of(cls: type[DataclassInstance]) -> dict[str, dataclasses.Field[Any]]:
    """The fields that a file can set, by name: the class's own, then inherited ones."""
    inherited = {
        field.name for base in cls.__bases__ if dataclasses.is_dataclass(base) for field in dataclasses.fields(base)
    }
    ordered = sorted(dataclasses.fields(cls), key=lambda field: field.name in inherited)
    return {field.name: field for field in ordered if _KEY in field.metadata}


def outside_limits(field: dataclasses.Field[Any], value: object) -> str | None:
    """The problem with a value of the right type, or None."""
    known = of(field)
    if isinstance(value, timedelta):
        if known.minimum is None and value <= timedelta():
            return "must be longer than 0s"
        if value > MAX_DURATION:
            return f"must be at most {format_duration(MAX_DURATION)}"
    if isinstance(value, int | timedelta):
        if known.minimum is not None and value < known.minimum:  # type: ignore[operator]
            return f"must be at least {written(known, known.minimum)}, not {written(known, value)}"
        if known.maximum is not None and value > known.maximum:  # type: ignore[operator]
            return f"must be at most {written(known, known.maximum)}, not {written(known, value)}"
    if known.check is not None and value is not None:
        return known.check(value)
    return None


def enforce(settings: DataclassInstance, contradictions: Iterable[Problem] = ()) -> None:
    """Raises Invalid with all problems of a constructed object: limits, and the contradictions that its class found."""
    problems = [*_beyond_limits(settings), *contradictions]
    if problems:
        raise Invalid(problems)


def _beyond_limits(settings: DataclassInstance) -> Iterator[Problem]:
    for name, field in settings_of(type(settings)).items():
        what = outside_limits(field, getattr(settings, name))
        if what is not None:
            yield name, what


def written(known: FieldInfo, value: int | timedelta) -> str:
    """Format a value as in a configuration file, for messages."""
    if isinstance(value, timedelta):
        return format_duration(value)
    return format_size(value) if known.is_size else f"{value:_}"


def quoted(text: str) -> str:
    """Quote a TOML string. JSON's escapes are valid in TOML, but TOML also requires DEL to be escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def dotted(path: Iterable[str | int]) -> str:
    """Format a path as in TOML: `egress.topics."a.b".start`, `ingress.sources[0].topic`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            word = part if _BARE.fullmatch(part) else quoted(part)
            text += f".{word}" if text else word
    return text


# --- checks of text --------------------------------------------------------------------------------------------------


def not_blank(value: str) -> str | None:
    return None if value.strip() else "must not be empty"


def matching(expression: str, wanted: str) -> Callable[[str], str | None]:
    """A check that the whole text matches; `wanted` completes "must be …"."""
    compiled = re.compile(expression)
    return lambda value: None if compiled.fullmatch(value) else f"must be {wanted}, not {value!r}"


_http_url = matching(r"https?://[^\s/]+\S*", 'a URL like "https://host:port"')


def http_url(value: str) -> str | None:
    return CREDENTIALS_IN_URL if has_credentials(value) else _http_url(value)


listen_address = matching(
    r"((\[[0-9a-fA-F:]+\]|[^\s:]+):)?(6553[0-5]|655[0-2]\d|65[0-4]\d\d|6[0-4]\d{3}|[1-5]?\d{1,4})",
    '"host:port", such as "0.0.0.0:9090", or the port alone (port 0 takes a free one)',
)
region_name = matching(r"[A-Za-z0-9._-]{1,64}", "a region name (1 to 64 of A-Z a-z 0-9 . _ -)")
topic_name = matching(r"[A-Za-z0-9._-]{1,249}", "a topic name (1 to 249 of A-Z a-z 0-9 . _ -)")


def suggestion(word: object, among: typing.Iterable[str]) -> str:
    """ " (did you mean …?)", with all that are equally near, or empty."""
    known = list(dict.fromkeys(among))
    near = get_close_matches(str(word), known, n=max(len(known), 1))
    nearness = {one: SequenceMatcher(None, one, str(word)).ratio() for one in near}
    nearest = [repr(one) for one in known if nearness.get(one, -1) == max(nearness.values(), default=0)]
    return f" (did you mean {' or '.join(nearest)}?)" if nearest else ""
