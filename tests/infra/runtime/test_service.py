from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from formats.errors import BrokerUnavailable
from infra.runtime.lifecycle import Stop
from infra.runtime.service import build_and_run, ignored_reload, run_until_signalled
from infra.runtime.threaded_service import ThreadedService


class Worker:
    """A service that works until it is stopped, or fails with a given error."""

    def __init__(self, *, on_start: Callable[[], None] = lambda: None, error: Exception | None = None) -> None:
        self._on_start, self._error = on_start, error
        self.ended, self.reloaded = threading.Event(), threading.Event()
        self.stops = 0

    def start(self) -> None:
        self._on_start()

    def stop(self) -> None:
        self.stops += 1
        self.ended.set()

    def reload(self) -> None:
        self.reloaded.set()

    def join(self, timeout: timedelta | None = None) -> None:
        if self._error is not None:
            raise self._error
        assert self.ended.wait(10)


class Signals:
    """Replaces `signal.signal`, and can deliver signals."""

    def __init__(self) -> None:
        self.handlers: dict[int, Any] = dict.fromkeys((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), "before")

    def install(self, number: int, handler: Any) -> Any:
        previous, self.handlers[number] = self.handlers[number], handler
        return previous

    def deliver(self, number: int) -> None:
        self.handlers[number](number, None)


def leave(code: int) -> None:
    raise SystemExit(code)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_service(number: signal.Signals) -> None:
    signals = Signals()
    service = Worker(on_start=lambda: signals.deliver(number))
    assert run_until_signalled(service, signals.install, leave) == 0
    assert service.stops == 1
    assert set(signals.handlers.values()) == {"before"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_service_is_built_ends_the_process_with_0(
    number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for its broker then, and nothing is in flight: it ended with 143 or 130, without an event."""
    caplog.set_level("INFO")
    signals, left, codes = Signals(), threading.Event(), list[int]()

    def note(code: int) -> None:
        codes.append(code)
        left.set()

    def build() -> Worker:
        signals.deliver(number)
        assert left.wait(10)
        raise BrokerUnavailable("as of a process that goes on")

    with pytest.raises(BrokerUnavailable):
        build_and_run(build, signals.install, note)
    assert codes == [0]
    assert [one.message for one in caplog.records] == ["stopping", "stopped"]
    assert set(signals.handlers.values()) == {"before"}


@pytest.mark.parametrize(("second", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_leaves_at_once(second: signal.Signals, code: int) -> None:
    signals = Signals()

    def twice() -> None:
        signals.deliver(signal.SIGTERM)
        signals.deliver(second)

    with pytest.raises(SystemExit) as caught:
        run_until_signalled(Worker(on_start=twice), signals.install, leave)
    assert caught.value.code == code
    assert set(signals.handlers.values()) == {"before"}


def test_work_that_ends_by_itself() -> None:
    service = Worker()
    service.ended.set()
    assert run_until_signalled(service, Signals().install, leave) == 0
    assert service.stops == 0


@pytest.mark.parametrize("error", [BrokerUnavailable("no brokers"), RuntimeError("a bug")])
def test_a_failed_service(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    signals = Signals()
    assert run_until_signalled(Worker(error=error), signals.install, leave) == 1
    (record,) = [r for r in caplog.records if r.levelname == "ERROR"]
    assert str(error) in vars(record)["error"]
    assert (record.exc_info is not None) == isinstance(error, RuntimeError)  # only a bug needs its traceback
    assert set(signals.handlers.values()) == {"before"}


def test_no_thread_is_left() -> None:
    before = set(threading.enumerate())
    service = Worker()
    service.ended.set()
    run_until_signalled(service, Signals().install, leave)
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("times", [1, 3])
def test_a_hangup_reloads_and_ends_nothing(times: int) -> None:
    signals = Signals()

    def hang_up() -> None:
        for _ in range(times):
            signals.deliver(signal.SIGHUP)
            assert service.reloaded.wait(10)
            service.reloaded.clear()
        signals.deliver(signal.SIGTERM)

    service = Worker(on_start=hang_up)
    assert run_until_signalled(service, signals.install, leave) == 0
    assert service.stops == 1
    assert set(signals.handlers.values()) == {"before"}


def test_a_hangup_during_the_shutdown_does_not_end_it_at_once() -> None:
    signals = Signals()

    def both() -> None:
        signals.deliver(signal.SIGTERM)
        signals.deliver(signal.SIGHUP)

    assert run_until_signalled(Worker(on_start=both), signals.install, leave) == 0


@pytest.fixture
def default_hangup() -> Iterator[None]:
    """SIGHUP as a shell sets it, also where the tests were started with it ignored, by nohup."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, previous)


@pytest.mark.usefixtures("default_hangup")
def test_a_command_that_is_no_service_ignores_a_hangup() -> None:
    with ignored_reload(in_terminal=False):
        os.kill(os.getpid(), signal.SIGHUP)
        handled = signal.getsignal(signal.SIGHUP)
    assert handled is not signal.SIG_IGN  # which programs that it starts would inherit
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


@pytest.mark.usefixtures("default_hangup")
def test_a_terminal_that_closes_ends_its_command() -> None:
    with ignored_reload(in_terminal=True):
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


@pytest.mark.parametrize("is_reloading", [True, False])
def test_a_service_without_a_file_says_so(is_reloading: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    requests: list[bool] = []
    request = (lambda: requests.append(True)) if is_reloading else None
    service = ThreadedService({}, Stop(), ExitStack(), timedelta(seconds=1), reload=request)
    service.reload()
    assert requests == [True] * is_reloading
    assert [record.message for record in caplog.records] == ["not_reloaded"] * (not is_reloading)


def test_a_thread_that_is_left_behind_fails_nothing_when_its_clients_are_closed() -> None:
    """It waits for a cluster that does not answer, longer than the service may; then its client is closed under it."""
    closed, ended = threading.Event(), threading.Event()

    def hangs() -> None:
        closed.wait(10)
        ended.set()
        raise RuntimeError("Producer has been closed")

    resources = ExitStack()
    resources.callback(lambda: ended.wait(10))
    resources.callback(closed.set)
    service = ThreadedService({"intake": hangs}, Stop(), resources, timedelta(milliseconds=50))
    service.start()
    service.stop()
    service.join()
    service.join()


def test_what_failed_before_the_end_is_raised_by_each_join() -> None:
    def fails() -> None:
        raise ValueError("broken")

    service = ThreadedService({"loop": fails}, Stop(), ExitStack(), timedelta(seconds=1))
    service.start()
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            service.join(timedelta(seconds=10))


STUBBORN = """
import os, signal, sys, threading
from infra.runtime.service import run_until_signalled

class Stubborn:
    def start(self): print("started", flush=True)
    def stop(self): print("stopping", flush=True)
    def join(self, timeout=None):
        for _ in range(600): threading.Event().wait(0.1)

sys.exit(run_until_signalled(Stubborn()))
"""


def test_real_signals_end_a_process_that_does_not_stop() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 143
