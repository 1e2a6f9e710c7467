"""Reading source topics, and which target partitions are ours: members of consumer groups.

The unit that flows is the Arrow RecordBatch with the columns of `formats.records.schema.SCHEMA`:
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
    last_leader_epoch: int | None  # None: the broker does not say, as for message formats older than v2

    @property
    def point(self) -> LogPoint | None:
        """What is known of the log behind the last record."""
        return None if self.last_leader_epoch is None else LogPoint(self.last_offset + 1, self.last_leader_epoch)


@dataclass(frozen=True, slots=True)
class Reached:
    """The consumer stands at `next_offset` and the broker has nothing more for it now (partition EOF)."""

    partition: TopicPartition
    next_offset: int
    leader_epoch: int | None = field(default=None, compare=False)  # of the log at `next_offset`, when known

    @property
    def point(self) -> LogPoint | None:
        return None if self.leader_epoch is None else LogPoint(self.next_offset, self.leader_epoch)


@dataclass(frozen=True, slots=True)
class PartitionFailed:
    """The broker refuses this partition: what was asked for is out of range, unauthorised, unknown …"""

    partition: TopicPartition
    code: str  # Kafka's error name, "OFFSET_OUT_OF_RANGE"
    reason: str


@dataclass(frozen=True, slots=True)
class ConsumerDisturbed:
    """`consume` raised, or a callback did: what was fetched may be lost. Seek every partition to what it wants."""

    reason: str


Fetched = Run | Reached | PartitionFailed | LogTruncated | ConsumerDisturbed


class GroupListener(Protocol):
    """Told of partitions coming and going, inside `SourceConsumer.poll`, on its thread. What these raise is kept by the
    adapter and comes out as ConsumerDisturbed: an exception that crosses the client library would lose records."""

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """They are paused and have no position: call `start` for each when it is known."""

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """The last moment to commit them; they are gone when this returns."""

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Gone already: commit nothing."""


class SourceConsumer(Protocol):
    """A member of a consumer group that reads runs. One thread."""

    def subscribe(self, topics: Collection[str], listener: GroupListener) -> None:
        """Replaces the topics subscribed to; names, not patterns."""

    def poll(self, timeout: timedelta) -> Sequence[Fetched]:
        """Fetched runs and what else happened, in the order of each partition's log. Must be called regularly, also
        when all partitions are paused: it keeps the membership. After ConsumerDisturbed, and of a partition after its
        PartitionFailed or LogTruncated, nothing comes until `start`. Raises OwnershipLost when this member can never go
        on (another has its static id): the listener was told that everything is lost."""

    def start(self, partition: TopicPartition, next_offset: int, point: LogPoint | None = None) -> None:
        """Seek there and fetch. Everything fetched before is forgotten: the next run of this partition starts at or
        after `next_offset`. Also takes the partition out of a pause. Raises OwnershipLost when it is not assigned.

        With `point`, which lies at or before `next_offset` with no record between the two, nothing is fetched of a log
        in which it is not true: LogTruncated comes instead. The same holds later of the last record that was read."""

    def pause(self, partitions: Collection[TopicPartition]) -> None: ...

    def resume(self, partitions: Collection[TopicPartition]) -> None: ...

    def commit(self, offsets: Mapping[TopicPartition, Committed], *, wait: timedelta | None = None) -> None:
        """Commit group offsets. With `wait`, return once the broker has them and raise BrokerUnavailable or
        OwnershipLost otherwise, at the end of `wait` at the latest; without, the outcome is reported by
        `commit_answers`."""

    def commit_answers(self) -> Mapping[TopicPartition, str]:
        """Partitions whose asynchronous commit was answered since the last call: why it was refused last, empty when it
        was taken."""

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        """Those of `partitions` that have a committed offset in this group. Raises BrokerUnavailable. May be called
        from another thread than `poll`'s."""

    def assignment(self) -> frozenset[TopicPartition]: ...

    @property
    def trouble(self) -> str:
        """Why the group takes no member of this principal, and what to do; empty when it does."""

    def close(self, timeout: timedelta) -> None:
        """Leave the group (the listener is told of the revocation) and release everything."""


class Placement(Protocol):
    """Group membership on the destination topics, everything paused: it says which partitions are ours. One thread."""

    def subscribe(self, topics: Collection[str], listener: GroupListener) -> None: ...

    def poll(self, timeout: timedelta) -> Sequence[ConsumerDisturbed]: ...

    def fence(self) -> object | None:
        """This member and its generation as of the last `poll`: what the target refuses once another generation rules.
        None while it is in none: then nothing may be written. Take it under the lock that the revocation takes, with
        the look at who owns what, and keep it for the whole transaction: a fresh one would let a member write what it
        lost. From any thread; never waits."""

    @property
    def trouble(self) -> str:
        """Why the group takes no member of this principal, and what to do; empty when it does."""

    def settled(self, partitions: Collection[TopicPartition]) -> None:
        """Returns when no transaction of an earlier owner of these is pending any more. From any thread. Raises
        BrokerUnavailable: ask again; TargetError: the cluster refuses the question."""

    def close(self, timeout: timedelta) -> None: ...
