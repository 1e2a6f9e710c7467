"""How fast runs may leave: so many bytes a second, over all partitions."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from ingress.pieces import PieceRun, RunReader
from replicator.coverage import Piece
from replicator.lifecycle import Stop

BURST_SECONDS = 1.0  # what was not used is not saved up for longer


@dataclass(slots=True)
class Throttle:
    """Safe to call from several threads: they share the rate."""

    bytes_per_second: int
    stop: Stop
    _paid_until: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pay(self, size_bytes: int) -> None:
        """Returns when so many bytes may go; at once when told to stop."""
        with self._lock:
            begin = max(self._paid_until, time.monotonic() - BURST_SECONDS)
            self._paid_until = begin + size_bytes / self.bytes_per_second
            left = self._paid_until - time.monotonic()
        if left > 0:
            self.stop.wait(timedelta(seconds=left))


@dataclass(frozen=True, slots=True)
class ThrottledReader:
    """A reader of pieces, not faster than `throttle`."""

    reader: RunReader
    throttle: Throttle

    def runs(self, pieces: Sequence[Piece], *, max_records: int | None = None) -> Generator[PieceRun, None, None]:
        """See PieceReader."""
        for run in self.reader.runs(pieces, max_records=max_records):
            self.throttle.pay(run.size_bytes)
            yield run
