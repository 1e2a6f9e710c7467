"""`--from` (inclusive) and `--until` (exclusive) as timestamps of records."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from formats.int_range import IntRange
from formats.records.milliseconds import first_ms_at_or_after
from replicator.terminal.options import selected

NOON = first_ms_at_or_after(datetime(2026, 1, 1, 12, tzinfo=UTC))


def timestamps(from_: str | None, until: str | None) -> IntRange:
    unused = None  # the region is given
    return selected(unused, ["t"], "r", None, None, None, from_, until, None, ()).timestamps  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "first_ms"),
    [
        ("2026-01-01T12:00:00Z", NOON),
        ("2026-01-01T12:00:00.001Z", NOON + 1),
        ("2026-01-01T12:00:00.0005Z", NOON + 1),
        ("2026-01-01T13:00:00+01:00", NOON),
        ("1969-12-31T23:59:59.9995Z", 0),
        ("1969-12-31T23:59:59.9985Z", -1),
    ],
)
def test_a_time_between_two_milliseconds_cuts_between_them(text: str, first_ms: int) -> None:
    assert timestamps(text, None) == IntRange(low=first_ms)
    assert timestamps(None, text) == IntRange(high=first_ms - 1)
