"""The ingress process: handles the assignment, stored segments and delivery reports, and applies the effects.

Runs on one thread that polls the placement group and the event log. The delivery thread, the intake thread and the
pools answer through queues that are drained once per turn. `Sequencer` decides; this module applies its effects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from queue import Empty
from typing import assert_never

from formats.errors import PluginFailed, ReplicatorError
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
from ingress import partition_log
from ingress.alarms import Alarms
from ingress.archive_listing import ArchiveListing
from ingress.assigned_partition import AssignedPartition, Listed, PendingListing
from ingress.assignment import Assignment
from ingress.catalog.sync import CatalogSync
from ingress.checkpoint_lookup import (
    CheckpointLookup,
    Positions,
    is_of_this_topic,
    is_operators,
)
from ingress.checkpoint_watch import CheckpointWatch
from ingress.delivery.events import Corrupt, DeliveryEvent, DeliveryFailed, Progressed, Vanished
from ingress.delivery.rounds import Delivery
from ingress.foreign_data_check import Beginning, ForeignDataCheck, foreign_data
from ingress.group_ownership import GroupOwnership
from ingress.groups.groups import Groups
from ingress.heartbeats import Heartbeats
from ingress.incarnation_switch import IncarnationSwitch
from ingress.partition_metrics import PartitionMetrics
from ingress.routing.archived import kept_like_sources
from ingress.routing.destinations import DestinationFinder
from ingress.routing.watcher import DestinationWatcher
from ingress.segment_lister import SegmentLister
from ingress.segment_stages import SegmentStages
from ingress.sequencer import Begin, Deliver, Effect, Finished, Late, Lost, Passed, Relist, Sequencer, Waits
from ingress.source_metrics import SourceMetrics
from ingress.stored_lag import StoredLag
from ingress.target_partitions import TargetPartitions
from ingress.undelivered_metrics import UndeliveredMetrics

log = logging.getLogger(__name__)

POLL = timedelta(milliseconds=50)
MEASURE = timedelta(seconds=5)
VISIT_ALL = timedelta(seconds=1)


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
    stages: SegmentStages
    catalog: CatalogSync
    sources: SourceMetrics
    heartbeats: Heartbeats
    groups: Groups
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
    _checkpoint_lookup: CheckpointLookup = field(init=False)
    _foreign_data_check: ForeignDataCheck = field(init=False)
    _lister: SegmentLister = field(init=False)
    _incarnations: IncarnationSwitch = field(init=False)
    _assignment: Assignment = field(init=False)
    _targets: TargetPartitions = field(init=False)
    _alarms: Alarms = field(init=False)
    _undelivered: UndeliveredMetrics = field(init=False)
    _partition_metrics: PartitionMetrics = field(init=False)
    _measure_at: datetime | None = None
    _visit_all_at: datetime | None = None
    _followed: Collection[str] = ()  # destinations with later incarnations

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
        self._foreign_data_check = ForeignDataCheck(
            records=parts.target_records,
            checkpoints=parts.checkpoints,
            explains=self._explains,
            pool=parts.pool,
            delivery=parts.delivery,
            is_assigned=lambda assigned: assigned in self._assignment,
        )
        self._assignment = Assignment(parts.notes, parts.clock, parts.metrics, parts.health)
        self._targets = TargetPartitions(self._watcher, self._assignment, parts.delivery)
        self._alarms = Alarms(
            assignment=self._assignment,
            delivery=parts.delivery,
            placement=parts.placement,
            event_log=parts.event_log,
            health=parts.health,
        )
        self._undelivered = UndeliveredMetrics(self._assignment, parts.metrics, parts.health)
        self._partition_metrics = PartitionMetrics(
            assignment=self._assignment,
            watcher=self._watcher,
            checkpoints=self._checkpoints,
            metrics=parts.metrics,
            stored=StoredLag(
                parts.store, parts.metrics, parts.pool, parts.refresh_interval, renewed_after=parts.relist_interval
            ),
        )
        self._lister = SegmentLister(
            archive=ArchiveListing(parts.store, parts.control, parts.pool),
            clock=parts.clock,
            jitter=parts.jitter,
            interval=parts.relist_interval,
            metrics=parts.metrics,
        )
        self._incarnations = IncarnationSwitch(
            watcher=self._watcher, assignment=self._assignment, lister=self._lister, delivery=parts.delivery
        )
        self._checkpoint_lookup = CheckpointLookup(
            placement=parts.placement,
            checkpoints=parts.checkpoints,
            ownership=parts.ownership,
            pool=parts.checkpoint_pool,
            assignment=self._assignment,
            lister=self._lister,
            notes=parts.notes,
            clock=parts.clock,
            may_still_write=parts.delivery.may_still_write,
        )

    def run(self) -> None:
        """Run until stopped. Then the current round is finished within the shutdown's deadline, and the group left.
        Raises OtherGroup when the checkpoint topic belongs to another group, at start or later."""
        try:
            # record the log's ends before anything is listed, so that events during a listing are read from the log
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
        try:
            found = self.parts.finder.settings.value.source_of(source.region, source.topic)
        except PluginFailed:
            return True  # one event too many does no harm; the refresh of the routing table reports the failure
        return found is not None and (not source.incarnation or found.on_recreate != "stop")

    def _turn(self) -> None:
        parts = self.parts
        now = parts.clock.now()
        if self._checkpoints.poll(now):
            self._apply_operator_decisions(now)
        is_found = self._checkpoints.is_ours and self._find(now)
        for event in parts.placement.poll(timedelta()):
            log.error("placement_disturbed", extra={log_fields.REASON: event.reason})
        self._targets.poll(now)
        for report in self._reports():
            self._on_report(report, parts.clock.now())
        now = parts.clock.now()
        self._read_log(now)
        self._read_positions(now)
        self._lister.begin_turn()
        for assigned in self._visited(now):
            self._tick(assigned, now)
        self._refuse_to_begin(now)
        if is_measured := self._measure_at is None or now >= self._measure_at:
            self._measure_at = now + MEASURE
            self._partition_metrics.poll(now)
            self._alarms.poll(now)
            parts.sources.poll(parts.finder.settings.value.regions, self._assignment, self._watcher.found.known, now)
            self._watcher.report_failures(now)
        if is_found or is_measured:  # a new generation is applied in the turn in which it is found
            self._follow_catalogs(now)
        parts.heartbeats.poll(self._watcher.found, lambda: self._targets.kept_topics, now)
        parts.groups.poll(
            self._watcher.found, lambda: self._targets.kept_topics, lambda: self._checkpoints.positions, now
        )
        self._assignment.settle()
        parts.health.turn(now)

    def _visited(self, now: datetime) -> Iterable[AssignedPartition]:
        """Those with something to do; once in VISIT_ALL those at rest, too, which may wait for a time."""
        if self._visit_all_at is not None and now < self._visit_all_at:
            return self._assignment.busy()
        self._visit_all_at = now + VISIT_ALL
        return self._assignment

    # --- which topics ---

    def _find(self, now: datetime) -> bool:
        """True when the routing table was refreshed."""
        before = self._watcher.found.destinations.keys()
        if not self._watcher.poll(now):
            return False
        names = sorted(self._watcher.found.destinations)
        if sorted(before) != names:
            log.info("destinations_found", extra={log_fields.COUNT: len(names), log_fields.DESTINATION: names[:20]})
            if names:
                self.parts.placement.subscribe(names, self)
        self._followed = {name for name in names if self._watcher.found.destinations[name].has_later_incarnations}
        self._targets.drop_others()
        self._watcher.report_refused(now)
        # a partition that was refused may be assigned, and stopped for another reason
        for assigned in self._assignment:
            if assigned.stop_reason is not None:
                self.parts.health.stopped(str(assigned.delivery_target.source), assigned.stopped)
        self._partition_metrics.count()
        self._targets.confirm_all()  # some were assigned before their route was known, or their topic has changed
        self.parts.health.started(True)
        return True

    def _follow_catalogs(self, now: datetime) -> None:
        """Topics, configs and ACLs of the sources, at the destinations that this process keeps."""
        found = self._watcher.found
        destinations = {
            name: found.destinations[name] for name in self._targets.kept_topics & found.destinations.keys()
        }
        kept = kept_like_sources({name: one.routes for name, one in destinations.items()})
        if self.parts.catalog.poll(kept, found.catalogs, self._checkpoints.positions, now, stale=found.stale):
            self._watcher.find_again()

    # --- group membership: called inside placement.poll and placement.close ---

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._targets.add(partitions)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Nothing is produced for these any more when this returns, unless the target took longer than the deadline."""
        leaving = self._targets.take(partitions)
        deadline = Deadline(self.parts.shutdown_timeout)
        epochs = [h.delivery_target.epoch for h in leaving]
        if not self.parts.delivery.release(epochs, deadline.left):
            log.warning("round_outlived_revoke", extra={log_fields.COUNT: len(leaving)})
            if self.parts.stop.is_set():
                self.parts.abandon.set()

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        leaving = self._targets.take(partitions)
        log.warning("partitions_lost", extra={log_fields.COUNT: len(leaving)})
        self.parts.delivery.release([h.delivery_target.epoch for h in leaving], timedelta())

    # --- where to begin ---

    def _read_positions(self, now: datetime) -> None:
        for assigned, positions in self._checkpoint_lookup.answers(now):
            chosen = self._incarnations.current(assigned, positions)
            effects = self._checkpoint_lookup.position(
                chosen,
                positions,
                self._incarnations.sources(chosen),
                overtaken=self._incarnations.overtaken(chosen, positions),
            )
            if (sequencer := chosen.sequencer) is not None:
                self._apply(chosen, sequencer, effects)
        self._lister.ask_started()
        self._checkpoint_lookup.ask(now)

    def _park(
        self, assigned: AssignedPartition, reason: str, offset: int | None, now: datetime, *, blames_target: bool
    ) -> None:
        """Stop the partition, and retry at intervals from the checkpoint at that time: an operator may have set it."""
        self._assignment.stop(assigned, reason, offset, blames_target=blames_target)
        pause = assigned.policy.pause(assigned.refusals, refused=True)
        assigned.refusals += 1
        assigned.reposition(now + pause)

    def _explains(self, assigned: AssignedPartition, positions: Positions) -> bool:
        """Whether the records in its target partition are of an earlier incarnation, or of another source with the same
        target."""
        target = assigned.delivery_target.target
        routes = self._watcher.found.destinations[target.topic].routes
        keys = [CheckpointKey(source, target.topic) for route in routes for source in route.sources(target.partition)]
        return any(is_of_this_topic(assigned, positions.get(key)) for key in keys)

    def _refuse_to_begin(self, now: datetime) -> None:
        """Handle partitions that may not begin: stop them for an operator, or check the target again later."""
        for beginning, answer in self._foreign_data_check.poll():
            assigned = beginning.assigned
            if answer is None:
                assigned.reposition(now)  # at the position that was written meanwhile
                continue
            if isinstance(answer, ReplicatorError):
                log.warning("target_not_seen", extra=assigned.fields | {log_fields.ERROR: str(answer)})
                assigned.failures.failed(Attempt.TARGET_CHECK, str(answer), now)
                self._apply(assigned, beginning.sequencer, beginning.sequencer.failed(now))
                continue
            reason = foreign_data(assigned, self.parts.ownership.topic, answer)
            pause = assigned.policy.pause(assigned.refusals, refused=True)
            assigned.refusals += 1
            assigned.reposition(now + pause)
            self._assignment.stop(assigned, reason)  # without a position: it has none until it is seeded

    def _apply_operator_decisions(self, now: datetime) -> None:
        """Apply what operators wrote into the checkpoint topic: positions for partitions that wait for one, and offsets
        that were given up."""
        self._undelivered.given_up = self._checkpoints.skipped
        for assigned in self._assignment:
            found = self._checkpoints.positions.get(assigned.delivery_target.key)
            is_decided = assigned.stop_reason is not None and is_operators(found, assigned.checkpoint)
            if is_decided and not self._checkpoint_lookup.is_asked(assigned):
                if assigned.is_idle:
                    assigned.reposition(now)
                else:  # the operator decided about the records that it is delivering
                    self._incarnations.begin_again(assigned)
                    continue
            self._undelivered.show(assigned)

    # --- what is stored ---

    def _read_log(self, now: datetime) -> None:
        """Each partition decides once, about all that is read of it: a decision goes through all its segments."""
        changed: dict[SourcePartition, AssignedPartition] = {}
        for event in self.parts.event_log.poll(timedelta()):
            if isinstance(event, LogReset):
                log.warning("event_log_reset", extra={log_fields.REASON: event.reason})
                for assigned in self._assignment:
                    if assigned.sequencer is not None:
                        self._lister.begin(assigned, assigned.sequencer, full=False, reason="reset")
                    else:  # listed once its position is known
                        assigned.forget_view()
                continue
            if isinstance(event, Created):
                self._undelivered.created(event.segment)
                self._watcher.stored(event.segment.source)
            if (partition := self._assignment.of(event.segment.source)) is not None:
                self._show(partition, event)
                changed[event.segment.source] = partition
        for partition in changed.values():
            if (sequencer := partition.sequencer) is not None:
                self._apply(partition, sequencer, sequencer.changed(now))

    def _show(self, assigned: AssignedPartition, event: Created | Removed) -> None:
        match event:
            case Created(info=info):
                if assigned.view.created(info):
                    self.parts.stages.announced(event)
            case Removed(segment=segment):
                assigned.view.removed(segment)
            case _:
                assert_never(event)

    def _tick(self, assigned: AssignedPartition, now: datetime) -> None:
        if (sequencer := assigned.sequencer) is None:
            return  # the answer of a listing in flight waits, too
        if isinstance(before := assigned.listing, PendingListing):
            self._apply(assigned, sequencer, self._lister.collect(assigned, sequencer, now))
            if assigned.listing is not before:
                self._listed(assigned, sequencer)
        self._lister.by_timer(assigned, sequencer, now)
        if effects := sequencer.tick(now):
            self._apply(assigned, sequencer, effects)
        if assigned.delivery_target.target.topic in self._followed:
            self._incarnations.follow(assigned, sequencer, now)

    def _listed(self, assigned: AssignedPartition, sequencer: Sequencer) -> None:
        self._undelivered.show(assigned)
        is_listed = isinstance(assigned.listing, Listed) and not assigned.failures.is_failing(Attempt.LISTING)
        if is_listed and sequencer.exhausted:
            assigned.refusals = 0  # the cause of the stop, here or under another owner, is gone from the archive
            self._assignment.resume(assigned)
            self.parts.notes.progressed(assigned.delivery_target.key)

    # --- what is delivered ---

    def _apply(self, assigned: AssignedPartition, sequencer: Sequencer, effects: Sequence[Effect]) -> None:
        metrics = self.parts.metrics
        for effect in effects:
            match effect:
                case Deliver(slices=slices):
                    self.parts.delivery.begin(assigned.delivery_target, slices, dropped=assigned.dropped)
                case Begin(offset=offset):
                    appends = self._incarnations.route(assigned).settings.on_foreign_data == "append"
                    beginning = Beginning(assigned=assigned, sequencer=sequencer, offset=offset)
                    self._foreign_data_check.begin(beginning, appends=appends)
                case Finished(segment_slice=segment_slice):
                    partition_log.finished(metrics, assigned, segment_slice)
                    self.parts.stages.finished(segment_slice.segment)
                case Relist(full=full, reason=reason):
                    self._lister.begin(assigned, sequencer, full=full, reason=reason)
                case Late(offsets=offsets):
                    partition_log.late(metrics, assigned, offsets)
                case Waits(waiting=waiting):
                    self.parts.notes.waiting(assigned.delivery_target.key, waiting)
                case Passed(offsets=offsets):
                    self._assignment.resume(assigned)
                    partition_log.passed(metrics, assigned, offsets)
                case Lost(offsets=offsets, skipped=skipped):
                    partition_log.lost(metrics, assigned, offsets, skipped=skipped)
                    if not skipped:
                        self._assignment.stop(
                            assigned,
                            f"offsets {offsets} are in no segment, and did not appear within "
                            f"{assigned.policy.lost_timeout}. Find or restore the segment, or accept the loss, with "
                            f"on_lost = 'skip' or `replicator skip {assigned.delivery_target.source} {offsets.start} "
                            f"--through {offsets.end} --reason TEXT --yes`",
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

    def _on_report(self, report: DeliveryEvent, now: datetime) -> None:
        assigned = self._assignment.of(report.delivery_target.source)
        if (
            assigned is None
            or assigned.delivery_target.epoch != report.delivery_target.epoch
            or (sequencer := assigned.sequencer) is None
        ):
            return  # of an ownership that has ended
        match report:
            case Progressed(next_offset=next_offset, done=done, dropped=dropped):
                assigned.refusals, assigned.checkpointed, assigned.dropped = 0, next_offset, dropped
                assigned.failures.succeeded(Attempt.DELIVERY)
                self._assignment.resume(assigned)
                self.parts.notes.progressed(assigned.delivery_target.key)
                self._apply(
                    assigned, sequencer, sequencer.delivered(now) if done else sequencer.progressed(next_offset)
                )
            case DeliveryFailed(reason=reason, kind=kind, offset=offset):
                log.warning("delivery_failed", extra=assigned.fields | {log_fields.REASON: reason})
                before = assigned.failures.failed(Attempt.DELIVERY, reason, now)
                if kind is FailureKind.UNKNOWN:
                    assigned.reposition(now + assigned.policy.pause(before, refused=False))
                    return
                if kind in (FailureKind.REJECTED, FailureKind.DENIED, FailureKind.STALLED):
                    self._park(assigned, reason, offset, now, blames_target=kind is not FailureKind.REJECTED)
                    return
                self._apply(assigned, sequencer, sequencer.failed(now))
            case Vanished(segment=segment):
                log.info("segment_vanished", extra=assigned.fields | {log_fields.SEGMENT: str(segment)})
                self._apply(assigned, sequencer, sequencer.vanished(segment, now))
            case Corrupt(segment=segment, error=error):
                self.parts.metrics.count("corrupt_segments", 1, **assigned.labels)
                self._assignment.stop(assigned, str(error))
                self._apply(assigned, sequencer, sequencer.corrupt(segment, now))
            case _:
                assert_never(report)
