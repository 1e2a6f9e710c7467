"""What Spark knows of an application's executors. Python has no API for it: these are calls of its own classes in the
driver's Java."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

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
        scala: Any = context._jsc.sc()
        scheduler, store, tracker = scala.taskScheduler(), scala.statusStore(), context.statusTracker()
        leaving: dict[str, bool] = {}
        for stage in tracker.getActiveStageIds():
            if (information := tracker.getStageInfo(stage)) is None:
                continue
            tasks = store.taskList(stage, information.currentAttemptId, _MOST_TASKS)
            for number in range(tasks.size()):
                task = tasks.apply(number)
                executor = str(task.executorId())
                if str(task.status()) == "RUNNING":
                    if executor not in leaving:
                        leaving[executor] = bool(scheduler.getExecutorDecommissionState(executor).isDefined())
                    if leaving[executor]:
                        found.add(int(task.taskId()))
    return found


def request_others(context: SparkContext) -> None:
    """Let a standalone master start executors now, where cores are free: it does not of itself when a worker is
    decommissioned. Other masters replace such executors, and would take the number for a target."""
    if str(context.master).startswith("spark://"):
        with suppress(Py4JError, OSError):
            scala: Any = context._jsc
            scala.sc().requestExecutors(_ANY_NUMBER)
