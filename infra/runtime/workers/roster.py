"""Which attempt of which task works: at most one of each task, at any time.

    hello ──> waiting ──the task has no worker, and its pause is over──> working ──drained──> gone
                 └──────────────────────── connection ends ─────────────────┴── lost, failed ──> gone; a pause begins

Rules
  1. An attempt that finds its task at work waits: a speculative copy, or one that Spark begins for a worker which it
     holds for lost. It never ends without an error, since Spark would then end the one that works.
  2. An attempt that was lost or that failed after less than STEADY is followed after a pause that doubles with each
     such attempt in a row. The first of a row is followed at once: an executor was killed, most likely. So is one that
     is lost without a word after its service had been up for SETTLED: executors may be lost again and again.
  3. Attempts of an earlier job are ordered to end.
  4. Once the drain has begun, those that work are ordered to end, and no other attempt begins. Those that wait are
     ordered when their task has no worker any more, for the reason of rule 1.
  5. Attempts on an executor that is decommissioned are ordered to move, those that wait, too: Spark begins each anew on
     another executor. One that has drained for this is not lost, and no pause follows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from infra.runtime.health import HealthSnapshot
from infra.runtime.retry import Backoff
from infra.runtime.workers.messages import Hello

STEADY = timedelta(seconds=60)
SETTLED = timedelta(seconds=10)
PAUSES = Backoff(timedelta(seconds=1), timedelta(seconds=60))

Connection = int  # number of a connection, unique in a driver


@dataclass(frozen=True, slots=True)
class BeginAttempt:
    connection: Connection


@dataclass(frozen=True, slots=True)
class HoldAttempt:
    connection: Connection
    reason: str


@dataclass(frozen=True, slots=True)
class EndAttempt:
    connection: Connection
    reason: str


@dataclass(frozen=True, slots=True)
class MoveAttempt:
    connection: Connection
    reason: str


Effect = BeginAttempt | HoldAttempt | EndAttempt | MoveAttempt


@dataclass(slots=True)
class _Task:
    worker: Connection | None = None
    waiting: list[Connection] = field(default_factory=list)  # in the order of their hellos
    began_at: datetime | None = None
    started_at: datetime | None = None  # when the service of this attempt was first reported to be up
    quick_failures: int = 0
    not_before: datetime | None = None
    error: str = ""  # why the last attempt is gone
    health: HealthSnapshot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """One task as it is seen from outside. `hello`: of the attempt that works. `health`: None before its first report.
    `next_at`: when the next attempt may begin."""

    task: int
    hello: Hello | None
    health: HealthSnapshot | None
    error: str
    next_at: datetime | None


class Roster:
    """Pure: facts and `now` in, effects out. `now` never goes back."""

    def __init__(self, tasks: int) -> None:
        if tasks < 1:
            raise ValueError(f"at least one task is needed, not {tasks}")
        self._tasks = [_Task() for _ in range(tasks)]
        self._hellos: dict[Connection, Hello] = {}
        self._job = 0
        self._moving: set[Connection] = set()
        self._draining = ""  # why
        self.lost = 0  # attempts that worked and did not drain
        self.has_connected = False  # whether any attempt has ever connected

    @property
    def working(self) -> int:
        return sum(task.worker is not None for task in self._tasks)

    @property
    def connected(self) -> int:
        return len(self._hellos)

    @property
    def attempts(self) -> Collection[tuple[int, int]]:
        """Task and attempt of every connection, of those that wait, too."""
        return {(hello.task, hello.attempt) for hello in self._hellos.values()}

    def states(self) -> Sequence[TaskState]:
        return [
            TaskState(
                task=number,
                hello=None if task.worker is None else self._hellos[task.worker],
                health=task.health,
                error=task.error,
                next_at=task.not_before,
            )
            for number, task in enumerate(self._tasks)
        ]

    def job_begins(self, job: int) -> list[Effect]:
        """Orders the attempts of earlier jobs to end."""
        self._job = job
        return [
            EndAttempt(connection, "the job is over")
            for connection, hello in self._hellos.items()
            if hello.job != self._job
        ]

    def joined(self, connection: Connection, hello: Hello, now: datetime) -> list[Effect]:
        self.has_connected = True
        if hello.job != self._job:
            return [EndAttempt(connection, "its job is over")]
        if not 0 <= hello.task < len(self._tasks):
            return [EndAttempt(connection, f"there are {len(self._tasks)} tasks")]
        self._hellos[connection] = hello
        self._tasks[hello.task].waiting.append(connection)
        effects = self.turn(now)
        if {BeginAttempt(connection), EndAttempt(connection, self._draining)}.isdisjoint(effects):
            effects.append(HoldAttempt(connection, self._why_waiting(hello.task)))
        return effects

    def reported(self, connection: Connection, health: HealthSnapshot, now: datetime) -> None:
        if (task := self._worked_on(connection)) is not None:
            task.health = health
            if health.is_started and task.started_at is None:
                task.started_at = now

    def left(self, connection: Connection, now: datetime, *, error: str, drained: bool = False) -> list[Effect]:
        """The connection has ended. `error`: the reason, if one is known. `drained`: its service ended as ordered."""
        task = self._worked_on(connection)
        hello = self._hellos.pop(connection, None)
        self._moving.discard(connection)
        if hello is None:
            return []
        if task is None:
            self._tasks[hello.task].waiting.remove(connection)
            return self.turn(now)
        task.worker, task.health = None, None
        if not drained:
            self.lost += 1
            task.error = f"{error or 'its worker was lost'} (host {hello.host}, process {hello.pid})"
            if _had_worked(task, now, is_lost=not error):
                task.quick_failures = 0
            task.not_before = now + PAUSES.delay(task.quick_failures - 1) if task.quick_failures else now
            task.quick_failures += 1
        return self.turn(now)

    def drain(self, reason: str) -> list[Effect]:
        self._draining = reason
        working = [EndAttempt(task.worker, reason) for task in self._tasks if task.worker is not None]
        return [*working, *self._released()]

    def move(self, attempts: Collection[int], reason: str) -> list[Effect]:
        """`attempts`: of this job, on executors that are decommissioned. Each is ordered once."""
        if self._draining:
            return []
        found = [
            connection
            for connection, hello in self._hellos.items()
            if hello.job == self._job and hello.attempt in attempts and connection not in self._moving
        ]
        self._moving.update(found)
        return [MoveAttempt(connection, reason) for connection in found]

    def turn(self, now: datetime) -> list[Effect]:
        """Let attempts begin whose turn it is."""
        if self._draining:
            return self._released()
        started: list[Effect] = []
        for task in self._tasks:
            if task.worker is None and (task.not_before is None or now >= task.not_before):
                mine = next((one for one in task.waiting if self._may_begin(one)), None)
                if mine is not None:
                    task.waiting.remove(mine)
                    task.worker, task.began_at, task.started_at = mine, now, None
                    task.not_before = None
                    started.append(BeginAttempt(mine))
        return started

    def _released(self) -> list[Effect]:
        """In a drain: attempts that wait for a task without a worker. An order may be repeated."""
        return [EndAttempt(one, self._draining) for task in self._tasks if task.worker is None for one in task.waiting]

    def next_turn(self) -> datetime | None:
        """When a pause ends that an attempt waits for."""
        return min(
            (task.not_before for task in self._tasks if task.waiting and task.not_before is not None), default=None
        )

    def _may_begin(self, connection: Connection) -> bool:
        return self._hellos[connection].job == self._job and connection not in self._moving

    def _worked_on(self, connection: Connection) -> _Task | None:
        return next((task for task in self._tasks if task.worker == connection), None)

    def _why_waiting(self, number: int) -> str:
        worker = self._tasks[number].worker
        if worker is None:
            return f"a pause after a failure: {self._tasks[number].error}"
        return f"task {number} works on {self._hellos[worker].host}, process {self._hellos[worker].pid}"


def _had_worked(task: _Task, now: datetime, *, is_lost: bool) -> bool:
    """Whether the attempt that is gone had worked so long that it is followed at once. `is_lost`: without a word."""
    is_steady = task.began_at is None or now - task.began_at >= STEADY
    return is_steady or (is_lost and task.started_at is not None and now - task.started_at >= SETTLED)
