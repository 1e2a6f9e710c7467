"""The ingress process: takes in the assignment, stored segments and delivery reports, and applies the effects.

Runs on one thread that polls the placement group and the event log. The delivery thread, the intake thread and the
pools answer through queues that are drained once per turn. `Sequencer` decides; this module applies its effects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from queue import Empty
from typing import assert_never

from formats.errors import ReplicatorError
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.messages.segment_events import Created, Removed
from formats.segment import SourcePartition
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from infra.contracts.cluster import TargetRecords, TopicPartition
from infra.contracts.consumer import Placement
from infra.contracts.internal_topics import CheckpointStore, EventLog, LogReset, ParkedReporter
from infra.contracts.producer import FailureKind
from infra.runtime import log_fields
from infra.runtime.failures import Attempt
from infra.runtime.health import Health
from infra.runtime.lifecycle import Clock, Deadline, Stop
from infra.runtime.metrics import Metrics
from ingress import partition_log as tell
from ingress.alarms import Alarms
from ingress.assigned_partition import AssignedPartition, Listed, PendingListing
from ingress.assignment import Assignment
from ingress.checkpoint_lookup import (
    CheckpointLookup,
    Positions,
    has_only_begun_elsewhere,
    is_of_this_topic,
    is_operators,
)
from ingress.checkpoint_watch import CheckpointWatch
from ingress.delivery.events import Corrupt, DeliveryEvent, DeliveryFailed, Progressed, Vanished
from ingress.delivery.rounds import Delivery
from ingress.foreign_data_check import Beginning, ForeignDataCheck, foreign_data
from ingress.group_ownership import GroupOwnership
from ingress.partition_metrics import PartitionMetrics
from ingress.routing.destinations import DestinationFinder, Route
from ingress.routing.succession import Succession, Switch, Turn, turn
from ingress.routing.watcher import DestinationWatcher
from ingress.segment_lister import SegmentLister
from ingress.sequencer import Begin, Deliver, Effect, Finished, Late, Lost, Passed, Relist, Sequencer, Waits
from ingress.stored_lag import StoredLag
from ingress.target_partitions import TargetPartitions
from ingress.undelivered_metrics import UndeliveredMetrics

log = logging.getLogger(__name__)

POLL = timedelta(milliseconds=50)
MEASURE = timedelta(seconds=5)
SETTLE = timedelta(seconds=2)  # for the current round of a partition whose position an operator has changed


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressParts:
    """The parts of the controller; `replicator.services.ingress` builds them."""

    placement: Placement
    event_log: EventLog
    checkpoints: CheckpointStore
    checkpoint_problems: Callable[[], Sequence[str]]  # of the topic's settings
    ownership: GroupOwnership
    target_records: TargetRecords
    notes: ParkedReporter
    store: SegmentStore
    control: ControlStore
    finder: DestinationFinder
    delivery: Delivery
    pool: Executor  # listings and other reads of the archive
    checkpoint_pool: Executor
    clock: Clock
    jitter: Callable[[timedelta], timedelta]
    metrics: Metrics
    health: Health
    stop: Stop
    abandon: Stop
    relist_interval: timedelta
    refresh_interval: timedelta
    shutdown_timeout: timedelta


@dataclass(slots=True)
class IngressController:
    """`run` runs on one thread; `parts.stop.set()` ends it from any thread. Also the placement's group listener."""

    parts: IngressParts
    _checkpoints: CheckpointWatch = field(init=False)
    _watcher: DestinationWatcher = field(init=False)
    _positioning: CheckpointLookup = field(init=False)
    _firsts: ForeignDataCheck = field(init=False)
    _listings: SegmentLister = field(init=False)
    _holdings: Assignment = field(init=False)
    _targets: TargetPartitions = field(init=False)
    _alarms: Alarms = field(init=False)
    _left_behind: UndeliveredMetrics = field(init=False)
    _measuring: PartitionMetrics = field(init=False)
    _measure_at: datetime | None = None

    def __post_init__(self) -> None:
        parts = self.parts
        self._watcher = DestinationWatcher(parts.finder, parts.pool, parts.refresh_interval, parts.notes, parts.health)
        self._checkpoints = CheckpointWatch(
            ownership=parts.ownership,
            checkpoints=parts.checkpoints,
            settings_problems=parts.checkpoint_problems,
            pool=parts.checkpoint_pool,
            interval=parts.refresh_interval,
            health=parts.health,
        )
        self._firsts = ForeignDataCheck(
            records=parts.target_records,
            checkpoints=parts.checkpoints,
            accounts=self._accounts,
            pool=parts.pool,
            delivery=parts.delivery,
            holds=lambda held: held in self._holdings,
        )
        self._holdings = Assignment(parts.notes, parts.clock, parts.metrics, parts.health)
        self._targets = TargetPartitions(self._watcher, self._holdings, parts.delivery)
        self._alarms = Alarms(
            holdings=self._holdings,
            delivery=parts.delivery,
            placement=parts.placement,
            event_log=parts.event_log,
            health=parts.health,
        )
        self._left_behind = UndeliveredMetrics(self._holdings, parts.metrics, parts.health)
        self._measuring = PartitionMetrics(
            holdings=self._holdings,
            watcher=self._watcher,
            checkpoints=self._checkpoints,
            metrics=parts.metrics,
            stored=StoredLag(
                parts.store, parts.metrics, parts.pool, parts.refresh_interval, renewed_after=parts.relist_interval
            ),
        )
        self._listings = SegmentLister(
            store=parts.store,
            control=parts.control,
            pool=parts.pool,
            clock=parts.clock,
            jitter=parts.jitter,
            interval=parts.relist_interval,
            metrics=parts.metrics,
        )
        self._positioning = CheckpointLookup(
            placement=parts.placement,
            checkpoints=parts.checkpoints,
            ownership=parts.ownership,
            pool=parts.checkpoint_pool,
            holdings=self._holdings,
            listings=self._listings,
            notes=parts.notes,
            clock=parts.clock,
        )

    def run(self) -> None:
        """Run until stopped. Then the current round is finished within the shutdown's deadline, and the group left.
        Raises OtherGroup when the checkpoint topic belongs to another group, at start or later."""
        try:
            # note the log's ends before anything is listed, so that events during a listing are read from the log
            self.parts.event_log.start()
            while not self.parts.stop.is_set():
                self._turn()
        finally:
            self.parts.placement.close(self.parts.shutdown_timeout)
            self.parts.abandon.set()

    @property
    def has_begun(self) -> bool:
        """Whether the checkpoint topic belongs to this group. Safe to call from any thread."""
        return self._checkpoints.is_ours

    def wants(self, source: SourcePartition) -> bool:
        """Whether a configured source covers `source`. Safe to call from any thread."""
        found = self.parts.finder.settings.source_of(source.region, source.topic)
        return found is not None and (not source.incarnation or found.on_recreate != "stop")

    def _turn(self) -> None:
        parts = self.parts
        now = parts.clock.now()
        if self._checkpoints.turn(now):
            self._heed_operator(now)
        if self._checkpoints.is_ours:
            self._find(now)
        for event in parts.placement.poll(timedelta()):
            log.error("placement_disturbed", extra={log_fields.REASON: event.reason})
        self._targets.turn(now)
        for report in self._reports():
            self._reported(report, parts.clock.now())
        now = parts.clock.now()
        self._read_log(now)
        self._read_positions(now)
        self._listings.turn()
        for held in self._holdings:
            self._tick(held, now)
        self._refuse_to_begin(now)
        if self._measure_at is None or now >= self._measure_at:
            self._measure_at = now + MEASURE
            self._measuring.turn(now)
            self._alarms.turn(now)
            self._watcher.tell_failures(now)
        parts.health.turn(now)

    # --- which topics ---

    def _find(self, now: datetime) -> None:
        before = self._watcher.found.destinations.keys()
        if not self._watcher.turn(now):
            return
        names = sorted(self._watcher.found.destinations)
        if sorted(before) != names:
            log.info("destinations_found", extra={log_fields.COUNT: len(names), log_fields.DESTINATION: names[:20]})
            if names:
                self.parts.placement.subscribe(names, self)
        self._targets.drop_others()
        self._watcher.tell_refused(now)
        for held in self._holdings:  # a partition that was refused may be assigned, and stopped for another reason
            if held.stop_reason is not None:
                self.parts.health.stopped(str(held.assignment.source), held.stopped)
        self._measuring.count()
        self._targets.confirm_all()  # some were assigned before their route was known, or their topic has changed
        self.parts.health.started(True)

    # --- group membership: called inside placement.poll and placement.close ---

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._targets.add(partitions)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Nothing is produced for these any more when this returns, unless the target took longer than the deadline."""
        leaving = self._targets.take(partitions)
        deadline = Deadline(self.parts.shutdown_timeout)
        epochs = [h.assignment.epoch for h in leaving]
        if not self.parts.delivery.release(epochs, deadline.left):
            log.warning("round_outlived_revoke", extra={log_fields.COUNT: len(leaving)})
            if self.parts.stop.is_set():
                self.parts.abandon.set()

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        leaving = self._targets.take(partitions)
        log.warning("partitions_lost", extra={log_fields.COUNT: len(leaving)})
        self.parts.delivery.release([h.assignment.epoch for h in leaving], timedelta())

    # --- where to begin ---

    def _read_positions(self, now: datetime) -> None:
        for held, positions in self._positioning.answers(now):
            chosen = self._begun(held, positions)
            effects = self._positioning.position(chosen, positions, self._succession(chosen).sources)
            if (sequencer := chosen.sequencer) is not None:
                self._apply(chosen, sequencer, effects)
        self._positioning.ask(now)

    def _park(
        self, held: AssignedPartition, reason: str, offset: int | None, now: datetime, *, blames_target: bool
    ) -> None:
        """Stop the partition, and retry at intervals from the checkpoint at that time: an operator may have set it."""
        self._holdings.stop(held, reason, offset, blames_target=blames_target)
        pause = held.policy.pause(held.refusals, refused=True)
        held.refusals += 1
        held.reposition(now + pause)

    def _accounts(self, held: AssignedPartition, positions: Positions) -> bool:
        """Whether the records in its target partition are of an earlier incarnation, or of another source with the same
        target."""
        target = held.assignment.target
        routes = self._watcher.found.destinations[target.topic].routes
        keys = [CheckpointKey(life, target.topic) for route in routes for life in route.sources(target.partition)]
        return any(is_of_this_topic(held, positions.get(key)) for key in keys)

    def _refuse_to_begin(self, now: datetime) -> None:
        """Handle partitions that may not begin: stop them for an operator, or check the target again later."""
        for beginning, answer in self._firsts.turn():
            held = beginning.held
            if answer is None:
                held.reposition(now)  # at the position that was written meanwhile
                continue
            if isinstance(answer, ReplicatorError):
                log.warning("target_not_seen", extra=held.fields | {log_fields.ERROR: str(answer)})
                held.failures.failed(Attempt.TARGET, str(answer), now)
                self._apply(held, beginning.sequencer, beginning.sequencer.failed(now))
                continue
            reason = foreign_data(held, self.parts.ownership.topic, answer)
            pause = held.policy.pause(held.refusals, refused=True)
            held.refusals += 1
            held.reposition(now + pause)
            self._holdings.stop(held, reason)  # without a position: it has none until it is seeded

    def _heed_operator(self, now: datetime) -> None:
        """Apply what operators wrote into the checkpoint topic: positions for partitions that wait for one, and offsets
        that were given up."""
        self._left_behind.given_up = self._checkpoints.skipped
        for held in self._holdings:
            word = self._checkpoints.positions.get(held.assignment.key)
            is_decided = held.stop_reason is not None and is_operators(word, held.checkpoint)
            if is_decided and not self._positioning.is_asked(held):
                if held.is_idle:
                    held.reposition(now)
                else:  # the operator decided about the records that it is delivering
                    self.parts.delivery.release([held.assignment.epoch], SETTLE)
                    self._switch(held, Switch(source=held.assignment.source, finished={}))
                    continue
            self._left_behind.show(held)

    # --- incarnations of a topic that follow each other ---

    def _succession(self, held: AssignedPartition) -> Succession:
        return self._route(held).succession(held.assignment.target.partition)

    def _route(self, held: AssignedPartition) -> Route:
        return self._watcher.found.route(held.assignment.source, held.assignment.target.topic)

    def _begun(self, held: AssignedPartition, positions: Positions) -> AssignedPartition:
        """The incarnation whose delivery was begun last, of those with the same target."""
        assignment, succession = held.assignment, self._succession(held)
        known = {
            source: word
            for source in succession.sources
            if (word := positions.get(CheckpointKey(source, assignment.target.topic))) is not None
            and not has_only_begun_elsewhere(held, word)
        }
        switch = succession.begun(assignment.source, known, assignment.target_topic_id)
        if switch is None:
            return held
        self.parts.delivery.release([assignment.epoch], timedelta())  # no round has it
        return self._switch(held, switch)

    def _switch(self, held: AssignedPartition, switch: Switch) -> AssignedPartition:
        topic_id = self._watcher.found.destinations[held.assignment.target.topic].facts.topic_id
        return self._holdings.turn_to(switch.source, held, self._route(held), topic_id, switch.finished)

    def _follow(self, held: AssignedPartition, sequencer: Sequencer, now: datetime) -> None:
        """Switch to the next incarnation when this one is delivered."""
        if not self._watcher.found.destinations[held.assignment.target.topic].has_later_lives:
            return
        source, succession = held.assignment.source, self._succession(held)
        life = succession.behind(source)
        if life is None or isinstance(held.listing, PendingListing):
            return
        settled_at = life.settled_at(self._route(held).settings.first_segment_delay)
        match turn(now, exhausted=sequencer.exhausted, listed_at=sequencer.listed_at, settled_at=settled_at):
            case Turn.WAIT:
                pass
            case Turn.LOOK:
                self._listings.begin(held, sequencer, full=True, reason="life")
            case Turn.FOLLOW:
                log.warning("next_life_follows", extra=held.fields | {log_fields.NEXT: life.path})
                self.parts.delivery.release([held.assignment.epoch], timedelta())  # no round has it
                self._switch(held, succession.followed(source, life, sequencer.next_offset or 0))

    # --- what is stored ---

    def _read_log(self, now: datetime) -> None:
        for event in self.parts.event_log.poll(timedelta()):
            if isinstance(event, LogReset):
                log.warning("event_log_reset", extra={log_fields.REASON: event.reason})
                for held in self._holdings:
                    if held.sequencer is not None:  # others are listed once their position is known
                        self._listings.begin(held, held.sequencer, full=False, reason="reset")
                continue
            if isinstance(event, Created):
                self._left_behind.created(event.segment)
                self._watcher.stored(event.segment.source)
            if (changed := self._holdings.of(event.segment.source)) is not None:
                self._see(changed, event, now)

    def _see(self, held: AssignedPartition, event: Created | Removed, now: datetime) -> None:
        match event:
            case Created(info=info):
                held.view.created(info)
            case Removed(segment=segment):
                held.view.removed(segment)
            case _:
                assert_never(event)
        if (sequencer := held.sequencer) is not None:
            self._apply(held, sequencer, sequencer.changed(now))

    def _tick(self, held: AssignedPartition, now: datetime) -> None:
        if (sequencer := held.sequencer) is None:
            return  # the answer of a listing in flight waits, too
        before = held.listing
        self._apply(held, sequencer, self._listings.taken_in(held, sequencer, now))
        if isinstance(before, PendingListing) and held.listing is not before:
            self._left_behind.show(held)
            is_listed = isinstance(held.listing, Listed) and not held.failures.fails(Attempt.LISTING)
            if is_listed and sequencer.exhausted:
                held.refusals = 0  # the cause of the stop, here or under another owner, is gone from the archive
                self._holdings.resume(held)
                self.parts.notes.going(held.assignment.key)
        self._listings.by_timer(held, sequencer, now)
        self._apply(held, sequencer, sequencer.tick(now))
        self._follow(held, sequencer, now)

    # --- what is delivered ---

    def _apply(self, held: AssignedPartition, sequencer: Sequencer, effects: Sequence[Effect]) -> None:
        metrics = self.parts.metrics
        for effect in effects:
            match effect:
                case Deliver(pieces=pieces):
                    self.parts.delivery.begin(held.assignment, pieces)
                case Begin(offset=offset):
                    appends = self._route(held).settings.on_foreign_data == "append"
                    beginning = Beginning(held=held, sequencer=sequencer, offset=offset)
                    self._firsts.begin(beginning, appends=appends)
                case Finished(piece=piece):
                    tell.finished(metrics, held, piece)
                case Relist(full=full, reason=reason):
                    self._listings.begin(held, sequencer, full=full, reason=reason)
                case Late(offsets=offsets):
                    tell.late(metrics, held, offsets)
                case Waits(waiting=waiting):
                    self.parts.notes.waiting(held.assignment.key, waiting)
                case Passed(offsets=offsets):
                    self._holdings.resume(held)
                    tell.passed(metrics, held, offsets)
                case Lost(offsets=offsets, skipped=skipped):
                    tell.lost(metrics, held, offsets, skipped=skipped)
                    if not skipped:
                        self._holdings.stop(
                            held,
                            f"offsets {offsets} are in no segment, and did not appear within "
                            f"{held.policy.lost_timeout}. Find or restore the segment, or accept the loss, with "
                            f"on_lost = 'skip' or `replicator skip {held.assignment.source} {offsets.start} --through "
                            f"{offsets.end} --reason TEXT --yes`",
                        )
                case _:
                    assert_never(effect)

    def _reports(self) -> list[DeliveryEvent]:
        """Reports of the delivery thread. The loop's only wait, so that a delivered slice is followed at once."""
        found: list[DeliveryEvent] = []
        try:
            found.append(self.parts.delivery.reports.get(timeout=POLL.total_seconds()))
            while True:
                found.append(self.parts.delivery.reports.get_nowait())
        except Empty:
            return found

    def _reported(self, report: DeliveryEvent, now: datetime) -> None:
        held = self._holdings.of(report.assignment.source)
        if held is None or held.assignment.epoch != report.assignment.epoch or (sequencer := held.sequencer) is None:
            return  # of an ownership that has ended
        match report:
            case Progressed(next_offset=next_offset, done=done):
                held.refusals, held.checkpointed = 0, next_offset
                held.failures.worked(Attempt.DELIVERY)
                self._holdings.resume(held)
                self.parts.notes.going(held.assignment.key)
                self._apply(held, sequencer, sequencer.delivered(now) if done else sequencer.progressed(next_offset))
            case DeliveryFailed(reason=reason, fate=fate, offset=offset):
                log.warning("delivery_failed", extra=held.fields | {log_fields.REASON: reason})
                before = held.failures.failed(Attempt.DELIVERY, reason, now)
                if fate is FailureKind.UNKNOWN:
                    held.reposition(now + held.policy.pause(before, refused=False))
                    return
                if fate in (FailureKind.REJECTED, FailureKind.DENIED, FailureKind.STALLED):
                    self._park(held, reason, offset, now, blames_target=fate is not FailureKind.REJECTED)
                    return
                self._apply(held, sequencer, sequencer.failed(now))
            case Vanished(segment=segment):
                log.info("segment_vanished", extra=held.fields | {log_fields.SEGMENT: str(segment)})
                self._apply(held, sequencer, sequencer.vanished(segment, now))
            case Corrupt(segment=segment, error=error):
                self.parts.metrics.count("corrupt_segments", 1, **held.labels)
                self._holdings.stop(held, str(error))
                self._apply(held, sequencer, sequencer.corrupt(segment, now))
            case _:
                assert_never(report)
