"""Trying again: after which pauses, how often, and who hears of it. The only home of waiting for another attempt.

    Backoff                a pause that doubles, for loops that wait by their clock
    RetryPolicy, Retries   calls that are repeated on their own thread

Of calls, only those that raised TransientError are repeated. Each retry is one warning, `retry`. Once `Stop` is set
nothing waits and nothing is tried again: the last error comes out at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception

from formats.errors import StoreRefused, TransientError
from infra.runtime.lifecycle import Stop
from infra.runtime.log_fields import ATTEMPT, ERROR, OPERATION, WAIT_MS

T = TypeVar("T")
RETRY = timedelta(seconds=1)  # before a loop asks again for what a cluster, a store or a queue refused for now
TROUBLED_AFTER = 5  # attempts: then somebody is told

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from `first` to `limit`."""

    first: timedelta
    limit: timedelta

    def delay(self, failures: int) -> timedelta:
        """Before the next attempt. `failures`: how many there were in a row before the last one."""
        doublings = min(failures, 62)  # a float holds it; the limit is reached long before
        seconds = self.first.total_seconds() * 2.0**doublings
        return self.limit if seconds >= self.limit.total_seconds() else timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Pauses are those of a Backoff from `initial` to `maximum`; each is shortened at random by up to a half, so that
    many do not come back together."""

    initial: timedelta = timedelta(milliseconds=200)
    maximum: timedelta = timedelta(seconds=10)
    attempts: int | None = None  # in all; None: until `Stop`
    is_once: bool = False  # of a command that ends by itself: a StoreRefused is raised at once

    def __post_init__(self) -> None:
        if not timedelta() < self.initial <= self.maximum:
            raise ValueError(f"want 0 < initial <= maximum, not {self.initial} and {self.maximum}")
        if self.attempts is not None and self.attempts < 1:
            raise ValueError(f"want at least one attempt, not {self.attempts}")

    def wait(self, failed: int, random: Random) -> timedelta:
        """After `failed` attempts (at least 1)."""
        return Backoff(self.initial, self.maximum).delay(failed - 1) * random.uniform(0.5, 1.0)


class Retries:
    """One policy, applied to any call. Thread safe as far as `random` is: `Random` is."""

    def __init__(
        self,
        *,
        stop: Stop,
        policy: RetryPolicy | None = None,
        random: Random | None = None,
        troubled: Callable[[str, str | None], None] = lambda _operation, _reason: None,
    ) -> None:
        """`troubled` is told of an operation that fails again and again, with the reason, and with None when it is
        over."""
        self._troubled = troubled
        self._stop = stop
        self._policy = policy or RetryPolicy()
        self._random = random or Random()

    def call(self, operation: str, fn: Callable[[], T]) -> T:
        """`fn()`, again and again while it raises TransientError. `operation` is for the log."""
        failures: list[BaseException] = []
        told: list[bool] = []

        def before_sleep(state: RetryCallState) -> None:
            assert state.outcome is not None
            assert state.next_action is not None
            error = state.outcome.exception()
            assert error is not None
            failures[:] = [error]
            if state.attempt_number >= TROUBLED_AFTER:
                self._troubled(operation, str(error))
                told[:] = [True]
            log.warning(
                "retry",
                extra={
                    OPERATION: operation,
                    ATTEMPT: state.attempt_number,
                    ERROR: str(error),
                    WAIT_MS: round(state.next_action.sleep * 1000),
                },
            )

        def sleep(seconds: float) -> None:
            if self._stop.wait(timedelta(seconds=seconds)):
                raise failures[0]

        retrying = Retrying(
            retry=retry_if_exception(self._is_worth_it),
            wait=lambda state: self._policy.wait(state.attempt_number, self._random).total_seconds(),
            stop=lambda state: self._stop.is_set() or state.attempt_number == self._policy.attempts,
            before_sleep=before_sleep,
            sleep=sleep,
            reraise=True,
        )
        answer = retrying(fn)
        if told:
            self._troubled(operation, None)
        return answer

    def _is_worth_it(self, error: BaseException) -> bool:
        refused = self._policy.is_once and isinstance(error, StoreRefused)
        return isinstance(error, TransientError) and not refused

    def resume(self, operation: str, error: TransientError) -> None:
        """For a call that failed after it had given something: log, and let the caller begin again, without a wait.
        Raises `error` once stopped."""
        if self._stop.is_set():
            raise error
        log.warning("retry", extra={OPERATION: operation, ATTEMPT: 1, ERROR: str(error), WAIT_MS: 0})
