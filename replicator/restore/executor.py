"""Executes a restore plan: delivers its partitions, smallest first, through the delivery of ingress.

    plan ──> Partition (its view, its Sequencer) ──Deliver──> waiting by rank ──at most `width`──> Delivery
                   ▲                                                                                  │
                   └──────────────── progressed, failed, vanished, corrupt ───────────────────────────┘

No other process writes for this restore: its transactional id was taken over before the positions were read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from queue import Empty
from typing import assert_never

from formats.coverage import uncovered
from formats.errors import CheckpointConflict, TargetError
from formats.messages.delivery_checkpoint import Checkpoint, Filled, Skipped
from formats.records.transform import NO_TRANSFORM, Transform
from formats.segment import OffsetRange, SegmentInfo
from infra.archive.archive import Archive
from infra.contracts.internal_topics import CheckpointStore
from infra.contracts.producer import FailureKind
from infra.runtime import log_fields
from infra.runtime.lifecycle import Clock, Stop
from infra.runtime.lookups import Answer, ask
from infra.runtime.lookups import Failed as Unanswered
from ingress.delivery.events import Corrupt, DeliveryEvent, DeliveryFailed, DeliveryTarget, Progressed, Vanished
from ingress.delivery.rounds import Delivery
from ingress.segment_view import SegmentView
from ingress.sequencer import (
    REFUSED,
    Begin,
    Deliver,
    Effect,
    Finished,
    Late,
    LatePolicy,
    Lost,
    Passed,
    Relist,
    Sequencer,
    Waits,
)
from ingress.undelivered import Undelivered
from replicator.restore.partition_plan import EXPIRED, GIVEN_UP, PartitionPlan
from replicator.restore.passed_over import PassedOver
from replicator.restore.progress import (
    Asking,
    AskLater,
    Done,
    Idle,
    Known,
    RestoreListing,
    RestoringPartition,
    UnderWay,
    WaitingForTurn,
)

log = logging.getLogger(__name__)

POLL = timedelta(milliseconds=50)
PATIENCE = timedelta(minutes=10)  # limit for a partition that makes no progress
NEVER_FORGETS = 2**31  # limit of entries in a view: it holds the whole listing
RELIST_AFTER_DAMAGE = timedelta(seconds=1)  # pause before listing other segments with the records of a damaged one


@dataclass(slots=True)
class Restorer:
    """`run` is called on one thread, `delivery.run` on another."""

    archive: Archive
    checkpoints: CheckpointStore
    delivery: Delivery
    pool: Executor
    clock: Clock
    stop: Stop
    skip_missing: bool = False
    follow: timedelta | None = None  # interval of listings for new segments; None: end with the plan
    on_progress: Callable[[Sequence[RestoringPartition]], None] = lambda _: None  # called in every turn
    until: Callable[[], bool] = lambda: False  # called in every turn; True ends the run
    replaced: Callable[[datetime], Mapping[str, str]] = lambda _: {}  # destinations that were replaced, and why
    width: int = 8
    patience: timedelta = PATIENCE
    transform: Transform = NO_TRANSFORM
    preserves_offsets: bool = False
    _partitions: list[RestoringPartition] = field(default_factory=list)  # in the order of their epochs, from 1

    def begin(
        self,
        plan: PartitionPlan,
        topic_id: str,
        *,
        clamp: bool,
        begun: Checkpoint | None,
        skipped: Sequence[Skipped] = (),
    ) -> RestoringPartition:
        """Add a partition. `begun`: its checkpoint; `skipped`: the notes of earlier runs, of any partition.
        Partitions are delivered in the order in which they are added."""
        epoch = len(self._partitions) + 1
        begun_at = plan.next_offset if begun is None else begun.begun_at
        delivery_target = DeliveryTarget(
            plan.source,
            plan.target,
            topic_id,
            epoch,
            clamp,
            begun_at,
            self.transform,
            preserves_offsets=self.preserves_offsets,
            filled=Filled.by(begun),
        )
        now = self.clock.now()
        passed = PassedOver.of(plan.key, skipped)
        partition = RestoringPartition(
            plan,
            delivery_target,
            self._sequencer(plan, begun),
            now,
            given_up=passed.given_up,
            expired_before=passed.expired,
            corrupt_segments=dict(passed.still_corrupt([*plan.infos, *plan.others])),
            resumed_at=None if begun is None else begun.next_offset,
        )
        partition.dropped = 0 if begun is None else begun.dropped
        if begun_at is not None and begun_at > plan.wanted_from:
            partition.undelivered = Undelivered(OffsetRange(plan.wanted_from, begun_at - 1))
        if plan.offsets is None and self.follow is None:
            partition.ending = Done()
        partition.next_listing_at = plan.listed_at + self.follow if self.follow is not None else None
        self._partitions.append(partition)
        self._apply_listing(partition, plan.recorded, [*plan.infos, *plan.others], plan.listed_at)
        return partition

    def run(self) -> Sequence[RestoringPartition]:
        """Run until all partitions have ended, `stop` is set or `until` returns True. The delivery then finishes what
        is in flight."""
        while not self.stop.is_set() and not self.until() and not self._is_over:
            self.turn()
        return self._partitions

    @property
    def _is_over(self) -> bool:
        """Whether all partitions have ended. With `follow` and no partition yet, new ones are waited for."""
        return all(p.is_over for p in self._partitions) and (bool(self._partitions) or self.follow is None)

    def drain(self) -> None:
        """Apply the events that follow the last turn. Called once the delivery has ended."""
        for report in self._reports(wait=False):
            if isinstance(report, Progressed):
                self._reported(self._partitions[report.delivery_target.epoch - 1], report)

    def turn(self) -> None:
        for report in self._reports():
            self._reported(self._partitions[report.delivery_target.epoch - 1], report)
        now = self.clock.now()
        self._void_replaced(now)
        if refused := self.delivery.halted:  # once the right is granted, the same restore resumes
            for partition in self._partitions:
                if not partition.is_over:
                    partition.fail(refused)
        for partition in self._partitions:
            if not partition.is_over:
                self._tick(partition, now)
        self._give_turns(now)
        self.on_progress(self._partitions)

    def _void_replaced(self, now: datetime) -> None:
        """Stop delivery to replaced topics. What was delivered to them before is void, too."""
        if not (replaced := self.replaced(now)):
            return
        gone = [p for p in self._partitions if p.plan.target.topic in replaced and not p.is_void]
        for partition in gone:
            partition.void(replaced[partition.plan.target.topic])
            self._warn(partition, "destination_replaced", partition.failed)
        self.delivery.release([p.delivery_target.epoch for p in gone], timedelta())

    # --- one partition ---

    def _sequencer(self, plan: PartitionPlan, begun: Checkpoint | None) -> Sequencer:
        policy = LatePolicy(
            first_segment_delay=timedelta(),
            late_retries=1,
            lost_timeout=timedelta() if self.follow is None else timedelta(hours=1),
            skip_lost=self.skip_missing,
            after_refusal=replace(REFUSED, first=RELIST_AFTER_DAMAGE),
        )
        next_offset = begun.next_offset if begun is not None else plan.next_offset
        # truncated until the first listing: an unknown view is not the same as an empty one
        return Sequencer(policy, SegmentView(limit=NEVER_FORGETS, truncated=True), next_offset)

    def _apply_listing(
        self,
        partition: RestoringPartition,
        recorded: Sequence[OffsetRange],
        infos: Sequence[SegmentInfo],
        begun_at: datetime,
    ) -> None:
        """Apply the result of a listing."""
        view, last = partition.sequencer.view, self._last_offset(partition)
        wanted = [i for i in infos if last is None or i.segment.offsets.start <= last]
        view.listed(view.listing_begun(), wanted, recorded)
        self._check_undelivered(partition, wanted)
        self._apply(partition, partition.sequencer.listed(self.clock.now(), full=True, begun_at=begun_at))

    def _check_undelivered(self, partition: RestoringPartition, infos: Sequence[SegmentInfo]) -> None:
        if partition.undelivered is None:
            return
        partition.undelivered.listed(info.segment.offsets for info in infos)
        for offsets in partition.undelivered.left(partition.missing):
            partition.missing.append(offsets)
            begun_at = partition.delivery_target.begun_at
            reason = f"offsets {offsets} were stored after this restore began at {begun_at}, and are not restored by it"
            self._warn(partition, "segment_before_begin", f"{reason}: restore them with another one, --offsets")

    def _last_offset(self, partition: RestoringPartition) -> int | None:
        """Segments that start after it are not restored; None: no limit."""
        if self.follow is not None:
            return None
        return partition.plan.last_offset

    def _tick(self, partition: RestoringPartition, now: datetime) -> None:
        self._positioned(partition)
        if (listing := partition.listing) is not None:
            self._listed(partition, listing, now)
        self._apply(partition, partition.sequencer.tick(now))
        if partition.next_listing_at is not None and now >= partition.next_listing_at and partition.is_at_rest:
            self._list(partition)
        if partition.is_at_rest and not partition.is_over and self._is_finished(partition):
            self._finish(partition)
        waits = isinstance(partition.work, WaitingForTurn)  # waiting for a turn is not a stall
        if now - partition.moved_at > self.patience and self.follow is None and not waits and not partition.is_over:
            partition.fail(f"no progress for {self.patience}; run the restore again to resume it")

    def _listed(self, partition: RestoringPartition, listing: RestoreListing, now: datetime) -> None:
        match listing.answer.collect():
            case None:
                return
            case Unanswered(error=error):
                partition.listing = None
                self._warn(partition, "listing_failed", str(error))
                self._apply(partition, partition.sequencer.listing_failed(now))
            case Answer(value=stored):
                partition.listing = None
                partition.is_outdated = False
                self._apply_listing(partition, stored.recorded, stored.infos, listing.begun_at)

    def _is_finished(self, partition: RestoringPartition) -> bool:
        last = self._last_offset(partition)
        if last is None:
            return False
        return partition.next_offset > last or partition.sequencer.exhausted

    def _finish(self, partition: RestoringPartition) -> None:
        """End a partition with nothing left to deliver. Planned offsets beyond its position are gone or were given
        up."""
        last = self._last_offset(partition)
        if last is not None and partition.next_offset <= last:
            if partition.is_outdated:
                self._list(partition)
                return
            rest = OffsetRange(partition.next_offset, last)
            missing = uncovered(partition.sequencer.view.recorded, rest)
            if missing and not self.skip_missing:
                partition.fail(f"no segment holds the offsets {missing[0]}")
                return
            for offsets in missing:
                self._give_up(partition, offsets)
            for offsets in uncovered(missing, rest):
                partition.recorded.append(offsets)
                self._note_expired(partition, offsets)
        partition.ending = Done()

    def _list(self, partition: RestoringPartition) -> None:
        now = self.clock.now()
        partition.next_listing_at = now + self.follow if self.follow is not None else None
        answer = ask(self.pool, self.archive.listing, partition.plan.source)
        partition.listing = RestoreListing(answer, now)

    def _positioned(self, partition: RestoringPartition) -> None:
        """Read the checkpoint when it is not known whether a transaction was committed."""
        if isinstance(partition.position, AskLater) and self.clock.now() >= partition.position.at:
            partition.position = Asking(ask(self.pool, self.checkpoints.read))
        if not isinstance(partition.position, Asking):
            return
        match partition.position.answer.collect():
            case None:
                return
            case Unanswered(error=TargetError() as error):
                partition.position = Known()
                partition.fail(str(error))
            case Unanswered(error=error):
                self._warn(partition, "positions_not_read", str(error))
                self._ask_later(partition)
            case Answer(value=positions):
                partition.position = Known()
                self._resume(partition, positions.get(partition.plan.key))

    def _resume(self, partition: RestoringPartition, checkpoint: Checkpoint | CheckpointConflict | None) -> None:
        if isinstance(checkpoint, CheckpointConflict):
            partition.fail(str(checkpoint))
            return
        if checkpoint is None and (partition.plan.checkpoint is not None or partition.records):
            partition.fail(
                f"its checkpoint is gone, the last next offset known is {partition.next_offset}: the checkpoint topic "
                f"of this restore was deleted, or created again, meanwhile. Delete {partition.plan.target.topic} and "
                "restore it again, with another --id"
            )
            return
        partition.unwritten = []  # gaps that the checkpoint does not include are passed over once more
        partition.sequencer = self._sequencer(partition.plan, checkpoint)
        partition.dropped = 0 if checkpoint is None else checkpoint.dropped
        self._apply(partition, partition.sequencer.changed(self.clock.now()))

    def _ask_later(self, partition: RestoringPartition) -> None:
        pause = partition.sequencer.policy.pause(partition.unknowns, refused=False)
        partition.position = AskLater(self.clock.now() + pause)
        partition.unknowns += 1

    def _apply(self, partition: RestoringPartition, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Deliver():
                    partition.work = WaitingForTurn(effect, self.clock.now())
                case Relist():
                    self._list(partition)
                case Passed(offsets=offsets):
                    if offsets not in partition.recorded:  # already there after the position moved back
                        partition.recorded.append(offsets)
                    self._note_expired(partition, offsets)
                case Lost(offsets=offsets, skipped=True):
                    self._give_up(partition, offsets)
                case Lost(offsets=offsets):
                    if self.follow is None:
                        partition.fail(f"no segment holds the offsets {offsets}")
                    else:
                        self._warn(partition, "segment_lost", f"no segment holds the offsets {offsets}")
                case Finished() | Late() | Waits() | Begin():  # a restore has begun before it plans
                    pass
                case _:
                    assert_never(effect)

    def _give_up(self, partition: RestoringPartition, offsets: OffsetRange) -> None:
        if offsets not in partition.missing:
            partition.missing.append(offsets)
        self._note(partition, offsets, GIVEN_UP)

    def _note_expired(self, partition: RestoringPartition, recorded: OffsetRange) -> None:
        """A later attempt begins behind the gap, and cannot tell whether its records were delivered before."""
        for offsets in partition.plan.expired_in(recorded):
            self._note(partition, offsets, EXPIRED)

    def _note(self, partition: RestoringPartition, offsets: OffsetRange, reason: str) -> None:
        skipped = Skipped(key=partition.plan.key, offsets=offsets, reason=reason, at=self.clock.now())
        partition.unwritten.append(skipped)

    # --- turns ---

    def _give_turns(self, now: datetime) -> None:
        free = self.width - sum(p.is_under_way and not p.is_over for p in self._partitions)
        for partition in self._partitions:
            if free > 0 and isinstance(waiting := partition.work, WaitingForTurn) and not partition.is_over:
                partition.moved_at += now - waiting.since
                skipped, dropped = tuple(partition.unwritten), partition.dropped
                self.delivery.begin(partition.delivery_target, waiting.deliver.slices, skipped, dropped=dropped)
                partition.work = UnderWay()
                free -= 1

    def _reports(self, *, wait: bool = True) -> list[DeliveryEvent]:
        """Events of the delivery. The only place where the loop waits."""
        found: list[DeliveryEvent] = []
        try:
            if wait:
                found.append(self.delivery.reports.get(timeout=POLL.total_seconds()))
            while True:
                found.append(self.delivery.reports.get_nowait())
        except Empty:
            return found

    def _reported(self, partition: RestoringPartition, report: DeliveryEvent) -> None:
        now, sequencer = self.clock.now(), partition.sequencer
        match report:
            case Progressed(next_offset=next_offset, done=done, count=count, size_bytes=size_bytes, dropped=dropped):
                partition.records += count
                partition.size_bytes += size_bytes
                partition.dropped = dropped
                partition.moved_at, partition.damaged, partition.unknowns, partition.unwritten = now, None, 0, []
                partition.work = Idle() if done else UnderWay()
                self._apply(partition, sequencer.delivered(now) if done else sequencer.progressed(next_offset))
            case DeliveryFailed(reason=reason, kind=kind):
                partition.work = Idle()
                self._warn(partition, "delivery_failed", reason)
                if kind is FailureKind.UNKNOWN:
                    self._ask_later(partition)
                elif kind in (FailureKind.REJECTED, FailureKind.DENIED):
                    partition.fail(reason)
                else:
                    self._apply(partition, sequencer.failed(now))
            case Vanished(segment=segment):
                partition.work, partition.is_outdated = Idle(), True
                self._apply(partition, sequencer.vanished(segment, now))
            case Corrupt(segment=segment, error=error):
                partition.work, partition.is_outdated = Idle(), True
                partition.note_corrupt(segment, error, now)  # perhaps a repeated failure: a listing decides
                self._apply(partition, sequencer.corrupt(segment, now))
                if isinstance(partition.work, WaitingForTurn):
                    pass  # another segment holds its records
                elif segment == partition.damaged:  # a listing since then showed no other segment
                    partition.fail(str(error))
                else:
                    partition.damaged = segment
            case _:
                assert_never(report)

    def _warn(self, partition: RestoringPartition, event: str, reason: str) -> None:
        log.warning(event, extra=partition.fields | {log_fields.REASON: reason})
