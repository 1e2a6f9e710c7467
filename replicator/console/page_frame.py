"""What all pages have as JSON values: whose state it is, how old each part of it is, and the pages of a list. Pure.

Lists have pages, so that no answer grows with the number of partitions. HTML is made of these values and of nothing
else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from replicator.console.state import ConsoleState

T = TypeVar("T")
ConsolePage = Mapping[str, Any]
NOT_YET = "not read yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """What a list is asked for."""

    search: str = ""  # part of a name, in any case
    sort: str = ""  # "" for the worst first, "name"
    number: int = 1  # of the page, from 1


def frame(state: ConsoleState, now: datetime, name: str) -> dict[str, Any]:
    """What every page has: whose state it is, how old each part of it is, and `not_read`: the parts of which nothing is
    known, with the reason. What a page has of such a part is no absence."""
    parts = [(part, one) for part, one in state.parts if one.is_configured]
    return {
        "page": name,
        "own_region": state.region,
        "at": now.isoformat(),
        "refreshed_at": time_text(state.refreshed_at),
        "refresh_seconds": round(state.refresh_seconds, 3),
        "parts": {
            part: {
                "read_at": time_text(one.read_at),
                "age_seconds": None if one.read_at is None else round((now - one.read_at).total_seconds(), 1),
                "error": one.error or None,
                "failed_at": time_text(one.failed_at),
            }
            for part, one in parts
        },
        "not_read": {part: one.error or NOT_YET for part, one in parts if one.value is None},
    }


def paged(found: Sequence[T], number: int, size: int) -> tuple[Sequence[T], Mapping[str, int]]:
    """The lines of a page, and which one it is; a number beyond the last is the last."""
    pages = max(-(-len(found) // size), 1)
    number = min(max(number, 1), pages)
    return found[(number - 1) * size : number * size], {"number": number, "pages": pages, "total": len(found)}


def time_text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds")
