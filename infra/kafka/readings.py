"""Where each partition of a SourceConsumer stands. What the modes mean is drawn in `consumer`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto

from replicator.protocols import GroupListener, TopicPartition


class Mode(Enum):
    IDLE = auto()
    STARTING = auto()
    READING = auto()
    PAUSED = auto()


@dataclass(slots=True)
class Reading:
    """Where one partition stands. `next_offset` means nothing while it is idle."""

    mode: Mode = Mode.IDLE
    next_offset: int = 0


@dataclass(slots=True)
class Readings:
    """Follows what the group gives and takes, ahead of the listener it passes that on to."""

    listener: GroupListener
    by_partition: dict[TopicPartition, Reading]

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.by_partition.update({partition: Reading() for partition in partitions})
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
