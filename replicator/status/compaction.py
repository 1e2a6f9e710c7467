"""The state of compaction: jobs, lease, and segments in quarantine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from formats.control.lease import Lease
from formats.control.quarantine import Quarantined
from formats.segment import Segment
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStatus:
    jobs: Sequence[JobStatus]
    processes: Sequence[Heartbeat]  # that run jobs on their schedule
    running: Mapping[str, Lease]  # by region
    quarantined: Mapping[Segment, Quarantined]

    @property
    def problems(self) -> Sequence[str]:
        return [
            f"{segment} is corrupt ({found.reason}); restore it from a copy of the bucket, or delete it there"
            for segment, found in sorted(self.quarantined.items())
        ]


def read_status(
    settings: CompactionSettings,
    region: str,
    control: ControlStore,
    heartbeats: HeartbeatStore,
    now: datetime,
    *,
    lease: str,
    is_dead: Callable[[str], bool],
    next_run: Callable[[CompactionJob, datetime], datetime | None],
) -> CompactionStatus:
    """Read the state. `is_dead`: whether an owner is known to be dead. Raises StoreUnavailable, and ConfigError for an
    invalid cron expression."""
    alive = [one for one in heartbeats.all() if one.until > now and not is_dead(one.owner)]
    by_the_clock = {name for one in alive for name in one.jobs}
    regions = {job.region or region for job in settings.jobs}
    leases = {name: found for name in sorted(regions) if (found := control.lease(name, lease)) and found.until > now}
    return CompactionStatus(
        jobs=[
            JobStatus(
                name=job.name,
                region=job.region or region,
                cron=job.cron,
                timezone=job.timezone,
                next_at=next_run(job, now) if job.name in by_the_clock else None,
            )
            for job in settings.jobs
        ],
        processes=alive,
        running=leases,
        quarantined=dict(_quarantined(control, regions)),
    )


def _quarantined(control: ControlStore, regions: set[str]) -> Iterator[tuple[Segment, Quarantined]]:
    for region in sorted(regions):
        yield from control.quarantined(region).items()
