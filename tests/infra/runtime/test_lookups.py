"""Questions on a pool: each outcome is taken in once, by whom it is for, and nothing is asked twice at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from formats.errors import BrokerUnavailable
from infra.runtime.lookups import Answer, Failed, Lookup, Lookups, ask
from tests.examples import machine
from tests.fakes.executors import HandExecutor

T0 = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = "abcd"


def answered(number: int, *, fails: bool) -> int:
    if fails:
        raise BrokerUnavailable(str(number))
    return number


def outcome(number: int, *, fails: bool) -> object:
    return str(number) if fails else Answer(number)


def seen(found: object) -> object:
    """An error is compared by what it says."""
    return str(found.error) if isinstance(found, Failed) else found


class LookupsMachine(RuleBasedStateMachine):
    """The pool answers in its own order; the loop takes in what there is, once a turn."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = HandExecutor(holding=True)
        self.lookups: Lookups[str, int] = Lookups(self.pool)
        self.number = 0
        self.waiting: list[tuple[tuple[str, ...], int, bool]] = []  # asked, in order
        self.ready: list[tuple[tuple[str, ...], int, bool]] = []  # answered, not taken in

    @rule(keys=st.sets(st.sampled_from(KEYS), min_size=1), fails=st.booleans())
    def ask(self, keys: set[str], fails: bool) -> None:
        free = tuple(sorted(keys - self.lookups.keys))
        if free:
            self.number += 1
            self.waiting.append((free, self.number, fails))
            self.lookups.ask(free, answered, self.number, fails=fails)

    @rule()
    @precondition(lambda self: self.waiting)
    def answer(self) -> None:
        self.pool.run_next()
        self.ready.append(self.waiting.pop(0))

    @rule()
    def collect(self) -> None:
        taken = [(keys, seen(found)) for keys, found in self.lookups.collect()]
        assert taken == [(keys, outcome(number, fails=fails)) for keys, number, fails in self.ready]
        self.ready = []
        assert list(self.lookups.collect()) == []

    @invariant()
    def each_key_is_asked_about_once(self) -> None:
        under_way = [key for keys, _, _ in self.waiting + self.ready for key in keys]
        assert len(set(under_way)) == len(under_way)
        assert self.lookups.keys == set(under_way)
        assert len(self.lookups) == len(self.waiting + self.ready)


TestLookups = LookupsMachine.TestCase
TestLookups.settings = machine(100)


class LookupMachine(RuleBasedStateMachine):
    """One question at a time, with a pause behind each; a failure may be asked about sooner."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = HandExecutor(holding=True)
        self.lookup: Lookup[int] = Lookup(self.pool)
        self.now = T0
        self.due_at: datetime | None = None
        self.number = 0
        self.asked: tuple[int, bool] | None = None
        self.is_ready = False

    @rule(seconds=st.integers(0, 40))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(pause=st.integers(1, 30), fails=st.booleans())
    def ask(self, pause: int, fails: bool) -> None:
        is_due = self.asked is None and (self.due_at is None or self.now >= self.due_at)
        assert self.lookup.is_due(self.now) == is_due
        if is_due:
            self.number += 1
            self.asked = self.number, fails
            self.due_at = self.lookup.due_at = self.now + timedelta(seconds=pause)
            self.lookup.ask(answered, self.number, fails=fails)

    @rule()
    @precondition(lambda self: self.asked and not self.is_ready)
    def answer(self) -> None:
        self.pool.run_all()
        self.is_ready = True

    @rule(sooner=st.booleans())
    def collect(self, sooner: bool) -> None:
        found = self.lookup.collect()
        if not self.is_ready:
            assert found is None
            return
        assert self.asked is not None
        number, fails = self.asked
        assert seen(found) == outcome(number, fails=fails)
        self.asked, self.is_ready = None, False
        if fails and sooner:
            self.due_at = self.lookup.due_at = None
            assert self.lookup.is_due(self.now)
        assert self.lookup.collect() is None

    @invariant()
    def one_at_a_time(self) -> None:
        assert self.lookup.is_under_way == (self.asked is not None)
        assert self.pool.waiting <= 1


TestLookup = LookupMachine.TestCase
TestLookup.settings = machine(100)


@given(fails=st.booleans())
def test_a_question_tells_its_outcome_as_often_as_it_is_asked_for(fails: bool) -> None:
    pool = HandExecutor(holding=True)
    question = ask(pool, answered, 7, fails=fails)
    assert not question.is_answered
    assert question.collect() is None
    pool.run_all()
    assert question.is_answered
    assert [seen(question.collect()) for _ in range(2)] == [outcome(7, fails=fails)] * 2


def test_a_mistake_of_ours_comes_out_where_it_is_taken_in() -> None:
    lookup: Lookup[float] = Lookup(HandExecutor())
    lookup.ask(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lookup.collect()
    assert not lookup.is_under_way


def test_the_question_under_way_gives_way_to_another() -> None:
    pool = HandExecutor(holding=True)
    lookup: Lookup[int] = Lookup(pool)
    lookup.ask(answered, 1, fails=False)
    lookup.ask(answered, 2, fails=False)
    pool.run_next()
    assert lookup.collect() is None
    pool.run_next()
    assert lookup.collect() == Answer(2)
