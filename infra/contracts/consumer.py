"""Members of consumer groups: consumers of source topics, and the placement of target partitions.

The unit of flow is the Arrow RecordBatch with the columns of `formats.records.schema.SCHEMA`:
offset, timestamp, timestamp_type, key, value, headers; rows in strictly rising offset order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyarrow import RecordBatch

from formats.log_point import LogPoint
from infra.contracts.cluster import Committed, LogTruncated, TopicPartition


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutively fetched records of one partition and one leader epoch. Never empty."""

    partition: TopicPartition
    batch: RecordBatch
    first_offset: int
    last_offset: int
    count: int
    size_bytes: int  # keys, values, header keys and header values
    last_leader_epoch: int | None  # None: the broker does not report it, as for message formats older than v2

    @property
    def point(self) -> LogPoint | None:
        """The log point after the last record; None when the epoch is unknown."""
        return None if self.last_leader_epoch is None else LogPoint(self.last_offset + 1, self.last_leader_epoch)


@dataclass(frozen=True, slots=True)
class Reached:
    """The consumer is at `next_offset`, and the broker has no more records for now (partition EOF)."""

    partition: TopicPartition
    next_offset: int
    leader_epoch: int | None = field(default=None, compare=False)  # of the log at `next_offset`, when known

    @property
    def point(self) -> LogPoint | None:
        return None if self.leader_epoch is None else LogPoint(self.next_offset, self.leader_epoch)


@dataclass(frozen=True, slots=True)
class PartitionFailed:
    """The broker rejects this partition: the offset is out of range, the topic is unauthorised or unknown, …; or the
    client cannot deliver a record of it."""

    partition: TopicPartition
    code: str  # Kafka's error name, "OFFSET_OUT_OF_RANGE"
    reason: str
    offset: int | None = None  # of the record that the client cannot deliver


@dataclass(frozen=True, slots=True)
class ConsumerDisturbed:
    """`consume` or a callback raised: fetched records may be lost. Seek every partition to its next offset."""

    reason: str


Fetched = Run | Reached | PartitionFailed | LogTruncated | ConsumerDisturbed


class GroupListener(Protocol):
    """Rebalance callbacks, called inside `SourceConsumer.poll`, on its thread. The adapter catches what they raise and
    returns it as ConsumerDisturbed: an exception that crosses the client library would lose records."""

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """The partitions are paused and have no position: call `start` for each when its position is known."""

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """The last moment to commit the partitions: they are revoked when this returns."""

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """The partitions are already lost: commit nothing."""


class SourceConsumer(Protocol):
    """A consumer group member that reads runs. One thread."""

    def subscribe(self, topics: Collection[str], listener: GroupListener) -> None:
        """Replaces the subscription; topic names, not patterns. Without topics the group is left: all partitions are
        revoked in the next polls, and a later subscription joins again."""

    def poll(self, timeout: timedelta) -> Sequence[Fetched]:
        """Fetched runs and other events, in the order of each partition's log. Must be called regularly, even when all
        partitions are paused: it keeps the membership. Nothing is returned until `start` after ConsumerDisturbed, or
        for a partition after its PartitionFailed or LogTruncated. Raises OwnershipLost when this member can never
        continue (another one has its static id); `lost` was called for all partitions before."""

    def start(self, partition: TopicPartition, next_offset: int, point: LogPoint | None = None) -> None:
        """Seek to `next_offset` and fetch. Records fetched before are dropped: the next run of this partition starts at
        or after `next_offset`. Also resumes a paused partition. Raises OwnershipLost when it is not assigned.

        With `point`, which lies at or before `next_offset` with no record between the two, nothing is fetched from a
        log that does not contain it: LogTruncated is returned instead. The same holds later for the last record."""

    def pause(self, partitions: Collection[TopicPartition]) -> None: ...

    def resume(self, partitions: Collection[TopicPartition]) -> None: ...

    def commit(self, offsets: Mapping[TopicPartition, Committed], *, wait: timedelta | None = None) -> None:
        """Commit group offsets. With `wait`, return once the broker has acknowledged them, or raise BrokerUnavailable
        or OwnershipLost, at the latest after `wait`. Without it, `commit_answers` reports the outcome."""

    def commit_answers(self) -> Mapping[TopicPartition, str]:
        """Outcome of asynchronous commits answered since the last call, by partition: the last error, or empty for
        success."""

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        """Committed offsets of those `partitions` that have one in this group. Raises BrokerUnavailable. May be called
        from another thread than `poll`'s."""

    def assignment(self) -> frozenset[TopicPartition]: ...

    @property
    def problem(self) -> str:
        """Why the group does not accept members of this principal, and what to do; empty when it does."""

    def close(self, timeout: timedelta) -> None:
        """Leave the group (calls the listener's `revoked`) and release all resources."""


class Placement(Protocol):
    """Group membership on the destination topics, all paused: it decides which partitions are ours. One thread."""

    def subscribe(self, topics: Collection[str], listener: GroupListener) -> None: ...

    def poll(self, timeout: timedelta) -> Sequence[ConsumerDisturbed]: ...

    def fence(self) -> object | None:
        """This member and its generation as of the last `poll`; the target rejects it once there is a newer generation.
        None while the member is in no generation: then nothing may be written. Take it under the lock that the
        revocation takes, together with the check of ownership, and use it for the whole transaction: a fresh one would
        let a member write to a partition that it lost. From any thread; never waits."""

    @property
    def problem(self) -> str:
        """Why the group does not accept members of this principal, and what to do; empty when it does."""

    def wait_until_settled(self, partitions: Collection[TopicPartition]) -> None:
        """Returns when no transaction of an earlier owner of these partitions is pending. From any thread. Raises
        BrokerUnavailable: call again; TargetError: the cluster rejects the request."""

    def close(self, timeout: timedelta) -> None: ...
