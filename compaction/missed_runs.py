"""Shows in the metrics which jobs have not come to the end of a run: one hangs, or its lease is never free."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from compaction.schedule import missed_times
from compaction.settings import CompactionJob
from formats.errors import ReplicatorError
from infra.archive.compaction_runs import CompletedRun, CompletedRuns
from infra.runtime import log_fields
from infra.runtime.lifecycle import Clock
from infra.runtime.metrics import Metrics

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class MissedRuns:
    """For one thread. What is recorded outlives the process, so that restarts hide nothing."""

    jobs: Sequence[CompactionJob]
    runs: CompletedRuns
    clock: Clock
    metrics: Metrics
    since: datetime  # start of the process: times of a job of which no whole run is recorded count from here
    _known: Mapping[str, CompletedRun] = field(default_factory=dict)

    def show(self) -> None:
        """Read the recorded runs, and set the gauges. What was read before counts while the store does not answer."""
        try:
            self._known = self.runs.all()
        except ReplicatorError as error:
            log.warning("compaction_runs_not_read", extra={log_fields.ERROR: str(error)})
        now = self.clock.now()
        for job in self.jobs:
            last = self._known.get(job.name)
            missed = missed_times(job, self.since if last is None else last.began_at, now)
            self.metrics.gauge("compaction_missed_runs", missed, compaction_job=job.name)
            if last is not None:
                self.metrics.gauge(
                    "compaction_last_run_timestamp_seconds", last.ended_at.timestamp(), compaction_job=job.name
                )
