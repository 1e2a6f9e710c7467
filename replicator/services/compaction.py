"""Compaction: the Python API, and the task that a Spark worker runs.

with Compaction(load("replicator.toml")) as compaction:
    for report in compaction.compact("sensor.events", partitions=[0, 1]):
        print(report.job, len(report.outcomes))
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from compaction.delete_merged import Cleaner
from compaction.heartbeat import sending_heartbeats
from compaction.merge import Merger
from compaction.missed_runs import MissedRuns
from compaction.planner import CompactionPlan, MergePlan
from compaction.quarantined import QuarantinedSegments
from compaction.run import CompactionReport, CompactionStopped, Compactor, Execute, JobSelection
from compaction.schedule import Schedule
from compaction.scheduler import Scheduler
from compaction.settings import NO_JOBS
from compaction.task_rows import PlanOutcome, decode_outcome, decode_plan, encode_outcome, encode_plan
from compaction.thinning import GenerationThinner
from compaction.worker import Worker
from formats.control.lease import Lease
from formats.errors import ConfigError, ReplicatorError
from formats.registry import SegmentFormat
from formats.registry import load as load_format
from formats.topic_selection import TopicPattern
from infra.archive.archive import Archive
from infra.archive.compaction_runs import CompletedRun, CompletedRuns
from infra.archive.control import ControlStore
from infra.archive.job_heartbeats import HeartbeatStore
from infra.archive.lease import clock_difference, hold_lease, this_process
from infra.archive.quarantine import QuarantineStore
from infra.archive.segments import SegmentStore
from infra.archive.upload import Uploader
from infra.runtime.lifecycle import Closing, Stop, SystemClock
from infra.runtime.log_fields import ERROR, REASON
from infra.runtime.progress import Progress, no_progress
from infra.runtime.service import Service
from infra.spark.driver import SparkSettings
from replicator.absent_topics import absent_from_archive
from replicator.config import CompactionJob, Config
from replicator.services.replicas import replica_check
from replicator.services.spark_jobs import SparkJobs
from replicator.services.wiring import ServiceContext, archive_objects, for_workers, program, require_conditional_writes

if TYPE_CHECKING:
    from infra.spark.runner import SparkRunner

log = logging.getLogger(__name__)

SHUTDOWN = timedelta(seconds=10)


class Compaction(Closing):
    """Runs the compaction jobs of a configuration. A context manager: Spark runs from the first plan to the end.

    For one thread. `execute` replaces Spark: it maps plans to outcomes.
    """

    def __init__(
        self,
        config: Config,
        *,
        execute: Execute | None = None,
        progress: Progress = no_progress,
        stop: Stop | None = None,
    ) -> None:
        """`stop` may be set at any time without loss of data. Raises ConfigError when the configuration has no
        [compaction]."""
        if config.compaction is None:
            raise ConfigError(["compaction: missing; add a [[compaction.jobs]]"], source=config.source)
        self.settings = config.compaction
        if not self.settings.jobs:  # the section says where Spark works, which other commands use
            raise ConfigError([f"compaction.jobs: {NO_JOBS}"], source=config.source)
        if self.settings.group_id is not None:
            log.info(
                "setting_obsolete", extra={REASON: "compaction.group_id: merges are placed by Spark, not by a group"}
            )
        self.stop = stop or Stop()
        self._config, self._progress = config, progress
        self._opened = ExitStack()
        self._clock = SystemClock()
        self.owner = this_process()
        objects = archive_objects(config, self.stop, self._opened)
        self._store = SegmentStore(objects, config.s3.prefix)
        self._control = ControlStore(objects, config.s3.prefix)
        self.heartbeats = HeartbeatStore(objects, config.s3.prefix, config.region)
        self.runs = CompletedRuns(objects, config.s3.prefix, config.region)
        self._execute = execute or self._on_spark
        self._spark = SparkJobs(spark_settings(config))
        self._is_proven = False  # whether the bucket is known to honour conditional writes

    def compact(
        self,
        topic: str | None = None,
        partitions: Collection[int] = (),
        *,
        level: int | None = None,
        jobs: Sequence[CompactionJob] | None = None,
        dry_run: bool = False,
        on_report: Callable[[CompactionReport], None] = lambda _: None,
    ) -> list[CompactionReport]:
        """Run `jobs` (default: all) now, one after the other, restricted to a topic, partitions or a level.
        `on_report`: gets the report of each job that has run, also if a later one raises.

        Raises LeaseTaken when another process compacts the region, PlanFailed or SparkUnavailable when Spark cannot
        continue, StoreUnavailable, CompactionStopped, and ConfigError when the bucket lets objects be overwritten, or
        nothing of `topic` is stored, or no job is for it.
        """
        selection = JobSelection(
            topics=frozenset({topic} if topic else ()), partitions=frozenset(partitions), level=level
        )
        reports: list[CompactionReport] = []
        jobs = self.settings.jobs if jobs is None else jobs
        if topic:
            self._require_topic(topic, jobs)
        if not dry_run:
            self._require_conditional_writes()
        for job in jobs:
            if self.stop.is_set():
                raise CompactionStopped
            region = job.region or self._config.region
            compactor = Compactor(
                region=region,
                store=self._store,
                control=self._control,
                execute=self._execute,
                clock=self._clock,
                stop=self.stop,
            )
            if dry_run:
                reports.append(compactor.run(job, selection, dry_run=True))
                on_report(reports[-1])
                continue
            began_at = self._clock.now()
            with hold_lease(self._control.leases, region, self.owner, self._clock) as lease:
                is_whole = selection == JobSelection()
                # asked at once: the longer ago the lease was written, the more the clocks would seem to differ
                unknown_ages = self._unknown_ages(region, lease) if is_whole else ""
                reports.append(compactor.run(job, selection))
                on_report(reports[-1])
                if is_whole:
                    self._thin(region, unknown_ages)
                    self._record(reports[-1], began_at)
        return reports

    def _require_topic(self, topic: str, jobs: Sequence[CompactionJob]) -> None:
        """Else a mistyped name passes as one of which nothing is left to merge."""
        if not any(job.selects(topic) for job in jobs):
            names = ", ".join(job.name for job in jobs)
            raise ConfigError([f"{topic}: no job compacts this topic: see topics of {names}"], source="--topic")
        regions = sorted({job.region or self._config.region for job in jobs if job.selects(topic)})
        stored = {one.topic for region in regions for one in self._store.incarnations(region)}
        if topic not in stored:
            where = " or ".join(f"{region}/" for region in regions)
            near = absent_from_archive(TopicPattern(topic), stored)
            raise ConfigError([f"{topic}: nothing of it is stored below {where}{near}"], source="--topic")

    def _record(self, report: CompactionReport, began_at: datetime) -> None:
        """A failure fails no job: until the next run, this one counts as missed."""
        run = CompletedRun(
            began_at=began_at,
            ended_at=self._clock.now(),
            failed_plans=len(report.failed),
            quarantined=len(report.quarantined),
        )
        try:
            self.runs.record(report.job, run)
        except ReplicatorError as error:
            log.warning("compaction_run_not_recorded", extra={ERROR: str(error)})

    def _unknown_ages(self, region: str, lease: Lease) -> str:
        try:
            return clock_difference(self._control.leases, region, lease, self._clock.now())
        except ReplicatorError as error:
            return str(error)

    def _thin(self, region: str, unknown_ages: str) -> None:
        """Thin the generations of control objects. Those older than every segment are left to `gc`, which lists all
        segments. A failure fails no job: the next run or `gc` does it. `unknown_ages`: why clocks differ."""
        if unknown_ages:
            log.warning("generations_not_thinned", extra={ERROR: unknown_ages})
            return
        thinner = GenerationThinner(self._control.objects, self._control.prefix, region, self.stop)
        try:
            thinner.remove(self._clock.now(), None)
        except ReplicatorError as error:
            log.warning("generations_not_thinned", extra={ERROR: str(error)})

    def jobs(self, names: Sequence[str] | None) -> list[CompactionJob]:
        """The jobs with these names; default: all. Raises ConfigError for an unknown name."""
        known = {job.name: job for job in self.settings.jobs}
        unknown = [name for name in names or () if name not in known]
        if unknown:
            problems = [f"no job {name!r}; there are: {', '.join(known)}" for name in unknown]
            raise ConfigError(problems, source=self._config.source)
        return list(self.settings.jobs) if not names else [known[name] for name in names]

    @property
    def quarantine(self) -> QuarantineStore:
        return self._control.quarantine

    @property
    def spark(self) -> SparkRunner | None:
        """The runner of the plans; None before the first plan."""
        return self._spark.runner

    def close(self) -> None:
        self._spark.close()
        self._opened.close()

    def _require_conditional_writes(self) -> None:
        if not self._is_proven:
            require_conditional_writes(self._config.s3, self._config.region, self.stop)
            self._is_proven = True

    def _on_spark(self, plans: Sequence[CompactionPlan], job: CompactionJob) -> Sequence[PlanOutcome]:
        task = merge_task(self._config, job)
        return self._spark.run(task, plans, parallelism=job.parallelism, progress=self._report_progress)

    def _report_progress(self, done: int, total: int) -> None:
        if self.stop.is_set():
            raise CompactionStopped
        self._progress(done, total)


def merge_task(config: Config, job: CompactionJob) -> MergeTask:
    """For one run."""
    return MergeTask(for_workers(config, "compaction", "sync"), job, program(), uuid.uuid4().hex)


def spark_settings(config: Config) -> SparkSettings:
    """The Spark settings of [compaction], which apply to everything that runs on Spark."""
    chosen = config.compaction
    if chosen is None:
        return SparkSettings()
    return SparkSettings(master=chosen.master, properties=chosen.spark, ship_packages=chosen.ship_packages)


def build_scheduler(config: Config, names: Sequence[str] | None = None) -> Service:
    """A service that runs each job on its cron schedule, one at a time, until it is stopped. Raises ConfigError."""
    around = ServiceContext(config)
    with around.building():
        compaction = Compaction(config, stop=around.stop)
        around.resources.callback(compaction.close)
        jobs = compaction.jobs(names)
        scheduler = Scheduler(
            schedule=Schedule(jobs, around.clock.now(), {job.name: random.random() for job in jobs}),
            run=lambda job: compaction.compact(jobs=[job]),
            clock=around.clock,
            health=around.health,
            metrics=around.metrics,
            stop=around.stop,
        )

        missed = MissedRuns(
            jobs=jobs,
            runs=compaction.runs,
            clock=around.clock,
            metrics=around.metrics,
            since=around.clock.now(),
        )
        quarantined = QuarantinedSegments(
            jobs=jobs,
            region=config.region,
            quarantine=compaction.quarantine,
            metrics=around.metrics,
            health=around.health,
        )

        def show() -> None:
            missed.show()
            quarantined.show()

        def run() -> None:
            names = [job.name for job in jobs]
            heartbeats = compaction.heartbeats
            with sending_heartbeats(heartbeats, compaction.owner, names, around.clock, each_time=show):
                scheduler.loop()

        return around.service({"compaction": run}, SHUTDOWN)


@dataclass(frozen=True, slots=True)
class MergeTask:
    """A `SparkTask`: executes the plan of a row. It is pickled together with the configuration, which includes
    credentials."""

    config: Config
    job: CompactionJob
    writer: str  # name of the writer in footers: a worker may have the modules without their version
    run: str  # id of the run: each process has one set of clients per run

    def row(self, item: CompactionPlan) -> str:
        return encode_plan(item)

    def __call__(self, row: str) -> str:
        worker = _workers.get(self.run)
        if worker is None:
            _workers.clear()
            worker = _workers[self.run] = build_worker(self.config, self.job, self.writer, Stop(), ExitStack())
        return encode_outcome(worker.execute(decode_plan(row)))

    def outcome(self, answer: str) -> PlanOutcome:
        return decode_outcome(answer)

    def failed(self, item: CompactionPlan, reason: str) -> PlanOutcome:
        return PlanOutcome(segment=str(item.output if isinstance(item, MergePlan) else item.keeper), error=reason)


_workers: dict[str, Worker] = {}


def build_worker(config: Config, job: CompactionJob, writer: str, stop: Stop, opened: ExitStack) -> Worker:
    """A worker whose clients are closed with `opened`, or with the process."""
    settings = replace(config.s3, storage_class=job.storage_class or config.s3.storage_class)
    archive = Archive.of(archive_objects(config, stop, opened, settings), settings.prefix, merged_format(config, job))
    return Worker(
        merger=Merger(
            archive=archive,
            # an object already at the output's key may hold fewer records: only what it is proved to hold is deleted
            uploader=Uploader(archive, source_compacted=lambda _: True),
            row_group_bytes=job.row_group_size,
            writer=writer,
            created_by=config.created_by or "",
            spool_dir=config.compaction.spool_dir if config.compaction else None,
        ),
        cleaner=Cleaner(archive=archive, replicas=replica_check(config, archive.segments, stop, opened)),
    )


def merged_format(config: Config, job: CompactionJob) -> SegmentFormat:
    """The configured format; Parquet with larger row groups than in egress, and the job's compression level."""
    options = dict(config.format_options)
    if config.format == "parquet":
        options |= {"row_group_bytes": job.row_group_size, "row_group_records": job.batch_size}
        if options.get("compression", "zstd") == "zstd":
            options["compression_level"] = "auto" if job.compression_level is None else job.compression_level
    return load_format(config.format, options)


def in_process(config: Config, opened: ExitStack) -> Execute:
    """Execute plans without Spark: in this process, one after the other."""
    stop = Stop()

    def run(plans: Sequence[CompactionPlan], job: CompactionJob) -> Sequence[PlanOutcome]:
        worker = build_worker(config, job, program(), stop, opened)
        return [worker.execute(plan) for plan in plans]

    return run
