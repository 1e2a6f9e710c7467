"""Measures the last stages of each segment's way: `replicate`, `share` and `deliver` of `infra.runtime.stages`.

announced (event log) ──> opened, its footer is read ──> finished, its records and their checkpoint are in the target

A segment that a listing finds before its event has none of them: a listing does not say when an object arrived here,
since a replica has the time of its original.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from formats.footer import SegmentFooter
from formats.messages.segment_events import Created
from formats.segment import Segment, SourcePartition
from infra.runtime.lifecycle import Clock
from infra.runtime.metrics import Metrics
from infra.runtime.stages import observe_stage

REMEMBERED = 10_000  # segments that were announced and are not delivered


class _Announced(NamedTuple):
    read_at: datetime  # from the event log
    stored_at: datetime | None  # in the bucket that is read here; None: `replicate` is measured


@dataclass(slots=True)
class SegmentStages:
    """Safe to call from several threads. Of a long backlog only the newest segments are remembered."""

    metrics: Metrics
    clock: Clock
    # with the source, which the hash of a segment leaves out
    _announced: dict[tuple[SourcePartition, Segment], _Announced] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def announced(self, event: Created) -> None:
        """`event`, of a segment that was not known, was read from the event log."""
        now = self.clock.now()
        observe_stage(self.metrics, event.segment, "share", event.published_at, now)
        with self._lock:
            self._announced[event.segment.source, event.segment] = _Announced(now, event.info.stored_at)
            if len(self._announced) > REMEMBERED:
                del self._announced[next(iter(self._announced))]

    def opened(self, footer: SegmentFooter) -> None:
        """The segment is about to be read, perhaps not for the first time."""
        key = (footer.segment.source, footer.segment)
        with self._lock:
            found = self._announced.get(key)
            if found is None or found.stored_at is None:
                return
            self._announced[key] = found._replace(stored_at=None)
        observe_stage(self.metrics, footer.segment, "replicate", footer.origin.created_at, found.stored_at)

    def finished(self, segment: Segment) -> None:
        with self._lock:
            found = self._announced.pop((segment.source, segment), None)
        if found is not None:
            observe_stage(self.metrics, segment, "deliver", found.read_at, self.clock.now())
