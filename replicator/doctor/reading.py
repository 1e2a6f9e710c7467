"""Facts that cannot be read become `Unread`, each by itself."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Generic, TypeVar

from formats.errors import ConfigError, ReplicatorError
from infra.runtime.lifecycle import Deadline
from replicator.doctor.facts import Unread

T = TypeVar("T")


def attempt(call: Callable[[], T | Unread]) -> T | Unread:
    """The answer, or why there is none."""
    try:
        return call()
    except ConfigError as error:
        return Unread("; ".join(error.problems))
    except ReplicatorError as error:
        return Unread(str(error))


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """An answer that is awaited, until the end of a time limit at most."""

    pending: Future[T | Unread]
    deadline: Deadline

    def answer(self) -> T | Unread:
        try:
            return self.pending.result(self.deadline.left.total_seconds())
        except FutureTimeout:
            return Unread(f"there was no answer within {self.deadline.budget.total_seconds():g} s")


@dataclass(frozen=True, slots=True)
class Questions:
    """Asked at the same time, and answered within one time limit."""

    pool: Executor
    deadline: Deadline

    def ask(self, call: Callable[[], T | Unread]) -> Asked[T]:
        return Asked(self.pool.submit(attempt, call), self.deadline)
