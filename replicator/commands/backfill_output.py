"""The output of `replicator backfill`: plan and report, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from replicator.terminal.output import count_text, duration_text, print_text, size_text, table

if TYPE_CHECKING:
    from replicator.backfill.plan import PartitionBackfill
    from replicator.backfill.request import BackfillPlan, BackfillReport

MOST_RANGES = 3  # of a partition that are shown by their offsets


def print_plan(plan: BackfillPlan, tasks_at_once: int | None) -> None:
    rows = [
        [str(one.source), _ranges(one), count_text(one.offset_count), one.begin, _begin(one)] for one in plan.partitions
    ]
    if rows:
        print_text(table(["partition", "to write", "offsets", "archive begins", "then"], rows))
    about = f"about {size_text(plan.size_bytes)}" if plan.is_size_known else "of a size that is not known"
    print_text(
        f"{count_text(plan.offset_count)} offsets {about}, {len(plan.tasks):,} tasks"
        + ("" if tasks_at_once is None else f", {min(tasks_at_once, len(plan.tasks))} at a time")
        + (f", about {duration_text(_estimated_seconds(plan, tasks_at_once))}" if plan.size_bytes else "")
    )
    for one in plan.partitions:
        for gap in one.left_out:
            print_text(f"will be recorded as a gap: {one.source} {gap.start}-{gap.end}")
        for note in one.notes:
            print_text(f"note: {one.source}: {note}")
    for conflict in plan.conflicts:
        print_text(f"conflict: {conflict}")


def print_report(report: BackfillReport) -> None:
    rows = [
        [
            one.source,
            count_text(one.segments),
            count_text(one.records),
            size_text(one.raw_bytes),
            size_text(one.stored_bytes),
            one.begin,
            "failed" if one.failed else "done",
        ]
        for one in report.partitions
    ]
    head = ["partition", "segments", "records", "size", "stored", "archive begins", "state"]
    print_text(table(head, rows))
    records = sum(one.records for one in report.partitions)
    size_bytes = sum(one.raw_bytes for one in report.partitions)
    rate = size_bytes / max(report.seconds, 0.001)
    took = duration_text(report.seconds)
    print_text(f"{count_text(records)} records, {size_text(size_bytes)} in {took}, {size_text(int(rate))} a second")
    for source, why in report.failed.items():
        print_text(f"not done: {source}: {why}")


def plan_json(plan: BackfillPlan, tasks_at_once: int | None) -> Mapping[str, object]:
    return {
        "region": plan.region,
        "offsets": plan.offset_count,
        "size_bytes": plan.size_bytes if plan.is_size_known else None,
        "tasks": len(plan.tasks),
        "about_seconds": _estimated_seconds(plan, tasks_at_once),
        "conflicts": list(plan.conflicts),
        "partitions": [
            {
                "source": str(one.source),
                "ranges": [[r.start, r.end] for r in one.ranges],
                "begin": one.begin,
                "new_begin": one.new_begin,
                "gaps": [[r.start, r.end] for r in one.left_out],
                "notes": list(one.notes),
                "conflict": one.conflict,
            }
            for one in plan.partitions
        ],
    }


def report_json(report: BackfillReport) -> Mapping[str, object]:
    return {
        "region": report.region,
        "seconds": round(report.seconds, 3),
        "stopped": report.is_stopped,
        "partitions": [
            {
                "source": one.source,
                "segments": one.segments,
                "records": one.records,
                "size_bytes": one.raw_bytes,
                "stored_bytes": one.stored_bytes,
                "begin": one.begin,
                "failed": one.failed,
            }
            for one in report.partitions
        ],
    }


def _estimated_seconds(plan: BackfillPlan, tasks_at_once: int | None) -> float:
    return plan.estimated_duration(tasks_at_once or len(plan.tasks)).total_seconds()


def _ranges(plan: PartitionBackfill) -> str:
    if not plan.ranges:
        return "nothing"
    shown = ", ".join(f"{one.start}-{one.end}" for one in plan.ranges[:MOST_RANGES])
    rest = len(plan.ranges) - MOST_RANGES
    return f"{shown} and {rest:,} more" if rest > 0 else shown


def _begin(plan: PartitionBackfill) -> int | None:
    return plan.begin if plan.new_begin is None else plan.new_begin
