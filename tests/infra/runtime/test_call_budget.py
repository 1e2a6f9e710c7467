"""How often calls of many threads are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from infra.runtime.call_budget import CallBudget
from infra.runtime.lifecycle import Stop
from tests.fakes.surroundings import T0, HandClock


@dataclass
class Waits(Stop):
    """Time passes while it is waited for."""

    clock: HandClock
    waited: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def wait(self, timeout: timedelta) -> bool:
        self.waited.append(timeout.total_seconds())
        if not self.is_set():
            self.clock.at += timeout
        return self.is_set()


def test_calls_follow_each_other_at_even_distances() -> None:
    clock = HandClock()
    stop = Waits(clock)
    budget = CallBudget(lambda: 4, clock, stop)
    assert all(budget.wait() for _ in range(5))
    assert stop.waited == [0, 0.25, 0.25, 0.25, 0.25]
    clock.advance(0.1)
    assert budget.wait()
    assert round(stop.waited[-1], 6) == 0.15, "what the call itself took counts"


def test_a_pause_saves_nothing_up() -> None:
    clock = HandClock()
    stop = Waits(clock)
    budget = CallBudget(lambda: 4, clock, stop)
    budget.wait()
    clock.advance(60)
    assert [budget.wait() for _ in range(2)] == [True, True]
    assert stop.waited[-2:] == [0, 0.25]


def test_another_rate_holds_from_the_next_call_on() -> None:
    clock, rates = HandClock(), [1, 10, 10]
    stop = Waits(clock)
    budget = CallBudget(lambda: rates.pop(0), clock, stop)
    for _ in range(3):
        budget.wait()
    assert stop.waited == [0, 1, 0.1]
    assert clock.at == T0 + timedelta(seconds=1.1)


def test_a_stop_ends_the_wait() -> None:
    clock = HandClock()
    stop = Waits(clock)
    budget = CallBudget(lambda: 1, clock, stop)
    assert budget.wait()
    stop.set()
    assert not budget.wait()
