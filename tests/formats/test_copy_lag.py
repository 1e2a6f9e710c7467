"""How far behind the source: records, and the time of which everything is here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from formats.copy_lag import KEPT, CopyLag
from tests.examples import property_examples

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def test_everything_of_an_observation_is_here_once_its_end_is_delivered() -> None:
    lag = CopyLag()
    for minute, end in enumerate((100, 250, 400)):
        lag.observed(end, at(minute))
    assert lag.lag(99, at(3)) == (301, 180.0), "at least, since the first observation"
    assert lag.lag(300, at(3)) == (100, 120)
    assert lag.lag(400, at(3)) == (0, 60)


def test_an_idle_source_that_lives_is_not_behind() -> None:
    lag = CopyLag()
    lag.observed(100, at(0))
    assert lag.lag(100, at(10)) == (0, 600)
    lag.observed(100, at(10))
    assert lag.lag(100, at(10)) == (0, 0)


def test_a_log_that_was_cut_begins_anew() -> None:
    lag = CopyLag()
    lag.observed(100, at(0))
    lag.lag(100, at(0))
    lag.observed(50, at(1))
    assert lag.lag(20, at(2)) == (30, 60.0)


def test_before_an_observation_nothing_is_known() -> None:
    assert CopyLag().lag(7, T0) == (0, None), "no observation at all"


def test_nothing_waits_longer_than_since_everything_was_held() -> None:
    for next_offset, seconds, is_caught_up in ((34, 20 * 60, True), (9, 40 * 60, False), (0, 40 * 60, False)):
        lag = CopyLag()
        for end, minute in ((10, 0), (10, 10), (20, 20), (35, 30)):
            lag.observed(end, at(minute))
        assert lag.lag(next_offset, at(40)) == (35 - next_offset, seconds)
        assert lag.is_caught_up is is_caught_up


def test_what_the_log_held_before_it_was_cut_counts() -> None:
    lag = CopyLag()
    for end, minute in ((10, 0), (30, 10), (12, 20)):
        lag.observed(end, at(minute))
    assert lag.lag(11, at(20)) == (1, 20 * 60)
    assert lag.lag(12, at(20)) == (0, 0)


def test_what_was_held_before_a_log_was_cut_above_it_counts() -> None:
    lag = CopyLag(at(-10_000))
    lag.observed(100, at(-9_000))
    for end, minute in ((100, 0), (200, 1), (300, 2), (250, 3)):
        lag.observed(end, at(minute))
        records, seconds = lag.lag(100, at(3))
        assert (records, seconds, lag.is_caught_up) == (end - 100, 3 * 60, True)


def test_a_log_that_does_not_answer_is_behind_since_it_was_asked() -> None:
    lag = CopyLag(at(0))
    assert lag.lag(0, at(5)) == (0, 5 * 60)
    lag.observed(10, at(6))
    assert lag.lag(9, at(8)) == (1, 8 * 60)
    assert not lag.is_caught_up


@property_examples()
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60)), min_size=1, max_size=40), st.booleans())
def test_as_if_every_observation_were_kept(steps: list[tuple[int, int]], compacts: bool) -> None:
    """Each step: the log grows, then delivery advances. Seconds are those of the newest observation that is
    delivered, or else of the first one; when observations are thinned, never fewer."""
    lag, end, delivered = CopyLag(), 0, 0
    seen: list[tuple[int, datetime]] = []
    for minute, (growth, progress) in enumerate(steps):
        for n in range(KEPT + 5 if compacts and minute == 0 else 1):
            end += growth
            seen.append((end, at(minute + n / 10_000)))
            lag.observed(*seen[-1])
        delivered = min(delivered + progress, end)
        now = at(minute + 1)
        reached = [when for limit, when in seen if limit <= delivered]
        records, seconds = lag.lag(delivered, now)
        assert records == end - delivered
        wanted = (now - (max(reached) if reached else seen[0][1])).total_seconds()
        assert seconds is not None
        assert seconds >= wanted if compacts else seconds == wanted
