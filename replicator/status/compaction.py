"""The state of compaction: jobs, lease, and segments in quarantine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from formats.control.lease import Lease
from formats.control.quarantine import REMEDY, Quarantined
from formats.segment import Segment
from infra.archive.compaction_runs import CompletedRun, CompletedRuns
from infra.archive.control import ControlStore
from infra.archive.job_heartbeats import Heartbeat, HeartbeatStore
from replicator.config import CompactionJob, CompactionSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    name: str
    region: str
    cron: str | None
    timezone: str
    next_at: datetime | None  # UTC; None: run by hand only, or no process runs it
    last: CompletedRun | None  # None: no whole run is recorded
    missed: int  # times of `cron` since the last whole run began; 0: no run is recorded
    is_overdue: bool  # so many that a person should see why


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStatus:
    jobs: Sequence[JobStatus]
    processes: Sequence[Heartbeat]  # that run jobs on their schedule
    running: Mapping[str, Lease]  # by region
    quarantined: Mapping[Segment, Quarantined]

    @property
    def problems(self) -> Sequence[str]:
        return [
            *(
                f"job {job.name}: {job.missed} times of its cron have passed since its last whole run began, at "
                f"{job.last.began_at.isoformat(timespec='seconds')}: see whether `compact` runs, and its log"
                for job in self.jobs
                if job.last is not None and job.is_overdue
            ),
            *(
                f"{segment} is corrupt ({found.reason}); {REMEDY}"
                for segment, found in sorted(self.quarantined.items())
            ),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSources:
    """What the state is read from. The functions are those of `compaction.schedule` and `infra.archive.lease`."""

    settings: CompactionSettings
    region: str
    control: ControlStore
    heartbeats: HeartbeatStore
    runs: CompletedRuns
    lease: str
    is_dead: Callable[[str], bool]  # whether an owner is known to be dead
    next_run: Callable[[CompactionJob, datetime], datetime | None]
    missed_times: Callable[[CompactionJob, datetime, datetime], int]
    overdue: int  # missed times from which on they are a problem

    def read(self, now: datetime) -> CompactionStatus:
        """Raises StoreUnavailable, MalformedEvent, and ConfigError for an invalid cron expression."""
        alive = [one for one in self.heartbeats.all() if one.until > now and not self.is_dead(one.owner)]
        by_the_clock = {name for one in alive for name in one.jobs}
        regions = sorted({job.region or self.region for job in self.settings.jobs})
        leases = {name: found for name in regions if (found := self.control.leases.of(name, self.lease))}
        last = self.runs.all()
        return CompactionStatus(
            jobs=[
                self._job(job, last.get(job.name), now, by_the_clock=job.name in by_the_clock)
                for job in self.settings.jobs
            ],
            processes=alive,
            running={name: lease for name, lease in leases.items() if lease.until > now},
            quarantined=dict(_quarantined(self.control, regions)),
        )

    def _job(self, job: CompactionJob, last: CompletedRun | None, now: datetime, *, by_the_clock: bool) -> JobStatus:
        missed = 0 if last is None else self.missed_times(job, last.began_at, now)
        return JobStatus(
            name=job.name,
            region=job.region or self.region,
            cron=job.cron,
            timezone=job.timezone,
            next_at=self.next_run(job, now) if by_the_clock else None,
            last=last,
            missed=missed,
            is_overdue=missed >= self.overdue,
        )


def _quarantined(control: ControlStore, regions: Sequence[str]) -> Iterator[tuple[Segment, Quarantined]]:
    for region in regions:
        yield from control.quarantine.all(region).items()
