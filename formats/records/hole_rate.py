"""How many holes a second a source has, by the offsets and timestamps of its records. Pure.

`holes_per_second` is for one sample. `HoleBacklog` is for the records of a partition as they arrive: how many holes
would wait by now if so many were filled in each second of the source's time. A burst is worked off; a source that
makes more than that all the time falls behind for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

SAMPLE_RECORDS = 100_000  # are enough
SHORTEST_MS = 1_000  # of a sample: records of one moment say nothing about a second
BEHIND = timedelta(minutes=10)  # of filling: a longer backlog is no burst


def holes_per_second(batches: Iterable[pa.RecordBatch]) -> float:
    """Of a sample of records, by their timestamps; 0 when the sample is too short to tell."""
    offsets, stamps, count = list[pa.Array](), list[pa.Array](), 0
    for batch in batches:
        offsets.append(batch.column("offset"))
        stamps.append(batch.column("timestamp").cast(pa.int64()))
        count += batch.num_rows
        if count >= SAMPLE_RECORDS:
            break
    if count < 2:
        return 0.0
    holes = pc.sum(pc.greater(pc.pairwise_diff(pa.concat_arrays(offsets)), 1)).as_py() or 0
    times = pc.min_max(pa.concat_arrays(stamps)).as_py()
    lasted_ms = times["max"] - times["min"]
    return 0.0 if lasted_ms < SHORTEST_MS else 1000.0 * holes / lasted_ms


@dataclass(slots=True)
class HoleBacklog:
    """Of one partition. Timestamps are taken as the source's clock; records of less than SHORTEST_MS say nothing."""

    per_second: int  # holes that are filled
    waiting: float = 0.0  # holes
    next_offset: int | None = None  # what lies below is counted
    _oldest_ms: int | None = field(default=None, repr=False)
    _newest_ms: int = field(default=0, repr=False)

    @property
    def is_endless(self) -> bool:
        """Whether more holes wait than a burst leaves."""
        lasted_ms = self._newest_ms - self._oldest_ms if self._oldest_ms is not None else 0
        return lasted_ms >= SHORTEST_MS and self.waiting > self.per_second * BEHIND.total_seconds()

    def add(self, batches: Sequence[pa.RecordBatch], *, position: int, next_offset: int) -> None:
        """The records of a source from `position` to before `next_offset`. What was counted once, and is tried again,
        is not counted twice; what lies between, and went elsewhere, is no hole."""
        if self.next_offset is None or position > self.next_offset:
            self.next_offset = position
        if next_offset <= self.next_offset:
            return
        offsets = pa.chunked_array([batch.column("offset") for batch in batches], pa.int64()).combine_chunks()
        is_new = pc.greater_equal(offsets, self.next_offset)
        ends = [
            pa.array([self.next_offset - 1], pa.int64()),
            offsets.filter(is_new),
            pa.array([next_offset], pa.int64()),
        ]
        self.waiting += pc.sum(pc.greater(pc.pairwise_diff(pa.concat_arrays(ends)), 1)).as_py() or 0
        self.next_offset = next_offset
        stamps = pa.chunked_array([batch.column("timestamp").cast(pa.int64()) for batch in batches], pa.int64())
        times = pc.min_max(stamps.combine_chunks().filter(is_new)).as_py()
        if times["max"] is not None:
            self._passed(times["min"], times["max"])

    def _passed(self, oldest_ms: int, newest_ms: int) -> None:
        if self._oldest_ms is None:
            self._oldest_ms = self._newest_ms = oldest_ms
        passed_ms = max(newest_ms - self._newest_ms, 0)
        self.waiting = max(self.waiting - self.per_second * passed_ms / 1000, 0.0)
        self._newest_ms += passed_ms
