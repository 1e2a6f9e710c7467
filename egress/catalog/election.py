"""Which egress process of a region writes its control objects: the one whose heartbeats are stored.

    STANDBY ── no heartbeat, the last one was a writer's last, or no new one for `patience` ──> put the next number
                    │                                                          stored │   │ another process's
                    └────────────────────── that process is the writer <──────────────┼───┘
    WRITER <──────────────────────────────────────────────────────────────────────────┘
       ├─ every `interval`: put the next number ── stored ──> WRITER
       │                                        └─ another process's ──> STANDBY
       └─ none stored for `patience`, and a failure or a newer one ──> STANDBY: another may have taken over

A heartbeat is a generation (`infra.archive.generations`): of two processes one gets the number. No clock of another
process is compared: a standby waits `patience` from the moment at which it saw a number first. The election only saves
work. What keeps truths in order are the numbers of the generations, and that a new writer stores one at once: see
`egress.catalog.publisher`. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.control.heartbeat import WriterHeartbeat

PATIENCE = 3  # intervals without a heartbeat
LEAST_PATIENCE = timedelta(seconds=15)


@dataclass(slots=True)
class Election:
    writer: str
    interval: timedelta
    number: int = 0  # the newest heartbeat known
    is_writer: bool = False
    _stored_at: datetime | None = None  # our last heartbeat
    _seen_at: datetime | None = None  # when `number` was seen first
    _standing: WriterHeartbeat | None = field(default=None, repr=False)  # the heartbeat of that number

    def may_take_over(self, now: datetime) -> bool:
        """Whether a standby should put the next heartbeat. Call `seen` before."""
        if self.is_writer or self._seen_at is None:
            return False
        if self.number == 0 or self._standing is None:
            return self.number == 0 or now - self._seen_at >= self._patience(None)
        return self._standing.is_last or now - self._seen_at >= self._patience(self._standing)

    def is_due(self, now: datetime) -> bool:
        """Whether the writer should put its next heartbeat."""
        return self.is_writer and (self._stored_at is None or now - self._stored_at >= self.interval)

    def must_read(self, number: int) -> bool:
        """Whether the heartbeat `number`, the newest there is, says anything that matters now. While new ones come,
        only the first that this process finds does; then the one that no new one follows, once."""
        return number > 0 and (self._seen_at is None or (number == self.number and self._standing is None))

    def seen(self, number: int, heartbeat: WriterHeartbeat | None, now: datetime) -> None:
        """The newest heartbeat there is; None with a number: not read, or it cannot be decoded."""
        if self._seen_at is None or number != self.number:
            self.number, self._standing, self._seen_at = number, heartbeat, now
        elif heartbeat is not None:
            self._standing = heartbeat

    def stored(self, now: datetime) -> bool:
        """Our heartbeat `number + 1` is stored. True when that makes this process the writer."""
        self.number += 1
        begins, self.is_writer, self._stored_at = not self.is_writer, True, now
        return begins

    def lost(self) -> None:
        """Another process stored the number, or may have: this one is a standby until it has waited again."""
        self.is_writer, self._stored_at, self._seen_at = False, None, None

    def is_stale(self, now: datetime) -> bool:
        """Whether another process may have taken over because none of our heartbeats was stored for so long."""
        return self.is_writer and self._stored_at is not None and now - self._stored_at >= self._patience(None)

    def _patience(self, standing: WriterHeartbeat | None) -> timedelta:
        interval = self.interval if standing is None else standing.interval
        return max(interval * PATIENCE, LEAST_PATIENCE)
