"""The ingress process: which partitions are ours, what is stored for them, and what is delivered next.

Runs on one thread that polls the placement group and the event log; the delivery thread, the intake thread and the
pools answer through queues that are drained once per turn. The decisions are `Sequencer`'s; this applies its effects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from queue import Empty
from typing import assert_never

from ingress.delivery import Delivery
from ingress.destinations import Destination, DestinationFinder, Found
from ingress.held import Held, late_policy
from ingress.listings import Listings
from ingress.lives import Turn, at_hand, turn
from ingress.reports import Assignment, Corrupt, Failed, Progressed, Report, Vanished
from ingress.sequencer import Deliver, Effect, Finished, Late, Lost, Passed, Relist, Sequencer
from replicator import logkeys
from replicator.checkpoint import Checkpoint, CheckpointKey, Parked
from replicator.control_store import ControlStore
from replicator.coverage import Piece
from replicator.errors import CheckpointConflict, ReplicatorError
from replicator.events import Created, Removed, SegmentEvent
from replicator.health import Health
from replicator.lifecycle import Deadline, Stop
from replicator.metrics import Metrics
from replicator.protocols import (
    CheckpointStore,
    Clock,
    EventLog,
    Fate,
    LogReset,
    ParkedNotes,
    Placement,
    TopicFacts,
    TopicPartition,
)
from replicator.segment import SourcePartition
from replicator.store import SegmentStore
from replicator.view import SegmentView

log = logging.getLogger(__name__)

Positions = Mapping[CheckpointKey, Checkpoint | CheckpointConflict]

POLL = timedelta(milliseconds=50)
RETRY = timedelta(seconds=1)
MEASURE = timedelta(seconds=5)
ROUND_ALARM = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressParts:
    """What the controller is built of; `replicator.app` knows how."""

    placement: Placement
    event_log: EventLog
    checkpoints: CheckpointStore
    notes: ParkedNotes
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
    _listings: Listings = field(init=False)
    _found: Found = field(default_factory=lambda: Found({}, {}))
    _held: dict[SourcePartition, Held] = field(default_factory=dict)
    _finished: dict[SourcePartition, int] = field(default_factory=dict)  # of lives before those held
    _assigned: set[TopicPartition] = field(default_factory=set)
    _epochs: int = 0
    _measure_at: datetime | None = None
    _look: Future[Found] | None = None
    _look_at: datetime | None = None
    _confirming: list[tuple[set[TopicPartition], Future[Mapping[str, TopicFacts]]]] = field(default_factory=list)
    _positions: list[tuple[list[Held], Future[Positions]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        parts = self.parts
        self._listings = Listings(
            store=parts.store,
            control=parts.control,
            pool=parts.pool,
            clock=parts.clock,
            jitter=parts.jitter,
            interval=parts.relist_interval,
            metrics=parts.metrics,
        )

    def run(self) -> None:
        """Until stopped. Then the round under way is finished within the shutdown's deadline, and the group left."""
        try:
            # note the log's ends before anything is listed: what happens during a listing is then in the log
            self.parts.event_log.start()
            while not self.parts.stop.is_set():
                self._turn()
        finally:
            self.parts.placement.close(self.parts.shutdown_timeout)
            self.parts.abandon.set()

    def wants(self, source: SourcePartition) -> bool:
        """Whether a configured source covers it. Safe to call from any thread."""
        found = self.parts.finder.settings.source_of(source.region, source.topic)
        return found is not None and (not source.incarnation or found.on_recreate != "stop")

    def _turn(self) -> None:
        parts = self.parts
        now = parts.clock.now()
        self._find(now)
        for event in parts.placement.poll(timedelta()):
            log.error("placement_disturbed", extra={logkeys.REASON: event.reason})
        self._confirmed(now)
        for report in self._reports():
            self._reported(report, parts.clock.now())
        now = parts.clock.now()
        self._read_log(now)
        self._read_positions(now)
        for held in list(self._held.values()):
            self._tick(held, now)
        if self._measure_at is None or now >= self._measure_at:
            self._measure_at = now + MEASURE
            for held in self._held.values():
                held.measure(self.parts.metrics, now)
            self._watch_target()
        parts.health.turn(now)

    # --- which topics ---

    def _find(self, now: datetime) -> None:
        if self._look is not None and self._look.done():
            look, self._look = self._look, None
            try:
                self._found_anew(look.result())
            except ReplicatorError as error:
                log.warning("archive_not_seen", extra={logkeys.ERROR: str(error)})
        if self._look is None and (self._look_at is None or now >= self._look_at):
            self._look_at = now + self.parts.refresh_interval
            self._look = self.parts.pool.submit(self.parts.finder.look)

    def _found_anew(self, found: Found) -> None:
        before, self._found = self._found, found
        for name in before.refused.keys() - found.refused.keys():
            self.parts.health.resumed(name)
        for name, reason in found.refused.items():
            if before.refused.get(name) != reason:
                log.error("source_refused", extra={logkeys.TOPIC: name, logkeys.REASON: reason})
            self.parts.health.stopped(name, reason)
        if before.destinations.keys() != found.destinations.keys():
            names = sorted(found.destinations)
            log.info("destinations_found", extra={logkeys.COUNT: len(names), logkeys.DESTINATION: names[:20]})
            if names:
                self.parts.placement.subscribe(names, self)
        self._drop_others()
        # nobody holds these, so everybody says it
        for key in before.unplaced.keys() - found.unplaced.keys():
            self.parts.notes.left(key)
        for key, reason in found.unplaced.items():
            self.parts.notes.parked(key, Parked(None, reason, self.parts.clock.now()))
        self._confirm(self._assigned)  # some were assigned before we knew what for, or their topic is another one now
        self.parts.health.ready(True)

    def _drop_others(self) -> None:
        """Ours still, but not to be delivered any more as they were: nothing is produced for them from here on."""
        lost = [
            h
            for h in self._held.values()
            if not self._found.delivers(
                h.assignment.source, h.assignment.target.topic, topic_id=h.assignment.target_topic_id
            )
        ]
        self.parts.delivery.release([h.assignment.epoch for h in lost], timedelta())
        for held in lost:
            self._let_go(held)
        self._count()

    def _confirm(self, partitions: Collection[TopicPartition]) -> None:
        """Ask what their topics are now. A topic that was deleted and created again is taken and given back as if
        nothing had been: what was known of it before the assignment may be of the other one."""
        held = {h.assignment.target for h in self._held.values()}
        asked = {p for p in partitions if p.topic in self._found.destinations and p not in held}
        if asked:
            names = {p.topic for p in asked}
            self._confirming.append((asked, self.parts.pool.submit(self.parts.finder.facts, names)))

    def _confirmed(self, now: datetime) -> None:
        for partitions, future in [(p, f) for p, f in self._confirming if f.done()]:
            self._confirming.remove((partitions, future))
            try:
                facts = future.result()
            except ReplicatorError as error:
                log.warning("destinations_not_seen", extra={logkeys.ERROR: str(error)})
                self._look_at = min(self._look_at or now, now + RETRY)  # which asks again
                continue
            self._found = self._found.with_facts(facts)
            self._drop_others()
            for partition in sorted(partitions & self._assigned):
                if partition.topic in facts:  # else it is just being deleted, and the next look tells
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
            log.warning("round_outlived_revoke", extra={logkeys.COUNT: len(leaving)})
            if self.parts.stop.is_set():
                self.parts.abandon.set()

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        leaving = self._take(partitions)
        log.warning("partitions_lost", extra={logkeys.COUNT: len(leaving)})
        self.parts.delivery.release([h.assignment.epoch for h in leaving], timedelta())

    def _hold(self, partition: TopicPartition) -> None:
        """As of the first life that goes there; which one is at hand is known with the checkpoints."""
        destination = self._found.destinations.get(partition.topic)
        if destination is not None:
            sources = destination.sources(partition.partition)
            if not any(source in self._held for source in sources):
                self._hold_source(sources[0], partition, destination)

    def _hold_source(self, source: SourcePartition, partition: TopicPartition, destination: Destination) -> Held:
        self._epochs += 1
        settings = destination.settings
        assignment = Assignment(
            source,
            partition,
            destination.facts.topic_id,
            self._epochs,
            clamp_timestamps=settings.on_timestamp == "clamp",
        )
        held = self._held[source] = Held(assignment, late_policy(destination.settings))
        self._count()
        return held

    def _take(self, partitions: Collection[TopicPartition]) -> list[Held]:
        gone = set(partitions)
        self._assigned -= gone
        leaving = [h for h in self._held.values() if h.assignment.target in gone]
        for held in leaving:
            self._let_go(held)
        self._count()
        return leaving

    def _let_go(self, held: Held) -> None:
        source = held.assignment.source
        del self._held[source]
        self.parts.notes.left(held.assignment.key)
        for before in held.finished:
            self._finished.pop(before, None)
        self.parts.health.resumed(str(source))
        self.parts.metrics.forget("ingress_lag_records", **held.labels)
        self.parts.metrics.forget("ingress_lag_seconds", **held.labels)

    # --- where to begin ---

    def _read_positions(self, now: datetime) -> None:
        for helds, future in [(h, f) for h, f in self._positions if f.done()]:
            self._positions.remove((helds, future))
            try:
                checkpoints = future.result()
            except ReplicatorError as error:
                log.warning("checkpoints_unknown", extra={logkeys.ERROR: str(error), logkeys.COUNT: len(helds)})
                for held in helds:
                    held.resolving, held.retry_at = False, now + RETRY
                continue
            for held in helds:
                if self._held.get(held.assignment.source) is held:
                    held_ = self._of_life_at_hand(held, checkpoints)
                    self._position(held_, checkpoints.get(held_.assignment.key))
        waiting = [
            h
            for h in self._held.values()
            if h.sequencer is None and not h.resolving and (h.retry_at is None or now >= h.retry_at)
        ]
        if waiting:
            for held in waiting:
                held.resolving = True
            targets = [h.assignment.target for h in waiting]
            self._positions.append((waiting, self.parts.checkpoint_pool.submit(self._checkpoints, targets)))

    def _checkpoints(self, targets: Sequence[TopicPartition]) -> Positions:
        """Asked after the partitions were assigned. First the end of whatever the owner before us had under way: after
        that it has checkpointed, or never will. On a pool."""
        self.parts.placement.settled(targets)
        return self.parts.checkpoints.read()

    def _position(self, held: Held, checkpoint: Checkpoint | CheckpointConflict | None) -> None:
        held.resolving = False
        if self._held.get(held.assignment.source) is not held:
            return
        reason = "" if checkpoint is None else _unusable(held, checkpoint)
        if reason:
            self._stop(held, reason)
            held.retry_at = self.parts.clock.now() + held.policy.pause(0, refused=True)
            return
        assert not isinstance(checkpoint, CheckpointConflict)
        for life in self._lives(held):
            self.parts.notes.begun(CheckpointKey(life, held.assignment.target.topic))
        if not held.refusals:
            self._resume(held)  # else it has to get past what stopped it first
        next_offset = None if checkpoint is None else checkpoint.next_offset
        if next_offset is None or next_offset < held.view.next_offset:
            held.view = SegmentView()  # it was set back, and this one has forgotten what lies there
        held.sequencer = Sequencer(held.policy, held.view, next_offset)
        log.info(
            "partition_begins",
            extra=held.fields | {logkeys.OFFSET: next_offset if next_offset is not None else "first segment"},
        )
        self._listings.begin(held, full=True, reason="start")
        if len(held.view):  # positioned anew: what is known goes on being delivered, whatever the listing does
            self._changed(held, self.parts.clock.now())

    def _park(self, held: Held, reason: str, offset: int | None, now: datetime) -> None:
        """Tried again from time to time, from the checkpoint as it is then: an operator may have set it."""
        self._stop(held, reason, offset)
        pause = held.policy.pause(held.refusals, refused=True)
        held.refusals += 1
        self._reposition(held, now + pause)

    def _reposition(self, held: Held, at: datetime) -> None:
        """What was delivered is not known, or somebody may have decided about it: the checkpoint says."""
        held.sequencer, held.resolving, held.retry_at = None, False, at
        held.listing = None

    # --- lives of a topic that follow each other ---

    def _of_life_at_hand(self, held: Held, checkpoints: Positions) -> Held:
        assignment, sources = held.assignment, self._lives(held)
        keys = {source: CheckpointKey(source, assignment.target.topic) for source in sources}
        known = {source: checkpoints[key] for source, key in keys.items() if key in checkpoints}
        source = at_hand(assignment.source, sources, known, assignment.target_topic_id)
        if source == assignment.source:
            return held
        before = sources[sources.index(assignment.source) : sources.index(source)]
        finished = {s: c.next_offset for s in before if isinstance(c := known.get(s), Checkpoint)}
        return self._change_life(held, source, dict.fromkeys(before, 0) | finished)

    def _lives(self, held: Held) -> Sequence[SourcePartition]:
        """All that goes where this goes, in order."""
        target = held.assignment.target
        return self._found.destinations[target.topic].sources(target.partition)

    def _change_life(self, held: Held, source: SourcePartition, finished: Mapping[SourcePartition, int]) -> Held:
        target = held.assignment.target
        self.parts.delivery.release([held.assignment.epoch], timedelta())  # nothing of it is under way
        self._let_go(held)
        new = self._hold_source(source, target, self._found.destinations[target.topic])
        new.finished = {**held.finished, **finished}
        self._finished |= new.finished
        return new

    def _follow(self, held: Held, now: datetime) -> None:
        """Turn to the next life when this one is delivered."""
        destination = self._found.destinations[held.assignment.target.topic]
        source = held.assignment.source
        life = destination.next_life(source)
        if life is None or held.sequencer is None or held.listing is not None:
            return
        settled_at = life.settled_at(destination.settings.first_segment_delay)
        match turn(now, exhausted=held.sequencer.exhausted, listed_at=held.sequencer.listed_at, settled_at=settled_at):
            case Turn.WAIT:
                pass
            case Turn.LOOK:
                self._listings.begin(held, full=True, reason="life")
            case Turn.FOLLOW:
                log.warning("next_life_follows", extra=held.fields | {logkeys.NEXT: life.place})
                next_source = life.source(source.region, source.partition)
                self._change_life(held, next_source, {source: held.sequencer.next_offset or 0})

    def _of_no_life_at_hand(self, event: SegmentEvent) -> None:
        """Most are of partitions that others hold."""
        offsets = event.segment.offsets
        if isinstance(event, Created) and offsets.end >= self._finished.get(event.segment.source, offsets.next_offset):
            log.error(
                "segment_behind_its_life",
                extra={
                    logkeys.SEGMENT: str(event.segment),
                    logkeys.NEXT: "not delivered, the next life was begun: replication took longer than "
                    "first_segment_delay; deliver it to a topic of its own, or everything again",
                },
            )

    # --- what is stored ---

    def _read_log(self, now: datetime) -> None:
        for event in self.parts.event_log.poll(timedelta()):
            if isinstance(event, LogReset):
                log.warning("event_log_reset", extra={logkeys.REASON: event.reason})
                for held in self._held.values():
                    if held.sequencer is not None:  # else it is listed once its position is known
                        self._listings.begin(held, full=True, reason="reset")
                continue
            held_ = self._held.get(event.segment.source)
            if held_ is None:
                self._of_no_life_at_hand(event)
                continue
            match event:
                case Created(info=info):
                    held_.view.created(info)
                case Removed(segment=segment):
                    held_.view.removed(segment)
            self._changed(held_, now)

    def _changed(self, held: Held, now: datetime) -> None:
        if held.sequencer is not None:
            self._apply(held, held.sequencer.changed(now))

    def _tick(self, held: Held, now: datetime) -> None:
        self._apply(held, self._listings.taken_in(held, now))
        if held.sequencer is None:
            return
        self._listings.by_timer(held, now)
        self._apply(held, held.sequencer.tick(now))
        self._follow(held, now)

    # --- what is delivered ---

    def _apply(self, held: Held, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Deliver(pieces=pieces):
                    self.parts.delivery.begin(held.assignment, pieces)
                case Finished(piece=piece):
                    self._segment_delivered(held, piece)
                case Relist(full=full, reason=reason):
                    self._listings.begin(held, full=full, reason=reason)
                case Late(offsets=offsets):
                    self.parts.metrics.count("late_segments", 1, **held.labels)
                    log.warning(
                        "segment_late", extra=held.fields | {logkeys.START: offsets.start, logkeys.END: offsets.end}
                    )
                case Passed(offsets=offsets):
                    self._resume(held)
                    self.parts.metrics.count("passed_gaps", 1, **held.labels)
                    self.parts.metrics.count("passed_offsets", offsets.end - offsets.start + 1, **held.labels)
                    log.warning(
                        "recorded_gap_passed",
                        extra=held.fields | {logkeys.START: offsets.start, logkeys.END: offsets.end},
                    )
                case Lost(offsets=offsets, skipped=skipped):
                    labels = held.labels
                    self.parts.metrics.count("lost_segments", 1, **labels)
                    self.parts.metrics.count("lost_offsets", offsets.end - offsets.start + 1, **labels)
                    log.error(
                        "segment_lost",
                        extra=held.fields
                        | {logkeys.START: offsets.start, logkeys.END: offsets.end, "skipped": skipped},
                    )
                    if not skipped:
                        self._stop(
                            held,
                            f"offsets {offsets} are in no segment, and did not appear within "
                            f"{held.policy.lost_timeout}. Find or restore the segment, or accept the loss with "
                            "on_lost = 'skip'",
                        )
                case _:
                    assert_never(effect)

    def _reports(self) -> list[Report]:
        """What the delivery thread did; the loop's only wait, so that a delivered piece is followed at once."""
        found: list[Report] = []
        try:
            found.append(self.parts.delivery.reports.get(timeout=POLL.total_seconds()))
            while True:
                found.append(self.parts.delivery.reports.get_nowait())
        except Empty:
            return found

    def _reported(self, report: Report, now: datetime) -> None:
        held = self._held.get(report.assignment.source)
        if held is None or held.assignment.epoch != report.assignment.epoch or held.sequencer is None:
            return  # of an ownership that has ended
        sequencer = held.sequencer
        match report:
            case Progressed(next_offset=next_offset, done=done):
                held.refusals = 0
                self._resume(held)
                self.parts.notes.going(held.assignment.key)
                self._apply(held, sequencer.delivered(now) if done else sequencer.progressed(next_offset))
            case Failed(reason=reason, fate=fate, offset=offset):
                log.warning("delivery_failed", extra=held.fields | {logkeys.REASON: reason})
                if fate is Fate.UNKNOWN:
                    self._reposition(held, now)
                    return
                if fate in (Fate.REFUSED, Fate.STALLED):
                    self._park(held, reason, offset, now)
                    return
                self._apply(held, sequencer.failed(now))
            case Vanished(segment=segment):
                log.info("segment_vanished", extra=held.fields | {logkeys.SEGMENT: str(segment)})
                self._apply(held, sequencer.vanished(segment, now))
            case Corrupt(segment=segment, error=error):
                self.parts.metrics.count("corrupt_segments", 1, **held.labels)
                self._stop(held, str(error))
                self._apply(held, sequencer.corrupt(segment, now))
            case _:
                assert_never(report)

    def _segment_delivered(self, held: Held, piece: Piece) -> None:
        labels = held.labels
        self.parts.metrics.count("ingress_segments", 1, **labels)
        skipped = piece.from_offset - piece.segment.offsets.start
        if skipped:
            self.parts.metrics.count("skipped_records", skipped, **labels)
        log.info(
            "segment_delivered",
            extra=held.fields
            | {
                logkeys.LEVEL: piece.segment.level,
                logkeys.START: piece.from_offset,
                logkeys.END: piece.segment.offsets.end,
                logkeys.DESTINATION: held.assignment.target.topic,
            },
        )

    def _stop(self, held: Held, reason: str, offset: int | None = None) -> None:
        """Waits for an operator, or for the cause to go: it is tried again from time to time. `offset` is that of the
        record at fault, if it is known."""
        if held.stopped != reason:
            log.error("partition_stopped", extra=held.fields | {logkeys.REASON: reason})
        held.stopped = reason
        next_offset = offset if offset is not None else held.sequencer.next_offset if held.sequencer else None
        self.parts.notes.parked(held.assignment.key, Parked(next_offset, reason, self.parts.clock.now()))
        self.parts.health.stopped(str(held.assignment.source), reason)
        self._count()

    def _resume(self, held: Held) -> None:
        if held.stopped:
            held.stopped = ""
            self.parts.notes.going(held.assignment.key)
            self.parts.health.resumed(str(held.assignment.source))
            log.info("partition_resumed", extra=held.fields)
            self._count()

    def _watch_target(self) -> None:
        """A round waits for its slowest partition; if the target keeps it for long, somebody should know."""
        waits = self.parts.delivery.waiting_for_target
        if waits > ROUND_ALARM:
            reason = f"the target has not acknowledged a round of records for {waits.total_seconds():.0f} s: is a "
            self.parts.health.stopped("delivery", reason + "partition without a leader, or below min.insync.replicas?")
        else:
            self.parts.health.resumed("delivery")

    def _count(self) -> None:
        self.parts.metrics.gauge("assigned_partitions", len(self._held))
        self.parts.metrics.gauge("stopped_partitions", sum(1 for h in self._held.values() if h.stopped))


def _unusable(held: Held, checkpoint: Checkpoint | CheckpointConflict) -> str:
    """Why it is no position, or is not about the topic that is there now; empty when it is."""
    if isinstance(checkpoint, CheckpointConflict):
        return str(checkpoint)
    then, now = checkpoint.destination_topic_id, held.assignment.target_topic_id
    if not then or not now or then == now:
        return ""
    return (
        f"the checkpoint is of a topic {held.assignment.target.topic} with id {then}, the one there now has id {now}: "
        f"it was created again, and going on would leave out everything before offset {checkpoint.next_offset}. Say "
        f"where to begin in it: `replicator checkpoints seed {held.assignment.source} --offset N`, 0 for everything "
        "that is archived"
    )
