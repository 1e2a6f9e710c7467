"""Whether a group member has certainly kept its partitions, by when it polled. Reads no clock: times are
monotonic, in seconds.

    poll  poll  poll ............ poll  poll  poll       a pause longer than LONGEST: the process was frozen, say
    yes   yes   yes  no           no    no    yes        and only once polls have followed each other for SETTLED again

The group gives partitions to others when it has not heard from a member for a session timeout, which is far longer than
LONGEST. The member learns of that from the next answers, so a poll right after a pause proves nothing.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import timedelta

LONGEST, SETTLED = timedelta(seconds=5), timedelta(seconds=3)


@dataclass(slots=True)
class PollRecord:
    """Safe to use from several threads."""

    _last: float | None = None
    _since: float | None = None  # polls have followed each other; None: from the first one on
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def polled(self, now: float) -> None:
        with self._mutex:
            if self._last is not None and now - self._last > LONGEST.total_seconds():
                self._since = now
            self._last = now

    def is_kept_up(self, now: float) -> bool:
        with self._mutex:
            if self._last is None or now - self._last > LONGEST.total_seconds():
                return False
            return self._since is None or now - self._since >= SETTLED.total_seconds()
