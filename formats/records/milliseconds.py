"""Record timestamps: whole milliseconds since the epoch, as in Kafka."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def first_ms_at_or_after(at: datetime) -> int:
    """`at` rounded up: a record with a lower timestamp is from before `at`, which is aware."""
    return -((EPOCH - at) // MILLISECOND)


def ms_at_or_before(at: datetime) -> int:
    """`at`, which is aware, rounded down."""
    return (at - EPOCH) // MILLISECOND


def time_of_ms(timestamp_ms: int) -> datetime:
    """Raises OverflowError for a time that datetime cannot represent."""
    return EPOCH + timestamp_ms * MILLISECOND


def known_time_of_ms(timestamp_ms: int | None) -> datetime | None:
    """None for None, for a time below 0, such as Kafka's -1 for none, and for one that datetime cannot represent."""
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    try:
        return time_of_ms(timestamp_ms)
    except OverflowError:
        return None
