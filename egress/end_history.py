"""How long ago the archive held everything: from the ends of a log as they were seen, and from what is stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

MOST = 64  # moments kept of a partition: where there are more, every second one goes, and the age reads higher


@dataclass(slots=True)
class EndHistory:
    """The high watermarks of one partition, each with the last moment it was asked for. `_since`: the first moment that
    it was asked for, be it without an answer, or when the log was cut. Pure."""

    _since: datetime | None = None
    _seen: list[tuple[int, datetime]] = field(default_factory=list)  # rising

    @property
    def end(self) -> int:
        """The last one."""
        return self._seen[-1][0]

    def saw(self, end: int, at: datetime) -> None:
        """`at`: before the broker was asked, so that records produced until then are below `end`."""
        if self._since is None or (self._seen and self._seen[0][0] > end):
            self._since = at
        while self._seen and self._seen[-1][0] >= end:  # the same, or the log was cut
            self._seen.pop()
        self._seen.append((end, at))
        if len(self._seen) > MOST:
            del self._seen[1:-1:2]

    def behind(self, stored: int | None, now: datetime) -> timedelta:
        """How long ago nothing waited, when everything below `stored` is archived: no record that waits is older. Zero
        when none waits. Where it is not known, how long records have waited at least: since the first moment."""
        if not self._seen or (stored is not None and stored >= self.end):
            return timedelta()
        held = [moment for end, moment in self._seen if stored is not None and end <= stored]
        del self._seen[: len(held) - 1 if held else 0]  # what was stored once stays so
        return max(now - (held[-1] if held else self._since or now), timedelta())

    def unseen(self, now: datetime) -> timedelta:
        """How long nothing is known of the log, while the broker does not answer: since then, records may wait."""
        return max(now - (self._seen[-1][1] if self._seen else self._since or now), timedelta())

    def knows(self, stored: int | None) -> bool:
        """Whether `behind` is the most that a record waits, and not the least."""
        return stored is not None and bool(self._seen) and self._seen[0][0] <= stored
