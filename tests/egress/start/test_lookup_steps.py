"""Steps that lead to many answers: each in its own time, and none lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from egress.start.lookup_steps import WIDTH, LookupStep, Next, run_steps
from formats.errors import ReplicatorError, StoreUnavailable
from tests.fakes.executors import HandExecutor

SECONDS = 30.0


class Answers:
    def __init__(self) -> None:
        self.found: list[Sequence[int]] = []
        self.answered: list[int] = []
        self.failed: list[tuple[int, str]] = []

    def first(self, number: int) -> LookupStep[int]:
        return LookupStep(lambda: Next([number]), self.fails(number))

    def through_another(self, number: int) -> LookupStep[int]:
        return LookupStep(lambda: Next(steps=[self.first(number)]), self.fails(number))

    def failing(self, number: int, error: Exception) -> LookupStep[int]:
        def run() -> Next[int]:
            raise error

        return LookupStep(run, self.fails(number))

    def fails(self, number: int) -> Callable[[ReplicatorError], None]:
        return lambda error: self.failed.append((number, str(error)))

    def ask(self, found: Sequence[int]) -> Iterable[LookupStep[int]]:
        self.found.append(found)
        return [self.last(number) for number in found]

    def last(self, number: int) -> LookupStep[int]:
        def run() -> Next[int]:
            self.answered.append(number)
            return Next()

        return LookupStep(run, self.fails(number))


@pytest.mark.parametrize("count", [0, 1, WIDTH, 5 * WIDTH + 1])
def test_every_step_leads_to_an_answer(count: int) -> None:
    for pool in (HandExecutor(), ThreadPoolExecutor(3)):
        answers = Answers()
        with pool:
            steps = [(answers.first, answers.through_another)[number % 2](number) for number in range(count)]
            run_steps(steps, pool, answers.ask)
        assert sorted(answers.answered) == list(range(count))
        assert answers.failed == []


def test_a_failure_ends_its_own_step_only() -> None:
    answers = Answers()
    steps = [answers.failing(0, StoreUnavailable("planned")), answers.first(1)]
    run_steps(steps, HandExecutor(), answers.ask)
    assert (answers.failed, answers.answered) == ([(0, "planned")], [1])


def test_a_bug_is_raised() -> None:
    answers = Answers()
    with pytest.raises(ZeroDivisionError):
        run_steps([answers.failing(0, ZeroDivisionError())], HandExecutor(), answers.ask)
    assert answers.failed == []


def test_what_is_found_is_asked_before_the_last_first_step_begins() -> None:
    answers, asked = Answers(), Event()

    def waits() -> Next[int]:
        assert asked.wait(SECONDS)
        return Next([WIDTH])

    def ask(found: Sequence[int]) -> Iterable[LookupStep[int]]:
        asked.set()
        return answers.ask(found)

    steps = [*map(answers.first, range(WIDTH)), LookupStep(waits, answers.fails(WIDTH))]
    run_steps(steps, HandExecutor(), ask)
    assert answers.found == [[*range(WIDTH)], [WIDTH]]
