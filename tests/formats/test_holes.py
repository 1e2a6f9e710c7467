"""How a hole is filled, from every end and after every crash."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.holes import (
    MOST_FILLERS,
    Fillers,
    Marker,
    Overtaken,
    has_lost_its_tail,
    next_step,
    time_to_fill,
)


@pytest.mark.parametrize(
    ("end", "wanted", "step"),
    [
        (7, 7, None),
        (7, 8, Marker()),
        (7, 9, Fillers(1)),
        (7, 12, Fillers(4)),
        (8, 7, Overtaken(8)),
        (0, MOST_FILLERS + 1, Fillers(MOST_FILLERS)),
        (0, 10 * MOST_FILLERS, Fillers(MOST_FILLERS)),
    ],
)
def test_the_next_step(end: int, wanted: int, step: object) -> None:
    assert next_step(end, wanted) == step


@pytest.mark.parametrize(("end", "wanted"), [(-1, 3), (3, -1)])
def test_no_offsets(end: int, wanted: int) -> None:
    with pytest.raises(ValueError, match="not offsets"):
        next_step(end, wanted)


def test_no_fillers() -> None:
    with pytest.raises(ValueError, match="0 fillers"):
        Fillers(0)


@given(
    st.integers(0, 10**12),
    st.integers(0, 5 * MOST_FILLERS),
    st.lists(st.one_of(st.none(), st.integers(0, MOST_FILLERS)), max_size=50),
)
def test_every_crash_is_resumed_and_nothing_goes_beyond(start: int, hole: int, crashes: list[int | None]) -> None:
    """`crashes`: of each step, how many of its records were in the log at the crash, None where there is none."""
    end, wanted, steps = start, start + hole, 0
    while (step := next_step(end, wanted)) is not None:
        crash = crashes[steps] if steps < len(crashes) else None
        match step:
            case Fillers(count=count):
                end += (count if crash is None else min(crash, count)) + 1  # its marker, whichever producer aborts it
            case Marker():
                end += crash != 0  # 0: the partition was not in the transaction yet
            case _:
                raise AssertionError(step)
        assert end <= wanted
        steps += 1
    assert end == wanted
    assert steps <= len(crashes) + hole // MOST_FILLERS + 2


def test_a_log_that_ends_before_what_was_delivered_has_lost_records() -> None:
    assert has_lost_its_tail(6, 7)
    assert not has_lost_its_tail(7, 7)
    assert not has_lost_its_tail(8, 7)


def test_time() -> None:
    assert time_to_fill(0) == timedelta()
    assert time_to_fill(1) < timedelta(seconds=0.1)
    assert timedelta(minutes=10) < time_to_fill(150_000_000) < timedelta(hours=1)
