"""The ingress process: which partitions are ours, what is stored for them, and what is delivered next.

Runs on one thread that polls the placement group and the event log; the delivery thread, the intake thread and the
pools answer through queues that are drained once per turn. The decisions are `Sequencer`'s; this applies its effects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from queue import Empty
from typing import assert_never

from formats.errors import CheckpointConflict, ReplicatorError
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey
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
from ingress.assigned_partition import AssignedPartition, Listed, Listing, StopReason
from ingress.assignment import Assignment
from ingress.checkpoint_lookup import (
    CheckpointLookup,
    Positions,
    Unusable,
    has_only_begun_elsewhere,
    is_of_another_topic,
    usable,
)
from ingress.checkpoint_watch import CheckpointWatch
from ingress.delivery.events import Corrupt, DeliveryEvent, Failed, Progressed, Vanished
from ingress.delivery.rounds import Delivery
from ingress.foreign_data_check import Beginning, ForeignDataCheck, foreign_data
from ingress.group_ownership import GroupOwnership
from ingress.partition_metrics import PartitionMetrics
from ingress.routing.destinations import DestinationFinder, Route
from ingress.routing.succession import Turn, at_hand, turn
from ingress.routing.watcher import DestinationWatcher
from ingress.segment_lister import SegmentLister
from ingress.sequencer import Begin, Deliver, Effect, Finished, Late, Lost, Passed, Relist, Sequencer, Waits
from ingress.stored_lag import StoredLag
from ingress.undelivered_metrics import UndeliveredMetrics

log = logging.getLogger(__name__)

POLL = timedelta(milliseconds=50)
EVENTS = "segment events"  # in health
MEASURE = timedelta(seconds=5)
ROUND_ALARM = timedelta(seconds=60)
SETTLE = timedelta(seconds=2)  # for a round under way of what an operator has decided about


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressParts:
    """What the controller is built of; `replicator.services.ingress` knows how."""

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
    pool: ThreadPoolExecutor  # listings, and looks at the archive
    checkpoint_pool: ThreadPoolExecutor
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
    """`run` is one thread's; `parts.stop.set()` ends it from anywhere. Also the placement's group listener."""

    parts: IngressParts
    _checkpoints: CheckpointWatch = field(init=False)
    _watcher: DestinationWatcher = field(init=False)
    _positioning: CheckpointLookup = field(init=False)
    _firsts: ForeignDataCheck = field(init=False)
    _listings: SegmentLister = field(init=False)
    _holdings: Assignment = field(init=False)
    _left_behind: UndeliveredMetrics = field(init=False)
    _measuring: PartitionMetrics = field(init=False)
    _assigned: set[TopicPartition] = field(default_factory=set)
    _measure_at: datetime | None = None
    _halted: str = ""  # why delivery was, at the last look

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
        self._positioning = CheckpointLookup(parts.placement, parts.checkpoints, parts.ownership, parts.checkpoint_pool)
        self._firsts = ForeignDataCheck(
            records=parts.target_records,
            checkpoints=parts.checkpoints,
            accounts=self._accounts,
            pool=parts.pool,
            delivery=parts.delivery,
            holds=lambda held: held in self._holdings,
        )
        self._holdings = Assignment(parts.notes, parts.clock, parts.metrics, parts.health)
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

    def run(self) -> None:
        """Until stopped. Then the round under way is finished within the shutdown's deadline, and the group left.
        Raises OtherGroup when the checkpoint topic belongs to another group, at start or later."""
        try:
            # note the log's ends before anything is listed: what happens during a listing is then in the log
            self.parts.event_log.start()
            while not self.parts.stop.is_set():
                self._turn()
        finally:
            self.parts.placement.close(self.parts.shutdown_timeout)
            self.parts.abandon.set()

    @property
    def has_begun(self) -> bool:
        """The checkpoint topic belongs to this group. Safe to call from any thread."""
        return self._checkpoints.is_ours

    def wants(self, source: SourcePartition) -> bool:
        """Whether a configured source covers it. Safe to call from any thread."""
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
        self._confirmed(now)
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
            for held in self._holdings:
                self._watch_failures(held, now)
            self._watch_target()
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
        self._drop_others()
        self._watcher.tell_refused(now)
        for held in self._holdings:  # what was refused may be held, and stopped for another reason
            if held.stop is not None:
                self.parts.health.stopped(str(held.assignment.source), held.stop.text)
        self._measuring.count()
        self._confirm(self._assigned)  # some were assigned before we knew what for, or their topic is another one now
        self.parts.health.started(True)

    def _drop_others(self) -> None:
        """Ours still, but not to be delivered any more as they were: nothing is produced for them from here on."""
        found = self._watcher.found
        lost = [
            h
            for h in self._holdings
            if not found.delivers(h.assignment.source, h.assignment.target.topic, topic_id=h.assignment.target_topic_id)
        ]
        self.parts.delivery.release([h.assignment.epoch for h in lost], timedelta())
        self._holdings.forget(lost)

    def _confirm(self, partitions: Collection[TopicPartition]) -> None:
        self._watcher.confirm({p for p in partitions if not self._is_held(p)})

    def _is_held(self, partition: TopicPartition) -> bool:
        """By all that is delivered there."""
        destination = self._watcher.found.destinations.get(partition.topic)
        return destination is not None and all(self._held_of(route, partition) for route in destination.routes)

    def _held_of(self, route: Route, target: TopicPartition) -> AssignedPartition | None:
        found = (self._holdings.of(source) for source in route.sources(target.partition))
        return next((held for held in found if held is not None and held.assignment.target == target), None)

    def _confirmed(self, now: datetime) -> None:
        confirmed = self._watcher.confirmed(now)
        if confirmed:
            self._drop_others()
            for partition in confirmed:
                if partition in self._assigned:
                    self._hold(partition)

    # --- group membership: called inside placement.poll and placement.close ---

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._assigned.update(partitions)
        self._confirm(partitions)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Nothing of these is being produced when this returns, unless the target kept us waiting too long."""
        leaving = self._take(partitions)
        deadline = Deadline(self.parts.shutdown_timeout)
        epochs = [h.assignment.epoch for h in leaving]
        if not self.parts.delivery.release(epochs, deadline.left):
            log.warning("round_outlived_revoke", extra={log_fields.COUNT: len(leaving)})
            if self.parts.stop.is_set():
                self.parts.abandon.set()

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        leaving = self._take(partitions)
        log.warning("partitions_lost", extra={log_fields.COUNT: len(leaving)})
        self.parts.delivery.release([h.assignment.epoch for h in leaving], timedelta())

    def _hold(self, partition: TopicPartition) -> None:
        """Of each source topic that goes there, its first life; which one is delivered now is known with the
        checkpoints."""
        destination = self._watcher.found.destinations.get(partition.topic)
        if destination is None:
            return
        for route in destination.routes:
            if self._held_of(route, partition) is None:
                self._holdings.add(route.sources(partition.partition)[0], partition, route, destination.facts.topic_id)

    def _take(self, partitions: Collection[TopicPartition]) -> list[AssignedPartition]:
        self._assigned -= set(partitions)
        leaving = self._holdings.at(partitions)
        self._holdings.forget(leaving)
        return leaving

    # --- where to begin ---

    def _read_positions(self, now: datetime) -> None:
        for held, checkpoints in self._positioning.answers(self._holdings, now):
            chosen = self._of_life_at_hand(held, checkpoints)
            word = checkpoints.get(chosen.assignment.key)
            self._position(chosen, None if has_only_begun_elsewhere(chosen, word) else word)
        self._positioning.ask(self._holdings, now)

    def _position(self, held: AssignedPartition, word: Checkpoint | CheckpointConflict | None) -> None:
        checkpoint = usable(held, word)
        if isinstance(checkpoint, Unusable):
            self._holdings.stop(held, checkpoint.reason)
            ask_at = self.parts.clock.now() + held.policy.pause(0, refused=True)
            held.refuse(ask_at, is_forgotten=checkpoint.is_forgotten)
            return
        if _is_operators(checkpoint, held.checkpoint) or _has_moved(checkpoint, held.checkpointed):
            held.refusals = 0  # what stopped it was decided, or was delivered in a round whose outcome was not known
        held.checkpoint = checkpoint
        held.checkpointed = None if checkpoint is None else checkpoint.next_offset
        held.begins(None if checkpoint is None else checkpoint.begun_at)
        if checkpoint is not None or not held.refusals:  # else it may still have to be told where to begin
            for life in self._lives(held):
                self.parts.notes.begun(CheckpointKey(life, held.assignment.target.topic))
        if not held.refusals:
            self._holdings.resume(held)  # else it has to get past what stopped it first
        next_offset = None if checkpoint is None else checkpoint.next_offset
        is_known = held.is_listed and next_offset is not None and next_offset >= held.view.next_offset
        if not is_known:
            held.forget_view()
        sequencer = Sequencer(
            held.policy,
            held.view,
            next_offset,
            is_begun=checkpoint is not None,
            waited=self.parts.checkpoints.waiting().get(held.assignment.key),
        )
        held.deliver(sequencer)
        log.info(
            "partition_begins",
            extra=held.fields | {log_fields.OFFSET: next_offset if next_offset is not None else "first segment"},
        )
        if is_known:  # positioned anew: what is known goes on being delivered, and news come as they did before
            self._apply(held, sequencer, sequencer.changed(self.parts.clock.now()))
        else:
            self._listings.begin(held, sequencer, full=False, reason="start")

    def _park(
        self, held: AssignedPartition, reason: str, offset: int | None, now: datetime, *, blames_target: bool
    ) -> None:
        """Tried again from time to time, from the checkpoint as it is then: an operator may have set it."""
        self._holdings.stop(held, reason, offset, blames_target=blames_target)
        pause = held.policy.pause(held.refusals, refused=True)
        held.refusals += 1
        held.reposition(now + pause)

    def _accounts(self, held: AssignedPartition, positions: Positions) -> bool:
        """Whether records in its target partition are of an incarnation before it, or of another that goes there."""
        target = held.assignment.target
        routes = self._watcher.found.destinations[target.topic].routes
        keys = [CheckpointKey(life, target.topic) for route in routes for life in route.sources(target.partition)]
        return any(
            isinstance(word := positions.get(key), Checkpoint) and not is_of_another_topic(held, word) for key in keys
        )

    def _refuse_to_begin(self, now: datetime) -> None:
        """Where nothing may be delivered yet: an operator has to say what the target holds, or it is asked again."""
        for beginning, answer in self._firsts.turn():
            held = beginning.held
            if answer is None:
                held.reposition(now)  # by what somebody wrote down meanwhile
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
            self._holdings.stop(held, reason)  # without a position: it has none until somebody gives it one

    def _heed_operator(self, now: datetime) -> None:
        """What was written into the checkpoint topic beside us: positions for partitions that wait for one, and offsets
        that were given up."""
        self._left_behind.given_up = self._checkpoints.skipped
        for held in self._holdings:
            word = self._checkpoints.positions.get(held.assignment.key)
            waits = held.stop is not None and not self._positioning.is_asked(held)
            if waits and isinstance(word, Checkpoint) and _is_operators(word, held.checkpoint):
                if held.is_idle:
                    held.reposition(now)
                else:  # what it waits to deliver is what the operator decided about
                    self.parts.delivery.release([held.assignment.epoch], SETTLE)
                    self._hold_anew(held, held.assignment.source, {})
                    continue
            self._left_behind.show(held)

    # --- lives of a topic that follow each other ---

    def _of_life_at_hand(self, held: AssignedPartition, checkpoints: Positions) -> AssignedPartition:
        assignment, sources = held.assignment, self._lives(held)
        keys = {source: CheckpointKey(source, assignment.target.topic) for source in sources}
        known = {
            source: checkpoints[key]
            for source, key in keys.items()
            if key in checkpoints and not has_only_begun_elsewhere(held, checkpoints[key])
        }
        source = at_hand(assignment.source, sources, known, assignment.target_topic_id)
        if source == assignment.source:
            return held
        before = sources[sources.index(assignment.source) : sources.index(source)]
        finished = {s: c.next_offset for s in before if isinstance(c := known.get(s), Checkpoint)}
        return self._change_life(held, source, dict.fromkeys(before, 0) | finished)

    def _lives(self, held: AssignedPartition) -> Sequence[SourcePartition]:
        """All lives of its topic that go where it goes, in order."""
        return self._route(held).sources(held.assignment.target.partition)

    def _route(self, held: AssignedPartition) -> Route:
        """What is held and has none any more is dropped as soon as a look says so."""
        route = self._watcher.found.destinations[held.assignment.target.topic].route_of(held.assignment.source)
        assert route is not None
        return route

    def _change_life(
        self, held: AssignedPartition, source: SourcePartition, finished: Mapping[SourcePartition, int]
    ) -> AssignedPartition:
        self.parts.delivery.release([held.assignment.epoch], timedelta())  # nothing of it is under way
        return self._hold_anew(held, source, finished)

    def _hold_anew(
        self, held: AssignedPartition, source: SourcePartition, finished: Mapping[SourcePartition, int]
    ) -> AssignedPartition:
        topic_id = self._watcher.found.destinations[held.assignment.target.topic].facts.topic_id
        return self._holdings.turn_to(source, held, self._route(held), topic_id, finished)

    def _follow(self, held: AssignedPartition, sequencer: Sequencer, now: datetime) -> None:
        """Turn to the next life when this one is delivered."""
        if not self._watcher.found.destinations[held.assignment.target.topic].has_later_lives:
            return
        route, source = self._route(held), held.assignment.source
        life = route.next_life(source)
        if life is None or isinstance(held.listing, Listing):
            return
        settled_at = life.settled_at(route.settings.first_segment_delay)
        match turn(now, exhausted=sequencer.exhausted, listed_at=sequencer.listed_at, settled_at=settled_at):
            case Turn.WAIT:
                pass
            case Turn.LOOK:
                self._listings.begin(held, sequencer, full=True, reason="life")
            case Turn.FOLLOW:
                log.warning("next_life_follows", extra=held.fields | {log_fields.NEXT: life.place})
                next_source = life.source(source.region, source.partition)
                self._change_life(held, next_source, {source: sequencer.next_offset or 0})

    # --- what is stored ---

    def _read_log(self, now: datetime) -> None:
        for event in self.parts.event_log.poll(timedelta()):
            if isinstance(event, LogReset):
                log.warning("event_log_reset", extra={log_fields.REASON: event.reason})
                for held in self._holdings:
                    if held.sequencer is not None:  # else it is listed once its position is known
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
            return  # a listing under way waits, too
        before = held.listing
        self._apply(held, sequencer, self._listings.taken_in(held, sequencer, now))
        if isinstance(before, Listing) and held.listing is not before:
            self._left_behind.show(held)
            is_listed = isinstance(held.listing, Listed) and not held.failures.fails(Attempt.LISTING)
            if is_listed and sequencer.exhausted:
                held.refusals = 0  # what stopped it, here or under another owner, is not stored any more
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
        """What the delivery thread did; the loop's only wait, so that a delivered piece is followed at once."""
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
            case Failed(reason=reason, fate=fate, offset=offset):
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

    # --- what fails ---

    def _watch_failures(self, held: AssignedPartition, now: datetime) -> None:
        """A failure in a row that lasts stops the partition for operators; it is tried as before. A wait for a segment
        that lasts is a problem."""
        self.parts.health.problem(held.lateness, held.late_since(now))
        alarm = held.failures.alarm(now)
        if alarm and (sequencer := held.sequencer) is not None and sequencer.exhausted:
            held.failures.worked(Attempt.DELIVERY)  # what could not be delivered is not there any more
            alarm = held.failures.alarm(now)
        match held.stop:
            case None if alarm:
                self._holdings.stop(held, alarm, blames_target=True, by_failures=True)
            case StopReason(by_failures=True) if not alarm:
                self._holdings.resume(held)
            case _:
                pass

    def _watch_target(self) -> None:
        """What concerns all that this process delivers."""
        halted, waits = self.parts.delivery.halted, self.parts.delivery.waiting_for_target
        if halted:
            self.parts.health.stopped("delivery", halted)
        elif waits > ROUND_ALARM:  # a round waits for its slowest partition
            reason = f"the target has not acknowledged a round of records for {waits.total_seconds():.0f} s: is a "
            self.parts.health.stopped("delivery", reason + "partition without a leader, or below min.insync.replicas?")
        else:
            self.parts.health.resumed("delivery")
        self.parts.health.stopped("group", self.parts.placement.trouble)
        if trouble := self.parts.event_log.trouble:
            self.parts.health.problem(EVENTS, f"new segments are found by listings only: {trouble}")
        else:
            self.parts.health.solved(EVENTS)
        affected = self._holdings if halted or self._halted else ()
        for held in affected:  # the note of each partition that waits shows it in `status`
            sequencer = held.sequencer
            if halted and held.stop is None and sequencer is not None and sequencer.delivering:
                self._holdings.stop(held, halted, blames_target=True)
            elif self._halted and held.stopped == self._halted and halted != self._halted:
                self._holdings.resume(held)
        self._halted = halted


def _has_moved(word: Checkpoint | None, known: int | None) -> bool:
    """Whether records were delivered of which no answer said so. `known`: the next offset as it was known before."""
    if word is None:
        return False
    before = word.begun_at if known is None else known
    return before is not None and word.next_offset > before


def _is_operators(word: Checkpoint | None, known: Checkpoint | None) -> bool:
    """Whether `word` is an operator's, and news."""
    return word is not None and word.author is Author.SEED and word != known
