"""Limits the records of one delivery round to what the target acknowledges in time.

A transaction has a timeout. The target aborts a round that takes longer, and would abort the same round again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

FIRST_RECORDS = 50_000
QUICK, SLOW = timedelta(seconds=1), timedelta(seconds=5)


@dataclass(slots=True)
class Pace:
    """`limit`: number of records at which a round is full."""

    most: int
    limit: int = field(init=False)

    def __post_init__(self) -> None:
        self.limit = min(self.most, FIRST_RECORDS)  # nothing is known of the target yet

    @property
    def slowed(self) -> bool:
        return self.limit < self.most

    def took(self, seconds: float, records: int) -> None:
        """Adapt the limit to the last round, successful or not. One without a record says nothing about records."""
        if not records:
            return
        if seconds > SLOW.total_seconds():
            self.limit = max(min(self.limit, records) // 2, 1)
        elif seconds < QUICK.total_seconds():
            self.limit = min(self.limit * 2, self.most)
