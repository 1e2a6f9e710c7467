"""Times and record timestamps in milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from formats.records.milliseconds import MILLISECOND, first_ms_at_or_after, time_of_ms

TIMES = st.datetimes(datetime(1800, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(TIMES)
def test_it_is_the_first_millisecond_that_is_not_before(at: datetime) -> None:
    found = first_ms_at_or_after(at)
    assert time_of_ms(found) - MILLISECOND < at <= time_of_ms(found)


@given(st.integers(-(10**12), 10**14))
def test_a_whole_millisecond_is_itself(timestamp_ms: int) -> None:
    assert first_ms_at_or_after(time_of_ms(timestamp_ms)) == timestamp_ms
    assert first_ms_at_or_after(time_of_ms(timestamp_ms) + timedelta(microseconds=1)) == timestamp_ms + 1
