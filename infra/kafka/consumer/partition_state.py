"""State of each partition of a SourceConsumer. The diagram of `source_consumer` explains the modes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto

from formats.log_point import LogPoint
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import GroupListener, Reached, Run


class Mode(Enum):
    IDLE = auto()
    STARTING = auto()
    READING = auto()
    DRAINING = auto()
    PAUSED = auto()


@dataclass(slots=True)
class PartitionState:
    """`next_offset` lies after the records in `buffered`; it and `point` are undefined in IDLE."""

    mode: Mode = Mode.IDLE
    next_offset: int = 0
    point: LogPoint | None = None  # the last known one at or before `next_offset`; no record lies between the two
    is_point_rejected: bool = False  # `point`, or the offset after it, was rejected once
    out_of_range: int = 0  # how often a fetch was answered so since something arrived
    buffered: list[Run | Reached] = field(default_factory=list)  # items taken during the pause, delivered at its end

    def begin(self, next_offset: int, point: LogPoint | None) -> None:
        """Restart at `next_offset`. Drops the buffered items: they belong to another position."""
        self.mode, self.next_offset, self.point = Mode.STARTING, next_offset, point
        self.is_point_rejected, self.out_of_range = False, 0
        self.buffered.clear()

    def end(self) -> None:
        """Stop reading until `begin`."""
        self.mode = Mode.IDLE
        self.buffered.clear()

    def take_buffered(self) -> list[Run | Reached]:
        buffered, self.buffered = self.buffered, []
        return buffered


@dataclass(slots=True)
class PartitionStates:
    """Wraps a GroupListener: keeps one PartitionState for each assigned partition."""

    listener: GroupListener
    by_partition: dict[TopicPartition, PartitionState]

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.by_partition.update({partition: PartitionState() for partition in partitions})
        self.listener.assigned(partitions)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        try:
            self.listener.revoked(partitions)
        finally:
            self._forget(partitions)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        self._forget(partitions)
        self.listener.lost(partitions)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.by_partition.pop(partition, None)
