"""A service made of threads that start and stop together: the first failure ends all of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import timedelta

from formats.errors import ShutdownExpired
from infra.runtime import log_fields
from infra.runtime.lifecycle import Deadline, Stop

log = logging.getLogger(__name__)


class ThreadedService:
    """An `infra.runtime.service.Service`. Call `start` once; `stop` and `join` from any thread, any number of times."""

    def __init__(
        self,
        loops: Mapping[str, Callable[[], None]],
        stop: Stop,
        resources: ExitStack,
        grace: timedelta,
        *,
        reload: Callable[[], None] | None = None,
    ) -> None:
        """`loops`: functions by thread name; each runs until `stop` is set. `resources`: closed after the last thread
        has ended. `grace`: time limit for threads to end after a stop; a thread that then still hangs in a request is
        abandoned, which is no worse than a crash. `reload`: requests that the configuration is read again; None: it is
        read once."""
        self._stop, self._resources, self._grace = stop, resources, grace
        self._reload = reload
        self._errors: list[BaseException] = []
        self._has_ended = False
        self._threads = [
            threading.Thread(target=self._run, args=(loop,), name=name, daemon=True) for name, loop in loops.items()
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Request the stop; returns at once."""
        self._stop.set()

    def reload(self) -> None:
        if self._reload is None:
            log.info("not_reloaded", extra={log_fields.NEXT: "this service reads its configuration once: restart it"})
        else:
            self._reload()

    def join(self, timeout: timedelta | None = None) -> None:
        """Wait for the end. Raises the error that made the service fail, or ShutdownExpired after `timeout`."""
        deadline = None if timeout is None else Deadline(timeout)
        grace: Deadline | None = None
        while alive := [t.name for t in self._threads if t.is_alive()]:
            if grace is None and self._stop.is_set():
                grace = Deadline(self._grace)
            if grace is not None and grace.expired:
                if not self._has_ended:
                    log.warning("threads_left_behind", extra={log_fields.REASON: ", ".join(alive)})
                break
            if deadline is not None and deadline.expired:
                raise ShutdownExpired(f"{', '.join(alive)}: still running after {timeout}")
            # short waits, so that signals are handled meanwhile
            next((t for t in self._threads if t.is_alive()), self._threads[0]).join(0.1)
        # a thread that is left behind fails now, since its clients are closed: that is the end, and no failure
        self._has_ended = True
        self._resources.close()
        if self._errors:
            raise self._errors[0]

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:
            if not self._has_ended:
                self._errors.append(error)
        finally:
            self._stop.set()
