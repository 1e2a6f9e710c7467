"""What the user chose to see: order, place and depth. Pure.

s  next order    p  partitions or topics    ↑ ↓ PgUp PgDn g G  scroll    !  problems    q  quit
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from replicator.top.snapshot import Row, by_topic

KEYS = "q quit   s order   p partitions or topics   ! problems   ↑ ↓ PgUp PgDn g G scroll"
ORDERS: Mapping[str, Callable[[Row], Any]] = {  # the worst first, then by name
    "behind": lambda row: -row.behind,
    "oldest": lambda row: -(row.oldest or timedelta()),
    "rate": lambda row: -(row.rate or 0.0),
    "name": lambda _: 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopView:
    order: str = "behind"
    by_topic: bool = False
    shows_problems: bool = False
    first: int = 0  # line that is shown at the top
    is_over: bool = False

    def after(self, key: str, *, lines: int, page: int) -> TopView:
        """`key`: a character, or the name of a key. `lines`: of what is shown, `page`: how many of them at a time."""
        last = max(lines - page, 0)
        match key:
            case "q" | "Q":
                return replace(self, is_over=True)
            case "s" | "S":
                names = list(ORDERS)
                return replace(self, order=names[(names.index(self.order) + 1) % len(names)], first=0)
            case "p" | "P":
                return replace(self, by_topic=not self.by_topic, first=0)
            case "!":
                return replace(self, shows_problems=not self.shows_problems, first=0)
            case "up" | "k":
                first = self.first - 1
            case "down" | "j":
                first = self.first + 1
            case "page-up":
                first = self.first - page
            case "page-down" | " ":
                first = self.first + page
            case "home" | "g":
                first = 0
            case "end" | "G":
                first = last
            case _:
                return self
        return replace(self, first=min(max(first, 0), last))

    def ordered(self, rows: Sequence[Row]) -> Sequence[Row]:
        chosen = by_topic(rows) if self.by_topic else rows
        rank = ORDERS[self.order]
        return sorted(chosen, key=lambda row: (rank(row), row.flow, row.name))
