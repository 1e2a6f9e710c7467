"""Timestamps of records: whole milliseconds since the epoch, as Kafka counts them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def first_ms_at_or_after(at: datetime) -> int:
    """Rounded up: a record that is stamped with a lower one is from before `at`, which is aware."""
    return -((EPOCH - at) // MILLISECOND)


def time_of_ms(timestamp_ms: int) -> datetime:
    """Raises OverflowError for a time that Python has none of."""
    return EPOCH + timestamp_ms * MILLISECOND
