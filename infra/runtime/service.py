"""Runs a service in the foreground, until it fails or a signal stops it; SIGHUP makes it read its file again."""

from __future__ import annotations

import logging
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Any, Protocol

from formats.errors import ReplicatorError
from infra.runtime.log_fields import ERROR, REASON
from infra.runtime.process_exit import exit_immediately

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
RELOAD = signal.SIGHUP

Handler = Callable[[int, FrameType | None], Any]
Install = Callable[[int, Any], Any]  # signal.signal


class Service(Protocol):
    """Threads that work until they are stopped. Every method may be called from any thread."""

    def start(self) -> None:
        """Start; returns at once. Raises when the service cannot start."""

    def stop(self) -> None:
        """Request an orderly shutdown: finish work in flight, commit, close. Returns at once. May be called again."""

    def reload(self) -> None:
        """Request that the configuration is read again; returns at once. No effect on a service that reads it once."""

    def join(self, timeout: timedelta | None = None) -> None:
        """Wait for the end, at most `timeout`. Raises the error that made the service fail. Waits in short steps: a
        signal that arrives just before a wait begins is handled only when that wait ends."""


def run_until_signalled(
    service: Service,
    install: Install = signal.signal,
    leave: Callable[[int], None] = exit_immediately,
) -> int:
    """`build_and_run` of a service that is built."""
    return build_and_run(lambda: service, install, leave)


def build_and_run(
    build: Callable[[], Service],
    install: Install = signal.signal,
    leave: Callable[[int], None] = exit_immediately,
) -> int:
    """Build a service, start it and wait for it. Returns the exit code: 0 after SIGTERM or SIGINT, or when the work is
    done; 1 after a failure, which is logged. While it is built, which may wait for a broker, a signal ends the process
    at once with 0: nothing is in flight yet. Once it runs, a second one does so with 128 + its number. SIGHUP reloads,
    any number of times. Raises what `build` raises. Call on the main thread only."""
    service: Service | None = None
    requested: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    seen: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        # A handler runs between two instructions of the main thread, which may hold any lock: stop() could wait for
        # that lock forever; SimpleQueue.put is safe to call here.
        if number != RELOAD:
            seen.append(number)
        if len(seen) > 1:
            leave(128 + number)
        requested.put(number)

    def obey_signals() -> None:
        while (number := requested.get()) is not None:
            running = service
            if number == RELOAD:
                if running is not None:  # else it is built of what the file says
                    running.reload()
                continue
            log.info("stopping", extra={REASON: signal.Signals(number).name})
            if running is None:
                log.info("stopped")
                leave(0)
            else:
                running.stop()

    def end() -> None:
        requested.put(None)
        obeying.join()
        for number, handler in previous.items():
            install(number, handler)

    obeying = threading.Thread(target=obey_signals, name="signals", daemon=True)
    previous = {number: install(number, on_signal) for number in (*SIGNALS, RELOAD)}
    obeying.start()
    try:
        service = build()
    except BaseException:
        end()
        raise
    try:
        service.start()
        service.join()
    except ReplicatorError as error:
        log.error("service_failed", extra={ERROR: str(error)})
        return 1
    except Exception as error:
        log.exception("service_failed", extra={ERROR: repr(error)})
        return 1
    finally:
        end()
    log.info("stopped")
    return 0


@contextmanager
def ignored_reload(install: Install = signal.signal, *, in_terminal: bool) -> Iterator[None]:
    """Ignore SIGHUP within the block, for commands that read their configuration once: it may be sent to all processes
    of the program. Not in a terminal, where it means that the terminal was closed, and not where the signal has another
    disposition already. Programs started within the block are not affected."""
    is_main = threading.current_thread() is threading.main_thread()  # only that one may install handlers
    if in_terminal or not is_main or signal.getsignal(RELOAD) is not signal.SIG_DFL:
        yield
        return
    previous = install(RELOAD, lambda *_: None)  # unlike SIG_IGN, not inherited
    try:
        yield
    finally:
        install(RELOAD, previous)
