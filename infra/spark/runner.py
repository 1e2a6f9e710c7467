"""Runs plans of any package on Spark: each row of text yields one answer of text.

    rows ──> one partition each ──> work(row), on some worker ──> answers, in the order of the rows

A job is a `SparkTask` (rows and answers of its items, in one place) that `run_tasks` runs.

Rules:
1. Spark only schedules. A worker reads and writes with clients that it creates itself: no Hadoop jars, no pandas.
2. `work` may run twice for a row, even at the same time (a lost worker, speculation): it has to be idempotent.
3. Spark retries a plan whose `work` raises, or whose executor dies, as often as configured (`local[*,4]`,
   `spark.task.maxFailures`); then it has failed, and the others go on. Spark ends the job of a plan that has failed:
   the answers that it had by then are kept, and what was at work begins anew in another job. A failure that a retry
   cannot change should be returned as an answer, not raised.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import Accumulator, AccumulatorParam, SparkContext
from pyspark.errors import PySparkException

from formats.errors import PlanFailed, SparkUnavailable
from infra.runtime.lifecycle import Closing
from infra.runtime.progress import Progress, no_progress
from infra.runtime.tuning import tune
from infra.spark.driver import SparkDriver, SparkSettings

POLL_SECONDS = 0.2
MOST_FAILED = 3  # plans, while none has an answer: it is not for them, and each of thousands would be tried in vain

TaskRow = tuple[int, str]  # index of the row, and the row

ItemT = TypeVar("ItemT")
ItemT_contra = TypeVar("ItemT_contra", contravariant=True)
OutcomeT = TypeVar("OutcomeT")
OutcomeT_co = TypeVar("OutcomeT_co", covariant=True)


class SparkTask(Protocol[ItemT_contra, OutcomeT_co]):
    """A kind of work: what runs on a worker for one item, and how items and outcomes become text.

    A frozen dataclass, pickled with its settings, which include credentials. Only text passes between the driver and
    the workers.
    """

    def row(self, item: ItemT_contra, /) -> str:
        """On the driver: the row of `item`."""

    def __call__(self, row: str, /) -> str:
        """On a worker: do the work of a row and return the answer. May be called again, even at the same time."""

    def outcome(self, answer: str, /) -> OutcomeT_co:
        """On the driver: the outcome that an answer holds."""

    def failed(self, item: ItemT_contra, reason: str, /) -> OutcomeT_co:
        """On the driver: the outcome of an item without an answer. Its attempts may have done a part of the work."""


class SparkRunner(Closing):
    """A context manager. Spark starts with the first run and ends with `close`. One run at a time, and one runner with
    a running Spark per process."""

    def __init__(self, settings: SparkSettings | None = None) -> None:
        self._settings = settings or SparkSettings()
        self._driver: SparkDriver | None = None

    def run(
        self,
        rows: Sequence[str],
        work: Callable[[str], str],
        *,
        parallelism: int | None = None,
        progress: Progress = no_progress,
    ) -> list[str | PlanFailed]:
        """The answers, in the order of `rows`; of a plan that failed, why. `work` is pickled: a module-level function,
        or a frozen dataclass.

        `parallelism`: limit of concurrent plans; None: the number of Spark's cores. `progress` is called with
        (done, total) on this thread; an exception in it, such as a KeyboardInterrupt, ends the run.
        Raises PlanFailed when MOST_FAILED have failed and no other has an answer, SparkUnavailable (the next run starts
        Spark again), and JavaMissing if there is no Java.
        """
        if parallelism is not None and parallelism < 1:
            raise ValueError(f"parallelism must be at least 1: {parallelism}")
        if not rows:
            return []
        plans = list(enumerate(rows))
        # Without a limit, one job has all plans: Spark knows the remaining ones, so it can speculate and request more
        # executors. With a limit, each plan is a job, and that many run at a time. Unlike with waves, no slot waits for
        # a slow plan; unlike with several plans in a partition, each plan has its own retries; and the limit works with
        # every master.
        jobs = [plans] if parallelism is None else [[plan] for plan in plans]
        try:
            self._driver = self._driver or SparkDriver(self._settings)
            return _run(self._driver, jobs, work, parallelism or 1, progress)
        except SparkUnavailable:
            self.close()
            raise

    @property
    def ui_url(self) -> str | None:
        """URL of Spark's web UI, if Spark runs and `spark.ui.enabled` is true."""
        return self._driver.context.uiWebUrl if self._driver else None

    @property
    def application_id(self) -> str | None:
        """Spark's application id; None before the first run."""
        return self._driver.context.applicationId if self._driver else None

    def close(self) -> None:
        """End Spark and its Java process. May be called again, and a run may follow."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()


def run_tasks(
    runner: SparkRunner,
    task: SparkTask[ItemT, OutcomeT],
    items: Iterable[ItemT],
    *,
    parallelism: int | None = None,
    progress: Progress = no_progress,
) -> list[OutcomeT]:
    """The outcomes of `items`, in their order. Arguments and exceptions are those of `SparkRunner.run`."""
    items = list(items)
    answers = runner.run([task.row(item) for item in items], task, parallelism=parallelism, progress=progress)
    return [
        task.failed(item, f"its Spark task failed each time it was tried: {answer.reason}")
        if isinstance(answer, PlanFailed)
        else task.outcome(answer)
        for item, answer in zip(items, answers, strict=True)
    ]


def _run(
    driver: SparkDriver,
    jobs: Sequence[list[TaskRow]],
    work: Callable[[str], str],
    concurrency: int,
    progress: Callable[[int, int], None],
) -> list[str | PlanFailed]:
    total = sum(map(len, jobs))
    plans = _Plans(driver, work)
    with ThreadPoolExecutor(concurrency, thread_name_prefix="spark-job") as pool:
        running = [pool.submit(plans.carry_out, job) for job in jobs]
        try:
            while (ended := wait(running, POLL_SECONDS, FIRST_EXCEPTION)).not_done:
                for one in ended.done:
                    one.result()  # raises if the run has failed
                progress(plans.done, total)
            for one in running:
                one.result()
            progress(total, total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            _cancel(driver.context, running)
            raise
    return [plans.found[index] for index in range(total)]


def _cancel(context: SparkContext, answers: Sequence[Future[None]]) -> None:
    """Cancel all jobs, repeatedly: a thread may be about to start another one."""
    while running := [answer for answer in answers if not answer.done()]:
        with suppress(Py4JError, OSError):  # Java has ended, and the jobs with it
            context.cancelAllJobs()
        wait(running, POLL_SECONDS)


class _Plans:
    """The plans of one run. Each job is carried out on a thread of its own."""

    def __init__(self, driver: SparkDriver, work: Callable[[str], str]) -> None:
        self._driver = driver
        self._answers: Accumulator[dict[int, str]] = driver.context.accumulator({}, _ByIndex())
        self._task = _Task(work, self._answers)
        self._failed: dict[int, PlanFailed] = {}
        self.found: dict[int, str | PlanFailed] = {}  # by index: of every plan, once all jobs have ended

    @property
    def done(self) -> int:
        return len(self._answers.value) + len(self._failed)

    def carry_out(self, plans: list[TaskRow]) -> None:
        """Raises PlanFailed, which ends the run, and SparkUnavailable."""
        while plans:
            try:
                answers = self._driver.context.parallelize(plans, len(plans)).map(self._task).collect()
            except (Py4JError, PySparkException, OSError, EOFError) as error:
                # Not chained: else two hundred lines of Java's stack trace are printed; the log has what matters.
                failed = _explained(error, self._driver, plans)
                if not isinstance(failed, PlanFailed):
                    raise failed from None
                self._failed[failed.index] = failed
                known = self._answers.value.copy()
                if not known and len(self._failed) >= MOST_FAILED:
                    raise failed from None
                self.found |= {index: known[index] for index, _ in plans if index in known}
                self.found[failed.index] = failed
                plans = [plan for plan in plans if plan[0] not in self.found]
            else:
                self.found |= {index: answer for (index, _), answer in zip(plans, answers, strict=True)}
                return


def _explained(error: Exception, driver: SparkDriver, plans: Sequence[TaskRow]) -> PlanFailed | SparkUnavailable:
    if isinstance(error, PySparkException):  # has Java's message, once this process has created a SparkSession
        return _plan_failure(str(error), plans) or driver.unavailable(str(error))
    if isinstance(error, Py4JJavaError):
        with suppress(Py4JError, OSError):  # the text of the exception is requested from Java
            message = str(error.java_exception)
            return _plan_failure(message, plans) or driver.unavailable(message)
    return driver.lost(error)


@dataclass(frozen=True, slots=True)
class _Task:
    """`work` as it runs on a worker. Each answer is sent to the driver at once, too: Spark adds those of each partition
    once, regardless of the number of attempts."""

    work: Callable[[str], str]
    answers: Accumulator[dict[int, str]]

    def __call__(self, plan: TaskRow) -> str:
        _tune_once()
        index, row = plan
        try:
            answer = self.work(row)
        except Exception as error:
            message = "".join(traceback.format_exception_only(error)).strip()
            raise _WorkFailed(json.dumps([index, message])) from error
        self.answers.add({index: answer})
        return answer


class _ByIndex(AccumulatorParam[dict[int, str]]):
    """Answers of several plans as one mapping."""

    def zero(self, value: dict[int, str]) -> dict[int, str]:  # noqa: ARG002 -- PySpark's signature
        return {}

    def addInPlace(self, value1: dict[int, str], value2: dict[int, str]) -> dict[int, str]:  # noqa: N802 -- PySpark's
        value1.update(value2)
        return value1


@cache
def _tune_once() -> None:
    """Tune the worker's process, which runs nothing else. Measured on merging: 170 MB at most, 280 MB without."""
    tune()


class _WorkFailed(Exception):
    """Its message is one line, which can be found again in Java's error text."""


_WORK_FAILED = re.compile(rf"{_WorkFailed.__name__}: (\[.*\])$", re.MULTILINE)
_TASK_FAILED = re.compile(r"Task (\d+) in stage \S+ failed \d+ times, most recent failure: (.*)")


def _plan_failure(message: str, plans: Sequence[TaskRow]) -> PlanFailed | None:
    """The failed plan according to Java's error text; None if no plan has failed."""
    if own := _WORK_FAILED.search(message):
        return PlanFailed(*json.loads(own[1]))
    if lost := _TASK_FAILED.search(message):  # Python or the executor died: a partition's index is that of its plan
        return PlanFailed(plans[int(lost[1])][0], lost[2])
    return None
