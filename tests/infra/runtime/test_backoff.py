"""Pauses double, and stop at their limit."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from infra.runtime.retry import Backoff

PAUSES = st.integers(1, 10**9).map(lambda n: timedelta(microseconds=n))


@given(PAUSES, PAUSES, st.integers(0, 10**6))
def test_each_pause_is_twice_the_one_before_up_to_the_limit(first: timedelta, more: timedelta, failures: int) -> None:
    backoff = Backoff(first, first + more)
    assert backoff.delay(0) == first
    assert backoff.delay(failures + 1) == min(backoff.delay(failures) * 2, first + more)


def test_the_pauses_of_a_service() -> None:
    backoff = Backoff(timedelta(seconds=1), timedelta(seconds=30))
    assert [backoff.delay(n).total_seconds() for n in range(7)] == [1, 2, 4, 8, 16, 30, 30]


def test_a_limit_below_the_first_pause_holds() -> None:
    assert Backoff(timedelta(seconds=1), timedelta()).delay(0) == timedelta()
