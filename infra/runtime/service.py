"""Runs a service in the foreground, until it fails or a signal stops it."""

from __future__ import annotations

import logging
import queue
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from types import FrameType
from typing import Any, Protocol

from formats.errors import ReplicatorError
from infra.runtime.log_fields import ERROR, REASON
from infra.runtime.process_exit import exit_immediately

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)

Handler = Callable[[int, FrameType | None], Any]
Install = Callable[[int, Any], Any]  # signal.signal


class Service(Protocol):
    """Threads that work until they are stopped. Every method may be called from any thread."""

    def start(self) -> None:
        """Start; returns at once. Raises when the service cannot start."""

    def stop(self) -> None:
        """Request an orderly shutdown: finish work in flight, commit, close. Returns at once. May be called again."""

    def join(self, timeout: timedelta | None = None) -> None:
        """Wait for the end, at most `timeout`. Raises the error that made the service fail. Waits in short steps: a
        signal that arrives just before a wait begins is handled only when that wait ends."""


def run_until_signalled(
    service: Service,
    install: Install = signal.signal,
    leave: Callable[[int], None] = exit_immediately,
) -> int:
    """Start `service` and wait for it. Returns the exit code: 0 after SIGTERM or SIGINT, or when the work is done; 1
    after a failure, which is logged. A second signal ends the process at once with 128 + its number. Call on the main
    thread only."""
    requested: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    seen: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        # A handler runs between two instructions of the main thread, which may hold any lock: stop() could wait for
        # that lock forever; SimpleQueue.put is safe to call here.
        seen.append(number)
        if len(seen) > 1:
            leave(128 + number)
        requested.put(number)

    def stop_on_signal() -> None:
        number = requested.get()
        if number is not None:
            log.info("stopping", extra={REASON: signal.Signals(number).name})
            service.stop()

    stopper = threading.Thread(target=stop_on_signal, name="stopper", daemon=True)
    previous = {number: install(number, on_signal) for number in SIGNALS}
    stopper.start()
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
        requested.put(None)
        stopper.join()
        for number, handler in previous.items():
            install(number, handler)
    log.info("stopped")
    return 0
