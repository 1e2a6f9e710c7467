"""The target of one partition's delivery, and the events that delivery reports."""

from __future__ import annotations

from dataclasses import dataclass, field

from formats.errors import CorruptSegment
from formats.messages.delivery_checkpoint import NOT_FILLED, CheckpointKey, Filled
from formats.records.transform import NO_TRANSFORM, Transform
from formats.segment import Segment, SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind


def labels_of(source: SourcePartition) -> dict[str, str]:
    """Metric labels. `topic` is the archive path, since two incarnations of a topic may be delivered at a time."""
    return {"region": source.region, "topic": source.path, "partition": str(source.partition)}


@dataclass(frozen=True, slots=True)
class DeliveryTarget:
    """Where the slices of one partition are delivered. `epoch` distinguishes this ownership from earlier ones."""

    source: SourcePartition
    target: TopicPartition
    target_topic_id: str
    epoch: int
    clamp_timestamps: bool
    begun_at: int | None = None  # source offset; None: an operator set the position, or it is not known (yet)
    transform: Transform = NO_TRANSFORM
    lineage_header: str = ""  # name of the header that says where a record comes from; empty: it gets none
    preserves_offsets: bool = False  # each record has its source's offset
    filled: Filled = NOT_FILLED  # at least, when this ownership began

    @property
    def key(self) -> CheckpointKey:
        return CheckpointKey(self.source, self.target.topic)

    @property
    def labels(self) -> dict[str, str]:
        return labels_of(self.source)

    @property
    def record_labels(self) -> dict[str, str]:
        """Of the metrics of single records."""
        return {**self.labels, "destination": self.target.topic}


@dataclass(frozen=True, slots=True)
class Progressed:
    """Runs, and their checkpoint, are in the target."""

    delivery_target: DeliveryTarget
    next_offset: int
    done: bool  # the slices are delivered to their end
    count: int = field(default=0, compare=False)  # records of this report
    size_bytes: int = field(default=0, compare=False)  # of their columns
    dropped: int = field(default=0, compare=False)  # records that the transform left out since delivery began


@dataclass(frozen=True, slots=True)
class DeliveryFailed:
    """Records after the last Progressed are not in the target. REJECTED, DENIED and STALLED: retrying at once will not
    help. UNKNOWN: they may be in the target, read the position again."""

    delivery_target: DeliveryTarget
    reason: str
    kind: FailureKind
    offset: int | None = None  # of the single record that is refused


@dataclass(frozen=True, slots=True)
class Vanished:
    delivery_target: DeliveryTarget
    segment: Segment


@dataclass(frozen=True, slots=True)
class Corrupt:
    delivery_target: DeliveryTarget
    segment: Segment
    error: CorruptSegment


DeliveryEvent = Progressed | DeliveryFailed | Vanished | Corrupt
