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

from ingress import telling as tell
from ingress.delivery import Delivery
from ingress.destinations import DestinationFinder
from ingress.held import Held
from ingress.holdings import Holdings
from ingress.listings import Listings
from ingress.lives import Turn, at_hand, turn
from ingress.positioning import Positioning, Positions, unusable
from ingress.reports import Corrupt, Failed, Progressed, Report, Vanished
from ingress.sequencer import Deliver, Effect, Finished, Late, Lost, Passed, Relist, Sequencer
from ingress.watcher import DestinationWatcher
from replicator import logkeys
from replicator.checkpoint import Checkpoint, CheckpointKey
from replicator.control_store import ControlStore
from replicator.errors import CheckpointConflict
from replicator.events import Created, Removed
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
    TopicPartition,
)
from replicator.segment import SourcePartition
from replicator.store import SegmentStore
from replicator.view import SegmentView

log = logging.getLogger(__name__)

POLL = timedelta(milliseconds=50)
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
    _watcher: DestinationWatcher = field(init=False)
    _positioning: Positioning = field(init=False)
    _listings: Listings = field(init=False)
    _holdings: Holdings = field(init=False)
    _assigned: set[TopicPartition] = field(default_factory=set)
    _measure_at: datetime | None = None

    def __post_init__(self) -> None:
        parts = self.parts
        self._watcher = DestinationWatcher(parts.finder, parts.pool, parts.refresh_interval, parts.notes, parts.health)
        self._positioning = Positioning(parts.placement, parts.checkpoints, parts.checkpoint_pool)
        self._holdings = Holdings(parts.notes, parts.clock, parts.metrics, parts.health)
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
        for held in self._holdings:
            self._tick(held, now)
        if self._measure_at is None or now >= self._measure_at:
            self._measure_at = now + MEASURE
            for held in self._holdings:
                held.measure(self.parts.metrics, now)
            self._watch_target()
        parts.health.turn(now)

    # --- which topics ---

    def _find(self, now: datetime) -> None:
        before = self._watcher.found.destinations.keys()
        if not self._watcher.turn(now):
            return
        names = sorted(self._watcher.found.destinations)
        if sorted(before) != names:
            log.info("destinations_found", extra={logkeys.COUNT: len(names), logkeys.DESTINATION: names[:20]})
            if names:
                self.parts.placement.subscribe(names, self)
        self._drop_others()
        self._watcher.tell_refused(now)
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
        self._watcher.confirm(set(partitions) - self._holdings.targets)

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
            log.warning("round_outlived_revoke", extra={logkeys.COUNT: len(leaving)})
            if self.parts.stop.is_set():
                self.parts.abandon.set()

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        leaving = self._take(partitions)
        log.warning("partitions_lost", extra={logkeys.COUNT: len(leaving)})
        self.parts.delivery.release([h.assignment.epoch for h in leaving], timedelta())

    def _hold(self, partition: TopicPartition) -> None:
        """As of the first life that goes there; which one is at hand is known with the checkpoints."""
        destination = self._watcher.found.destinations.get(partition.topic)
        if destination is not None:
            sources = destination.sources(partition.partition)
            if not any(self._holdings.of(source) for source in sources):
                self._holdings.add(sources[0], partition, destination)

    def _take(self, partitions: Collection[TopicPartition]) -> list[Held]:
        self._assigned -= set(partitions)
        leaving = self._holdings.at(partitions)
        self._holdings.forget(leaving)
        return leaving

    # --- where to begin ---

    def _read_positions(self, now: datetime) -> None:
        for held, checkpoints in self._positioning.answers(now):
            if held in self._holdings:  # else it moved away since
                chosen = self._of_life_at_hand(held, checkpoints)
                self._position(chosen, checkpoints.get(chosen.assignment.key))
        self._positioning.ask(self._holdings, now)

    def _position(self, held: Held, checkpoint: Checkpoint | CheckpointConflict | None) -> None:
        reason = "" if checkpoint is None else unusable(held, checkpoint)
        if reason:
            self._holdings.stop(held, reason)
            held.retry_at = self.parts.clock.now() + held.policy.pause(0, refused=True)
            return
        assert not isinstance(checkpoint, CheckpointConflict)
        for life in self._lives(held):
            self.parts.notes.begun(CheckpointKey(life, held.assignment.target.topic))
        if not held.refusals:
            self._holdings.resume(held)  # else it has to get past what stopped it first
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
        self._holdings.stop(held, reason, offset)
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
        return self._watcher.found.destinations[target.topic].sources(target.partition)

    def _change_life(self, held: Held, source: SourcePartition, finished: Mapping[SourcePartition, int]) -> Held:
        self.parts.delivery.release([held.assignment.epoch], timedelta())  # nothing of it is under way
        destination = self._watcher.found.destinations[held.assignment.target.topic]
        return self._holdings.turn_to(source, held, destination, finished)

    def _follow(self, held: Held, now: datetime) -> None:
        """Turn to the next life when this one is delivered."""
        destination = self._watcher.found.destinations[held.assignment.target.topic]
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

    # --- what is stored ---

    def _read_log(self, now: datetime) -> None:
        for event in self.parts.event_log.poll(timedelta()):
            if isinstance(event, LogReset):
                log.warning("event_log_reset", extra={logkeys.REASON: event.reason})
                for held in self._holdings:
                    if held.sequencer is not None:  # else it is listed once its position is known
                        self._listings.begin(held, full=True, reason="reset")
                continue
            held_ = self._holdings.of(event.segment.source)
            if held_ is None:
                if isinstance(event, Created) and self._holdings.left_behind(event.segment):
                    tell.behind_its_life(event.segment)
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
        metrics = self.parts.metrics
        for effect in effects:
            match effect:
                case Deliver(pieces=pieces):
                    self.parts.delivery.begin(held.assignment, pieces)
                case Finished(piece=piece):
                    tell.finished(metrics, held, piece)
                case Relist(full=full, reason=reason):
                    self._listings.begin(held, full=full, reason=reason)
                case Late(offsets=offsets):
                    tell.late(metrics, held, offsets)
                case Passed(offsets=offsets):
                    self._holdings.resume(held)
                    tell.passed(metrics, held, offsets)
                case Lost(offsets=offsets, skipped=skipped):
                    tell.lost(metrics, held, offsets, skipped=skipped)
                    if not skipped:
                        self._holdings.stop(
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
        held = self._holdings.of(report.assignment.source)
        if held is None or held.assignment.epoch != report.assignment.epoch or held.sequencer is None:
            return  # of an ownership that has ended
        sequencer = held.sequencer
        match report:
            case Progressed(next_offset=next_offset, done=done):
                held.refusals = 0
                self._holdings.resume(held)
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
                self._holdings.stop(held, str(error))
                self._apply(held, sequencer.corrupt(segment, now))
            case _:
                assert_never(report)

    def _watch_target(self) -> None:
        """A round waits for its slowest partition; if the target keeps it for long, somebody should know."""
        waits = self.parts.delivery.waiting_for_target
        if waits > ROUND_ALARM:
            reason = f"the target has not acknowledged a round of records for {waits.total_seconds():.0f} s: is a "
            self.parts.health.stopped("delivery", reason + "partition without a leader, or below min.insync.replicas?")
        else:
            self.parts.health.resumed("delivery")
