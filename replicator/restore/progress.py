"""One source partition on its way: what is planned, what is under way, and what became of it. Its states are values:

work       Idle ──Deliver──> Waiting, for its turn ──> UnderWay ──done, failed──> Idle
position   Known ──outcome not known──> AskLater ──> Asking ──> Known; no answer ──> AskLater
listing    None ──> Listing ──> None
ending     None ──> Done, Broken ──destination replaced──> Void
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

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
    """Nothing of it is delivered."""


@dataclass(frozen=True, slots=True)
class WaitingForTurn:
    """For its turn."""

    deliver: Deliver
    since: datetime


@dataclass(frozen=True, slots=True)
class UnderWay:
    """The delivery works on it."""


Work = Idle | WaitingForTurn | UnderWay


@dataclass(frozen=True, slots=True)
class Known:
    """The sequencer knows where it is."""


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
    """All that is wanted is delivered, or was passed over."""


@dataclass(frozen=True, slots=True)
class Broken:
    reason: str


@dataclass(frozen=True, slots=True)
class Void:
    """Its destination is another topic now."""

    reason: str
    was_done: bool


Ending = Done | Broken | Void


@dataclass(slots=True, eq=False)
class RestoringPartition:
    """One source partition on its way."""

    plan: PartitionPlan
    assignment: DeliveryTarget
    sequencer: Sequencer
    moved_at: datetime  # when it last made progress, as much later as it waited for its turn since
    records: int = 0
    size_bytes: int = 0
    work: Work = Idle()
    position: RestorePosition = Known()
    listing: RestoreListing | None = None
    ending: Ending | None = None
    look_at: datetime | None = None  # when it is listed again; None: it is not followed
    unknowns: int = 0  # outcomes and positions in a row that were not known
    spoiled: dict[Segment, CorruptSegment] = field(default_factory=dict)
    is_outdated: bool = False  # what is known to be stored: a segment was not there, or not what it says
    damaged: Segment | None = None  # whose records nothing else held, as far as was known; a listing decides
    undelivered: Undelivered | None = None  # what is wanted, and arrived behind where the restore had begun
    recorded: list[OffsetRange] = field(default_factory=list)  # gaps that were passed over, as they were written down
    missing: list[OffsetRange] = field(default_factory=list)  # the same of gaps that nobody explained
    unsaid: list[Skipped] = field(default_factory=list)  # of those: what the checkpoint topic does not say yet
    given_up: Sequence[OffsetRange] = ()  # passed over by an earlier run of the same restore

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
        return [f"{segment}: {error.what}" for segment, error in self.spoiled.items()]

    @property
    def next_offset(self) -> int:
        return self.sequencer.next_offset or 0

    @property
    def is_under_way(self) -> bool:
        return isinstance(self.work, UnderWay)

    @property
    def is_at_rest(self) -> bool:
        """Nothing of it is delivered, listed or asked for."""
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
        """Why it does not go on; empty when it does, or is done."""
        return self.ending.reason if isinstance(self.ending, Broken | Void) else ""

    def fail(self, reason: str) -> None:
        self.ending = replace(self.ending, reason=reason) if isinstance(self.ending, Void) else Broken(reason)

    def void(self, reason: str) -> None:
        self.ending = Void(reason, was_done=self.is_done)

    @property
    def share(self) -> float:
        """How much of it is delivered, about: 0 to 1."""
        if self.is_done or self.plan.offsets is None:
            return 1.0
        begin, end = self.plan.next_offset or 0, self.plan.offsets.next_offset
        return min(max((self.next_offset - begin) / max(end - begin, 1), 0.0), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOutcome:
    """What became of one partition."""

    source: str
    target: str
    records: int
    size_bytes: int
    next_offset: int
    is_done: bool
    failed: str = ""
    corrupt: Sequence[str] = ()
    recorded: Sequence[Sequence[int]] = ()  # [start, end] of gaps that were passed over, as they were written down
    missing: Sequence[Sequence[int]] = ()  # the same of gaps that nobody explained, and of what arrived too late
    given_up: Sequence[Sequence[int]] = ()  # the same of gaps that an earlier run of this restore passed over
    is_void: bool = False  # the destination is another topic now: nothing that was delivered counts

    @staticmethod
    def of(partition: RestoringPartition) -> RestoreOutcome:
        wanted, next_offset = partition.plan.offsets, partition.next_offset
        if partition.is_done and wanted is not None:
            next_offset = min(next_offset, wanted.next_offset)  # a segment is read to its end, which may lie behind it
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
            missing=tuple((gap.start, gap.end) for gap in partition.missing),
            given_up=tuple((gap.start, gap.end) for gap in partition.given_up),
        )
        return outcome.void(partition.failed) if partition.is_void else outcome

    @property
    def topic(self) -> str:
        """The destination's name."""
        return self.target.rpartition("/")[0]

    @property
    def is_whole(self) -> bool:
        return not self.failed and not self.corrupt and not self.missing and not self.given_up

    def void(self, why: str) -> RestoreOutcome:
        """The destination is not the topic that the records went to."""
        return replace(self, is_void=True, is_done=False, failed=why, records=0, size_bytes=0)

    def behind(self, before: RestoreOutcome | None) -> RestoreOutcome:
        """This one with what an earlier run of the same partition had found."""
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
            missing=_union(before.missing, self.missing),
            given_up=before.given_up,  # what it gave up itself is missing
        )


T = TypeVar("T")


def _union(first: Sequence[T], second: Sequence[T]) -> Sequence[T]:
    return (*first, *(one for one in second if one not in first))
