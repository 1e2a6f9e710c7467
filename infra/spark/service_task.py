"""What Spark runs for each long-lived task: an attempt of `infra.runtime.workers`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark import TaskContext

from infra.runtime.workers.attempt import WorkerJob


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTask:
    """A function of `mapPartitionsWithIndex`."""

    work: WorkerJob

    def __call__(self, task: int, _rows: Iterable[int]) -> Iterator[int]:
        context = TaskContext.get()
        self.work.run(task, 0 if context is None else int(context.taskAttemptId()))
        return iter(())
