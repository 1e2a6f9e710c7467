"""Numbers, sizes and times as people read them. Pure."""

from __future__ import annotations

from datetime import timedelta

from infra.settings.units import format_age, format_rounded_size
from replicator.console.markup import Markup, element

DASH = "–"


def count(value: int | None) -> str:
    return DASH if value is None else f"{value:,}"


def offset(value: int | None) -> str:
    """Without commas: it is copied into commands."""
    return DASH if value is None else str(value)


def size(size_bytes: int | None) -> str:
    return DASH if size_bytes is None else format_rounded_size(size_bytes)


def age(seconds: float | None) -> str:
    return DASH if seconds is None else format_age(timedelta(seconds=seconds))


def ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{age(seconds)} ago"


def moment(at: str | None) -> Markup:
    """UTC, to the second; the page's script shows how long ago it was."""
    if at is None:
        return Markup(DASH)
    return element("time", f"{at[:10]} {at[11:19]} UTC", datetime=at)
