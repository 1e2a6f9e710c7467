"""Puts the next generation of one control object when what it describes has changed.

                    on the pool                              in a later turn
    newest generation n read ──> observe ──> differs, or this process has just taken over ──> put n + 1
                                                                    taken: another process is the writer

A new writer puts a generation at once, even one with the same content: the number that a frozen predecessor was about
to put is taken then. A predecessor that thaws steps down, and never puts its old content under a higher number.

What stayed the same for long, and then changed, is put once more first, as it was last observed (`restate_after`): what
holds at a moment in between is then known from the generation before it and the one after it. Both observations began
after generation n was stored, and no other process has put n + 1, so numbers stay in the order of the observations.

A cluster may take long to answer, so observations run on a pool: heartbeats say that the process is alive meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Generic, Protocol, TypeVar

from formats.errors import MalformedEvent
from infra.archive.generations import Generations
from infra.runtime import log_fields
from infra.runtime.failures import Attempt
from infra.runtime.lifecycle import Clock
from infra.runtime.lookups import Answer, Failed, Lookup

log = logging.getLogger(__name__)


class Published(Protocol):
    """The content of a generation."""

    @property
    def problems(self) -> Mapping[str, str]:
        """What could not be observed → why, and the remedy."""


T = TypeVar("T", bound=Published)


class Outcome(Enum):
    IDLE = auto()  # nothing is due, or an observation is under way
    CURRENT = auto()  # the newest generation has what was observed
    LOST = auto()  # another process has put that number: this one is not the writer any more


@dataclass(frozen=True, slots=True)
class _Observed(Generic[T]):
    number: int  # newest generation when the observation began
    before: T | None  # its content; None: there is none, or it cannot be decoded
    found: T
    began_at: datetime


@dataclass(slots=True)
class Publication(Generic[T]):
    """One control object. Use from one thread."""

    attempt: Attempt  # in health, and in the log
    generations: Generations
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    observe: Callable[[T | None, datetime], T]  # gets the newest generation, None if there is none that can be decoded
    has_same_content: Callable[[T, T], bool]
    interval: Callable[[], timedelta]  # between observations; 0: none are made. It may change
    clock: Clock
    pool: Executor
    restate_after: timedelta | None = (
        None  # what was the same for so long is put once more before a change; None: never
    )
    number: int = 0  # newest generation that is known
    confirmed_at: datetime | None = None  # when the last observation with the content of this generation began
    _current: T | None = None  # its content
    _done_at: datetime | None = None  # when the last observation was put, or found to be the same
    _put_at: datetime | None = None  # when the observation of this generation began; None: of another process
    _same: T | None = None  # the last observation with its content
    _must_put: bool = False  # this process has taken over, and has not put a generation since
    _logged: Mapping[str, str] = field(default_factory=dict)  # problems in the log
    _lookup: Lookup[_Observed[T]] = field(init=False)

    def __post_init__(self) -> None:
        self._lookup = Lookup(self.pool)

    @property
    def is_under_way(self) -> bool:
        """Whether an observation is, or waits to be collected."""
        return self._lookup.is_under_way

    def begin_term(self) -> None:
        """This process has become the writer: observe at once."""
        self._must_put, self._done_at, self._lookup = True, None, Lookup(self.pool)

    def end_term(self) -> None:
        """This process is not the writer any more: what it observes now is not put."""
        self.confirmed_at = None
        self._must_put, self._lookup = False, Lookup(self.pool)

    def turn(self, now: datetime) -> Outcome:
        """Begin an observation if one is due; put a generation if the content has changed. Only the
        writer calls this. Raises the errors of `observe` and of the store; then it stays due."""
        interval = self.interval()
        self._lookup.due_at = None if self._done_at is None else self._done_at + interval
        if interval and self._lookup.is_due(now):
            self._lookup.ask(self._observe, self.number, self._current)
        match self._lookup.collect():
            case Answer(value=observed):
                if not self._put(observed):
                    return Outcome.LOST
                self._done_at = now
                return Outcome.CURRENT
            case Failed(error=error):
                raise error
            case None:
                return Outcome.IDLE

    def _put(self, observed: _Observed[T]) -> bool:
        if observed.number != self.number:  # of another process
            self._put_at = self._same = None
        self.number, self._current, found = observed.number, observed.before, observed.found
        self._log_problems(found.problems)
        if not self._must_put and self._current is not None and self.has_same_content(found, self._current):
            self.confirmed_at, self._same = observed.began_at, found
            return True
        if self._is_to_be_restated and self._same is not None:
            if not self._put_next(self._same):
                return False
            self._put_at, self._same = self.confirmed_at, None
        if not self._put_next(found):
            return False
        self._current, self._must_put, self._same = found, False, None
        self.confirmed_at = self._put_at = observed.began_at
        return True

    @property
    def _is_to_be_restated(self) -> bool:
        if self.restate_after is None or self._put_at is None or self.confirmed_at is None:
            return False
        return self.confirmed_at - self._put_at >= self.restate_after

    def _put_next(self, found: T) -> bool:
        data = self.encode(found)
        if not self.generations.put(self.number + 1, data):
            return False
        self.number += 1
        extra = {log_fields.KEY: self.generations.key(self.number), log_fields.BYTES: len(data)}
        log.info("generation_published", extra=extra)
        return True

    def _log_problems(self, problems: Mapping[str, str]) -> None:
        for what, why in problems.items():
            if self._logged.get(what) != why:
                log.warning("not_observed", extra={log_fields.OPERATION: what, log_fields.REASON: why})
        self._logged = problems

    # --- on the pool ---

    def _observe(self, known: int, current: T | None) -> _Observed[T]:
        newest = self.generations.newest(known)
        before = current if newest == known and current is not None else self._read(newest)
        began_at = self.clock.now()
        return _Observed(newest, before, self.observe(before, began_at), began_at)

    def _read(self, number: int) -> T | None:
        if number == 0:
            return None
        try:
            return self.decode(self.generations.read(number))
        except MalformedEvent as error:
            extra = {log_fields.KEY: self.generations.key(number), log_fields.ERROR: str(error)}
            log.warning("generation_not_readable", extra=extra)
            return None
