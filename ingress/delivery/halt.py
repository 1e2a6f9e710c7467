"""A target that refuses this process as a writer: delivery pauses, and is tried again after pauses that grow."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from infra.runtime import log_fields
from infra.runtime.lifecycle import Clock
from infra.runtime.retry import Backoff

log = logging.getLogger(__name__)

PAUSES = Backoff(timedelta(seconds=1), timedelta(minutes=1))


@dataclass(slots=True)
class Halt:
    """`reason`: why the target accepts nothing from this process; empty while it does. Any thread may read it; the rest
    belongs to the delivery thread."""

    clock: Clock
    reason: str = ""
    _times: int = 0  # in a row
    _until: datetime | None = None

    @property
    def is_pausing(self) -> bool:
        """Whether it is too early to ask the target again."""
        return self._until is not None and self.clock.now() < self._until

    def refused(self, reason: str) -> None:
        if reason != self.reason:
            log.error("delivery_halted", extra={log_fields.REASON: reason})
        self._until = self.clock.now() + PAUSES.delay(self._times)
        self.reason, self._times = reason, self._times + 1

    def lift(self) -> None:
        """The target took what was sent."""
        if self.reason:
            log.info("delivery_goes_on")
        self.reason, self._times, self._until = "", 0, None
