"""N child processes on this machine that each run a service, and their parent.

    start children ──> turn: start again what has ended ──stop──> drain over their connections ──> all ended
                                                                        └── the deadline ──> kill

A child has a connection to the parent (`infra.runtime.workers.task_port`): its end is the parent's end, after which the
child drains by itself; health and metrics travel on it. Children have a session of their own, so that Ctrl-C of a
terminal reaches the parent only, which orders them to drain.
"""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from formats.errors import ReplicatorError
from infra.runtime import log_fields
from infra.runtime.health import Health, HealthSnapshot
from infra.runtime.lifecycle import Deadline
from infra.runtime.retry import Backoff
from infra.runtime.workers.attempt import ServiceBuilder, WorkerJob
from infra.runtime.workers.gathered import gather
from infra.runtime.workers.roster import Roster
from infra.runtime.workers.supervisor_parts import SupervisorParts
from infra.runtime.workers.task_port import TaskPort

LOOPBACK = "127.0.0.1"
TURN = timedelta(milliseconds=200)
STEADY = timedelta(seconds=60)  # a child that ran so long is followed at once
PAUSES = Backoff(timedelta(seconds=1), timedelta(seconds=60))
UNHEARD = timedelta(minutes=2)  # without a connection; a child that does not hang has ended by then
TRIES = 3  # failed starts of each child before the first one works, until the run ends
COMMAND = (sys.executable, "-m", "infra.runtime.workers.child")

log = logging.getLogger(__name__)


class ProcessesNotStarted(ReplicatorError):
    """Not one of the children ever worked."""


StartChild = Callable[[bytes], "subprocess.Popen[bytes]"]


def start_child(work: bytes) -> subprocess.Popen[bytes]:
    """`work`: what the child reads. A child that ends before it has read all is found by its exit code."""
    child = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, start_new_session=True)
    if child.stdin is not None:
        with suppress(BrokenPipeError), child.stdin as pipe:
            pipe.write(work)
    return child


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[bytes] | None = None
    began_at: datetime | None = None
    attempts: int = 0
    failures: int = 0  # in a row, each after less than STEADY
    not_before: datetime | None = None  # the end of a pause
    exit_code: int | None = None  # of the one before
    heard_at: datetime | None = None  # its start, and since then the last time that it was connected


@dataclass(slots=True, kw_only=True)
class WorkerProcesses:
    """`run` on a thread of its own, until `stop` is set; everything else may be called from any thread."""

    count: int
    builder: ServiceBuilder
    drain_within: timedelta
    parts: SupervisorParts
    start: StartChild = start_child
    health: Health = field(default_factory=Health)  # problems of the parent's own, beside those of the children
    _port: TaskPort = field(init=False)
    _children: list[_Child] = field(init=False)
    _turned_at: datetime = field(init=False)
    _counted: int = 0  # lost attempts in the metric
    _has_worked: bool = False  # any child, ever

    def __post_init__(self) -> None:
        self._turned_at = self.parts.clock.now()
        self._port = TaskPort(Roster(self.count), host=LOOPBACK, port=0, clock=self.parts.clock)
        self.parts.resources.callback(self._port.close)
        self._port.job_begins(1)
        self._children = [_Child() for _ in range(self.count)]
        self.parts.metrics.gauge("worker_processes", self.count)

    def run(self) -> None:
        """Raises ProcessesNotStarted, and what ended the thread that supervises the children."""
        try:
            while not self.parts.stop.is_set():
                self._turn()
                self.parts.stop.wait(TURN)
            self._drain()
        except Exception:
            self._drain()  # what has not failed keeps what it has done
            raise
        finally:
            self._end_rest()

    def change_settings(self, pickled: bytes) -> None:
        """Let every child take them over, and those that begin later."""
        self._port.change_settings(pickled)

    # --- what can be seen

    def snapshot(self) -> HealthSnapshot:
        found = gather(self._port.states(), self.parts.clock.now(), driver_turn=self._turned_at, missing=self._missing)
        return replace(found, problems={**self.health.snapshot().problems, **found.problems})

    def metrics_by_task(self, accept: str) -> Mapping[int, str]:
        return self._port.metrics(accept)

    def _missing(self, working: int, wanted: int) -> str:
        text = f"{working} of {wanted} processes run"
        gone = [state.task for state in self._port.states() if state.hello is None]
        ended = {number: code for number in gone if (code := self._children[number].exit_code) is not None}
        return text + "".join(f"; process {number} ended with exit code {code}" for number, code in ended.items())

    # --- the thread of run

    def _turn(self) -> None:
        now = self._turned_at = self.parts.clock.now()
        for task, child in enumerate(self._children):
            self._reap(task, child, now)
            if child.process is None and (child.not_before is None or now >= child.not_before):
                self._start(task, child, now)
        self._kill_hanging(now)
        states = self._port.states()
        self.parts.metrics.gauge("running_worker_processes", sum(state.hello is not None for state in states))
        self._has_worked |= any(state.health is not None and state.health.is_started for state in states)
        if not self._has_worked and min(child.failures for child in self._children) >= TRIES:  # an operator is there
            reasons = [state.error for state in states if state.error] or ["the log of the processes has the reason"]
            raise ProcessesNotStarted(f"none of {self.count} processes starts: {reasons[0]}")
        if self._port.error is not None:
            raise self._port.error
        if (lost := self._port.lost) > self._counted:
            self.parts.metrics.count("lost_worker_processes", lost - self._counted)
            self._counted = lost

    def _start(self, task: int, child: _Child, now: datetime) -> None:
        child.attempts += 1
        work = WorkerJob(host=LOOPBACK, port=self._port.port, secret=self._port.secret, job=1, builder=self.builder)
        try:
            child.process = self.start(pickle.dumps((work, task, child.attempts)))
        except OSError as error:  # no memory or no process id is left for a moment: the others go on
            child.exit_code, child.not_before = None, now + PAUSES.delay(child.failures)
            child.failures += 1
            self.health.problem(f"process {task}", f"it cannot be started: {error}; it is tried again")
            log.error("process_not_started", extra={log_fields.TASK: task, log_fields.ERROR: str(error)})
            return
        self.health.problem(f"process {task}", "")
        child.began_at = child.heard_at = now
        log.info("process_started", extra={log_fields.TASK: task, log_fields.PROCESS: child.process.pid})

    def _reap(self, task: int, child: _Child, now: datetime) -> None:
        """Take in a child that has ended; the next one begins after a pause, which doubles with each quick end."""
        if child.process is None or child.began_at is None or (code := child.process.poll()) is None:
            return
        if now - child.began_at >= STEADY:
            child.failures = 0
        pause = PAUSES.delay(child.failures)
        child.failures += 1
        child.process, child.exit_code, child.not_before = None, code, now + pause
        log.error(
            "process_ended",
            extra={
                log_fields.TASK: task,
                log_fields.EXIT_CODE: code,
                log_fields.WAIT_MS: round(pause.total_seconds() * 1000),
            },
        )

    def _kill_hanging(self, now: datetime) -> None:
        """Kill children that are frozen, or hang in compiled code: they have lost their connection and do not end."""
        connected = self._port.attempts()
        for task, child in enumerate(self._children):
            if child.process is None or child.heard_at is None:
                continue
            if (task, child.attempts) in connected:
                child.heard_at = now
            elif now - child.heard_at > UNHEARD:
                log.error("process_hangs", extra={log_fields.TASK: task, log_fields.PROCESS: child.process.pid})
                child.process.kill()  # `_reap` takes it in

    def _drain(self) -> None:
        self._port.drain("the parent stops")
        deadline = Deadline(self.drain_within)
        while any(self._running()) and not deadline.expired:
            self._turned_at = self.parts.clock.now()
            for process in self._running():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(min(TURN, deadline.left).total_seconds())

    def _running(self) -> list[subprocess.Popen[bytes]]:
        return [one.process for one in self._children if one.process is not None and one.process.poll() is None]

    def _end_rest(self) -> None:
        """After the drain only children that hang are left: what they had not committed is read again."""
        if left := self._running():
            log.warning("processes_killed", extra={log_fields.COUNT: len(left)})
        for process in left:
            process.kill()
            process.wait()
