"""Retries: pauses, number of attempts, and reporting. The only module that waits for another attempt.

    Backoff                a delay that doubles, for loops that wait by their clock
    RetryPolicy, Retries   calls that are repeated on the calling thread

Only calls that raise TransientError are repeated, and none for a frozen object, whose thaw takes hours. Each retry logs
one warning, `retry`. Once `Stop` is set, no call waits or is retried: the last error is raised at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception

from formats.errors import ObjectFrozen, StoreRefused, TransientError
from infra.runtime.lifecycle import Stop
from infra.runtime.log_fields import ATTEMPT, ERROR, OPERATION, WAIT_MS

T = TypeVar("T")
RETRY = timedelta(seconds=1)  # delay of a loop after a cluster, a store or a queue failed for now
REFUSED_FOR = timedelta(minutes=1)  # until a loop tries again what a cluster refused, and nothing waits for
PROBLEM_AFTER = 5  # attempts until `on_problem` is called
PROBLEM_WITHIN = timedelta(seconds=50)  # or, of requests that hang, this time: a little less than one of them takes

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double from `first` to `limit`."""

    first: timedelta
    limit: timedelta

    def delay(self, failures: int) -> timedelta:
        """Delay before the next attempt. `failures`: consecutive failures before the last one."""
        doublings = min(failures, 62)  # a float can hold it; the limit is reached long before
        seconds = self.first.total_seconds() * 2.0**doublings
        return self.limit if seconds >= self.limit.total_seconds() else timedelta(seconds=seconds)


UNAVAILABLE = Backoff(RETRY, timedelta(seconds=30))  # of a loop whose queue is unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Delays are those of a Backoff from `initial` to `maximum`; each is shortened at random by up to a half, so that
    many clients do not retry at the same time."""

    initial: timedelta = timedelta(milliseconds=200)
    maximum: timedelta = timedelta(seconds=10)
    attempts: int | None = None  # total; None: until `Stop`
    raises_refusals: bool = False  # StoreRefused is raised at once: no caller waits here for the operator
    problem_within: timedelta = PROBLEM_WITHIN  # of failing, until `on_problem` is called

    def __post_init__(self) -> None:
        if not timedelta() < self.initial <= self.maximum:
            raise ValueError(f"want 0 < initial <= maximum, not {self.initial} and {self.maximum}")
        if self.attempts is not None and self.attempts < 1:
            raise ValueError(f"want at least one attempt, not {self.attempts}")

    def wait(self, failed: int, random: Random) -> timedelta:
        """Delay after `failed` attempts (at least 1)."""
        return Backoff(self.initial, self.maximum).delay(failed - 1) * random.uniform(0.5, 1.0)


class Retries:
    """Applies one policy to any call. As thread safe as `random`; `Random` is."""

    def __init__(
        self,
        *,
        stop: Stop,
        policy: RetryPolicy | None = None,
        random: Random | None = None,
        on_problem: Callable[[str, str | None], None] = lambda _operation, _reason: None,
    ) -> None:
        """`on_problem` is called with the reason when an operation fails repeatedly or for long, and with None when it
        succeeds again."""
        self._on_problem = on_problem
        self._stop = stop
        self._policy = policy or RetryPolicy()
        self._random = random or Random()

    def call(self, operation: str, fn: Callable[[], T]) -> T:
        """Call `fn`, and retry it while it raises TransientError. `operation` is for the log."""
        failures: list[BaseException] = []
        reported: list[bool] = []

        def before_sleep(state: RetryCallState) -> None:
            assert state.outcome is not None
            assert state.next_action is not None
            error = state.outcome.exception()
            assert error is not None
            failures[:] = [error]
            lasted = timedelta(seconds=state.seconds_since_start or 0.0)
            if state.attempt_number >= PROBLEM_AFTER or lasted >= self._policy.problem_within:
                self._on_problem(operation, str(error))
                reported[:] = [True]
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
            retry=retry_if_exception(self._is_retriable),
            wait=lambda state: self._policy.wait(state.attempt_number, self._random).total_seconds(),
            stop=lambda state: self._stop.is_set() or state.attempt_number == self._policy.attempts,
            before_sleep=before_sleep,
            sleep=sleep,
            reraise=True,
        )
        try:
            return retrying(fn)
        except TransientError:
            reported.clear()  # it fails still
            raise
        finally:
            if reported:  # an answer, also one such as "not found"
                self._on_problem(operation, None)

    def _is_retriable(self, error: BaseException) -> bool:
        refused = isinstance(error, ObjectFrozen) or (self._policy.raises_refusals and isinstance(error, StoreRefused))
        return isinstance(error, TransientError) and not refused

    def resume(self, operation: str, error: TransientError) -> None:
        """For an iteration that failed after it had yielded something: logs the retry and returns, so that the caller
        restarts without a wait. Raises `error` once stopped."""
        if self._stop.is_set():
            raise error
        log.warning("retry", extra={OPERATION: operation, ATTEMPT: 1, ERROR: str(error), WAIT_MS: 0})
