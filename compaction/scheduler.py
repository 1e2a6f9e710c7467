"""Runs jobs on their schedule, one at a time, until the process stops."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta

from compaction.quarantined import quarantine_reason, quarantine_subject
from compaction.run import CompactionReport
from compaction.schedule import Schedule
from compaction.settings import CompactionJob
from formats.errors import ReplicatorError, SparkEnded
from infra.archive.lease import LeaseTaken
from infra.runtime import log_fields
from infra.runtime.health import Health
from infra.runtime.lifecycle import Clock, Stop
from infra.runtime.metrics import Metrics

POLL_INTERVAL = timedelta(seconds=1)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    schedule: Schedule
    run: Callable[[CompactionJob], Sequence[CompactionReport]]
    clock: Clock
    health: Health
    metrics: Metrics
    stop: Stop

    def loop(self) -> None:
        """Runs until `stop`. A failed run is reported, and the job runs again at its next time. Raises SparkEnded."""
        self._log_next()
        for due in self.schedule.upcoming:  # from 0 on: an alert sees the step of the first failure then
            self.metrics.count("compaction_failures", 0, compaction_job=due.job.name)
        self.health.started(True)
        with ThreadPoolExecutor(1, "compaction-run") as pool:
            while not self.stop.is_set():
                now = self.clock.now()
                self.health.turn(now)
                job = self.schedule.take(now)
                if job is None:
                    upcoming = self.schedule.upcoming
                    self.stop.wait(min(upcoming[0].at - now, POLL_INTERVAL) if upcoming else POLL_INTERVAL)
                    continue
                running = pool.submit(self._run, job)
                while not wait([running], POLL_INTERVAL.total_seconds()).done:
                    self.health.turn(self.clock.now())  # a run may take hours; the process is not hanging
                running.result()
                self._log_next()
        self.health.started(False)

    def _run(self, job: CompactionJob) -> None:
        what = f"compaction job {job.name}"
        log.info("compaction_begins", extra={log_fields.OPERATION: job.name})
        try:
            reports = self.run(job)
        except LeaseTaken as error:
            log.info("compaction_waits", extra={log_fields.OPERATION: job.name, log_fields.REASON: str(error)})
            self.schedule.postpone(job, error.lease.until)
            return
        except ReplicatorError as error:
            if self.stop.is_set():
                return
            log.warning("compaction_run_failed", extra={log_fields.OPERATION: job.name, log_fields.ERROR: str(error)})
            self.metrics.count("compaction_failures", 1, compaction_job=job.name)
            self.health.stopped(what, str(error))
            if isinstance(error, SparkEnded):
                raise  # each later run would fail as well: another process has to begin
            return
        bad: dict[str, str] = {}
        failed = [one for report in reports for one in report.failed]
        for report in reports:
            self.metrics.count(
                "compaction_merged_segments", sum(o.merged for o in report.outcomes), compaction_job=job.name
            )
            self.metrics.count(
                "compaction_deleted_segments", sum(o.deleted for o in report.outcomes), compaction_job=job.name
            )
            self.metrics.count(
                "compaction_failures", sum(1 for o in report.outcomes if o.error), compaction_job=job.name
            )
            bad |= report.quarantined
        self.metrics.count("compaction_runs", 1, compaction_job=job.name)
        self.health.resumed(what)
        self.health.stopped(quarantine_subject(job), quarantine_reason(bad))
        if failed:
            plans = sum(len(report.outcomes) for report in reports)
            first = f"{failed[0].segment}: {failed[0].error}"
            self.health.problem(what, f"{len(failed)} of {plans} plans failed; they are tried in the next run: {first}")
        else:
            self.health.solved(what)
        log.info("compaction_ended", extra={log_fields.OPERATION: job.name})

    def _log_next(self) -> None:
        for due in self.schedule.upcoming:
            log.info("compaction_next", extra={log_fields.OPERATION: due.job.name, log_fields.NEXT: due.at.isoformat()})
