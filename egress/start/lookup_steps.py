"""Runs what leads to many answers on a pool, each part in its own time.

    steps, WIDTH at a time ──pool──> further steps ──pool──> …
                                  └> what is found ──`ask`, here, with all of it that is found by then──> further steps

A step that takes long, or never ends, holds up no other one, except that it occupies a thread of the pool. A step that
fails ends there: its `failed` says so to those who wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import islice
from queue import SimpleQueue
from typing import Generic, TypeVar

from formats.errors import ReplicatorError

F = TypeVar("F")

WIDTH = 8  # first steps at a time, so that what follows from them need not wait for all of them


@dataclass(frozen=True, slots=True)
class Next(Generic[F]):
    """What one step leads to."""

    found: Sequence[F] = ()
    steps: Sequence[LookupStep[F]] = ()


@dataclass(frozen=True, slots=True)
class LookupStep(Generic[F]):
    run: Callable[[], Next[F]]  # on the pool
    failed: Callable[[ReplicatorError], None]  # on the caller's thread


def run_steps(
    first: Iterable[LookupStep[F]], pool: Executor, ask: Callable[[Sequence[F]], Iterable[LookupStep[F]]]
) -> None:
    """Return when no step is left. `ask` runs on the caller's thread, which must not be one of `pool`. Raises what
    `ask` raises, and what a step raises that is no ReplicatorError; steps under way still run then."""
    waiting = iter(first)
    done: SimpleQueue[Future[Next[F]]] = SimpleQueue()
    under_way: dict[Future[Next[F]], LookupStep[F]] = {}
    begun: set[Future[Next[F]]] = set()

    def submit(step: LookupStep[F]) -> Future[Next[F]]:
        future = pool.submit(step.run)
        under_way[future] = step
        future.add_done_callback(done.put)
        return future

    def begin(count: int) -> None:
        begun.update(submit(step) for step in islice(waiting, count))

    begin(WIDTH)
    while under_way:
        found: list[F] = []
        finished = [done.get()]
        finished += [done.get() for _ in range(done.qsize())]
        for future in finished:
            step = under_way.pop(future)
            try:
                after = future.result()
            except ReplicatorError as error:
                step.failed(error)
                continue
            found += after.found
            for one in after.steps:
                submit(one)
        for one in ask(found) if found else ():
            submit(one)
        begin(len(begun.intersection(finished)))
        begun.difference_update(finished)
