"""Limits the rate of a restore in bytes per second, over all partitions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from formats.coverage import SegmentSlice
from formats.records.statistics import total_bytes
from formats.records.transform import NO_TRANSFORM, Transform
from infra.archive.run_reader import RunReader, SegmentRun
from infra.runtime.lifecycle import Stop

BURST_SECONDS = 1.0  # unused rate is saved up for at most this long


@dataclass(slots=True)
class Throttle:
    """Safe to call from several threads, which share the rate."""

    bytes_per_second: int
    stop: Stop
    monotonic: Callable[[], float] = time.monotonic
    _paid_until: float = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._paid_until = self.monotonic()

    def pay(self, size_bytes: int) -> None:
        """Block until `size_bytes` may be sent, or until `stop` is set."""
        with self._lock:
            now = self.monotonic()
            self._paid_until = max(self._paid_until, now - BURST_SECONDS) + size_bytes / self.bytes_per_second
            left = self._paid_until - now
        if left > 0:
            self.stop.wait(timedelta(seconds=left))


@dataclass(frozen=True, slots=True)
class ThrottledReader:
    """A `RunReader` that reads no faster than `throttle` allows. Pays for keys, values and headers, as footers count
    them: the Arrow columns of small records are twice as large."""

    reader: RunReader
    throttle: Throttle

    def runs(
        self,
        slices: Sequence[SegmentSlice],
        *,
        max_records: int | None = None,
        transform: Transform = NO_TRANSFORM,
        lineage_header: str = "",
    ) -> Generator[SegmentRun, None, None]:
        """See SegmentRunReader."""
        read = self.reader.runs(slices, max_records=max_records, transform=transform, lineage_header=lineage_header)
        for run in read:
            self.throttle.pay(sum(total_bytes(batch) for batch in run.batches))
            yield run
