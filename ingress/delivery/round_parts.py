"""The records of one partition in a delivery round, and how a round takes the runs that were read ahead for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from formats.errors import (
    CorruptSegment,
    ForeignSegment,
    SegmentNotFound,
    TargetError,
    TransformFailed,
    TransientError,
)
from formats.messages.delivery_checkpoint import Author, Checkpoint
from formats.records.statistics import last_offset
from infra.contracts.producer import FailureKind, TargetRun, TimestampRule
from infra.runtime.lifecycle import Clock
from infra.runtime.metrics import Metrics
from ingress.delivery.events import Corrupt, DeliveryEvent, DeliveryFailed, DeliveryTarget, Vanished
from ingress.delivery.read_ahead import ReadAhead, ReadPosition, SegmentRead
from ingress.delivery.record_metrics import RecordMetrics


@dataclass(frozen=True, slots=True)
class RefusedRun:
    """A run that cannot be produced as it is."""

    reason: str
    count: int  # of its records, with those that the transform left out: the position is to reach the refused one
    last_offset: int  # the refused record is not after it


@dataclass(slots=True)
class RoundPart:
    """The records of one partition in the current round."""

    reading: SegmentRead
    begin: ReadPosition
    count: int = 0
    dropped: int = 0
    size_bytes: int = 0
    last_offset: int = -1  # of a record
    records: RecordMetrics = field(default_factory=RecordMetrics)
    ended: bool = False  # no more runs of it in this round
    done: bool = False  # the slices are read to their end
    then: DeliveryEvent | RefusedRun | None = None  # why it ended; reported once the records before are delivered

    @property
    def read(self) -> int:
        """Records of its runs, with those that the transform left out."""
        return self.count + self.dropped

    @property
    def has_run(self) -> bool:
        """Whether a run of it was taken, if only for a checkpoint."""
        return self.reading.next_offset > self.begin.next_offset or self.done


@dataclass(frozen=True, slots=True)
class RunTaker:
    """`author`: of the checkpoints that are written for a target. Use from the delivery thread only."""

    read_ahead: ReadAhead
    timestamps: TimestampRule
    author: Callable[[DeliveryTarget], Author]
    clock: Clock
    metrics: Metrics

    def take(self, reading: SegmentRead, part: RoundPart) -> TargetRun | None:
        """The run that was read ahead, with its timestamps checked for the target; starts to read the next one. None:
        there is nothing to deliver, the part has ended, and `part.then` says why."""
        delivery_target = reading.delivery_target
        try:
            ahead = reading.ahead.result()
            run = ahead.run
            checked = self.timestamps.check(
                delivery_target.target.topic, run.batches, clamp=delivery_target.clamp_timestamps
            )
        except SegmentNotFound:
            part.then = Vanished(delivery_target, reading.segment)
        except CorruptSegment as error:
            part.then = Corrupt(delivery_target, reading.segment, error)
        except TransientError as error:
            part.then = DeliveryFailed(delivery_target, str(error), FailureKind.RETRY_LATER)
        except TransformFailed as error:
            remedy = "correct the function, and start this process again"
            part.then = RefusedRun(f"{error}; {remedy}", error.count, error.last_offset)
        except (ForeignSegment, TargetError) as error:
            part.then = DeliveryFailed(delivery_target, str(error), FailureKind.REJECTED)
        else:
            if checked.refused:
                part.then = RefusedRun(checked.refused, run.count + run.dropped, last_offset(run.batches[-1]))
        if part.then is not None:
            part.ended = True
            return None
        if checked.altered:
            self.metrics.count("altered_timestamps", checked.altered, **delivery_target.labels)
        is_first, position = reading.position == reading.begin, reading.position.next_offset
        part.ended = part.done = run.last
        part.count += run.count
        part.dropped += run.dropped
        part.size_bytes += run.size_bytes
        if run.batches:
            part.last_offset = last_offset(run.batches[-1])
            part.records.add(ahead.measures)
        self.read_ahead.next_run(reading, run)
        at = self.clock.now()
        checkpoint = Checkpoint(
            run.next_offset,
            delivery_target.target_topic_id,
            at,
            self.author(delivery_target),
            begun_at=delivery_target.begun_at,
            dropped=reading.position.dropped,
            keeps_offsets=delivery_target.preserves_offsets,
        )
        return TargetRun(
            delivery_target.target,
            tuple(checked.batches),
            run.count,
            run.size_bytes,
            delivery_target.key,
            checkpoint,
            position,
            delivery_target.epoch,
            reading.skipped if is_first else (),
            delivery_target.filled,
        )
