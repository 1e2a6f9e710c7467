"""The output of `replicator restore`: plan, sample and result, as text and as JSON."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from formats.coverage import covered_count
from formats.segment import OffsetRange
from replicator.commands.restore_destination import destination_json, destination_lines
from replicator.commands.restore_moment import group_table, groups_json, moment_json, moment_lines
from replicator.terminal.output import count_text, duration_text, print_text, size_text, table

if TYPE_CHECKING:
    from replicator.restore.conflicts import Conflict
    from replicator.restore.group_restore import GroupOutcomes
    from replicator.restore.partition_plan import PartitionPlan
    from replicator.restore.plan import RestorePlan
    from replicator.restore.progress import RestoreOutcome


def print_plan(plan: RestorePlan, rate: int | None) -> None:
    print_text(f"restore {plan.id}")
    for line in moment_lines(plan):
        print_text(line)
    if plan.preserves_offsets:
        print_text("each record keeps its offset; where the source has none, offsets are filled")
    rows = [
        [
            str(p.source),
            str(p.target),
            _range(p),
            count_text(len(p.left)),
            size_text(p.size_bytes),
            count_text(_within(p, p.recorded)),
            count_text(_within(p, p.missing)),
        ]
        for p in plan.partitions
    ]
    print_text(table(["from", "to", "offsets left", "objects", "stored", "in recorded gaps", "missing"], rows))
    for topic in plan.topics:
        for line in destination_lines(topic):
            print_text(line)
    about = plan.estimated_duration(rate).total_seconds()
    print_text(f"{plan.objects:,} objects, {size_text(plan.size_bytes)}, about {duration_text(about)}")
    from replicator.restore.plan import conflicts_text

    for warning in plan.warnings:
        print_text(f"warning: {warning}")
    if lines := conflicts_text(plan):
        print_text("conflicts:\n" + "\n".join(lines))


def print_sample(changed: Sequence[tuple[Mapping[str, object], Mapping[str, object] | None]]) -> None:
    """Print the first records before and after the functions of --filter and --map."""
    for before, after in changed:
        print_text(f"record {before['offset']}: {before}")
        print_text(
            "  is left out" if after is None else "  stays as it is" if after == before else f"  becomes {after}"
        )


REMEDY = (
    "a corrupt segment: put a good copy below the same key (another bucket's, or an earlier version), then give the "
    "same command again"
)


def redelivery(plan: RestorePlan, partition: PartitionPlan, offsets: OffsetRange) -> str:
    """The command that adds offsets that came back to the restored topic."""
    source, name = partition.source, partition.target.topic
    command = [
        "replicator",
        "restore",
        source.topic,
        "--archive-region",
        source.region,
        "--rename",
        f"{source.topic}={name}",
    ]
    command += ["--incarnation", source.incarnation] if source.incarnation else []
    command += ["--partition", str(source.partition), "--offsets", f"{offsets.start}-{offsets.end}"]
    return shlex.join([*command, "--id", f"{plan.id}-{source.partition}-{offsets.start}", "--accept", "foreign-data"])


def _print_given_up(plan: RestorePlan) -> None:
    for partition in plan.partitions:
        for gap in partition.given_up:
            print_text(
                f"accepted as missing by an earlier run, and not in {partition.target}: {partition.source} {gap}"
            )
        for gap in partition.expired:
            print_text(f"removed by retention before an earlier run read it: {partition.source} {gap}")
        for gap in partition.came_back:
            again = f"  {gap} is stored now. Restore everything into another topic (--rename, and another --id)"
            behind = f", or add it behind the rest, out of order: {redelivery(plan, partition, gap)}"
            print_text(again + ("" if plan.preserves_offsets else behind))


def print_result(
    plan: RestorePlan,
    outcomes: Sequence[RestoreOutcome],
    transforms: Sequence[str],
    took: timedelta,
    groups: GroupOutcomes,
) -> None:
    rows = [
        [o.source, o.target, count_text(o.records), size_text(o.size_bytes), o.next_offset, _state(o)] for o in outcomes
    ]
    print_text(table(["from", "to", "records", "size", "next offset", "state"], rows))
    records, size_bytes = sum(o.records for o in outcomes), sum(o.size_bytes for o in outcomes)
    rate = size_bytes / max(took.total_seconds(), 0.001)
    is_least = "at least " if any(outcome.is_partial for outcome in outcomes) else ""
    print_text(
        f"{is_least}{records:,} records, {size_text(size_bytes)} in {duration_text(took.total_seconds())}, "
        f"{size_text(int(rate))} a second" + (f"; changed by {', '.join(transforms)}" if transforms else "")
    )
    for outcome in outcomes:
        if outcome.is_partial:
            print_text(
                f"an earlier attempt of its Spark task restored a part: {outcome.source}: its records are not counted"
            )
        for what in outcome.corrupt:
            print_text(f"corrupt: {what}")
        for start, end in outcome.expired:
            print_text(
                f"removed by retention while it was restored, and not in the topic: {outcome.source} [{start},{end}]"
            )
        for start, end in outcome.missing:
            print_text(f"missing: {outcome.source} [{start},{end}]")
        if outcome.failed:
            print_text(f"not restored: {outcome.source} from offset {outcome.next_offset}: {outcome.failed}")
    for source, offsets in plan.lacking:
        print_text(f"missing: {source} {offsets}, which egress reported as archived")
    if any(outcome.corrupt for outcome in outcomes):
        print_text(REMEDY)
    _print_given_up(plan)
    if groups:
        print_text(group_table(groups))
        for reason in sorted({one.reason for some in groups.values() for one in some if one.reason}):
            print_text(f"! {reason}")
    elif plan.groups is not None and plan.groups.partitions:
        print_text("no group was set: that comes when every partition is done")
    if not records and all(one.is_done and one.is_whole and not one.is_partial for one in outcomes):
        print_text("nothing was left to do")


def _state(outcome: RestoreOutcome) -> str:
    if outcome.failed:
        return "failed"
    return "done" if outcome.is_done else "stopped"


def plan_json(plan: RestorePlan, rate: int | None) -> Mapping[str, object]:
    return {
        "id": plan.id,
        "checkpoint_topic": plan.checkpoint_topic,
        "objects": plan.objects,
        "size_bytes": plan.size_bytes,
        "about_seconds": plan.estimated_duration(rate).total_seconds(),
        "refused": plan.refused,
        "empty": plan.is_empty,
        "preserves_offsets": plan.preserves_offsets,
        "moment": moment_json(plan),
        "warnings": list(plan.warnings),
        "lacking": _lacking_json(plan),
        "objections": [_conflict_json(c) for c in plan.conflicts],
        "topics": [
            {
                "topic": topic.incarnation.path,
                "destination": topic.destination,
                "created": topic.facts is None,
                "partition_count": topic.partition_count,
                **destination_json(topic),
                "footers_read": topic.footers_read,
                "frozen": len(topic.frozen),
                "thawing": topic.thawing,
                "objections": [_conflict_json(c) for c in topic.conflicts],
                "partitions": [
                    {
                        "source": str(p.source),
                        "partition": p.target.partition,
                        "offsets": None if p.offsets is None else [p.offsets.start, p.offsets.end],
                        "next_offset": p.next_offset,
                        "objects": len(p.left),
                        "size_bytes": p.size_bytes,
                        "recorded_gaps": [[g.start, g.end] for g in p.recorded],
                        "missing": [[g.start, g.end] for g in p.missing],
                        "given_up": [[g.start, g.end] for g in p.given_up],
                        "expired": [[g.start, g.end] for g in p.expired],
                    }
                    for p in topic.partitions
                ],
            }
            for topic in plan.topics
        ],
    }


def _lacking_json(plan: RestorePlan) -> Sequence[Mapping[str, object]]:
    return [{"source": str(source), "start": one.start, "end": one.end} for source, one in plan.lacking]


def _conflict_json(conflict: Conflict) -> Mapping[str, object]:
    return {"what": conflict.kind, "why": conflict.reason, "accepted": conflict.accepted}


def result_json(
    plan: RestorePlan,
    transforms: Sequence[str],
    outcomes: Sequence[RestoreOutcome],
    took: timedelta,
    groups: GroupOutcomes,
) -> Mapping[str, object]:
    from dataclasses import asdict

    came_back = {} if plan.preserves_offsets else {str(p.source): (p, p.came_back) for p in plan.partitions}
    commands = {source: [redelivery(plan, p, gap) for gap in gaps] for source, (p, gaps) in came_back.items()}
    return {
        "id": plan.id,
        "seconds": round(took.total_seconds(), 3),
        "records": sum(outcome.records for outcome in outcomes),
        "size_bytes": sum(outcome.size_bytes for outcome in outcomes),
        "transforms": list(transforms),
        "lacking": _lacking_json(plan),
        "groups": groups_json(groups),
        "partitions": [
            {**asdict(outcome), "state": _state(outcome), "redelivery": commands.get(outcome.source, [])}
            for outcome in outcomes
        ],
    }


def _within(plan: PartitionPlan, gaps: Iterable[OffsetRange]) -> int:
    """The number of selected offsets that are in `gaps`."""
    if plan.last_offset < plan.wanted_from:
        return 0
    return covered_count(gaps, OffsetRange(plan.wanted_from, plan.last_offset))


def _range(plan: PartitionPlan) -> str:
    if plan.offsets is None:
        return "nothing is stored"
    return "done" if plan.is_done else f"{plan.next_offset}-{plan.offsets.end}"
