"""What the delivery of one partition is about, and what it tells of its way."""

from __future__ import annotations

from dataclasses import dataclass, field

from formats.errors import CorruptSegment
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.segment import Segment, SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind


def labels_of(source: SourcePartition) -> dict[str, str]:
    """Of metrics. By place: two incarnations of a topic may be delivered at a time."""
    return {"region": source.region, "topic": source.path, "partition": str(source.partition)}


@dataclass(frozen=True, slots=True)
class DeliveryTarget:
    """One partition's way: where its pieces go. `epoch` tells this ownership from an earlier one."""

    source: SourcePartition
    target: TopicPartition
    target_topic_id: str
    epoch: int
    clamp_timestamps: bool
    begun_at: int | None = None  # source offset; None: an operator said where to go on, or it is not known (yet)

    @property
    def key(self) -> CheckpointKey:
        return CheckpointKey(self.source, self.target.topic)

    @property
    def labels(self) -> dict[str, str]:
        return labels_of(self.source)


@dataclass(frozen=True, slots=True)
class Progressed:
    """Runs are in the target, and so is their checkpoint."""

    assignment: DeliveryTarget
    next_offset: int
    done: bool  # the pieces are delivered to their end
    count: int = field(default=0, compare=False)  # records, with this report
    size_bytes: int = field(default=0, compare=False)  # of their columns


@dataclass(frozen=True, slots=True)
class DeliveryFailed:
    """What lies behind the last Progressed is not in the target. REFUSED, DENIED and STALLED: trying again at once will
    not help. UNKNOWN: it may be there, read the position again."""

    assignment: DeliveryTarget
    reason: str
    fate: FailureKind
    offset: int | None = None  # of the one record that is refused


@dataclass(frozen=True, slots=True)
class Vanished:
    assignment: DeliveryTarget
    segment: Segment


@dataclass(frozen=True, slots=True)
class Corrupt:
    assignment: DeliveryTarget
    segment: Segment
    error: CorruptSegment


DeliveryEvent = Progressed | DeliveryFailed | Vanished | Corrupt
