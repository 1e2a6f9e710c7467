"""A service made of threads: started together, stopped together, and the first failure is everybody's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import timedelta

from replicator.errors import ShutdownExpired
from replicator.lifecycle import Deadline, Stop


class ThreadedService:
    """A `replicator.service.Service`. `start` once; `stop` and `join` from anywhere, any number of times."""

    def __init__(self, loops: Mapping[str, Callable[[], None]], stop: Stop, resources: ExitStack) -> None:
        """`loops`: what each thread runs until `stop` is set. `resources`: closed after the last thread ended."""
        self._stop, self._resources = stop, resources
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(loop,), name=name, daemon=True) for name, loop in loops.items()
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask for the end; returns at once."""
        self._stop.set()

    def join(self, timeout: timedelta | None = None) -> None:
        """Wait for the end. Raises what made the service fail, or ShutdownExpired when it did not end in time."""
        deadline = None if timeout is None else Deadline(timeout)
        for thread in self._threads:
            if thread.ident is None:
                continue
            while thread.is_alive():
                if deadline is not None and deadline.expired:
                    raise ShutdownExpired(f"{thread.name} still runs {timeout} after it was asked to end")
                # a wait without an end would keep signals from being handled
                thread.join(0.2 if deadline is None else min(0.2, deadline.left.total_seconds()))
        self._resources.close()
        if self._errors:
            raise self._errors[0]

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:
            self._errors.append(error)
        finally:
            self._stop.set()
