"""What a restore to a moment takes from the archive: where partitions ended then, and where groups stood."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from formats.control.restore_cut import Cut
from formats.messages.delivery_checkpoint import CheckpointKey
from infra.archive.control import ControlStore
from infra.archive.generation_history import group_history, watermark_generations
from infra.archive.source_reports import SourceHeartbeats
from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore
from replicator.restore.conflicts import Conflict, ConflictKind
from replicator.restore.cut_lookup import ArchivedCut, CutLookup
from replicator.restore.group_plan import RestoredTopics, group_plan
from replicator.restore.plan import RestorePlan
from replicator.selection import Selection


def archived_cut(
    control: ControlStore, selection: Selection, checkpoints: KafkaCheckpointStore | None, now: datetime
) -> ArchivedCut:
    """`checkpoints`: of an earlier run of this restore, whose cut stays. Raises ConfigError, StoreUnavailable,
    BrokerUnavailable."""
    if checkpoints is not None:
        checkpoints.read()
    history = watermark_generations(control.objects, control.prefix, selection.region)
    beats = SourceHeartbeats(control.objects, control.prefix).refresh([selection.region])
    lookup = CutLookup(history, selection, now, beats[selection.region])
    return lookup.find(None if checkpoints is None else checkpoints.cut())


def with_groups(plan: RestorePlan, control: ControlStore, selection: Selection) -> RestorePlan:
    """`plan` with the positions that groups had at its moment. Raises StoreUnavailable."""
    if plan.cut is None:
        return plan
    found = group_history(control.objects, control.prefix, selection.region).at(plan.cut.moment)
    if found.value is None:
        why = f"no snapshot of the consumer groups of {selection.region} is as old as {plan.cut.moment.isoformat()}"
        conflict = Conflict(kind=ConflictKind.MOMENT, reason=f"{why}: restore without --groups")
        return replace(plan, conflicts=[*plan.conflicts, conflict])
    groups = group_plan(found.number, found.value, restored_topics(plan, plan.cut, selection))
    return replace(plan, groups=groups, warnings=[*plan.warnings, *found.problems, *groups.problems])


def restored_topics(plan: RestorePlan, cut: Cut, selection: Selection) -> RestoredTopics:
    """With partitions that were there and have no record to restore."""
    planned = {partition.key: partition for partition in plan.partitions}
    keys = [
        CheckpointKey(topic.incarnation.source(cut.region, number), topic.destination)
        for topic in plan.topics
        if (then := cut.topics.get(topic.incarnation.topic)) is not None
        for number in range(len(then.ends))
        if selection.wants(topic.incarnation.topic, number)
    ]
    empty = [key for key in keys if key not in planned or planned[key].offsets is None]
    return RestoredTopics.of(cut, keys, empty)
