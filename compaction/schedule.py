"""When jobs run: cron expressions in their time zones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from compaction.cron import next_time
from compaction.settings import CompactionJob
from formats.errors import ConfigError

MOST_MISSED = 100
OVERDUE = 2  # missed times from which on a person should see why


@dataclass(frozen=True, slots=True)
class Due:
    job: CompactionJob
    at: datetime  # UTC


def next_run(job: CompactionJob, after: datetime) -> datetime | None:
    """The first run after `after`, both UTC; None for a job without a cron."""
    if job.cron is None:
        return None
    found = next_time(job.cron, after.astimezone(ZoneInfo(job.timezone)))  # `CompactionJob` has checked the expression
    return None if found is None else found.astimezone(UTC)


def missed_times(job: CompactionJob, since: datetime, now: datetime) -> int:
    """How many times of the job's cron lie after `since`, the begin of its last whole run, up to `now`; at most
    MOST_MISSED, and 0 for a job without a cron. 1 is usual while a run works."""
    missed, at = 0, next_run(job, since)
    while at is not None and at <= now and missed < MOST_MISSED:
        missed, at = missed + 1, next_run(job, at)
    return missed


class Schedule:
    """Which job is next. Runs missed while another job ran become one run; those before `now` are not made up for."""

    def __init__(self, jobs: Sequence[CompactionJob], now: datetime, jitter: Mapping[str, float] | None = None) -> None:
        """`jitter`: the fraction, 0 to 1, of its jitter span by which a job is delayed. Raises ConfigError when no job
        has a cron."""
        self._jobs = list(jobs)
        self._jitter = dict(jitter or {})
        self._next: dict[str, datetime] = {}
        for job in self._jobs:
            self._plan(job, now)
        if not self._next:
            problem = (
                'no job has a cron: give one a cron, such as "0 1 * * *", or run them now with '
                "`replicator compact --once`"
            )
            raise ConfigError([problem], source="compaction.jobs")

    def _plan(self, job: CompactionJob, now: datetime) -> None:
        at = next_run(job, now)
        if at is None:
            self._next.pop(job.name, None)
        else:
            self._next[job.name] = at + job.jitter * self._jitter.get(job.name, 0.0)

    @property
    def upcoming(self) -> Sequence[Due]:
        """The next run of each job, soonest first."""
        by_name = {job.name: job for job in self._jobs}
        return sorted(
            (Due(by_name[name], at) for name, at in self._next.items()), key=lambda due: (due.at, due.job.name)
        )

    def postpone(self, job: CompactionJob, until: datetime) -> None:
        """The job could not run: it is due again at `until` at the latest."""
        self._next[job.name] = min(until, self._next.get(job.name, until))

    def take(self, now: datetime) -> CompactionJob | None:
        """The due job that has waited longest; its next run is planned from `now`."""
        due = next((due for due in self.upcoming if due.at <= now), None)
        if due is None:
            return None
        self._plan(due.job, now)
        return due.job
