"""The state of one source partition during a restore: its plan, its work in flight and its outcome.

work       Idle ──Deliver──> WaitingForTurn ──> UnderWay ──done, failed──> Idle
position   Known ──outcome not known──> AskLater ──> Asking ──> Known; no answer ──> AskLater
listing    None ──> RestoreListing ──> None
ending     None ──> Done, Broken ──destination replaced──> Void
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from formats.coverage import joined
from formats.errors import CheckpointConflict, CorruptSegment
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey, Skipped
from formats.segment import OffsetRange, Segment
from infra.archive.archive import PartitionListing
from infra.runtime import log_fields
from infra.runtime.lookups import Question
from ingress.delivery.events import DeliveryTarget
from ingress.sequencer import Deliver, Sequencer
from ingress.undelivered import Undelivered
from replicator.restore.partition_plan import PartitionPlan

RestorePositions = Mapping[CheckpointKey, Checkpoint | CheckpointConflict]


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing is being delivered."""


@dataclass(frozen=True, slots=True)
class WaitingForTurn:
    """Ready for delivery, while others use all slots. `since`: when it became ready."""

    deliver: Deliver
    since: datetime


@dataclass(frozen=True, slots=True)
class UnderWay:
    """In delivery."""


Work = Idle | WaitingForTurn | UnderWay


@dataclass(frozen=True, slots=True)
class Known:
    """The sequencer knows the position."""


@dataclass(frozen=True, slots=True)
class AskLater:
    at: datetime


@dataclass(frozen=True, slots=True)
class Asking:
    answer: Question[RestorePositions]


RestorePosition = Known | AskLater | Asking


@dataclass(frozen=True, slots=True)
class RestoreListing:
    answer: Question[PartitionListing]
    begun_at: datetime


@dataclass(frozen=True, slots=True)
class Done:
    """Everything selected was delivered or passed over."""


@dataclass(frozen=True, slots=True)
class Broken:
    reason: str


@dataclass(frozen=True, slots=True)
class Void:
    """The destination was replaced by another topic. `was_done`: the partition was complete before that."""

    reason: str
    was_done: bool


Ending = Done | Broken | Void


@dataclass(slots=True, eq=False)
class RestoringPartition:
    """The restore of one source partition."""

    plan: PartitionPlan
    delivery_target: DeliveryTarget
    sequencer: Sequencer
    moved_at: datetime  # time of its last progress, plus the time it waited for a turn since
    records: int = 0
    size_bytes: int = 0
    dropped: int = 0  # records that the transform left out since this restore began
    work: Work = Idle()
    position: RestorePosition = Known()
    listing: RestoreListing | None = None
    ending: Ending | None = None
    next_listing_at: datetime | None = None  # time of the next listing; None: the partition is not followed
    unknowns: int = 0  # consecutive unknown outcomes and positions
    corrupt_segments: dict[Segment, str] = field(default_factory=dict)  # what was found, now or by an earlier run
    is_outdated: bool = False  # the listing is out of date: a segment was missing or damaged
    damaged: Segment | None = None  # segment without a known alternative; the next listing decides
    undelivered: Undelivered | None = None  # selected offsets before the begin, which may be stored late
    recorded: list[OffsetRange] = field(default_factory=list)  # recorded gaps that were passed over
    missing: list[OffsetRange] = field(default_factory=list)  # unrecorded gaps passed over, late segments
    unwritten: list[Skipped] = field(default_factory=list)  # notes that are not yet in the checkpoint topic
    given_up: Sequence[OffsetRange] = ()  # passed over by an earlier run of the same restore
    expired_before: Sequence[OffsetRange] = ()  # likewise, because retention had removed them
    resumed_at: int | None = None  # position of its checkpoint when this process began

    @property
    def fields(self) -> dict[str, object]:
        source = self.plan.source
        return {
            log_fields.REGION: source.region,
            log_fields.TOPIC: source.path,
            log_fields.PARTITION: source.partition,
        }

    @property
    def corrupt(self) -> list[str]:
        return [f"{segment}: {what}" for segment, what in self.corrupt_segments.items()]

    @property
    def expired(self) -> Sequence[OffsetRange]:
        """Planned offsets that retention removed before they were read, in this run of the restore or an earlier
        one."""
        return joined(
            [*self.expired_before, *(left for gap in self.recorded for left in self.plan.expired_in(gap))]
        ).runs

    @property
    def next_offset(self) -> int:
        return self.sequencer.next_offset or 0

    @property
    def is_under_way(self) -> bool:
        return isinstance(self.work, UnderWay)

    @property
    def is_at_rest(self) -> bool:
        """No delivery, listing or position request is in flight."""
        return isinstance(self.work, Idle) and isinstance(self.position, Known) and self.listing is None

    @property
    def is_over(self) -> bool:
        return self.ending is not None

    @property
    def is_done(self) -> bool:
        return isinstance(self.ending, Done) or (isinstance(self.ending, Void) and self.ending.was_done)

    @property
    def is_void(self) -> bool:
        return isinstance(self.ending, Void)

    @property
    def failed(self) -> str:
        """Why the partition stopped; empty while it runs, or when it is done."""
        return self.ending.reason if isinstance(self.ending, Broken | Void) else ""

    def fail(self, reason: str) -> None:
        self.ending = replace(self.ending, reason=reason) if isinstance(self.ending, Void) else Broken(reason)

    def void(self, reason: str) -> None:
        self.ending = Void(reason, was_done=self.is_done)

    def note_corrupt(self, segment: Segment, error: CorruptSegment, now: datetime) -> None:
        """For a later run, too: it begins behind the segment once others have replaced its records."""
        self.corrupt_segments[segment] = error.what
        for info in self.sequencer.view.infos:
            if info.segment == segment:
                note = Skipped(
                    key=self.plan.key,
                    offsets=segment.offsets,
                    reason=error.what,
                    at=now,
                    level=segment.level,
                    stored_at=info.stored_at,
                )
                self.unwritten.append(note)

    @property
    def share(self) -> float:
        """Approximate share that is delivered, 0 to 1."""
        if self.is_done or self.plan.offsets is None:
            return 1.0
        begin, end = self.plan.next_offset or 0, self.plan.offsets.next_offset
        return min(max((self.next_offset - begin) / max(end - begin, 1), 0.0), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOutcome:
    """The result of one partition."""

    source: str
    target: str
    records: int
    size_bytes: int
    next_offset: int
    is_done: bool
    failed: str = ""
    corrupt: Sequence[str] = ()
    recorded: Sequence[Sequence[int]] = ()  # [start, end] of recorded gaps that were passed over
    expired: Sequence[Sequence[int]] = ()  # [start, end] of planned offsets that retention removed meanwhile
    missing: Sequence[Sequence[int]] = ()  # [start, end] of unrecorded gaps passed over, and of late segments
    given_up: Sequence[Sequence[int]] = ()  # [start, end] of gaps that an earlier run of this restore passed over
    is_void: bool = False  # the destination was replaced: nothing that was delivered counts
    is_partial: bool = False  # an earlier attempt of its Spark task delivered a part, which is not counted

    @staticmethod
    def of(partition: RestoringPartition) -> RestoreOutcome:
        wanted, next_offset = partition.plan.offsets, partition.next_offset
        if partition.is_done and wanted is not None:
            next_offset = min(next_offset, wanted.next_offset)  # the last segment is read to its end
        outcome = RestoreOutcome(
            source=str(partition.plan.source),
            target=str(partition.plan.target),
            records=partition.records,
            size_bytes=partition.size_bytes,
            next_offset=next_offset,
            is_done=partition.is_done,
            failed=partition.failed,
            corrupt=tuple(partition.corrupt),
            recorded=tuple((gap.start, gap.end) for gap in partition.recorded),
            expired=tuple((gap.start, gap.end) for gap in partition.expired),
            missing=tuple((gap.start, gap.end) for gap in partition.missing),
            given_up=tuple((gap.start, gap.end) for gap in partition.given_up),
        )
        return outcome.void(partition.failed) if partition.is_void else outcome

    @property
    def topic(self) -> str:
        """The name of the destination."""
        return self.target.rpartition("/")[0]

    @property
    def is_whole(self) -> bool:
        return not (self.failed or self.corrupt or self.expired or self.missing or self.given_up)

    def void(self, why: str) -> RestoreOutcome:
        """The outcome after the destination was replaced."""
        return replace(self, is_void=True, is_done=False, failed=why, records=0, size_bytes=0)

    def behind(self, before: RestoreOutcome | None) -> RestoreOutcome:
        """Combine with the outcome of an earlier run of the same partition."""
        if before is None:
            return self
        if self.is_void:
            before = before.void("")
        return replace(
            self,
            records=before.records + self.records,
            size_bytes=before.size_bytes + self.size_bytes,
            corrupt=_union(before.corrupt, self.corrupt),
            recorded=_union(before.recorded, self.recorded),
            expired=_union(before.expired, self.expired),
            missing=_union(before.missing, self.missing),
            given_up=before.given_up,  # gaps that this run passed over are in `missing`
        )


T = TypeVar("T")


def _union(first: Sequence[T], second: Sequence[T]) -> Sequence[T]:
    return (*first, *(one for one in second if one not in first))
