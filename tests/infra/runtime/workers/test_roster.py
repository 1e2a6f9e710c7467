"""At most one attempt of a task works, whatever Spark begins, loses and repeats; and none is forgotten."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from infra.runtime.health import HealthSnapshot
from infra.runtime.workers.messages import Hello
from infra.runtime.workers.roster import (
    SETTLED,
    STEADY,
    BeginAttempt,
    Effect,
    EndAttempt,
    HoldAttempt,
    MoveAttempt,
    Roster,
)
from tests.examples import machine

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TASKS = 3


def hello(task: int = 0, job: int = 0, attempt: int = 0) -> Hello:
    return Hello(job=job, task=task, attempt=attempt, host="worker-1", pid=100 + attempt, instance=f"egress-{task}")


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_the_first_attempt_begins_at_once() -> None:
    roster = Roster(2)
    assert roster.joined(1, hello(0), NOW) == [BeginAttempt(1)]
    assert roster.joined(2, hello(1), NOW) == [BeginAttempt(2)]
    assert [state.hello is not None for state in roster.states()] == [True, True]


def test_a_speculative_copy_waits_and_follows_a_lost_worker() -> None:
    roster = Roster(1)
    roster.joined(1, hello(), NOW)
    assert roster.joined(2, hello(attempt=1), NOW) == [HoldAttempt(2, "task 0 works on worker-1, process 100")]
    assert roster.turn(at(100)) == []
    assert roster.left(1, at(100), error="") == [BeginAttempt(2)]


def test_a_copy_that_waits_may_leave() -> None:
    roster = Roster(1)
    roster.joined(1, hello(), NOW)
    roster.joined(2, hello(attempt=1), NOW)
    assert roster.left(2, NOW, error="") == []
    assert roster.lost == 0
    assert roster.left(1, NOW, error="") == []


def test_pauses_between_quick_failures_grow_and_are_forgotten() -> None:
    roster, now, pauses = Roster(1), NOW, []
    for attempt in range(5):
        effects = roster.joined(attempt, hello(attempt=attempt), now)
        if BeginAttempt(attempt) not in effects:
            due = roster.next_turn()
            assert due is not None
            assert roster.turn(due - timedelta(microseconds=1)) == []
            assert roster.turn(due) == [BeginAttempt(attempt)]
            pauses.append((due - now).total_seconds())
            now = due
        roster.left(attempt, now, error="no such bucket")
    assert pauses == [1, 2, 4]
    (state,) = roster.states()
    assert state.error == "no such bucket (host worker-1, process 104)"
    due = roster.states()[0].next_at
    assert due is not None
    roster.joined(9, hello(), due)
    roster.left(9, due + STEADY, error="")
    assert roster.joined(10, hello(), due + STEADY) == [BeginAttempt(10)], "it had worked for long"


def lost_again_and_again(roster: Roster, *, started: bool, seconds: float, error: str = "") -> list[float]:
    """The pauses of a task each of whose attempts is lost so many seconds after its begin."""
    now, pauses = NOW, []
    for attempt in range(5):
        roster.joined(attempt, hello(attempt=attempt), now)
        roster.turn(now)
        roster.reported(attempt, HealthSnapshot(is_started=started), now)
        now += timedelta(seconds=seconds)
        roster.left(attempt, now, error=error)
        due = roster.states()[0].next_at
        assert due is not None
        pauses.append((due - now).total_seconds())
        now = due
    return pauses


def test_executors_that_are_lost_again_and_again_cost_no_pause() -> None:
    settled = SETTLED.total_seconds()
    assert lost_again_and_again(Roster(1), started=True, seconds=settled) == [0, 0, 0, 0, 0]
    assert lost_again_and_again(Roster(1), started=True, seconds=settled - 1) == [0, 1, 2, 4, 8]
    assert lost_again_and_again(Roster(1), started=False, seconds=settled) == [0, 1, 2, 4, 8], "it never worked"
    assert lost_again_and_again(Roster(1), started=True, seconds=settled, error="no such bucket") == [0, 1, 2, 4, 8]


def test_an_attempt_of_an_earlier_job_is_ended_and_its_successor_waits_for_it() -> None:
    roster = Roster(1)
    roster.joined(1, hello(), NOW)
    assert roster.job_begins(1) == [EndAttempt(1, "the job is over")]
    assert roster.joined(2, hello(job=1), NOW)[0] == HoldAttempt(2, "task 0 works on worker-1, process 100")
    assert roster.joined(3, hello(job=0), NOW) == [EndAttempt(3, "its job is over")]
    assert roster.left(1, NOW, error="", drained=True) == [BeginAttempt(2)]
    assert roster.lost == 0


def test_a_drain_ends_workers_first_and_their_copies_after_them() -> None:
    roster = Roster(2)
    roster.joined(1, hello(), NOW)
    roster.joined(2, hello(attempt=1), NOW)
    assert roster.drain("SIGTERM") == [EndAttempt(1, "SIGTERM")]
    assert roster.joined(3, hello(task=1), NOW) == [EndAttempt(3, "SIGTERM")]
    assert roster.left(1, NOW, error="", drained=True)[0] == EndAttempt(2, "SIGTERM")


def test_what_drained_to_move_is_followed_at_once_on_another_executor_only() -> None:
    roster = Roster(1)
    roster.joined(1, hello(attempt=1), NOW)
    roster.joined(2, hello(attempt=2), NOW)
    roster.joined(3, hello(attempt=3), NOW)
    assert roster.move({1, 2}, "leaves") == [MoveAttempt(1, "leaves"), MoveAttempt(2, "leaves")]
    assert roster.move({1, 2}, "leaves") == []
    assert roster.left(1, NOW, error="", drained=True) == [BeginAttempt(3)]
    assert roster.left(2, NOW, error="") == []
    assert (roster.lost, roster.states()[0].error) == (0, "")
    roster.drain("SIGTERM")
    assert roster.move({3}, "leaves") == [], "a drain ends them"


def test_an_unknown_task_is_ended() -> None:
    assert Roster(1).joined(1, hello(task=1), NOW) == [EndAttempt(1, "there are 1 tasks")]
    assert Roster(1).joined(1, hello(task=-1), NOW) == [EndAttempt(1, "there are 1 tasks")]
    with pytest.raises(ValueError, match="at least one"):
        Roster(0)


def test_health_is_that_of_the_worker() -> None:
    roster = Roster(1)
    roster.joined(1, hello(), NOW)
    roster.joined(2, hello(attempt=1), NOW)
    roster.reported(2, HealthSnapshot(is_started=True), NOW)
    assert roster.states()[0].health is None
    roster.reported(1, HealthSnapshot(is_started=True), NOW)
    assert roster.states()[0].health == HealthSnapshot(is_started=True)
    roster.left(1, NOW, error="")
    assert roster.states()[0].health is None


class RosterMachine(RuleBasedStateMachine):
    """Connections come and go in any order; orders are obeyed late, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.roster, self.now, self.job = Roster(TASKS), NOW, 0
        self.numbers = count(1)
        self.alive: dict[int, Hello] = {}
        self.working: dict[int, set[int]] = defaultdict(set)  # connections by task
        self.ended: set[int] = set()
        self.moved: set[int] = set()
        self.draining = False

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case BeginAttempt(connection=one):
                    assert not self.draining
                    assert one in self.alive
                    assert self.alive[one].job == self.job
                    self.working[self.alive[one].task].add(one)
                    assert one not in self.moved
                case EndAttempt(connection=one):
                    self.ended.add(one)
                case MoveAttempt(connection=one):
                    assert one not in self.moved, "ordered once"
                    self.moved.add(one)
                case HoldAttempt():
                    pass

    @rule(task=st.integers(0, TASKS - 1), is_late=st.booleans())
    def joins(self, task: int, is_late: bool) -> None:
        number = next(self.numbers)
        self.alive[number] = hello(task, self.job - is_late, number)
        self.take(self.roster.joined(number, self.alive[number], self.now))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), drained=st.booleans())
    def leaves(self, data: st.DataObject, drained: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.alive)))
        gone = self.alive.pop(number)
        self.working[gone.task].discard(number)
        self.take(self.roster.left(number, self.now, error="", drained=drained))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), is_started=st.booleans())
    def reports(self, data: st.DataObject, is_started: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.alive)))
        self.roster.reported(number, HealthSnapshot(is_started=is_started), self.now)

    @rule()
    def another_job(self) -> None:
        self.job += 1
        self.take(self.roster.job_begins(self.job))

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def an_executor_leaves(self, data: st.DataObject) -> None:
        attempts = data.draw(st.sets(st.sampled_from(sorted(self.alive)), min_size=1))
        self.take(self.roster.move(attempts, "its executor is decommissioned"))
        of_this_job = {n for n in attempts if self.alive[n].job == self.job}
        assert self.draining or of_this_job - self.ended <= self.moved

    @rule(seconds=st.sampled_from([0, 1, 10, 100]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.take(self.roster.turn(self.now))

    @rule()
    def drains(self) -> None:
        self.draining = True
        self.take(self.roster.drain("SIGTERM"))

    @invariant()
    def one_worker_of_a_task(self) -> None:
        assert all(len(working) <= 1 for working in self.working.values())
        assert self.roster.working == sum(map(len, self.working.values()))

    @invariant()
    def none_is_forgotten(self) -> None:
        """A task without a worker has none that waits, but for a pause; in a drain, all of its own were ended."""
        self.take(self.roster.turn(self.now + timedelta(minutes=2)))
        for task in range(TASKS):
            waiting = [n for n, one in self.alive.items() if one.task == task and n not in self.ended | self.moved]
            if not self.working[task]:
                assert waiting == []

    @invariant()
    def a_copy_outlives_its_worker(self) -> None:
        """Spark would end the worker whose copy ended well."""
        for task, working in self.working.items():
            copies = [n for n, one in self.alive.items() if one.task == task and one.job == self.job]
            assert not (working & set(copies)) or not (self.ended & set(copies) - working)


RosterMachine.TestCase.settings = machine(200)
TestRosterMachine = RosterMachine.TestCase
