"""The compaction part of `replicator status`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from compaction.schedule import next_run
from infra.archive.job_heartbeats import HeartbeatStore
from infra.archive.lease import NAME, is_dead
from infra.settings.units import format_age
from replicator.status.compaction import CompactionStatus, read_status
from replicator.terminal.output import print_text, table

if TYPE_CHECKING:
    from replicator.config import Config
    from replicator.services.clients import Clients


def compaction_status(settings: Config, reach: Clients, now: datetime) -> CompactionStatus | None:
    """None without [compaction]. Raises ConfigError for an invalid cron expression."""
    if settings.compaction is None:
        return None
    heartbeats = HeartbeatStore(reach.objects, settings.s3.prefix, settings.region)
    return read_status(
        settings.compaction,
        settings.region,
        reach.control,
        heartbeats,
        now,
        lease=NAME,
        is_dead=is_dead,
        next_run=next_run,
    )


def print_compaction(status: CompactionStatus, now: datetime) -> None:
    print_text("\ncompaction:")
    rows = []
    for job in status.jobs:
        coming = "by hand: compact --once" if job.cron is None else "no compact process runs it"
        if job.next_at is not None:
            coming = f"{job.next_at.isoformat(timespec='seconds')} (in {format_age(job.next_at - now)})"
        rows.append((job.name, job.region, job.cron or "", job.timezone if job.cron else "", coming))
    print_text(table(("job", "region", "cron", "zone", "next run"), rows))
    for process in status.processes:
        print_text(f"{process.owner} runs {', '.join(process.jobs)} by the clock")
    if not status.processes and any(job.cron for job in status.jobs):
        print_text("no compact process runs")
    for region, lease in status.running.items():
        print_text(f"{lease.owner} is at work on {region}")
    for problem in status.problems:
        print_text(f"! {problem}")


def compaction_json(status: CompactionStatus) -> Mapping[str, object]:
    return {
        "jobs": [asdict(job) for job in status.jobs],
        "processes": [asdict(process) for process in status.processes],
        "running": {region: asdict(lease) for region, lease in status.running.items()},
        "quarantined": {str(segment): asdict(found) for segment, found in status.quarantined.items()},
        "problems": list(status.problems),
    }
