"""Runs plans of any package on Spark: one row of text in, one answer of text out.

    rows ──> a partition each ──> work(row), on some worker ──> answers, in the order of the rows

Rules:
1. Spark only schedules. A worker reads and writes with clients it makes itself: no Hadoop jars, no pandas.
2. `work` may run twice for a row, even at the same time (a lost worker, speculation): it has to be idempotent.
3. An exception of `work` is retried as often as Spark is told to (`local[*,4]`, `spark.task.maxFailures`), then the
   run fails. What trying again cannot change is better an answer than an exception.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import Accumulator, SparkContext
from pyspark.errors import PySparkException

from formats.errors import PlanFailed, SparkUnavailable
from infra.runtime.lifecycle import Closing
from infra.runtime.progress import Progress, no_progress
from infra.runtime.tuning import one_arena, tune
from infra.spark.driver import SparkDriver, SparkSettings

POLL_SECONDS = 0.2

Plan = tuple[int, str]  # index of the row, and the row


class SparkRunner(Closing):
    """A context manager. Spark starts with the first run and ends with `close`. One run at a time, and one runner with
    a started Spark per process."""

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
    ) -> list[str]:
        """The answers, in the order of `rows`. `work` is pickled: a function of a module, or a frozen dataclass.

        `parallelism`: so many plans at a time, at most; None: as many as Spark has cores. `progress` is called with
        (done, total) on this thread; an exception of it, such as a KeyboardInterrupt, ends the run.
        Raises PlanFailed, SparkUnavailable (the next run starts another Spark), JavaMissing if there is no Java.
        """
        if parallelism is not None and parallelism < 1:
            raise ValueError(f"parallelism must be at least 1: {parallelism}")
        if not rows:
            return []
        plans = list(enumerate(rows))
        # Without a cap one job of all plans: Spark sees what is left, so it can speculate and ask for more executors.
        # With one, a job per plan and so many in flight. No slot waits for a slow plan, as it would in waves; each plan
        # keeps its own retries, as it would not as one of several in a partition; and no master has to know of it.
        jobs = [plans] if parallelism is None else [[plan] for plan in plans]
        try:
            self._driver = self._driver or SparkDriver(self._settings)
            return _run(self._driver, jobs, work, parallelism or 1, progress)
        except SparkUnavailable:
            self.close()
            raise

    @property
    def ui_url(self) -> str | None:
        """Of Spark's own pages, if it runs and `spark.ui.enabled` is true."""
        return self._driver.context.uiWebUrl if self._driver else None

    @property
    def application_id(self) -> str | None:
        """As masters and Spark's pages know it; None before the first run."""
        return self._driver.context.applicationId if self._driver else None

    def close(self) -> None:
        """End Spark and its Java. May be called again, and a run may follow."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()


def _run(
    driver: SparkDriver,
    jobs: Sequence[list[Plan]],
    work: Callable[[str], str],
    at_once: int,
    progress: Callable[[int, int], None],
) -> list[str]:
    total = sum(map(len, jobs))
    finished = driver.context.accumulator(0)
    task = _Task(work, finished)
    with ThreadPoolExecutor(at_once, thread_name_prefix="spark-job") as pool:
        answers = [pool.submit(_collect, driver, job, task) for job in jobs]
        try:
            while (ended := wait(answers, POLL_SECONDS, FIRST_EXCEPTION)).not_done:
                for answer in ended.done:
                    answer.result()  # raises, if this is the one that failed
                progress(finished.value, total)
            result = [text for answer in answers for text in answer.result()]
            progress(total, total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            _cancel(driver.context, answers)
            raise
    return result


def _cancel(context: SparkContext, answers: Sequence[Future[list[str]]]) -> None:
    """Again and again: a thread may have been about to start a job."""
    while running := [answer for answer in answers if not answer.done()]:
        with suppress(Py4JError):  # Java is gone, and the jobs with it
            context.cancelAllJobs()
        wait(running, POLL_SECONDS)


def _collect(driver: SparkDriver, plans: list[Plan], task: _Task) -> list[str]:
    try:
        return driver.context.parallelize(plans, len(plans)).map(task).collect()
    except (Py4JError, PySparkException, OSError, EOFError) as error:
        # Not chained: an uncaught one would print two hundred lines of Java's. What matters of them is in the log.
        raise _explained(error, driver, plans) from None


def _explained(error: Exception, driver: SparkDriver, plans: Sequence[Plan]) -> PlanFailed | SparkUnavailable:
    if isinstance(error, PySparkException):  # what Java said, once this process has made a SparkSession
        return _plan_failure(str(error), plans) or driver.unavailable(str(error))
    if isinstance(error, Py4JJavaError):
        with suppress(Py4JError, OSError):  # it is Java that is asked for the words of its exception
            said = str(error.java_exception)
            return _plan_failure(said, plans) or driver.unavailable(said)
    return driver.lost(error)


@dataclass(frozen=True, slots=True)
class _Task:
    """`work`, as it runs on a worker. Counts what it has finished: Spark adds up the counts of each partition once,
    however often that was tried."""

    work: Callable[[str], str]
    finished: Accumulator[int]

    def __call__(self, plan: Plan) -> str:
        _tune_once()
        index, row = plan
        try:
            answer = self.work(row)
        except Exception as error:
            said = "".join(traceback.format_exception_only(error)).strip()
            raise _WorkFailed(json.dumps([index, said])) from error
        self.finished.add(1)
        return answer


@cache
def _tune_once() -> None:
    """A worker's process is all ours. Measured on merging: 170 MB at most, 280 without."""
    one_arena()
    tune()


class _WorkFailed(Exception):
    """One line that is found again in whatever Java makes of it."""


_WORK_FAILED = re.compile(rf"{_WorkFailed.__name__}: (\[.*\])$", re.MULTILINE)
_TASK_FAILED = re.compile(r"Task (\d+) in stage \S+ failed \d+ times, most recent failure: (.*)")


def _plan_failure(said: str, plans: Sequence[Plan]) -> PlanFailed | None:
    """What Java's words tell of a plan; None if it was none that failed."""
    if own := _WORK_FAILED.search(said):
        return PlanFailed(*json.loads(own[1]))
    if lost := _TASK_FAILED.search(said):  # its Python or its executor died: partitions are counted as plans are
        return PlanFailed(plans[int(lost[1])][0], lost[2])
    return None
