"""When a segment that is missing counts as lost: not at once, since segments and copies of them arrive in any order.

Pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.segment import SegmentInfo, SourcePartition


@dataclass(slots=True)
class MissingSegments:
    """A query that goes on counts from when it noticed first what a source partition lacks. Not from the times of the
    segments behind it: replicas in a bucket have those of their originals."""

    timeout: timedelta
    is_bounded: bool = False  # the query ends with what is there, so nothing is noticed before
    _noticed: dict[SourcePartition, tuple[Hashable, datetime]] = field(default_factory=dict)

    def is_noticed(self, source: SourcePartition, missing: Hashable) -> bool:
        known = self._noticed.get(source)
        return known is not None and known[0] == missing

    def is_lost(self, source: SourcePartition, missing: Hashable, behind: Sequence[SegmentInfo], now: datetime) -> bool:
        """`missing`: identifies what is, so that another hole has a wait of its own. `behind`: the stored segments
        after it, at least one: a hole is known by what follows it."""
        if self.is_bounded:
            return now - min(info.stored_at for info in behind) >= self.timeout
        if not self.is_noticed(source, missing):
            self._noticed[source] = missing, now
        return now - self._noticed[source][1] >= self.timeout
