"""Calls that many threads make of one server, not more than so many a second."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from infra.runtime.lifecycle import Clock, Stop


@dataclass(slots=True)
class CallBudget:
    """Calls follow each other at even distances. Safe to use from several threads."""

    per_second: Callable[[], int]  # at least 1; asked before each call, since a setting may change
    clock: Clock
    stop: Stop
    _next_at: datetime | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wait(self) -> bool:
        """Return when the next call is due: True. False, at once, when `stop` is set."""
        with self._lock:
            now = self.clock.now()
            at = now if self._next_at is None else max(now, self._next_at)
            self._next_at = at + timedelta(seconds=1) / self.per_second()
        return not self.stop.wait(at - now)
