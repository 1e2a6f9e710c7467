"""Where each partition of a SourceConsumer stands. What the modes mean is drawn in `consumer`."""

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
    """Where one partition stands. `next_offset`, behind what was kept, and `point` mean nothing while it is idle."""

    mode: Mode = Mode.IDLE
    next_offset: int = 0
    point: LogPoint | None = None  # the last that is known at or before `next_offset`; no record lies between the two
    refused: bool = False  # the client has refused `point` once
    kept: list[Run | Reached] = field(default_factory=list)  # what came after the pause, for the end of it

    def begin(self, next_offset: int, point: LogPoint | None) -> None:
        """Anew; what was kept belongs to another position."""
        self.mode, self.next_offset, self.point, self.refused = Mode.STARTING, next_offset, point, False
        self.kept.clear()

    def end(self) -> None:
        """Nothing is read until `begin`."""
        self.mode = Mode.IDLE
        self.kept.clear()

    def take_kept(self) -> list[Run | Reached]:
        kept, self.kept = self.kept, []
        return kept


@dataclass(slots=True)
class PartitionStates:
    """Follows what the group gives and takes, ahead of the listener it passes that on to."""

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
