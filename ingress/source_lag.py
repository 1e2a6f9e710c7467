"""How far a target partition is behind its source's log, in records and in time. Pure.

ends of the source's log, each with the time it was observed:   100 @ 10:00   250 @ 10:01   400 @ 10:02
next offset delivered: 300                                      everything of 10:01 is here, and 100 records wait
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

KEPT = 100  # observations; of a longer backlog, every other one goes


@dataclass(slots=True)
class SourceLag:
    """Of one partition."""

    _ends: deque[tuple[int, datetime]] = field(default_factory=deque)  # rising
    _caught_up_at: datetime | None = None  # newest observation that is delivered
    _since: datetime | None = None  # of the first observation

    def observed(self, end: int, at: datetime) -> None:
        """The log ended at `end`. An end that goes back is of another log: what was observed before is forgotten."""
        if self._ends and end < self._ends[-1][0]:
            self._ends.clear()
            self._caught_up_at = self._since = None
        self._since = self._since or at
        if self._ends and end == self._ends[-1][0]:
            at = max(at, self._ends.pop()[1])
        self._ends.append((end, at))
        if len(self._ends) > KEPT:
            self._ends = deque([*list(self._ends)[1:-1:2], self._ends[-1]])

    def lag(self, next_offset: int, now: datetime) -> tuple[int, float | None]:
        """Records, and seconds: the least that it is behind where not even the first observation is delivered, such as
        after a start with a backlog. None: there is no observation."""
        if not self._ends:
            return 0, None
        while self._ends[0][0] <= next_offset:
            self._caught_up_at = self._ends[0][1]
            if len(self._ends) == 1:  # kept: it may be observed again, at a later time
                break
            self._ends.popleft()
        behind = now - (self._caught_up_at or self._since or now)
        return max(self._ends[-1][0] - next_offset, 0), max(behind.total_seconds(), 0.0)
