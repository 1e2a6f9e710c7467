"""Puts the next generation of one control object when what it describes has changed.

    newest generation n read ──> observe ──> differs, or this process has just taken over ──> put n + 1
                                                                    taken: another process is the writer

A new writer puts a generation at once, even one that says the same: the number that a frozen predecessor was about to
put is taken then. A predecessor that thaws steps down, and never puts its old content under a higher number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeVar

from formats.errors import MalformedEvent
from infra.archive.generations import Generations
from infra.runtime import log_fields
from infra.runtime.failures import Attempt
from infra.runtime.lifecycle import Clock

log = logging.getLogger(__name__)


class Published(Protocol):
    """The content of a generation."""

    @property
    def problems(self) -> Mapping[str, str]:
        """What could not be observed → why, and the remedy."""


T = TypeVar("T", bound=Published)


@dataclass(slots=True)
class Publication(Generic[T]):
    """One control object. Use from one thread."""

    attempt: Attempt  # in health, and in the log
    generations: Generations
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    observe: Callable[[T | None, datetime], T]  # gets the newest generation, None if there is none that can be decoded
    says_the_same: Callable[[T, T], bool]
    interval: timedelta  # between observations
    clock: Clock
    number: int = 0  # newest generation that is known
    _current: T | None = None  # its content; None: there is none, or it cannot be decoded
    _must_put: bool = False  # this process has taken over, and has not put a generation since
    _due_at: datetime | None = None  # None: now
    _said: Mapping[str, str] = field(default_factory=dict)  # problems in the log

    def take_over(self) -> None:
        """This process has become the writer."""
        self._must_put, self._due_at = True, None

    def step_down(self) -> None:
        self._must_put = False

    def is_due(self, now: datetime) -> bool:
        return self._due_at is None or now >= self._due_at

    def publish(self, now: datetime) -> bool:
        """Observe, and put a generation if it says anything new. False when another process has put that number: this
        one is not the writer any more. Raises the errors of `observe` and of the store; then it stays due."""
        self._read_newest()
        found = self.observe(self._current, self.clock.now())
        self._say(found.problems)
        if self._must_put or self._current is None or not self.says_the_same(found, self._current):
            data = self.encode(found)
            if not self.generations.put(self.number + 1, data):
                return False
            self.number, self._current, self._must_put = self.number + 1, found, False
            extra = {log_fields.KEY: self.generations.key(self.number), log_fields.BYTES: len(data)}
            log.info("generation_published", extra=extra)
        self._due_at = now + self.interval
        return True

    def _read_newest(self) -> None:
        newest = self.generations.newest(self.number)
        if newest == self.number and (newest == 0 or self._current is not None):
            return
        self.number, self._current = newest, None
        if newest == 0:
            return
        try:
            self._current = self.decode(self.generations.read(newest))
        except MalformedEvent as error:
            extra = {log_fields.KEY: self.generations.key(newest), log_fields.ERROR: str(error)}
            log.warning("generation_not_readable", extra=extra)

    def _say(self, problems: Mapping[str, str]) -> None:
        for what, why in problems.items():
            if self._said.get(what) != why:
                log.warning("not_observed", extra={log_fields.OPERATION: what, log_fields.REASON: why})
        self._said = problems
