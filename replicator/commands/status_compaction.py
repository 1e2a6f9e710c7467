"""The compaction part of `replicator status`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime

from infra.settings.units import format_age
from replicator.status.compaction import CompactionStatus, JobStatus
from replicator.terminal.output import print_text, table


def print_compaction(status: CompactionStatus, now: datetime) -> None:
    print_text("\ncompaction:")
    rows = []
    for job in status.jobs:
        coming = "by hand: compact --once" if job.cron is None else "no compact process runs it"
        if job.next_at is not None:
            coming = f"{job.next_at.isoformat(timespec='seconds')} (in {format_age(job.next_at - now)})"
        rows.append((job.name, job.region, job.cron or "", job.timezone if job.cron else "", _last(job, now), coming))
    print_text(table(("job", "region", "cron", "zone", "last whole run", "next run"), rows))
    for process in status.processes:
        print_text(f"{process.owner} runs {', '.join(process.jobs)} by the clock")
    if not status.processes and any(job.cron for job in status.jobs):
        print_text("no compact process runs")
    for region, lease in status.running.items():
        print_text(f"{lease.owner} is at work on {region}")
    for problem in status.problems:
        print_text(f"! {problem}")


def _last(job: JobStatus, now: datetime) -> str:
    if job.last is None:
        return "none recorded"
    failed = f", {job.last.failed_plans} plans failed" if job.last.failed_plans else ""
    return f"{job.last.ended_at.isoformat(timespec='seconds')} ({format_age(now - job.last.ended_at)} ago{failed})"


def compaction_json(status: CompactionStatus) -> Mapping[str, object]:
    return {
        "jobs": [asdict(job) for job in status.jobs],
        "processes": [asdict(process) for process in status.processes],
        "running": {region: asdict(lease) for region, lease in status.running.items()},
        "quarantined": {str(segment): asdict(found) for segment, found in status.quarantined.items()},
        "problems": list(status.problems),
    }
