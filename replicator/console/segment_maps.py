"""The segment maps that pages ask for, listed on one thread at a bounded rate.

A request takes what is there, and notes that the map is wanted. A map that was wanted since it was read last, and is
older than the refresh interval, is listed again, one at a time. So the number of listings depends on time and not on
requests.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from replicator.console.segment_map import PartitionSegments
from replicator.console.site import PartitionKey

MOST = 64  # maps that are kept


@dataclass(slots=True)
class _Entry:
    wanted_at: datetime
    found: PartitionSegments | None = None
    read_at: datetime | None = None


@dataclass(slots=True)
class SegmentMaps:
    """Safe to call from any thread."""

    max_age: timedelta
    most: int = MOST
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _entries: OrderedDict[PartitionKey, _Entry] = field(default_factory=OrderedDict)  # the latest wanted last

    def want(self, where: PartitionKey, now: datetime) -> PartitionSegments | None:
        with self._lock:
            entry = self._entries.setdefault(where, _Entry(now))
            entry.wanted_at = now
            self._entries.move_to_end(where)
            while len(self._entries) > self.most:
                self._entries.popitem(last=False)
            return entry.found

    def due(self, now: datetime) -> PartitionKey | None:
        """One that is to be listed: those that were never read first, then the one that was read longest ago."""
        with self._lock:
            due = [(where, one) for where, one in self._entries.items() if self._is_due(one, now)]
            due.sort(key=lambda item: (item[1].read_at is not None, item[1].read_at or item[1].wanted_at))
            return due[0][0] if due else None

    def put(self, where: PartitionKey, found: PartitionSegments, now: datetime) -> None:
        """A map that is not wanted any more is dropped. One that could not be listed keeps what was listed before, with
        the error."""
        with self._lock:
            entry = self._entries.get(where)
            if entry is None:
                return
            if found.error and entry.found is not None:
                found = PartitionSegments(
                    read_at=entry.found.read_at, incarnations=entry.found.incarnations, error=found.error
                )
            entry.found, entry.read_at = found, now

    def _is_due(self, entry: _Entry, now: datetime) -> bool:
        if entry.read_at is None:
            return True
        return entry.wanted_at > entry.read_at and now - entry.read_at >= self.max_age
