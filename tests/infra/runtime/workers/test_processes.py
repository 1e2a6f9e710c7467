"""Children on this machine and their parent: real processes, which run a service that only waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from infra.local.waiting import wait_until
from infra.runtime.lifecycle import Stop
from infra.runtime.workers.processes import ProcessesNotStarted, WorkerProcesses
from infra.runtime.workers.supervisor_parts import SupervisorParts
from tests.fakes.surroundings import HandClock
from tests.fakes.waiting_task import Waiting
from tests.processes.test_on_spark import is_gone

PATIENCE = timedelta(seconds=60)


@dataclass(eq=False)
class Running:
    workers: WorkerProcesses
    stop: Stop
    thread: threading.Thread
    raised: list[BaseException]

    def ends(self) -> bool:
        self.stop.set()
        self.thread.join(PATIENCE.total_seconds())
        return not self.thread.is_alive()


@contextmanager
def running(builder: Waiting, count: int = 2) -> Iterator[Running]:
    stop, raised = Stop(), list[BaseException]()
    with ExitStack() as resources:
        workers = WorkerProcesses(
            count=count,
            builder=builder,
            drain_within=timedelta(seconds=20),
            parts=SupervisorParts(stop=stop, resources=resources),
        )

        def run() -> None:
            try:
                workers.run()
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield Running(workers, stop, thread, raised)
        finally:
            stop.set()
            thread.join()


def test_each_runs_is_started_again_and_drains(tmp_path: Path) -> None:
    builder = Waiting(folder=tmp_path)
    with running(builder) as found:
        assert wait_until(lambda: found.workers.snapshot().is_ready, PATIENCE)
        first = [builder.pid(task) for task in range(2)]
        assert len({*first, os.getpid()}) == 3
        assert found.workers.metrics_by_task("") == {0: "of 0", 1: "of 1"}
        os.kill(first[1], signal.SIGKILL)
        assert wait_until(lambda: builder.pid(1) not in (0, first[1]), PATIENCE)
        assert wait_until(lambda: found.workers.snapshot().is_ready, PATIENCE)
        assert builder.pid(0) == first[0], "the other one is not disturbed"
        assert found.ends()
        assert not found.raised
    assert all((tmp_path / f"{task}.drained").exists() for task in range(2))
    assert all(is_gone(pid) for pid in (*first, builder.pid(1)))


def test_one_that_cannot_be_started_disturbs_no_other(tmp_path: Path) -> None:
    """As when the machine has no process id left for a moment."""
    builder = Waiting(folder=tmp_path)
    with running(builder) as found:
        assert wait_until(lambda: found.workers.snapshot().is_ready, PATIENCE)
        first = [builder.pid(task) for task in range(2)]
        refused, start = threading.Event(), found.workers.start

        def refuse_once(work: bytes) -> subprocess.Popen[bytes]:
            if refused.is_set():
                return start(work)
            refused.set()
            raise BlockingIOError(11, "Resource temporarily unavailable")

        found.workers.start = refuse_once
        os.kill(first[1], signal.SIGKILL)
        assert wait_until(refused.is_set, PATIENCE)
        assert wait_until(lambda: builder.pid(1) not in (0, first[1]), PATIENCE)
        assert wait_until(lambda: found.workers.snapshot().is_ready, PATIENCE)
        assert not found.workers.snapshot().problems
        assert builder.pid(0) == first[0]
        assert found.ends()
        assert not found.raised


def test_an_error_of_the_parent_ends_no_child_before_it_has_drained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Waiting(folder=tmp_path)

    def broken(*_: object) -> None:
        raise ValueError("as a defect would")

    with running(builder) as found:
        assert wait_until(lambda: found.workers.snapshot().is_ready, PATIENCE)
        monkeypatch.setattr(WorkerProcesses, "_kill_hanging", broken)
        found.thread.join(PATIENCE.total_seconds())
    assert "as a defect would" in str(found.raised[0])
    assert all((tmp_path / f"{task}.drained").exists() for task in range(2))


def test_metrics_that_fail_leave_a_child_that_hears_its_parent(tmp_path: Path) -> None:
    builder = Waiting(folder=tmp_path, no_metrics="as a defect would")
    with running(builder, count=1) as found:
        assert wait_until(lambda: found.workers.snapshot().is_ready, PATIENCE)
        assert found.workers.metrics_by_task("") == {0: ""}
        assert found.ends()
    assert (tmp_path / "0.drained").exists()


def test_a_frozen_one_is_killed_and_another_one_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.runtime.workers.task_port.SILENCE", timedelta(seconds=3))
    monkeypatch.setattr("infra.runtime.workers.processes.UNHEARD", timedelta(seconds=10))
    builder = Waiting(folder=tmp_path)
    with running(builder) as found:
        assert wait_until(lambda: found.workers.snapshot().is_ready, PATIENCE)
        first = [builder.pid(task) for task in range(2)]
        os.kill(first[1], signal.SIGSTOP)
        assert wait_until(lambda: builder.pid(1) not in (0, first[1]), PATIENCE)
        assert wait_until(lambda: found.workers.snapshot().is_ready, PATIENCE)
        assert is_gone(first[1])
        assert builder.pid(0) == first[0], "the other one is not disturbed"
        assert found.ends()
        assert not found.raised


def test_a_first_start_that_fails_ends_the_parent_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.runtime.workers.processes.TRIES", 1)
    with running(Waiting(folder=tmp_path, failure="no such bucket: create it"), count=1) as found:
        found.thread.join(PATIENCE.total_seconds())
        (error,) = found.raised
    assert isinstance(error, ProcessesNotStarted)
    assert "no such bucket: create it" in str(error)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    builder = Waiting(folder=tmp_path)
    with running(builder, count=1) as found:
        assert wait_until(lambda: found.workers.snapshot().is_ready, PATIENCE)
        os.kill(builder.pid(0), signal.SIGKILL)
        assert wait_until(
            lambda: "0 of 1 processes run" in found.workers.snapshot().problems.get("tasks", ""), PATIENCE
        )


def test_one_that_has_begun_again_is_not_named_beside_another_that_ends(tmp_path: Path) -> None:
    builder = Waiting(folder=tmp_path)
    with running(builder) as found:

        def problem() -> str:
            return found.workers.snapshot().problems.get("tasks", "")

        for task in range(2):
            assert wait_until(lambda: found.workers.snapshot().is_ready, PATIENCE)
            os.kill(builder.pid(task), signal.SIGKILL)
            assert wait_until(lambda: "exit code" in problem(), PATIENCE)
            assert problem() == f"1 of 2 processes run; process {task} ended with exit code -9"


class Ends:
    """A process that ends by itself after some seconds of the clock."""

    pid = 1

    def __init__(self, clock: HandClock, seconds: float) -> None:
        self._clock, self._end = clock, clock.at + timedelta(seconds=seconds)

    def poll(self) -> int | None:
        return 1 if self._clock.at >= self._end else None

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int:
        return 1


def starts(lives: Sequence[float], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds from the end of each child to the start of the next, of one that lives as long as `lives` says."""
    monkeypatch.setattr("infra.runtime.workers.processes.TRIES", 100)
    clock, begun = HandClock(), list[datetime]()

    def start(_: bytes) -> Any:
        begun.append(clock.at)
        return Ends(clock, lives[min(len(begun), len(lives)) - 1])

    with ExitStack() as resources:
        parts = SupervisorParts(clock=clock, resources=resources)
        workers = WorkerProcesses(
            count=1, builder=Waiting(folder=Path()), drain_within=timedelta(), parts=parts, start=start
        )
        while len(begun) <= len(lives):
            workers._turn()
            clock.advance(0.5)
    return [
        (after - before).total_seconds() - life for (before, after), life in zip(pairwise(begun), lives, strict=True)
    ]


def test_a_child_that_ends_at_once_begins_again_after_pauses_that_double(monkeypatch: pytest.MonkeyPatch) -> None:
    assert starts([0.5] * 9, monkeypatch) == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_child_that_had_run_for_long_is_followed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert starts([0.5, 0.5, 0.5, 60, 0.5], monkeypatch) == [1, 2, 4, 1, 2]


PARENT = """\
import sys, threading
from datetime import timedelta
from pathlib import Path
from infra.runtime.workers.processes import WorkerProcesses
from infra.runtime.workers.supervisor_parts import SupervisorParts
from tests.fakes.waiting_task import Waiting
WorkerProcesses(count=2, builder=Waiting(folder=Path(sys.argv[1])), drain_within=timedelta(seconds=9),
                parts=SupervisorParts()).run()
"""


def test_children_drain_when_their_parent_is_killed(tmp_path: Path) -> None:
    builder = Waiting(folder=tmp_path)
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path)])
    try:
        assert wait_until(lambda: all(builder.pid(task) for task in range(2)), PATIENCE)
        children = [builder.pid(task) for task in range(2)]
    finally:
        parent.kill()
        parent.wait()
    assert wait_until(lambda: all(map(is_gone, children)), timedelta(seconds=30))
    assert all((tmp_path / f"{task}.drained").exists() for task in range(2))
