"""Which positions of consumer groups a restore to a moment sets, by the snapshot of that moment. Pure.

snapshot, newest up to the moment ──> offsets in the restored partitions ──> through the restore's own offset map
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from formats.control.group_snapshot import GroupSnapshot
from formats.control.restore_cut import Cut
from formats.messages.delivery_checkpoint import CheckpointKey


@dataclass(frozen=True, slots=True)
class RestoredTopics:
    """`Deliveries` of a restore."""

    keys: Mapping[tuple[str, int], CheckpointKey]  # by topic and partition of the source
    topic_ids: Mapping[str, str]  # at the moment, by topic of the source
    empty: Collection[CheckpointKey] = ()  # those of which no record is restored: there is nothing to translate

    @classmethod
    def of(cls, cut: Cut, keys: Iterable[CheckpointKey], empty: Iterable[CheckpointKey] = ()) -> RestoredTopics:
        """`keys`: of all partitions, those of `empty` too."""
        return cls(
            {(key.source.topic, key.source.partition): key for key in keys},
            {name: topic.topic_id for name, topic in cut.topics.items()},
            frozenset(empty),
        )

    def deliveries(self, topic: str, topic_id: str, partition: int) -> Sequence[CheckpointKey] | str:
        key = self.keys.get((topic, partition))
        if key is None:
            return "it is not restored"
        if self.topic_ids.get(topic) not in ("", topic_id):
            return "the group committed it in another incarnation of the topic"
        return (key,)

    def unread(self, _topic: str, _topic_id: str, _partition: int, /) -> Mapping[CheckpointKey, str]:
        """Nothing is asked for again: the ids are those of the moment."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The groups with positions in what is restored."""

    number: int  # of the snapshot
    observed_at: datetime  # UTC; when its observation began
    snapshot: GroupSnapshot  # of these groups
    partitions: Mapping[str, int]  # how many positions each group has there
    problems: Sequence[str] = ()  # why groups may be missing, or their positions be older


def group_plan(number: int, snapshot: GroupSnapshot, restored: RestoredTopics) -> GroupPlan:
    counts = {
        group_id: sum(
            not isinstance(restored.deliveries(name, commits.topic_id, partition), str)
            for name, commits in group.topics.items()
            for partition, _ in commits.items()
        )
        for group_id, group in snapshot.groups.items()
    }
    found = {group_id: count for group_id, count in counts.items() if count}
    return GroupPlan(
        number=number,
        observed_at=snapshot.observed_at,
        snapshot=GroupSnapshot(
            cluster_id=snapshot.cluster_id,
            writer=snapshot.writer,
            observed_at=snapshot.observed_at,
            groups={group_id: snapshot.groups[group_id] for group_id in found},
        ),
        partitions=found,
        problems=[f"groups: {why}" for why in snapshot.problems.values()],
    )
