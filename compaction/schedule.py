"""When jobs run: cron expressions in their time zones. The only module that imports croniter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from croniter import CroniterBadCronError, CroniterBadDateError, croniter

from compaction.settings import CompactionJob
from formats.errors import ConfigError

MOST_MISSED = 100
OVERDUE = 2  # missed times from which on a person should see why
SIX_FIELDS = 6  # seconds first, as in the ancestor


@dataclass(frozen=True, slots=True)
class Due:
    job: CompactionJob
    at: datetime  # UTC


def next_run(job: CompactionJob, after: datetime) -> datetime | None:
    """The first run after `after`, both UTC; None for a job without a cron, and when there is no such time. Raises
    ConfigError."""
    if job.cron is None:
        return None
    local = after.astimezone(ZoneInfo(job.timezone))
    seconds_first = len(job.cron.split()) == SIX_FIELDS
    try:
        found: datetime = croniter(job.cron, local, second_at_beginning=seconds_first).get_next(datetime)
    except CroniterBadDateError:
        return None
    except (CroniterBadCronError, ValueError, KeyError) as error:
        raise ConfigError([f"cron of job {job.name!r}: {error}"], source="compaction.jobs") from error
    return found.astimezone(UTC)


def missed_times(job: CompactionJob, since: datetime, now: datetime) -> int:
    """How many times of the job's cron lie after `since`, the begin of its last whole run, up to `now`; at most
    MOST_MISSED, and 0 for a job without a cron. 1 is usual while a run works. Raises ConfigError."""
    missed, at = 0, next_run(job, since)
    while at is not None and at <= now and missed < MOST_MISSED:
        missed, at = missed + 1, next_run(job, at)
    return missed


class Schedule:
    """Which job is next. Runs missed while another job ran become one run; those before `now` are not made up for."""

    def __init__(self, jobs: Sequence[CompactionJob], now: datetime, jitter: Mapping[str, float] | None = None) -> None:
        """`jitter`: the fraction, 0 to 1, of its jitter span by which a job is delayed. Raises ConfigError with every
        invalid expression, and when no job ever runs."""
        problems: list[str] = []
        self._jobs = list(jobs)
        self._jitter = dict(jitter or {})
        self._next: dict[str, datetime] = {}
        for job in self._jobs:
            try:
                self._plan(job, now)
            except ConfigError as error:
                problems += error.problems
        if not problems and not self._next:
            problems = [
                'no job has a cron: give one a cron, such as "0 1 * * *", or run them now with '
                "`replicator compact --once`"
            ]
        if problems:
            raise ConfigError(problems, source="compaction.jobs")

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
