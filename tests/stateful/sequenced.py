"""The partition that the tests of the sequencer deliver."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from formats.segment import OffsetRange, Segment, SourcePartition
from ingress.sequencer import LatePolicy

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = SourcePartition("a", "t", 0)
DELAY, TIMEOUT = timedelta(seconds=5), timedelta(seconds=20)


def segment(start: int, end: int, level: int = 0) -> Segment:
    return Segment(SOURCE, level, OffsetRange(start, end))


def policy(*, skip: bool) -> LatePolicy:
    return LatePolicy(
        first_segment_delay=DELAY,
        late_retries=3,
        lost_timeout=TIMEOUT,
        skip_lost=skip,
    )
