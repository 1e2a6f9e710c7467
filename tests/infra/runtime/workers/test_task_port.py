"""Tasks and their driver over real sockets: who is let in, who works, how each learns of the other's end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from formats.errors import ConfigError, ReplicatorError
from infra.local.waiting import wait_until
from infra.runtime.health import Health
from infra.runtime.lifecycle import Stop, SystemClock
from infra.runtime.threaded_service import ThreadedService
from infra.runtime.workers import attempt, task_port
from infra.runtime.workers.attempt import ServiceInterrupted, ServiceMoved, TaskAttempt, WatchedService
from infra.runtime.workers.messages import UNPROVEN_BYTES, Hello, Order, changed_settings, encode
from infra.runtime.workers.roster import Roster
from infra.runtime.workers.task_port import TaskPort

HOST = "127.0.0.1"
PATIENCE = timedelta(seconds=20)


BROKEN = b"settings that cannot be taken over"


@dataclass(eq=False)
class Attempt:
    """A task's attempt on a thread, whose service works until it is stopped, or ordered to fail."""

    port: TaskPort
    number: int
    task: int = 0
    secret: str = ""
    stop: Stop = field(default_factory=Stop)
    health: Health = field(default_factory=Health)
    begun: threading.Event = field(default_factory=threading.Event)
    fails: threading.Event = field(default_factory=threading.Event)
    raised: list[BaseException] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    built_with: list[bytes | None] = field(default_factory=list)
    changed: list[bytes] = field(default_factory=list)
    on_build: Callable[[Attempt], None] = lambda _: None
    on_change: Callable[[bytes], None] = lambda _: None
    hears_before_it_works: Callable[[Attempt], bool] = lambda _: True  # what its thread waits for, once it may work

    def __post_init__(self) -> None:
        self.connection = socket.create_connection((HOST, self.port.port))
        hello = Hello(job=0, task=self.task, attempt=self.number, host="here", pid=self.number, instance="a")
        self.attempt = TaskAttempt(
            self.connection, self.secret or self.port.secret, hello, SystemClock(), self.left.append
        )
        self.attempt._may_run = _Late(lambda: self.hears_before_it_works(self))
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.attempt.run(self._build)
        except BaseException as error:
            self.raised.append(error)
        finally:
            self.connection.close()

    def _build(self, settings: bytes | None) -> WatchedService:
        self.built_with.append(settings)
        self.on_build(self)
        service = ThreadedService({"work": self._work}, self.stop, ExitStack(), timedelta(seconds=5))
        return WatchedService(
            service=service,
            health=self.health,
            metrics_text=lambda accept: f"{accept} of {self.number}",
            change=self._change,
        )

    def _change(self, settings: bytes) -> None:
        if settings == BROKEN:
            raise ValueError("as a defect would")
        self.on_change(settings)
        self.changed.append(settings)

    def _work(self) -> None:
        self.begun.set()
        self.health.started(True)
        while not self.stop.wait(timedelta(milliseconds=5)):
            if self.fails.is_set():
                raise ReplicatorError("no such bucket")

    def works(self) -> bool:
        return self.begun.wait(PATIENCE.total_seconds())

    def ended(self) -> bool:
        self.thread.join(PATIENCE.total_seconds())
        return not self.thread.is_alive()


class _Late(threading.Event):
    """A thread that waits for it is late: it goes on once something else has happened, too."""

    def __init__(self, happened: Callable[[], bool]) -> None:
        super().__init__()
        self._happened = happened

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(timeout) and wait_until(self._happened, PATIENCE)


@pytest.fixture
def port() -> Iterator[TaskPort]:
    port = TaskPort(Roster(2), host=HOST, port=0, clock=SystemClock())
    yield port
    port.close()


def eventually(check: Callable[[], bool]) -> None:
    assert wait_until(check, PATIENCE)


def test_works_reports_and_drains(port: TaskPort) -> None:
    first, second = Attempt(port, 1), Attempt(port, 2, task=1)
    assert first.works()
    assert second.works()
    eventually(lambda: all(s.health is not None and s.health.is_started for s in port.states()))
    assert port.metrics("plain", PATIENCE) == {0: "plain of 1", 1: "plain of 2"}
    port.drain("SIGTERM")
    assert first.ended()
    assert second.ended()
    assert first.raised + second.raised == []
    eventually(lambda: all(state.hello is None for state in port.states()))
    assert port.lost == 0


@pytest.mark.parametrize("order", ["end", "move"])
def test_an_attempt_that_is_ordered_to_end_just_as_it_may_begin_is_not_lost(port: TaskPort, order: str) -> None:
    worker = Attempt(port, 1, hears_before_it_works=lambda one: one.attempt._is_ordered or bool(one.attempt._moved))
    eventually(lambda: port.states()[0].hello is not None)
    if order == "end":
        port.drain("SIGTERM")
    else:
        port.move({1}, "its executor is decommissioned")
    assert worker.ended()
    eventually(lambda: port.states()[0].hello is None)
    assert not worker.begun.is_set()
    assert (port.lost, port.states()[0].error) == (0, "")


def test_a_copy_waits_until_the_worker_is_gone(port: TaskPort) -> None:
    worker = Attempt(port, 1)
    assert worker.works()
    copy = Attempt(port, 2)
    eventually(lambda: port._roster.connected == 2)
    assert not copy.begun.is_set()
    worker.fails.set()
    assert worker.ended()
    assert copy.works()
    (state, _) = port.states()
    assert state.error.startswith("no such bucket (host here")
    assert port.lost == 1


def test_changed_settings_reach_each_task_and_each_later_attempt_before_it_begins(port: TaskPort) -> None:
    first = Attempt(port, 1)
    assert first.works()
    assert (first.built_with, first.changed) == ([None], [])
    large = b"x" * (8 << 20)  # more than the system's buffers take at once
    port.change_settings(large)
    eventually(lambda: first.changed == [large])
    second = Attempt(port, 2, task=1)
    assert second.works()
    assert (second.built_with, second.changed) == ([large], []), "in force before it begins"
    eventually(lambda: port.states()[1].health is not None)
    port.change_settings(b"newer")
    eventually(lambda: first.changed[1:] == second.changed == [b"newer"])
    copy = Attempt(port, 3)
    first.fails.set()
    assert copy.works()
    assert (copy.built_with, copy.changed) == ([b"newer"], [])


def test_the_newest_settings_hold_that_came_while_the_service_was_built(port: TaskPort) -> None:
    taken = threading.Event()  # the thread of orders has passed on the newer ones

    def first_ones_come(one: Attempt) -> None:
        port.change_settings(b"first")
        eventually(lambda: one.attempt._settings == b"first")

    def newer_ones_come(settings: bytes) -> None:
        if settings == b"first":
            port.change_settings(b"newer")
            taken.wait(0.3)  # what has to wait for this thread is not seen from here
        else:
            taken.set()

    worker = Attempt(port, 1, on_build=first_ones_come, on_change=newer_ones_come)
    assert worker.works()
    eventually(lambda: len(worker.changed) == 2)
    assert worker.changed == [b"first", b"newer"]


def test_an_order_that_fails_in_an_unexpected_way_ends_the_attempt(port: TaskPort) -> None:
    """Else it hears no further order, and goes on when its parent is gone."""
    worker = Attempt(port, 1)
    assert worker.works()
    port.change_settings(BROKEN)
    assert worker.ended()
    assert "as a defect would" in str(worker.raised[0])


def test_what_a_stranger_sends_as_settings_ends_the_attempt(port: TaskPort) -> None:
    worker = Attempt(port, 1)
    assert worker.works()
    with port._lock:
        (one,) = port._working()
        port._send(one, changed_settings("guessed", one.nonce, b"x"))
    assert worker.ended()
    assert worker.changed == []
    assert "without the proof" in str(worker.raised[0])


def test_attempts_on_an_executor_that_leaves_drain_and_begin_elsewhere(port: TaskPort) -> None:
    worker = Attempt(port, 1)
    assert worker.works()
    copy = Attempt(port, 2)
    eventually(lambda: port._roster.connected == 2)
    other = Attempt(port, 3, task=1)
    assert other.works()
    for _ in range(2):
        port.move({1, 2}, "its executor is decommissioned")
    assert worker.ended()
    assert copy.ended()
    assert worker.stop.is_set(), "it was drained"
    assert not copy.begun.is_set()
    for one in (worker, copy):
        assert isinstance(one.raised[0], ServiceMoved), "else Spark would take the task for done"
    eventually(lambda: port._roster.connected == 1)
    again = Attempt(port, 4)
    assert again.works()
    assert not other.stop.is_set()
    assert (port.lost, port.states()[0].error) == (0, ""), "nothing was lost"


def test_without_the_secret_nothing_is_heard(port: TaskPort) -> None:
    stranger = Attempt(port, 1, secret="guessed")
    assert stranger.ended()
    assert isinstance(stranger.raised[0], ServiceInterrupted)
    assert not stranger.begun.is_set()
    assert not port.has_connected


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        (UNPROVEN_BYTES + 1).to_bytes(4, "big"),
        encode(Order(what="end")),
        b"\x00\x00\x00\x02{}",
    ],
    ids=["http", "too long", "an order", "no message"],
)
def test_garbage_ends_its_own_connection_only(port: TaskPort, sent: bytes) -> None:
    worker = Attempt(port, 1)
    assert worker.works()
    with socket.create_connection((HOST, port.port)) as other:
        other.settimeout(PATIENCE.total_seconds())
        other.sendall(sent)
        try:
            while other.recv(4096):  # the welcome, then the end
                pass
        except ConnectionResetError:
            pass
    assert port.error is None
    assert port.states()[0].hello is not None


def test_a_crowd_of_strangers_does_not_keep_a_task_out(port: TaskPort) -> None:
    with ExitStack() as strangers:
        for _ in range(task_port.MOST_UNPROVEN + 20):
            strangers.enter_context(socket.create_connection((HOST, port.port)))
        assert Attempt(port, 1).works()


def test_the_end_of_the_driver_drains_the_service(port: TaskPort) -> None:
    worker = Attempt(port, 1)
    assert worker.works()
    copy = Attempt(port, 2)  # later: of two hellos on their way the first to arrive works
    eventually(lambda: port._roster.connected == 2)
    port.close()
    assert worker.ended()
    assert copy.ended()
    assert worker.stop.is_set()
    assert isinstance(worker.raised[0], ServiceInterrupted)
    assert isinstance(copy.raised[0], ServiceInterrupted), "else Spark would take the task for done"
    assert not copy.begun.is_set()


def test_a_driver_that_is_silent_counts_as_gone(port: TaskPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "SILENCE", timedelta(seconds=0.2))
    monkeypatch.setattr(attempt, "END_WITHIN", timedelta(seconds=0.3))
    worker = Attempt(port, 1)
    assert worker.works()
    assert worker.ended(), "pings come once a second only"
    assert "silent" in str(worker.raised[0])
    eventually(lambda: worker.left == [1])


def test_a_task_that_is_silent_counts_as_gone(port: TaskPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_port, "SILENCE", timedelta(seconds=0.2))
    worker = Attempt(port, 1)
    assert worker.works()
    assert worker.ended()
    assert "silent" in port.states()[0].error


def test_a_signal_drains_as_the_drivers_end_does(port: TaskPort) -> None:
    worker = Attempt(port, 1)
    assert worker.works()
    worker.attempt.interrupt("SIGTERM")
    assert worker.ended()
    assert "SIGTERM" in str(worker.raised[0])
    eventually(lambda: "SIGTERM" in port.states()[0].error)


def test_a_taken_port_is_a_problem_of_the_configuration(port: TaskPort) -> None:
    with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1:{port.port} for the tasks"):
        TaskPort(Roster(1), host=HOST, port=port.port, clock=SystemClock())
