"""How much one round of delivery takes: as much as the target acknowledges in good time.

A transaction has a timeout. A round that takes longer is aborted by the target, and the same round would be, again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

QUICK, SLOW = timedelta(seconds=1), timedelta(seconds=5)


@dataclass(slots=True)
class Pace:
    """`limit` is the number of records after which a round takes no more."""

    most: int
    limit: int = field(init=False)

    def __post_init__(self) -> None:
        self.limit = self.most

    @property
    def slowed(self) -> bool:
        return self.limit < self.most

    def took(self, seconds: float, records: int) -> None:
        """What the last round came to, successful or not."""
        if seconds > SLOW.total_seconds():
            self.limit = max(min(self.limit, records) // 2, 1)
        elif seconds < QUICK.total_seconds():
            self.limit = min(self.limit * 2, self.most)
