"""Executors without threads: what is submitted runs at once, or when the test says so.

pool = HandExecutor()              runs everything inside `submit`
pool.holding = True                from now on jobs wait,
pool.run_next() / pool.run_all()   until they are run here, in order
pool.run_last()                    the one submitted last, before those that wait: they take longer
pool.drop_all()                    the process died: they never run
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Queue
from typing import Any, TypeVar

T = TypeVar("T")


class HandExecutor(Executor):
    def __init__(self, *, holding: bool = False) -> None:
        self.holding = holding
        self._jobs: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        self._jobs.append((future, lambda: fn(*args, **kwargs)))
        if not self.holding:
            self.run_all()
        return future

    def run_last(self) -> None:
        self._run(self._jobs.pop())

    def run_next(self) -> None:
        self._run(self._jobs.popleft())

    @staticmethod
    def _run(submitted: tuple[Future[Any], Callable[[], Any]]) -> None:
        future, job = submitted
        try:
            answer = job()
        except Exception as error:  # as a thread pool: the future carries it
            future.set_exception(error)
        else:
            future.set_result(answer)

    def run_all(self) -> None:
        while self._jobs:
            self.run_next()

    def drop_all(self) -> None:
        self._jobs.clear()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            for future, _ in self._jobs:
                future.cancel()
            self._jobs.clear()


class NeverWaits(Queue[T]):
    """A queue for loops that are driven by hand: `get` answers at once, or raises Empty."""

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        return super().get(block=False)
