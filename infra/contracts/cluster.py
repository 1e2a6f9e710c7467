"""Administration of a cluster: topics, groups, log ends. No records are consumed or produced."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from formats.errors import TargetError
from formats.log_point import LogPoint


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of the local cluster (source at egress, target at ingress)."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """The partition's log is no longer the one that was read: `point` is not in it."""

    partition: TopicPartition
    point: LogPoint
    end_offset: int | None  # where the epoch of `point` ends now; None: the broker does not know the epoch
    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    next_offset: int
    metadata: str
    leader_epoch: int | None = None  # in which the log reached `next_offset`, when known


@dataclass(frozen=True, slots=True)
class Watermarks:
    low: int  # first offset still in the log
    high: int  # next offset to be written
    leader_epoch: int | None = field(default=None, compare=False)  # in which the log reached `high`, when known


@dataclass(frozen=True, slots=True)
class TopicFacts:
    name: str
    topic_id: str  # empty when the broker has none
    partition_count: int

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        return [TopicPartition(self.name, number) for number in range(self.partition_count)]


class ClusterAdmin(Protocol):
    """Admin client of one cluster. Safe to call from several threads. Raises BrokerUnavailable; an
    unauthorised call raises TargetError."""

    def cluster_id(self) -> str: ...

    def topics(self) -> Mapping[str, TopicFacts]:
        """Every topic visible to this principal, including internal ones; without topic ids."""

    def describe(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
        """Facts with topic ids; topics that do not exist are left out."""

    def configs(self, topic: str) -> Mapping[str, str]:
        """Effective topic settings, defaults included. Raises TargetError when the topic does not exist."""

    def configs_of(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str] | TargetError]:
        """`configs` of each topic, in one request: the settings, or why they cannot be had. Raises
        BrokerUnavailable."""

    def create_topic(self, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> bool:
        """True when created, False when it existed. Waits until the topic is visible. Raises TargetError."""

    def check_creation(
        self, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        """Validates only, creates nothing. Raises TargetError with the cluster's reason: a setting, a permission."""

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Set these configs; the others stay unchanged."""

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records of each partition that have lower offsets; offsets stay as they are. Nothing happens where
        they are gone already. Raises TargetError when a partition does not exist, ends before the offset, or belongs to
        a topic that is only compacted; records of other partitions may be gone then."""

    def watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        """Partitions that do not exist are left out."""

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Offsets that follow the last record, also of an open transaction. Partitions that do not exist are left
        out."""

    def stable_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Last stable offsets, up to which `read_committed` reads: the first offset of the oldest open transaction, or
        the high watermark. Partitions that do not exist are left out."""

    def offsets_at(self, partitions: Collection[TopicPartition], at: datetime) -> Mapping[TopicPartition, int]:
        """First offset with a timestamp at or after `at`, else the high watermark."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Whether one target partition holds records."""

    holds_records: bool | None  # committed ones; None: unknown
    reason: str = ""  # when unknown


class TargetRecords(Protocol):
    """Checks target partitions for records. Safe to call from several threads."""

    def occupancies(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Occupancy]:
        """Whether each partition holds a committed record between its current log ends; aborted and deleted records,
        and those removed by retention, do not count. Bounded time and memory. Partitions that do not exist are left
        out. Raises BrokerUnavailable or TargetError when no partition can be checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """State of a consumer group; a group that does not exist has no members."""

    state: str  # Kafka's state name, such as "stable" or "empty"
    members: int
    partitions: frozenset[TopicPartition]  # assigned to any member

    @property
    def is_known(self) -> bool:
        """Whether the group exists in the cluster: not before its first member, nor after it was empty for long. Kafka
        reports such a group as "dead", even while a process runs that has not found a topic to join for yet."""
        return self.state != "dead"


class ConsumerGroups(Protocol):
    """Reads consumer groups without joining them. Safe to call from several threads. Raises BrokerUnavailable; an
    unauthorised call raises TargetError."""

    def facts(self, group_id: str) -> GroupFacts: ...

    def committed(self, group_id: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        """Committed offsets of those `partitions` that have one; does not wait for pending transactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    low: int  # first offset still in the log
    stable: int  # first offset of the oldest open transaction, or `high`
    high: int  # next offset to be written


class LogProbe(Protocol):
    """Facts about partitions' logs. Safe to call from several threads. Raises BrokerUnavailable, and TargetError when
    not authorised."""

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        """Partitions that do not exist are left out."""

    def timestamps(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, datetime]:
        """Timestamp of the first record at or after each offset, committed or not; left out if none is read in time."""

    def without_records(self, offsets: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
        """Partitions that hold no record at or after the offset, but markers at most; left out if that is not known in
        time."""

    def truncated(self, points: Mapping[TopicPartition, LogPoint]) -> Mapping[TopicPartition, LogTruncated]:
        """Partitions whose log was truncated below the point. Left out: partitions whose log still contains it, those
        without an answer in time, and those that may not be read."""

    def compare_points(self, points: Mapping[TopicPartition, LogPoint]) -> Mapping[TopicPartition, LogTruncated | None]:
        """`truncated`, with None for partitions whose log still contains the point."""


def describe_each(
    admin: ClusterAdmin, topics: Collection[str]
) -> tuple[Mapping[str, TopicFacts], Mapping[str, TargetError]]:
    """Facts of `topics`, in one call, and the error of each topic that the cluster refuses to describe: one refusal
    does not fail the others. A topic in neither mapping does not exist. Raises BrokerUnavailable."""
    try:
        return admin.describe(topics), {}
    except TargetError:
        found: dict[str, TopicFacts] = {}
        refused: dict[str, TargetError] = {}
        for topic in topics:
            try:
                found |= admin.describe([topic])
            except TargetError as error:
                refused[topic] = error
        return found, refused
