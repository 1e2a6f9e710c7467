"""A cluster seen from outside: topics, groups, logs; nothing is read or written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from formats.errors import TargetError
from formats.log_point import LogPoint


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of the cluster at hand (source at egress, target at ingress)."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """The partition's log is not the one that was read any more: in it `point` is not true."""

    partition: TopicPartition
    point: LogPoint
    end_offset: int | None  # where the epoch of `point` ends now; None: the broker knows no such epoch
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


class ClusterAdmin(Protocol):
    """Questions and changes to one cluster. Safe to call from several threads. Raises BrokerUnavailable; an
    unauthorised call raises TargetError."""

    def cluster_id(self) -> str: ...

    def topics(self) -> Mapping[str, TopicFacts]:
        """Every topic the cluster shows us, internal ones too; without topic ids."""

    def describe(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
        """With topic ids; topics that do not exist are left out."""

    def configs(self, topic: str) -> Mapping[str, str]:
        """Effective topic settings, defaults included. Raises TargetError when the topic does not exist."""

    def create_topic(self, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> bool:
        """True when created, False when it existed. Waits until the cluster shows it. Raises TargetError."""

    def check_creation(
        self, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        """Creates nothing. Raises TargetError with what the cluster has against it: a setting, a permission."""

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Set these, leave the others."""

    def watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        """Partitions that do not exist are left out."""

    def stable_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where the oldest open transaction begins, else the high watermark: up to here `read_committed` reads.
        Partitions that do not exist are left out."""

    def offsets_at(self, partitions: Collection[TopicPartition], at: datetime) -> Mapping[TopicPartition, int]:
        """First offset stamped at or after `at`, else the high watermark."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Of one target partition."""

    holds_records: bool | None  # committed ones; None: it is not known
    why: str = ""  # it is not known


class TargetRecords(Protocol):
    """Looks into target partitions. Safe to call from several threads."""

    def look(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Occupancy]:
        """Whether each holds a committed record between its log's ends as of now; what was aborted, deleted or cut by
        retention is none. In bounded time and memory. Partitions that do not exist are left out. Raises
        BrokerUnavailable or TargetError when nothing can be said of any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """What the cluster says of a consumer group; one that does not exist has no members."""

    state: str  # Kafka's word for it, such as "stable" or "empty"
    members: int
    partitions: frozenset[TopicPartition]  # assigned to any of them

    @property
    def is_known(self) -> bool:
        """Whether the cluster has it: not before its first member, nor once it was empty for long. Kafka calls that
        "dead", also while a process runs that has found no topic to join for yet."""
        return self.state != "dead"


class ConsumerGroups(Protocol):
    """Questions about groups, from outside. Safe to call from several threads. Raises BrokerUnavailable; an
    unauthorised call raises TargetError."""

    def facts(self, group_id: str) -> GroupFacts: ...

    def committed(self, group_id: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        """Those of `partitions` that have a committed offset; pending transactions are not waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    low: int  # first offset still in the log
    stable: int  # first offset of the oldest open transaction, or `high`
    high: int  # next offset to be written


class LogProbe(Protocol):
    """Questions about partitions' logs. Safe to call from several threads. Raises BrokerUnavailable, and TargetError
    when not authorised."""

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        """Partitions that do not exist are left out."""

    def stamps(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, datetime]:
        """Stamp of the first record at or after each offset, committed or not; left out where none is read in time."""

    def truncated(self, points: Mapping[TopicPartition, LogPoint]) -> Mapping[TopicPartition, LogTruncated]:
        """Partitions whose log lost what it had at that point. Left out: those of which it is true, and those of which
        nothing is known in time, or which may not be read."""

    def compared(self, points: Mapping[TopicPartition, LogPoint]) -> Mapping[TopicPartition, LogTruncated | None]:
        """The same, with None for those of which the point is true."""


def describe_each(
    admin: ClusterAdmin, topics: Collection[str]
) -> tuple[Mapping[str, TopicFacts], Mapping[str, TargetError]]:
    """What the cluster shows of `topics`, in one call, and those about which it refuses to answer: one that is refused
    holds up no other. In neither: it does not exist. Raises BrokerUnavailable."""
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
