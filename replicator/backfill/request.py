"""What a backfill is asked for, and what it plans and reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.int_range import ANY_OFFSET, IntRange
from formats.segment import OffsetRange, SourcePartition
from formats.topic_selection import TopicPattern
from replicator.backfill.plan import PartitionBackfill

ROUGH_RATE = 20 << 20  # raw bytes per second and task, for the estimate of a plan


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRequest:
    """`since`, `until`: aware times; from the first record with that timestamp or a later one, up to the first with
    `until` or a later one. `task_offsets`: offsets of a task; None: ten full segments."""

    topics: Sequence[TopicPattern]
    partitions: Collection[int] | None = None  # None: all
    offsets: IntRange = ANY_OFFSET
    since: datetime | None = None
    until: datetime | None = None
    fill_gaps: bool = False
    leave_gap: bool = False
    task_offsets: int | None = None
    parallelism: int = 4  # tasks at a time in this process

    def __post_init__(self) -> None:
        if self.parallelism < 1 or (self.task_offsets is not None and self.task_offsets < 1):
            raise ValueError("parallelism and the offsets of a task are at least 1")
        for moment in (self.since, self.until):
            if moment is not None and moment.tzinfo is None:
                raise ValueError(f"{moment} has no time zone")


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTask:
    """One range of one partition. A repeated task skips what is covered by then."""

    source: SourcePartition
    offsets: OffsetRange
    topic_id: str  # of the topic that the plan is about; empty when brokers have none
    cluster_id: str
    partition_count: int
    max_messages: int  # of a segment
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOutcome:
    source: str
    start: int
    end: int
    segments: int = 0  # stored by this attempt
    records: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    skipped: int = 0  # offsets that segments covered already
    last_offset: int | None = None  # of a record that this attempt read, with the leader epoch that it was written in
    last_epoch: int | None = None
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPlan:
    region: str
    partitions: Sequence[PartitionBackfill]
    tasks: Sequence[RangeTask]
    size_bytes: int  # of keys, values and headers; estimated from a sample of each topic
    is_size_known: bool = True  # False: a topic could not be sampled
    refused: Mapping[str, str] = field(default_factory=dict)  # topics, each with the reason

    @property
    def offset_count(self) -> int:
        return sum(partition.offset_count for partition in self.partitions)

    @property
    def conflicts(self) -> Sequence[str]:
        found = [f"{partition.source}: {partition.conflict}" for partition in self.partitions if partition.conflict]
        return [*self.refused.values(), *found]

    @property
    def is_empty(self) -> bool:
        return all(partition.is_empty for partition in self.partitions)

    def estimated_duration(self, tasks_at_once: int) -> timedelta:
        workers = max(min(tasks_at_once, len(self.tasks)), 1)
        return timedelta(seconds=self.size_bytes / (ROUGH_RATE * workers))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    source: str
    segments: int
    records: int
    raw_bytes: int
    stored_bytes: int
    begin: int | None  # of the archive, now
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillReport:
    region: str
    partitions: Sequence[PartitionResult]
    seconds: float
    is_stopped: bool = False  # before its end; the same request goes on

    @property
    def failed(self) -> Mapping[str, str]:
        return {one.source: one.failed for one in self.partitions if one.failed}
