"""Retention and garbage collection: the API of the command and of Python users.

with Retention(load("replicator.toml")) as retention:
    report = retention.collect(dry_run=True)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from compaction.gc import Collector, GcReport, UncopiedOf
from compaction.planner import CompactionPlan, plan_cleaning
from compaction.run import CompactionReport as CleaningReport
from compaction.run import CompactionStopped, Compactor, JobSelection
from compaction.settings import HIGHEST_LEVEL
from compaction.task_rows import PlanOutcome
from formats.errors import ConfigError
from formats.segment import Segment
from infra.archive.control import ControlStore
from infra.archive.lease import hold_lease, this_process
from infra.archive.segments import SegmentStore
from infra.runtime.lifecycle import Closing, Stop, SystemClock
from infra.runtime.progress import Progress, no_progress
from replicator.config import CompactionJob, Config
from replicator.services.copy_check_task import CopyCheckTask
from replicator.services.replicas import replica_check
from replicator.services.spark_jobs import SparkJobs
from replicator.services.wiring import (
    ARCHIVE_THREADS,
    archive_objects,
    for_workers,
    require_conditional_writes,
    s3_uploads,
)

if TYPE_CHECKING:
    from infra.spark.driver import SparkSettings
    from infra.spark.runner import ItemT, OutcomeT, SparkTask

CHECKED_TOGETHER = 100  # segments of a row; comparing one may read every byte


class Retention(Closing):
    """Removes segments that a configuration does not keep. A context manager, for one thread."""

    def __init__(
        self,
        config: Config,
        *,
        stop: Stop | None = None,
        spark: SparkSettings | None = None,
        progress: Progress = no_progress,
    ) -> None:
        """`stop` may be set at any time without loss of data. `spark`: prove there what is deleted: the copies of
        segments that expire, and the segments that hold the records of others; its runs report to `progress`. Raises
        ConfigError when the configuration has no [retention]."""
        if config.retention is None:
            problem = 'retention: missing; add a [retention.topics."name"], with what is to be kept of it'
            raise ConfigError([problem], source=config.source)
        self.settings = config.retention
        self.region = config.retention.region or config.region
        self.stop = stop or Stop()
        self._config = config
        self._opened = ExitStack()
        self._clock = SystemClock()
        self._spark, self._progress = SparkJobs(spark), progress
        self._owner = this_process()
        objects = archive_objects(config, self.stop, self._opened)
        self._store = SegmentStore(objects, config.s3.prefix)
        self._control = ControlStore(objects, config.s3.prefix)

    def collect(self, topics: Collection[str] = (), *, dry_run: bool = False, allow_large: bool = False) -> GcReport:
        """Remove segments beyond the age and size limits of `topics` (default: all), and abort abandoned uploads.

        Raises LeaseTaken, StoreUnavailable when a listing failed, and ConfigError when the bucket lets objects be
        overwritten; in these cases nothing was removed.
        """
        if not dry_run:
            require_conditional_writes(self._config.s3, self._config.region, self.stop)
        with ThreadPoolExecutor(ARCHIVE_THREADS, "copies") as pool:
            collector = Collector(
                region=self.region,
                settings=self.settings,
                own_topics=self._config.own_topics,
                store=self._store,
                control=self._control,
                uploads=s3_uploads(self._config.s3, self._opened),
                uncopied=self._uncopied_here(pool) if self._spark.settings is None else self._uncopied_on_spark,
                clock=self._clock,
                stop=self.stop,
                is_copy=self.region != self._config.region,
            )
            if dry_run:
                return collector.run(None, topics, allow_large=allow_large)
            with hold_lease(self._control.leases, self.region, self._owner, self._clock) as lease:
                return collector.run(lease, topics, allow_large=allow_large)

    def clean(self, topics: Collection[str] = (), *, dry_run: bool = False) -> CleaningReport:
        """Delete segments whose records are proved to be in larger segments; no record is removed.

        Applies to topics without a retention rule, too, and independently of the compaction jobs. Without Spark it
        runs in this process, one plan after the other. Raises as `collect` does, and with Spark PlanFailed and
        SparkUnavailable.
        """
        from replicator.services.compaction import in_process  # noqa: PLC0415 -- loads Arrow, to prove what is deleted

        job = CompactionJob(name="gc", max_level=HIGHEST_LEVEL - 1, delete_grace=self.settings.delete_grace)
        compactor = Compactor(
            region=self.region,
            store=self._store,
            control=self._control,
            execute=in_process(self._config, self._opened) if self._spark.settings is None else self._clean_on_spark,
            clock=self._clock,
            stop=self.stop,
            make_plans=plan_cleaning,
        )
        selection = JobSelection(topics=frozenset(topics))
        if dry_run:
            return compactor.run(job, selection, dry_run=True)
        require_conditional_writes(self._config.s3, self._config.region, self.stop)
        with hold_lease(self._control.leases, self.region, self._owner, self._clock):
            return compactor.run(job, selection)

    def close(self) -> None:
        self._spark.close()
        self._opened.close()

    def _uncopied_here(self, pool: Executor) -> UncopiedOf:
        check = replica_check(self._config, self._store, self.stop, self._opened)
        return lambda segments: check.each_uncopied(segments, pool)

    # --- on Spark

    def _clean_on_spark(self, plans: Sequence[CompactionPlan], job: CompactionJob) -> Sequence[PlanOutcome]:
        from replicator.services.compaction import merge_task  # noqa: PLC0415 -- as above

        return self._run(merge_task(self._config, job), plans)

    def _uncopied_on_spark(self, segments: Sequence[Segment]) -> Sequence[str]:
        chunks = [segments[at : at + CHECKED_TOGETHER] for at in range(0, len(segments), CHECKED_TOGETHER)]
        answers = self._run(CopyCheckTask(for_workers(self._config, "sync")), chunks)
        return [why for some in answers for why in some]

    def _run(self, task: SparkTask[ItemT, OutcomeT], items: Sequence[ItemT]) -> Sequence[OutcomeT]:
        return self._spark.run(task, items, progress=self._reported)

    def _reported(self, done: int, total: int) -> None:
        if self.stop.is_set():
            raise CompactionStopped
        self._progress(done, total)
