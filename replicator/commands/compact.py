"""`replicator compact`: merge small segments into larger ones, now or on a schedule."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.runtime.process_exit import exit_process
from replicator.services.command_logs import set_up_logs
from replicator.terminal.interrupt import ended_by_interrupt
from replicator.terminal.output import (
    DIFFERENCES,
    FAILED,
    AsJson,
    ConfigFile,
    bars,
    count_text,
    ended_by_signal,
    load_config,
    print_json,
    print_text,
    set_up_service_logs,
    size_text,
    table,
)

if TYPE_CHECKING:
    from compaction.run import CompactionReport
    from replicator.config import Config

TopicOption = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="Compact only this topic.")]
PartitionOption = Annotated[
    list[int] | None, typer.Option("--partition", metavar="N", help="Compact only this partition; may be repeated.")
]
LevelOption = Annotated[int | None, typer.Option("--level", metavar="N", help="Merge only segments of this level.")]
JobOption = Annotated[
    list[str] | None, typer.Option("--job", metavar="NAME", help="Run only this job; may be repeated.")
]


def compact(  # noqa: PLR0917 -- options of a command
    config: ConfigFile = None,
    once: Annotated[bool, typer.Option("--once", help="Run now, then end; default: run by each job's cron.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be merged and deleted.")] = False,
    job: JobOption = None,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    level: LevelOption = None,
    as_json: AsJson = False,
) -> None:
    """Merge small segments into large ones, on Spark.

    Level by level; segments that a merged segment provably contains are deleted. Exit code 1 when something failed,
    else 3 when a segment differs from its key or footer (it is named and not changed). SIGTERM ends a run at once
    without loss: exit code 0 by cron, 1 with --once, since the run is incomplete.
    """
    settings = load_config(config)
    if not once and not dry_run:
        if topic or partition or level is not None or as_json:
            raise typer.BadParameter("--topic, --partition, --level and --json go with --once or --dry-run")
        set_up_service_logs(settings)
        _by_the_clock(settings, job)
        return
    set_up_logs(settings)
    reports: list[CompactionReport] = []
    with ended_by_interrupt("what was merged stays, and the next run plans the rest anew"):
        try:
            _now(
                settings,
                job,
                dry_run=dry_run,
                topic=topic,
                partitions=partition or [],
                level=level,
                quiet=as_json,
                on_report=reports.append,
            )
        except BaseException:
            if reports:  # what these jobs merged and deleted stays
                _print_reports(reports, dry_run=dry_run, as_json=as_json)
            raise
    _print_reports(reports, dry_run=dry_run, as_json=as_json)
    if any(report.failed for report in reports):
        raise typer.Exit(FAILED)
    if any(report.quarantined for report in reports):
        raise typer.Exit(DIFFERENCES)


def _now(
    settings: Config,
    names: Sequence[str] | None,
    *,
    quiet: bool,
    dry_run: bool,
    **options: Any,
) -> None:
    """`options`: those of `Compaction.compact`."""
    from replicator.services.compaction import Compaction

    with bars(quiet=quiet or dry_run) as begin, Compaction(settings, progress=begin("plans")) as compaction:
        jobs = compaction.jobs(names)
        with ended_by_signal(compaction.stop):
            compaction.compact(jobs=jobs, dry_run=dry_run, **options)


def _by_the_clock(settings: Config, names: Sequence[str] | None) -> None:
    from infra.runtime.service import run_until_signalled
    from replicator.services.compaction import build_scheduler

    exit_process(run_until_signalled(build_scheduler(settings, names)))


# --- what is printed


def _print_reports(reports: Sequence[CompactionReport], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json([report_json(report) for report in reports])
    else:
        for report in reports:
            print_report(report, dry_run=dry_run)


def print_report(report: CompactionReport, *, dry_run: bool) -> None:
    from formats.control.quarantine import REMEDY

    seen = f"{report.objects:,} segments, {size_text(report.size_bytes)}"
    if dry_run:
        print_text(f"job {report.job}: {seen}; {len(report.plans)} plans, nothing was changed")
        for plan in report.plans:
            print_text(f"  {_described(plan)}")
    else:
        print_text(f"job {report.job}: {seen} when it began")
        rows = [
            [
                name,
                *(count_text(p[what]) for what in ("inputs", "merges", "deleted", "records")),
                size_text(p["read"]),
                size_text(p["stored"]),
            ]
            for name, p in _by_partition(report).items()
        ]
        if rows:
            head = ["partition", "merged", "into", "deleted", "records", "read", "stored"]
            print_text(table(head, rows))
        elif not report.outcomes:
            print_text("  nothing to do")
    for outcome in report.failed:
        print_text(f"not done: {outcome.segment}: {outcome.error}")
    for outcome in report.outcomes:
        for segment, why in outcome.kept.items():
            print_text(f"kept: {segment}: {why}")
    for segment, why in report.quarantined.items():
        print_text(
            f"quarantined: {segment}: {why}\n  it is left alone until another object stands at its key; {REMEDY}"
        )


def _by_partition(report: CompactionReport) -> Mapping[str, Mapping[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for o in report.outcomes:
        if o.error:
            continue
        sums = found.setdefault(
            o.partition, dict.fromkeys(("inputs", "merges", "deleted", "records", "read", "stored"), 0)
        )
        sums["inputs"] += o.merged
        sums["merges"] += 1 if o.merged else 0
        sums["deleted"] += o.deleted
        sums["records"] += o.records
        sums["read"] += o.read_bytes
        sums["stored"] += o.stored_bytes
    return dict(sorted(found.items()))


def _described(plan: Any) -> str:
    from compaction.planner import MergePlan

    if isinstance(plan, MergePlan):
        return f"merge {len(plan.inputs):,} segments, {size_text(plan.size_bytes)}, into {plan.output}"
    size = size_text(sum(plan.inside.values()))
    return f"delete {len(plan.inside):,} segments, {size}, if {plan.keeper} is proved to hold them"


def report_json(report: CompactionReport) -> Mapping[str, object]:
    from dataclasses import asdict

    from compaction.planner import MergePlan

    return {
        "job": report.job,
        "segments": report.objects,
        "size_bytes": report.size_bytes,
        "plans": [
            {
                "merge": str(plan.output),
                "inputs": [str(segment_slice.segment) for segment_slice in plan.inputs],
                "size_bytes": plan.size_bytes,
            }
            if isinstance(plan, MergePlan)
            else {"keeper": str(plan.keeper), "delete_if_proved": [str(segment) for segment in plan.inside]}
            for plan in report.plans
        ],
        "outcomes": [asdict(outcome) for outcome in report.outcomes],
        "quarantined": dict(report.quarantined),
    }
