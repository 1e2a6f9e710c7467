"""A Spark application of N tasks that run until they are stopped, each a service.

    start Spark ──> job: N tasks ──all drained, as ordered──> end
        ^             │ fails as a whole: its Java or the whole cluster ended
        └── a pause, longer each time ──┘

Spark tries a lost task again in the same job, without end (`spark.task.maxFailures`); pauses between attempts are the
roster's. The first start that fails ends the run: an operator is there. Later ones are tried again.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from formats.errors import SparkEnded, SparkUnavailable, TasksNotStarted
from infra.runtime import log_fields
from infra.runtime.health import Health, HealthSnapshot
from infra.runtime.lifecycle import Deadline
from infra.runtime.retry import Backoff
from infra.runtime.workers.attempt import ServiceBuilder, WorkerJob
from infra.runtime.workers.gathered import gather
from infra.runtime.workers.roster import Roster
from infra.runtime.workers.supervisor_parts import SupervisorParts
from infra.runtime.workers.task_port import TaskPort
from infra.spark.driver import SparkDriver, SparkSettings
from infra.spark.executors import attempts_on_leaving, failed_attempts, registered, request_others
from infra.spark.service_task import ServiceTask
from infra.spark.task_failures import explain

MOST_TASKS = 16  # by default: each is a member of a group, a Python process and a core
NEVER = "1000000"  # failures of a task until its job fails, and of executors until the application does
SPARK = "spark"  # subject of problems of the whole job
PORT = "spark.replicator.port"  # property of ours
TRIES = 4  # failed attempts before the first one connects, until the run ends
TURN = timedelta(milliseconds=200)
REASON_WITHIN = timedelta(seconds=5)  # of a failed attempt: Spark's log comes on another way, and later
CHECK = timedelta(seconds=2)  # for executors that are decommissioned
ENDS_WITHIN = timedelta(seconds=2)  # a job whose tasks have all drained
STEADY = timedelta(minutes=5)  # a job that ran so long does not lengthen the next pause
PAUSES = Backoff(timedelta(seconds=1), timedelta(seconds=60))

log = logging.getLogger(__name__)


def long_settings(settings: SparkSettings, tasks: int | None) -> SparkSettings:
    """`settings`, as in force, for tasks that do not end. A property of the user's stands over ours."""
    ours = {
        "spark.task.maxFailures": NEVER,
        "spark.executor.maxNumFailures": NEVER,  # on YARN and Kubernetes, by default three: then the application ends
        "spark.python.worker.reuse": "false",  # a lost attempt may leave threads behind in its process
    }
    if tasks is not None and not settings.is_local:
        ours["spark.cores.max"] = str(tasks * int(settings.properties.get("spark.task.cpus", "1")))
    master = settings.master
    if found := re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master):
        master = f"local[{found[1] or 1},{NEVER}]"  # its own limit is in its name
    return replace(settings, master=master, properties=ours | dict(settings.properties))


@dataclass(slots=True, kw_only=True)
class LongJob:
    """`run` on a thread of its own, until `stop` is set; everything else may be called from any thread."""

    settings: SparkSettings
    tasks: int | None  # None: as many as the cluster has cores, at most MOST_TASKS
    builder: ServiceBuilder
    drain_within: timedelta
    parts: SupervisorParts
    health: Health = field(default_factory=Health)  # problems of the driver's own, beside those of Spark and the tasks
    _port: TaskPort | None = None
    _changed: bytes | None = None  # settings, pickled, since the first change
    _job: int = 0
    _problem: str = ""  # why no job runs
    _spark_error: str = ""  # of the last task that did not begin
    _reason_within: Deadline | None = None  # from the failure on that ends the run
    _turned_at: datetime = field(init=False)
    _counted: int = 0  # lost attempts in the metric

    def __post_init__(self) -> None:
        if self.tasks is not None and self.tasks < 1:
            raise ValueError(f"at least one task is needed, not {self.tasks}")
        self._turned_at = self.parts.clock.now()

    def run(self) -> None:
        """Raises JavaMissing, SparkUnavailable, ConfigError and TasksNotStarted at the first start, and SparkEnded."""
        failures = 0
        while not self.parts.stop.is_set():
            began_at = self.parts.clock.now()
            try:
                prepared = partial(long_settings, tasks=self.tasks)
                driver = SparkDriver(self.settings, own_session=True, prepared=prepared)
                try:
                    self._run_job(driver)
                finally:
                    driver.close()
            except SparkEnded:
                raise
            except SparkUnavailable as error:
                if self._port is None or not self._port.has_connected:
                    raise
                if self.parts.clock.now() - began_at >= STEADY:
                    failures = 0
                pause = PAUSES.delay(failures)
                failures += 1
                self._problem = f"the job ended, and the next one begins after {pause.total_seconds():.0f} s: {error}"
                self.parts.metrics.count("spark_failed_jobs")
                log.error("spark_job_failed", extra={log_fields.ERROR: str(error)})
                self._pause(pause)

    def change_settings(self, pickled: bytes) -> None:
        """Let every task take them over, and those that begin later."""
        self._changed = pickled
        if self._port is not None:
            self._port.change_settings(pickled)

    # --- what can be seen

    def snapshot(self) -> HealthSnapshot:
        states = [] if self._port is None else self._port.states()
        problem = self._problem or ("" if self._port is not None else "Spark is starting")
        found = gather(
            states,
            self.parts.clock.now(),
            driver_turn=self._turned_at,
            missing=partial(waits_for_executors, spark_error=self._spark_error),
            problems={SPARK: problem} if problem else {},
        )
        return replace(found, problems={**self.health.snapshot().problems, **found.problems})

    def metrics_by_task(self, accept: str) -> Mapping[int, str]:
        return {} if self._port is None else self._port.metrics(accept)

    # --- one job

    def _run_job(self, driver: SparkDriver) -> None:
        """Returns once every task has drained. Raises SparkUnavailable and TasksNotStarted."""
        tasks = self._wanted(driver)
        if self.parts.stop.is_set():  # while Spark started
            return
        port = self._opened_port(driver, tasks)
        self._job += 1
        port.job_begins(self._job)
        work = WorkerJob(
            host=_conf(driver, "spark.driver.host"),
            port=port.port,
            secret=port.secret,
            job=self._job,
            builder=self.builder,
        )
        job = _Job(driver, tasks, ServiceTask(work=work))
        self._problem = self._spark_error = ""
        log.info("spark_job_begins", extra={log_fields.COUNT: tasks, log_fields.ADDRESS: f"{work.host}:{work.port}"})
        deadline: Deadline | None = None  # from the order to drain on
        idle: Deadline | None = None  # since no task works any more
        checked_within = Deadline(CHECK)
        try:
            while job.runs:
                self._turn(port)
                if self.parts.stop.is_set() and deadline is None:
                    deadline = Deadline(self.drain_within)
                    port.drain("the driver was asked to stop")
                if deadline is not None and deadline.expired:
                    log.warning("threads_left_behind", extra={log_fields.REASON: "tasks that have not drained in time"})
                    return
                if deadline is not None and not any(state.hello is not None for state in port.states()):
                    idle = idle or Deadline(ENDS_WITHIN)
                    if idle.expired:  # Spark has begun no attempt that could end: it has no executor for one
                        return
                self._check_for_failed_starts(driver, port)
                if checked_within.expired:
                    checked_within = Deadline(CHECK)
                    if leaving := attempts_on_leaving(driver.context):
                        request_others(driver.context)
                        port.move(leaving, "its executor is decommissioned")
                job.join(TURN)
        finally:
            job.cancel()
        if deadline is None:
            raise driver.unavailable(job.error or "the job ended although nothing ordered it to")

    def _wanted(self, driver: SparkDriver) -> int:
        if self.tasks is None:
            self.tasks = max(1, min(self._cores(driver), MOST_TASKS))
        self.parts.metrics.gauge("spark_tasks", self.tasks)
        return self.tasks

    def _cores(self, driver: SparkDriver) -> int:
        """Of all executors: the sum grows while they register."""
        patience, cores = Deadline(timedelta(seconds=30)), 0
        while not (driver.settings.is_local or patience.expired):
            before, cores = cores, registered(driver.context)
            if cores and cores == before:
                break
            if self.parts.stop.wait(timedelta(seconds=2)):
                break
        return int(driver.context.defaultParallelism)

    def _opened_port(self, driver: SparkDriver, tasks: int) -> TaskPort:
        if self._port is None:
            setting = "spark.driver.bindAddress"
            host = _conf(driver, setting) or _conf(driver, "spark.driver.host")
            port = int(_conf(driver, PORT) or "0")
            self._port = TaskPort(Roster(tasks), host=host, port=port, clock=self.parts.clock, setting=setting)
            self.parts.resources.callback(self._port.close)
            if self._changed is not None:
                self._port.change_settings(self._changed)
        return self._port

    def _check_for_failed_starts(self, driver: SparkDriver, port: TaskPort) -> None:
        """A task that cannot even connect has no other way to tell why."""
        if driver.last_lost_task:
            self._spark_error = explain(driver.last_lost_task)
        if not port.has_connected and failed_attempts(driver.context) >= TRIES:
            self._reason_within = self._reason_within or Deadline(REASON_WITHIN)
            if self._spark_error or self._reason_within.expired:
                raise TasksNotStarted(self.settings.master, self._spark_error or "its log has the reason")

    def _turn(self, port: TaskPort) -> None:
        self._turned_at = self.parts.clock.now()
        self.parts.metrics.gauge("spark_running_tasks", sum(state.hello is not None for state in port.states()))
        if port.error is not None:
            raise port.error
        lost = port.lost
        if lost > self._counted:
            self.parts.metrics.count("spark_lost_attempts", lost - self._counted)
            self._counted = lost

    def _pause(self, pause: timedelta) -> None:
        deadline = Deadline(pause)
        while not deadline.expired and not self.parts.stop.wait(min(deadline.left, timedelta(seconds=1))):
            self._turned_at = self.parts.clock.now()


def waits_for_executors(working: int, wanted: int, *, spark_error: str) -> str:
    """`spark_error`: Spark's last reason for a task that did not begin."""
    waits = (
        f"waits for executors: {working} of {wanted} tasks run; each takes a core: give the application more, "
        "or start it again with fewer --tasks"
    )
    return f"{waits}; the last task that did not begin: {spark_error}" if spark_error else waits


class _Job:
    """One Spark job on a thread of its own."""

    def __init__(self, driver: SparkDriver, tasks: int, task: ServiceTask) -> None:
        self._driver, self._tasks, self._task = driver, tasks, task
        self.error = ""
        self._thread = threading.Thread(target=self._run, name="spark-job", daemon=True)
        self._thread.start()

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout: timedelta) -> None:
        self._thread.join(timeout.total_seconds())

    def cancel(self) -> None:
        if self.runs:
            with suppress(Py4JError, OSError):  # Java has ended, and the job with it
                self._driver.context.cancelAllJobs()
            self._thread.join(5)

    def _run(self) -> None:
        try:
            rows = self._driver.context.parallelize(range(self._tasks), self._tasks)
            rows.mapPartitionsWithIndex(self._task).collect()
        except (Py4JError, PySparkException, OSError, EOFError) as error:
            with suppress(Py4JError, OSError):
                self.error = _message(error)
            self.error = self.error or repr(error).partition("\n")[0]


def _message(error: Exception) -> str:
    java: Any = getattr(error, "java_exception", None)
    return str(error if java is None else java).partition("\n")[0]


def _conf(driver: SparkDriver, name: str) -> str:
    """Empty when it is not set. Under spark-submit, it may have been submitted."""
    return str(driver.context.getConf().get(name) or "")
