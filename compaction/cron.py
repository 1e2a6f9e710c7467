"""Cron expressions: five fields, or six of which the first are the seconds. The only module that imports croniter."""

from __future__ import annotations

from datetime import UTC, datetime

from croniter import CroniterBadCronError, CroniterBadDateError, croniter

SIX_FIELDS = 6  # seconds first, as in the ancestor
ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def next_time(expression: str, after: datetime) -> datetime | None:
    """The first time after `after`, in its time zone; None when there is none. Raises ValueError when this is no cron
    expression."""
    seconds_first = len(expression.split()) == SIX_FIELDS
    try:
        found: datetime = croniter(expression, after, second_at_beginning=seconds_first).get_next(datetime)
    except CroniterBadDateError:
        return None
    except (CroniterBadCronError, ValueError, KeyError) as error:
        raise ValueError(str(error)) from error
    return found


def problem(expression: str) -> str | None:
    """Why no job can run by it, or None."""
    try:
        found = next_time(expression, ANY_TIME)
    except ValueError as error:
        return f"{expression!r} is no cron expression: {error}"
    if found is None:
        return f"{expression!r} never comes: no month that it names has such a day. Correct the day or the month"
    return None
