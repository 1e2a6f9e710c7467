"""The number of records at which a round is full, by how long rounds have taken."""

from __future__ import annotations

from ingress.delivery.pace import Pace


def test_a_slow_round_without_a_record_says_nothing_about_records() -> None:
    pace = Pace(1_000)
    before = pace.limit
    pace.took(60.0, 0)
    assert pace.limit == before


def test_pace() -> None:
    pace = Pace(50_000)
    pace.took(0.1, 3)
    assert (pace.limit, pace.slowed) == (50_000, False)
    pace.took(12, 40_000)
    assert (pace.limit, pace.slowed) == (20_000, True)
    pace.took(3, 20_000)
    assert pace.limit == 20_000
    for _ in range(20):
        pace.took(30, pace.limit)
    assert pace.limit == 1
    for _ in range(20):
        pace.took(0.5, pace.limit)
    assert (pace.limit, pace.slowed) == (50_000, False)


def test_the_first_round_of_a_process_is_not_its_largest() -> None:
    """Nothing is known of the target's speed, and a transaction has a timeout."""
    pace = Pace(400_000)
    assert (pace.limit, pace.slowed) == (50_000, True)
    for _ in range(3):
        pace.took(0.5, pace.limit)
    assert (pace.limit, pace.slowed) == (400_000, False)
