"""How far a copy is behind the log that it is made of, in records and in time. Pure.

ends of the log, each with the time it was observed:   100 @ 10:00   250 @ 10:01   400 @ 10:02
next offset that the copy does not hold: 300           everything of 10:01 is held, and 100 records wait
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

KEPT = 100  # observations; of a longer backlog, every other one goes


@dataclass(slots=True)
class CopyLag:
    """The ends of one partition's log. `since`: when it was first asked for one; without, the first observation."""

    since: datetime | None = None
    _ends: deque[tuple[int, datetime]] = field(default_factory=deque)  # rising
    _held: tuple[int, datetime] | None = None  # newest observation that the copy holds

    def observed(self, end: int, at: datetime) -> None:
        """The log ended at `end`, at `at` or later. Where an end goes back the log was cut: observations above it are
        of another log, and are forgotten."""
        if self._ends and end < self._ends[-1][0]:
            while self._ends and end < self._ends[-1][0]:
                self._ends.pop()
            if self._held is not None and end < self._held[0]:
                self._held = None
            self.since = self.since if self._ends else None
        self.since = self.since or at
        if self._ends and end == self._ends[-1][0]:
            at = max(at, self._ends.pop()[1])
        self._ends.append((end, at))
        if len(self._ends) > KEPT:
            self._ends = deque([*list(self._ends)[1:-1:2], self._ends[-1]])

    def lag(self, next_offset: int, now: datetime) -> tuple[int, float | None]:
        """Records, and seconds: the least that it is behind where not even the first observation is held, such as after
        a start with a backlog. None: nothing was observed, or asked for."""
        while self._ends and self._ends[0][0] <= next_offset:
            self._held = self._ends[0]
            if len(self._ends) == 1:  # kept: it may be observed again, at a later time
                break
            self._ends.popleft()
        records = max(self._ends[-1][0] - next_offset, 0) if self._ends else 0
        since = self.since if self._held is None else self._held[1]
        return records, None if since is None else max((now - since).total_seconds(), 0.0)

    @property
    def is_caught_up(self) -> bool:
        """Whether the copy has held an observation, so that the seconds of `lag` are the most that it is behind."""
        return self._held is not None
