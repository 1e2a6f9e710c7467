"""A source partition whose target partition is assigned to this process: three independent state machines. Their states
are values, and all their transitions are in this file.

    position   assigned ──> Locating ──deliver──> Delivering ──reposition──> Locating

               Locating     its checkpoint is read, at once or later
               Delivering   the sequencer decides what comes next

    listing    NotListed ──listing_begun──> Listing ──listing_ended──> Listed ──listing_begun──> Listing
                                               └─ listing_begun: the answer of the current one is dropped

               Fills the view, as events do. A listing begins, and its answer is collected, only while Delivering; the
               answer of one that is in flight when the partition is repositioned waits

    stop       None ──stop──> StopReason ──resume──> None

               The reason for operators why delivery does not continue. A stopped partition is retried at intervals, so
               it may be in any of the other states

`refuse` is a `reposition` that remembers whether the checkpoint is gone; `forget_view` makes the listing NotListed, and
the view empty. No transition of one of the three changes another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import assert_never

from formats.coverage import end_of
from formats.messages.delivery_checkpoint import Checkpoint, Filled
from formats.segment import OffsetRange, SegmentInfo, SourcePartition
from infra.runtime import log_fields
from infra.runtime.failures import Failures
from infra.runtime.lookups import Question
from infra.runtime.metrics import Metrics
from ingress.delivery.events import DeliveryTarget
from ingress.segment_view import SegmentView
from ingress.sequencer import LatePolicy, Sequencer
from ingress.source_settings import IngressSource
from ingress.undelivered import Undelivered, before_begin


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSegments:
    """A listing's answer."""

    recorded: Sequence[OffsetRange]
    infos: Sequence[SegmentInfo]
    begin: int | None = None  # where the archive begins; None: not recorded, or not requested
    is_cut: bool = False  # the store has more segments after them
    reach: Mapping[int, int] = field(default_factory=dict)  # for the next listing
    passed: Sequence[OffsetRange] = ()  # covered by segments that start before the begin of the delivery
    left_behind: Mapping[SourcePartition, Sequence[OffsetRange]] = field(default_factory=dict)  # earlier incarnations


@dataclass(frozen=True, slots=True, kw_only=True)
class Locating:
    ask_at: datetime | None = None  # None: at once
    is_forgotten: bool = False  # the last known checkpoint is gone from its topic


@dataclass(frozen=True, slots=True)
class Delivering:
    sequencer: Sequencer


DeliveryPosition = Locating | Delivering


@dataclass(frozen=True, slots=True)
class NotListed:
    """Only events have filled the view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingListing:
    """A listing is in flight."""

    answer: Question[ListedSegments]
    token: int  # for the view
    full: bool
    begun_at: datetime
    relist_at: datetime  # by the timer


@dataclass(frozen=True, slots=True)
class Listed:
    """The view was listed from the position on, or the listing failed."""

    relist_at: datetime  # by the timer


ViewListing = NotListed | PendingListing | Listed


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why the partition waits for an operator."""

    text: str
    by_failures: bool = False  # the stop ends when the failures end


LATE_ALARM = timedelta(minutes=5)  # replication may bring segments out of order, for a while


@dataclass(slots=True, eq=False)
class AssignedPartition:
    """Compared by identity: the same partition assigned again is another `AssignedPartition`."""

    delivery_target: DeliveryTarget
    policy: LatePolicy
    position: DeliveryPosition = Locating()
    view: SegmentView = field(default_factory=SegmentView)
    listing: ViewListing = NotListed()
    stop_reason: StopReason | None = None  # None: delivery continues
    checkpoint: Checkpoint | None = None  # that delivery began at; None: there is none
    checkpointed: int | None = None  # next offset of the last checkpoint that was read or written here
    was_located: bool = False  # its checkpoint was read, and may be none
    dropped: int = 0  # records that the transform left out, as that checkpoint counts them
    passed: Undelivered | None = None  # offsets stored before its begin
    # offsets of earlier incarnations stored after the end of their delivery
    left_behind: dict[SourcePartition, Undelivered] = field(default_factory=dict)
    reach: Mapping[int, int] = field(default_factory=dict)  # by level, how far before the position a listing begins
    refusals: int = 0  # of the same record, in a row
    failures: Failures = field(default_factory=Failures)

    # --- queries of the states ---

    @property
    def sequencer(self) -> Sequencer | None:
        """None until the checkpoint was read."""
        return self.position.sequencer if isinstance(self.position, Delivering) else None

    @property
    def stopped(self) -> str:
        """Why the partition waits for an operator; empty when it does not."""
        return "" if self.stop_reason is None else self.stop_reason.text

    @property
    def is_forgotten(self) -> bool:
        return isinstance(self.position, Locating) and self.position.is_forgotten

    @property
    def is_listed(self) -> bool:
        """Whether a listing from the position on has filled the view, or is in flight."""
        return not isinstance(self.listing, NotListed)

    @property
    def is_idle(self) -> bool:
        """Whether no delivery to the target is in flight."""
        return self.sequencer is None or not self.sequencer.is_busy

    @property
    def is_seen(self) -> bool:
        """Whether the view shows which segments wait, or that none do."""
        is_current = self.view.was_listed and not isinstance(self.listing, PendingListing)
        return len(self.view) > 0 or (self.sequencer is not None and is_current)

    @property
    def is_at_rest(self) -> bool:
        """Whether it waits for an event, the report of a delivery or a decision of an operator, for the timer of its
        listing, or for the time of a later incarnation."""
        sequencer = self.sequencer
        return (
            sequencer is not None
            and isinstance(self.listing, Listed)
            and not sequencer.beginning
            and (sequencer.is_busy or sequencer.wake_at is None)
            and not self.failures.are_any
        )

    def is_due(self, now: datetime) -> bool:
        """Whether the checkpoint may be read now."""
        match self.position:
            case Locating(ask_at=ask_at):
                return ask_at is None or now >= ask_at
            case Delivering():
                return False
            case _:
                assert_never(self.position)

    # --- transitions ---

    def deliver(self, sequencer: Sequencer) -> None:
        """Deliver by the decisions of `sequencer`, on the current view."""
        self.position = Delivering(sequencer)

    def forget_view(self) -> None:
        """Drop the view, to be listed again: the position may have moved back to segments that the view has dropped, or
        events are missing."""
        self.view, self.listing = SegmentView(), NotListed()

    def refuse(self, ask_at: datetime, *, is_forgotten: bool) -> None:
        """There is no usable checkpoint; it is read again at `ask_at`."""
        self.was_located = True
        self.position = Locating(ask_at=ask_at, is_forgotten=is_forgotten)

    def reposition(self, ask_at: datetime) -> None:
        """Read the checkpoint again at `ask_at`: the outcome of a delivery is unknown, or an operator may have changed
        the position."""
        self.position = Locating(ask_at=ask_at, is_forgotten=self.is_forgotten)

    def stop(self, reason: str, *, by_failures: bool) -> None:
        self.stop_reason = StopReason(reason, by_failures)

    def resume(self) -> None:
        self.stop_reason = None

    def listing_begun(self, listing: PendingListing) -> None:
        self.listing = listing

    def listing_ended(self, relist_at: datetime) -> None:
        self.listing = Listed(relist_at)

    @property
    def labels(self) -> dict[str, str]:
        return self.delivery_target.labels

    @property
    def fields(self) -> dict[str, object]:
        source = self.delivery_target.source
        return {
            log_fields.REGION: source.region,
            log_fields.TOPIC: source.path,
            log_fields.PARTITION: source.partition,
        }

    def positioned(self, checkpoint: Checkpoint | None) -> None:
        """Set the checkpoint that delivery begins at; None: there is none, and nothing was delivered."""
        self.checkpoint, self.was_located = checkpoint, True
        self.checkpointed = None if checkpoint is None else checkpoint.next_offset
        self.dropped = 0 if checkpoint is None else checkpoint.dropped
        self.delivery_target = replace(self.delivery_target, filled=Filled.by(checkpoint))
        self.begins(None if checkpoint is None else checkpoint.begun_at)

    def begins(self, begun_at: int | None) -> None:
        """Set where delivery began; None: unknown, or set by an operator."""
        self.delivery_target = replace(self.delivery_target, begun_at=begun_at)
        span = before_begin(begun_at)
        if self.passed is None or self.passed.span != span:
            self.passed = None if span is None else Undelivered(span)

    @property
    def lateness(self) -> str:
        """Health subject for a missing segment."""
        return f"{self.delivery_target.source} waits"

    def late_since(self, now: datetime) -> str:
        """The health problem of a segment that is missing for longer than LATE_ALARM; empty when there is none."""
        missing = self.sequencer.waits_for() if self.sequencer is not None else None
        if missing is None or now - missing[1] < LATE_ALARM:
            return ""
        (offsets, since), source = missing, self.delivery_target.source
        until = since + self.policy.lost_timeout
        ends = "passes over them" if self.policy.skip_lost else "stops"
        return (
            f"offsets {offsets} are in no segment, and no gap was recorded for them; delivery waits since "
            f"{since.isoformat(timespec='seconds')}, and {ends} at {until.isoformat(timespec='seconds')}. If "
            "replication does not bring them, restore the objects from a copy; or accept the loss, with "
            f"`replicator gaps accept {source} {offsets.start}-{offsets.end} --reason TEXT --yes` and a file of the "
            "region that archives it. The next listing sees either, within relist_interval"
        )

    def stored(self, stored: ListedSegments) -> None:
        """Add the undelivered offsets that a listing found."""
        if self.passed is not None:
            self.passed.listed(stored.passed)
        for source, covered in stored.left_behind.items():
            if source in self.left_behind:
                self.left_behind[source].listed(covered)

    def measure(self, metrics: Metrics, now: datetime) -> None:
        """Report how far delivery is behind the known stored segments."""
        next_offset = self.sequencer.next_offset if self.sequencer else self.view.next_offset or None
        waiting = [i for i in self.view.infos if next_offset is None or i.segment.offsets.end >= next_offset]
        end = end_of(i.segment.offsets for i in waiting)
        begin = next_offset or min((i.segment.offsets.start for i in waiting), default=0)
        oldest = min((i.stored_at for i in waiting), default=now)
        metrics.gauge("ingress_lag_records", max(end - begin, 0), **self.labels)
        metrics.gauge("ingress_lag_seconds", max((now - oldest).total_seconds(), 0), **self.labels)


def late_policy(settings: IngressSource) -> LatePolicy:
    return LatePolicy(
        first_segment_delay=settings.first_segment_delay,
        late_retries=settings.late_segment_retries,
        lost_timeout=settings.lost_segment_timeout,
        skip_lost=settings.on_lost == "skip",
    )
