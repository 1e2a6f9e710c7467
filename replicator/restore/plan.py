"""What a restore would do: values and pure rules over them.

selection ── listing ──> one PartitionPlan for each source partition ┐
destination as it is, or as it will be created ──────────────────────┴─> TopicPlan ──> RestorePlan, with conflicts
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from formats.control.restore_cut import Cut
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.segment import OffsetRange, SegmentInfo, SourcePartition
from infra.contracts.cluster import TopicFacts
from ingress.routing.succession import ArchivedIncarnation
from replicator.restore.acl_restore import RestoredAcls
from replicator.restore.conflicts import ACCEPT_BY_NAME, ACCEPTED, Conflict
from replicator.restore.creation import TopicCreation
from replicator.restore.group_plan import GroupPlan
from replicator.restore.kept_offsets import time_for
from replicator.restore.partition_plan import PartitionPlan
from replicator.restore.purge import Purge
from replicator.restore.source_catalog import SourceDescription

# approximate throughput of one process on two cores shared with the broker: docs/bench.md
RECORDS_PER_SECOND, BYTES_PER_SECOND, START = 90_000, 90_000_000, timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    incarnation: ArchivedIncarnation
    destination: str
    facts: TopicFacts | None  # None: the destination does not exist and will be created
    partition_count: int  # of the destination, existing or as it will be created
    partitions: Sequence[PartitionPlan]
    conflicts: Sequence[Conflict]
    creation: TopicCreation = field(default_factory=TopicCreation)  # configs of a destination that is created
    source: SourceDescription | None = None  # where configs and ACLs of the source are from, if any were asked for
    acls: RestoredAcls | None = None  # None: not asked for
    purge: Purge | None = None  # what is deleted before the first record
    warnings: Sequence[str] = ()  # what was asked for and is not known
    footers_read: int = 0
    frozen: Sequence[SegmentInfo] = ()  # archived objects that must be requested before they can be read
    thawing: int = 0  # objects that were requested and are not readable yet
    clamps: bool = False  # whether timestamps that the destination does not take are changed
    compression_ratio: float = 1.0  # bytes of records per stored byte

    @property
    def configs(self) -> Mapping[str, str]:
        """Those that the destination is created with."""
        return self.creation.configs

    @property
    def refused(self) -> bool:
        return any(not conflict.accepted for conflict in self.conflicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    id: str
    checkpoint_topic: str
    topics: Sequence[TopicPlan]  # smallest first
    conflicts: Sequence[Conflict] = ()  # that concern the whole restore
    warnings: Sequence[str] = ()  # do not prevent the restore
    lacking: Sequence[tuple[SourcePartition, OffsetRange]] = ()  # that egress reported as archived and is not stored
    cut: Cut | None = None  # None: not restored to a moment
    groups: GroupPlan | None = None  # None: positions of groups were not asked for
    preserves_offsets: bool = False
    is_empty: bool = False  # no stored record is selected, none is known to be lacking, and no earlier run restored any

    @property
    def partitions(self) -> Sequence[PartitionPlan]:
        return [partition for topic in self.topics for partition in topic.partitions]

    @property
    def all_conflicts(self) -> Sequence[Conflict]:
        """Conflicts of the whole restore, then those of each topic."""
        return [*self.conflicts, *(c for topic in self.topics for c in topic.conflicts)]

    @property
    def refused(self) -> bool:
        return any(not c.accepted for c in self.all_conflicts)

    @property
    def objects(self) -> int:
        return sum(len(partition.left) for partition in self.partitions)

    @property
    def size_bytes(self) -> int:
        return sum(partition.size_bytes for partition in self.partitions)

    def estimated_duration(self, max_rate: int | None) -> timedelta:
        """Estimated duration with one process. `max_rate`: bytes of records per second."""
        records = sum(p.offsets_left for p in self.partitions)
        size = sum(p.size_bytes * topic.compression_ratio for topic in self.topics for p in topic.partitions)
        rate = min(BYTES_PER_SECOND, max_rate or BYTES_PER_SECOND)
        filling = time_for(self.partitions) if self.preserves_offsets else timedelta()
        return START + filling + timedelta(seconds=max(records / RECORDS_PER_SECOND, size / rate))


def first_marked(plan: RestorePlan, known: Collection[CheckpointKey]) -> Sequence[CheckpointKey]:
    """Partitions that get a checkpoint before the first record is sent: one of each topic, or, where offsets are kept,
    each, so that one without a checkpoint is known to have no record. Only such that have a position, since the
    checkpoint is one. `known`: those that have one."""
    found: list[CheckpointKey] = []
    begun = {key.destination_topic for key in known}
    for topic in plan.topics:
        keys = [p.key for p in topic.partitions if p.offsets is not None and p.target.partition < topic.partition_count]
        if plan.preserves_offsets:
            found += [key for key in keys if key not in known]
        elif topic.destination not in begun:
            found += keys[:1]
    return found


def conflicts_text(plan: RestorePlan) -> list[str]:
    """One line for each conflict, with what to do."""
    return [
        f"  {c.kind}: {c.reason}"
        + (f"; or --accept {c.kind}: {ACCEPTED[c.kind]}" if c.kind in ACCEPT_BY_NAME and not c.accepted else "")
        + (" (accepted)" if c.accepted else "")
        for c in plan.all_conflicts
    ]
