"""What Spark knows of an application's executors, and of the attempts on them. Python has no API for it: these are
calls of its own classes in the driver's Java."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from infra.spark.task_failures import has_lost_its_executor

_MOST_TASKS = 10_000
_ANY_NUMBER = 1_000_000  # of executors: cores limit them


def registered(context: SparkContext) -> int:
    """How many are registered, the driver not counted."""
    scala: Any = context._jsc
    return int(scala.sc().getExecutorMemoryStatus().size()) - 1


def attempts_on_leaving(context: SparkContext) -> Collection[int]:
    """The running attempts, by Spark's id, on executors that are decommissioned: such an executor begins no other task,
    and ends once it has none. Empty when Java does not answer."""
    found: set[int] = set()
    with suppress(Py4JError, OSError):
        scala: Any = context._jsc
        scheduler = scala.sc().taskScheduler()
        leaving: dict[str, bool] = {}
        for task in _attempts(context):
            executor = str(task.executorId())
            if str(task.status()) == "RUNNING":
                if executor not in leaving:
                    leaving[executor] = bool(scheduler.getExecutorDecommissionState(executor).isDefined())
                if leaving[executor]:
                    found.add(int(task.taskId()))
    return found


def failed_attempts(context: SparkContext) -> int:
    """Of the jobs that run, by Spark's count, without those whose executor was lost: they did not fail by themselves.
    0 when Java does not answer."""
    found = 0
    with suppress(Py4JError, OSError):
        for task in _attempts(context):
            if str(task.status()) == "FAILED":
                error = task.errorMessage()
                found += not (bool(error.isDefined()) and has_lost_its_executor(str(error.get())))
    return found


def _attempts(context: SparkContext) -> Iterator[Any]:
    """Spark's facts of each attempt of the stages that run. Raises Py4JError and OSError."""
    scala: Any = context._jsc
    store, tracker = scala.sc().statusStore(), context.statusTracker()
    for stage in tracker.getActiveStageIds():
        if (information := tracker.getStageInfo(stage)) is not None:
            tasks = store.taskList(stage, information.currentAttemptId, _MOST_TASKS)
            yield from (tasks.apply(number) for number in range(tasks.size()))


def request_others(context: SparkContext) -> None:
    """Let a standalone master start executors now, where cores are free: it does not of itself when a worker is
    decommissioned. Other masters replace such executors, and would take the number for a target."""
    if str(context.master).startswith("spark://"):
        with suppress(Py4JError, OSError):
            scala: Any = context._jsc
            scala.sc().requestExecutors(_ANY_NUMBER)
