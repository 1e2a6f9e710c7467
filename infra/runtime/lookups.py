"""Blocking calls for a loop that must not block: submitted to a pool in one turn, collected in a later one.

    Question   one call, under way until it is answered or abandoned
    Lookup     one call at a time, repeated when it is due
    Lookups    several calls at a time, each about some keys; at most one call per key

    ask ──> under way ──> collect: Answer, or Failed ──> postponed and asked again, or done

A ReplicatorError is an outcome: the source, target or archive cannot answer for now. Any other exception is a bug, and
is raised by `collect`. An outcome is returned once. Only the loop's thread calls these classes; time is passed in, so
only the calls themselves run on other threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, ParamSpec, TypeVar

from formats.errors import ReplicatorError

A = TypeVar("A")
K = TypeVar("K", bound=Hashable)
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Answer(Generic[A]):
    value: A


@dataclass(frozen=True, slots=True)
class Failed:
    error: ReplicatorError


@dataclass(frozen=True, slots=True)
class Question(Generic[A]):
    _future: Future[A]

    @property
    def is_answered(self) -> bool:
        return self._future.done()

    def collect(self) -> Answer[A] | Failed | None:
        """The outcome; None while the call is under way."""
        if not self._future.done():
            return None
        try:
            return Answer(self._future.result())
        except ReplicatorError as error:
            return Failed(error)


def ask(pool: Executor, question: Callable[P, A], *args: P.args, **kwargs: P.kwargs) -> Question[A]:
    return Question(pool.submit(question, *args, **kwargs))


@dataclass(slots=True)
class Lookup(Generic[A]):
    pool: Executor
    due_at: datetime | None = None  # None: at once
    _question: Question[A] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._question is not None

    def is_due(self, now: datetime) -> bool:
        return self._question is None and (self.due_at is None or now >= self.due_at)

    def ask(self, question: Callable[P, A], *args: P.args, **kwargs: P.kwargs) -> None:
        """Submit a call. It replaces the one under way, if any."""
        self._question = ask(self.pool, question, *args, **kwargs)

    def collect(self) -> Answer[A] | Failed | None:
        """The outcome; None while there is none."""
        if self._question is None or not self._question.is_answered:
            return None
        question, self._question = self._question, None
        return question.collect()


@dataclass(slots=True)
class Lookups(Generic[K, A]):
    pool: Executor
    _asked: list[tuple[Sequence[K], Question[A]]] = field(default_factory=list)

    def __len__(self) -> int:
        """Number of calls under way."""
        return len(self._asked)

    @property
    def keys(self) -> frozenset[K]:
        """Keys of the calls under way."""
        return frozenset(key for keys, _ in self._asked for key in keys)

    def ask(self, keys: Collection[K], question: Callable[P, A], *args: P.args, **kwargs: P.kwargs) -> None:
        """Submit a call about `keys`; none of them may be under way."""
        self._asked.append((tuple(keys), ask(self.pool, question, *args, **kwargs)))

    def collect(self) -> Iterator[tuple[Sequence[K], Answer[A] | Failed]]:
        """Outcomes with their keys, in the order of the calls. A key may be obsolete by then; its owner has to
        check."""
        for asked in [a for a in self._asked if a[1].is_answered]:
            self._asked.remove(asked)
            keys, question = asked
            outcome = question.collect()
            if outcome is not None:
                yield keys, outcome
