"""The egress process: one consumer, its partitions, and the loop that moves their records to the archive.

Everything here runs on the poll thread, except for the pools of `SegmentBuilder`, `StartLookup`, `Confirmations` and
`TopicWatcher`, whose answers are collected once per turn of the loop. `EgressPartition` decides; this module applies
the effects.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import assert_never

from egress.alarms import Alarms
from egress.assigned_partition import (
    Abandoned,
    AssignedPartition,
    Contested,
    Draining,
    Locating,
    Reading,
    Remainder,
    Stopped,
    Storing,
)
from egress.assignment import Assignment, report
from egress.lag import LagGauge
from egress.offset_commits import Commits
from egress.partition import (
    Append,
    Commit,
    Decision,
    Discard,
    Reason,
    Seal,
    Seek,
)
from egress.pressure import Pressure
from egress.read_session import ReadSession, seal_policy
from egress.segments.builder import SegmentBuilder
from egress.segments.outcomes import (
    SegmentStored,
    SpoolLost,
    TopicRecreated,
    UploadConflict,
    UploadFailed,
    UploadOutcome,
)
from egress.segments.split_run import split
from egress.start.query import StartAt
from egress.start_lookup import StartLookup
from egress.topics.claims import Blocked, another_cluster, is_last
from egress.topics.incarnation_check import Confirmations
from egress.topics.log_identity import ForkEvidence, from_contradiction, from_truncation
from egress.topics.watcher import Selected, TopicWatcher
from formats.errors import BrokerUnavailable, CorruptSegment, OwnershipLost, SegmentsDiffer, TargetError
from formats.footer import SegmentOrigin
from formats.segment import LEVEL_STREAMING, OffsetRange, Segment
from infra.contracts.cluster import LogTruncated, TopicPartition
from infra.contracts.consumer import ConsumerDisturbed, Fetched, PartitionFailed, Reached, Run, SourceConsumer
from infra.runtime import log_fields
from infra.runtime.failures import Attempt
from infra.runtime.health import Health
from infra.runtime.lifecycle import Clock, Deadline, Stop
from infra.runtime.metrics import Metrics
from infra.runtime.retry import RETRY

log = logging.getLogger(__name__)

POLL = timedelta(milliseconds=100)
QUIET_POLL = timedelta(milliseconds=500)  # while only records, which end the wait, would give it something to do
REWINDS = 3  # in a row of one partition, before the health reports it to an operator
OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
GROUP = "group"  # in health


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressParts:
    """The parts of the controller; `replicator.services.egress` builds them."""

    region: str
    isolation_level: str
    writer: str
    created_by: str = ""  # the operator's name for the installation
    consumer: SourceConsumer
    start_lookup: StartLookup
    watcher: TopicWatcher
    confirmations: Confirmations
    builder: SegmentBuilder
    lag: LagGauge
    clock: Clock
    metrics: Metrics
    health: Health
    stop: Stop
    abandon: Stop  # ends retries against the store, once a shutdown's deadline has passed
    shutdown_timeout: timedelta


@dataclass(slots=True)
class EgressController:
    """`run` runs on the poll thread; `parts.stop.set()` ends it from any thread. Also the consumer's group listener."""

    parts: EgressParts
    _commits: Commits = field(init=False)
    _assignment: Assignment = field(init=False)
    _topics: Mapping[str, Selected] | None = None  # subscribed to
    _pressure: Pressure = field(init=False)
    _alarms: Alarms = field(init=False)

    def __post_init__(self) -> None:
        parts = self.parts
        self._commits = Commits(parts.consumer)
        self._assignment = Assignment(
            parts.region, parts.consumer, self._commits, parts.builder, parts.lag, parts.metrics, parts.health
        )
        self._pressure = Pressure(parts.builder, parts.consumer, self._assignment, parts.metrics)
        self._alarms = Alarms(parts.region, self._assignment, parts.health)

    def run(self) -> None:
        """Run until stopped. Then open segments are sealed, stored and committed within the shutdown's deadline."""
        try:
            while not self.parts.stop.is_set():
                self._turn()
        except BaseException:
            # an interrupted turn may have extended a range without its records: none of that is stored or committed
            self._assignment.forget(self._assignment.partitions)
            raise
        finally:
            try:
                self.parts.consumer.close(self.parts.shutdown_timeout)
            finally:
                self.parts.abandon.set()
                self.parts.builder.close(timedelta(seconds=2))

    def _turn(self) -> None:
        parts = self.parts
        now = parts.clock.now()
        if parts.watcher.poll(now):
            self._alarms.report_refused(parts.watcher.refused)
            if self._topics != parts.watcher.topics:  # else only a path was claimed: no need to join the group again
                self._subscribe()
            self._check_identity(now)
        for event in parts.consumer.poll(QUIET_POLL if self._is_quiet() else POLL):
            self._on(event, parts.clock.now())
        parts.health.stopped(GROUP, parts.consumer.problem)
        now = parts.clock.now()
        parts.confirmations.poll(now)
        for outcome in parts.builder.outcomes():
            self._finished(outcome, now)
        for assigned, answer in parts.start_lookup.poll(self._assignment, parts.watcher.topics, now):
            self._position(assigned, answer, now)
        for assigned in self._assignment.busy():
            self._tick(assigned, now)
        for assigned, session in self._pressure.poll():
            self._apply(assigned, session, session.core.seal_early(), now)
        self._alarms.poll(now, topics=parts.watcher.alarm(now))
        self._commits.poll(self._assignment.get, now)
        parts.lag.poll(now, self._assignment.partitions)
        parts.metrics.gauge("egress_memory_bytes", parts.builder.buffered_bytes)
        parts.metrics.gauge("egress_spool_bytes", parts.builder.spool_bytes)
        parts.metrics.gauge("egress_spool_limit_bytes", parts.builder.spool_limit)
        self._assignment.settle()
        parts.health.turn(now)

    def _is_quiet(self) -> bool:
        """Whether only records would give the next turn something to do."""
        return (
            bool(self._assignment.partitions)
            and self.parts.builder.is_empty
            and not self._commits.are_waiting
            and all(assigned.is_quiet for assigned in self._assignment.busy())
        )

    def _subscribe(self) -> None:
        had_topics, topics = bool(self._topics), self.parts.watcher.topics
        self._topics = topics
        log.info("topics_selected", extra={log_fields.COUNT: len(topics), log_fields.TOPIC: sorted(topics)[:20]})
        if topics or had_topics:
            self.parts.consumer.subscribe(sorted(topics), self)
        self.parts.health.started(True)

    def _check_identity(self, now: datetime) -> None:
        """Check what the consumer does not notice: another cluster, another incarnation of a topic, or an archive that
        continues in another path."""
        watcher = self.parts.watcher
        for assigned in self._assignment:
            if assigned.stopped:
                assigned.ask_again(now)  # what changed may be the cause
            if watcher.other_cluster is not None:
                reason = another_cluster(watcher.other_cluster, watcher.cluster_id)
                self._drain(assigned, Reason.STOPPED, now)
                self._assignment.stop(assigned, reason, now)
                continue
            session, seen = assigned.session, watcher.topics.get(assigned.partition.topic)
            if session is None:
                continue
            topic_id = session.topic.facts.topic_id
            if seen is not None and seen.facts.topic_id != topic_id:
                self._assignment.reopen(assigned, f"topic id {seen.facts.topic_id}, it was {topic_id}")
            elif assigned.reading is not None and not is_last(session.topic, watcher.claimed):
                # the records read are stored first: the next path begins after them
                self._drain(assigned, Reason.MOVED, now)
                assigned.end(now)
                log.info("archive_goes_on_elsewhere", extra=assigned.fields)
            elif seen is not None and (reading := assigned.reading) is not None:
                policy = seal_policy(seen.settings)
                if policy != reading.core.policy:
                    self._apply(assigned, reading, reading.core.limit(policy), now)

    def _drain(self, assigned: AssignedPartition, reason: Reason, now: datetime) -> None:
        """Seal the open segment, if the partition is being read."""
        if (session := assigned.reading) is not None:
            self._apply(assigned, session, session.core.drain(reason), now)

    # --- group membership: called inside consumer.poll and consumer.close ---

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._assignment.add(partitions)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Seal, store and commit within the deadline; the next owner reads again what is not stored by then."""
        reason = Reason.STOPPED if self.parts.stop.is_set() else Reason.MOVED
        deadline = Deadline(self.parts.shutdown_timeout)
        leaving = [assigned for partition in partitions if (assigned := self._assignment.get(partition)) is not None]
        try:
            for assigned in leaving:
                self._drain(assigned, reason, self.parts.clock.now())
            expired = False
            while any(map(self._storing, leaving)) and not expired:
                expired = deadline.expired  # before the outcomes are read: segments stored by then count
                self.parts.confirmations.poll(self.parts.clock.now())
                for outcome in self.parts.builder.outcomes(min(deadline.left.total_seconds(), 0.1)):
                    self._finished(outcome, self.parts.clock.now())
            # stored, then committed: everything below these offsets is in the archive
            self._commits.commit_and_wait(partitions, max(deadline.left, timedelta(seconds=2)))
        finally:
            self._assignment.forget(partitions)

    def _storing(self, assigned: AssignedPartition) -> bool:
        if isinstance(assigned.remainder, Abandoned | Contested):
            assigned.set_uploads(are_under_way=self.parts.builder.uploading(assigned.source))
        return assigned.is_storing

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        log.warning("partitions_lost", extra={log_fields.COUNT: len(partitions)})
        self._assignment.forget(partitions)

    # --- where to begin ---

    def _position(self, assigned: AssignedPartition, answer: StartAt | Blocked, now: datetime) -> None:
        if isinstance(answer, Blocked):
            self._assignment.stop(assigned, answer.reason, now)
            return
        selected = self.parts.watcher.topics.get(assigned.partition.topic)
        if selected is None:
            return  # deleted during the lookup: the revocation follows
        session, start = self._assignment.begin(assigned, answer, selected.settings), answer.start
        if start.lost:
            offsets = sum(lost.count for lost in start.lost)
            self.parts.metrics.count("egress_recorded_gaps", len(start.lost), **assigned.labels)
            self.parts.metrics.count("egress_recorded_gap_offsets", offsets, **assigned.labels)
        log.info(
            "partition_begins",
            extra=assigned.fields | {log_fields.OFFSET: start.next_offset, log_fields.REASON: start.why},
        )
        # the start is decided once: without this commit, an idle partition would get a new one after a restart
        self._commits.add(assigned.partition, session.position(start.next_offset))
        self._apply(assigned, session, session.core.begin(), now)

    # --- records ---

    def _on(self, event: Fetched, now: datetime) -> None:
        match event:
            case Run():
                self._run(event, now)
            case Reached(partition=partition, next_offset=next_offset):
                assigned = self._assignment.get(partition)
                if assigned is not None and (session := assigned.reading) is not None:
                    self._apply(assigned, session, session.core.reached(next_offset, now), now)
                    if assigned.is_fetched and session.core.next_offset == next_offset:
                        session.points.read(event.point, session.core.open_start)
            case PartitionFailed(partition=partition, code=code, reason=reason, offset=offset):
                assigned = self._assignment.get(partition)
                if assigned is not None:
                    # the records read are stored all the same: the source may not have them any more
                    self._drain(assigned, Reason.STOPPED, now)
                    if code == OUT_OF_RANGE:
                        # trimmed, truncated or created again: the lookup finds out which, once the rest is stored
                        assigned.end(now + RETRY)
                        log.warning("partition_out_of_range", extra=assigned.fields | {log_fields.REASON: reason})
                    elif offset is not None:
                        self._assignment.stop(assigned, _leave_out(assigned, offset, reason), now)
                    else:
                        self._assignment.stop(
                            assigned, f"{assigned.partition}: the broker refuses it: {code}, {reason}", now
                        )
            case LogTruncated(partition=partition):
                assigned = self._assignment.get(partition)
                if assigned is not None and (session := assigned.reading) is not None:
                    # evidence that the log is not the archived one; none if only records read since then differ
                    evidence = None
                    if event.point == session.began_at:
                        evidence = from_truncation(event, session.core.committable)
                    self._give_up(assigned, session, evidence, event.reason, now)
            case ConsumerDisturbed(reason=reason):
                log.error("consumer_disturbed", extra={log_fields.REASON: reason})
                for assigned in self._assignment:
                    if (session := assigned.reading) is not None:
                        self._apply(assigned, session, session.core.disturbed(), now)
            case _:
                assert_never(event)

    def _give_up(
        self, assigned: AssignedPartition, session: ReadSession, evidence: ForkEvidence | None, why: str, now: datetime
    ) -> None:
        """The log is not the one that was read: drop what is not being stored yet, and look the start up again.
        Archived segments are never dropped: if they are affected, the lookup stops the partition."""
        log.error("log_not_the_same", extra=assigned.fields | {log_fields.REASON: why})
        self.parts.metrics.count("egress_rewinds", 1, **assigned.labels)
        self.parts.builder.discard(assigned.source)
        assigned.give_up(session, evidence, now)

    def _run(self, run: Run, now: datetime) -> None:
        assigned = self._assignment.get(run.partition)
        while assigned is not None and (session := assigned.reading) is not None:
            core = session.core
            head, rest = split(run, core.room)
            start = core.open_start
            for effect in core.consumed(head.first_offset, head.last_offset, head.count, head.size_bytes, now):
                if isinstance(effect, Append):
                    session.points.read(head.point, start)
                    self.parts.builder.append(assigned.source, start, head)
                else:
                    self._apply(assigned, session, [effect], now)
            if rest is None:
                return
            run = rest

    def _tick(self, assigned: AssignedPartition, now: datetime) -> None:
        match assigned.state:
            case Reading(session=session) as reading:
                if (seek := reading.due_seek(now)) is not None:
                    self._seek(assigned, session, seek, now)
                if effects := session.core.tick(now):
                    self._apply(assigned, session, effects, now)
            case Draining() | Stopped():
                self._storing(assigned)
            case Locating(is_uploading=is_uploading):
                if is_uploading:
                    assigned.set_uploads(are_under_way=self.parts.builder.is_uploading_of(assigned.partition))
            case _:
                assert_never(assigned.state)

    def _apply(
        self, assigned: AssignedPartition, session: ReadSession, effects: Sequence[Decision], now: datetime
    ) -> None:
        for effect in effects:
            match effect:
                case Seal():
                    overlapping = session.overlapping(effect.offsets)
                    self.parts.builder.seal(assigned.source, effect, self._origin(assigned, session, now), overlapping)
                case Commit(next_offset=next_offset):
                    self._commits.add(assigned.partition, session.position(next_offset))
                case Discard(from_offset=from_offset):
                    self.parts.metrics.count("egress_rewinds", 1, **assigned.labels)
                    session.points.drop_after(from_offset)
                    if self.parts.builder.discard(assigned.source, from_offset):
                        # awaited before the records are read again: if the log forks meanwhile, the lookup has to find
                        # what these uploads stored
                        self.parts.builder.discard(assigned.source)
                        assigned.give_up(session, None, now)
                case Seek():
                    assigned.seek(effect)  # made by `_tick`: records that this poll fetched before it are ignored
                case _:
                    assert_never(effect)

    def _seek(self, assigned: AssignedPartition, session: ReadSession, seek: Seek, now: datetime) -> None:
        try:
            self.parts.consumer.start(assigned.partition, seek.next_offset, session.points.before(seek.next_offset))
        except BrokerUnavailable as error:
            self._assignment.postpone(assigned, now, f"seek: {error}")
            return
        except OwnershipLost:
            return  # the revocation follows
        assigned.seek_done()
        session.core.started(seek.epoch)
        if self._pressure.is_paused:
            self.parts.consumer.pause([assigned.partition])

    # --- answers of the pools ---

    def _finished(self, outcome: UploadOutcome, now: datetime) -> None:
        assigned = self._assignment.of(outcome.source)
        if assigned is None:
            return  # revoked since
        match assigned.remainder:
            case None:
                return
            case Abandoned(session=session) | Contested(session=session):
                if isinstance(outcome, SegmentStored):
                    self._stored(assigned, session, outcome, now)
            case Storing(session=session):
                self._on_session_outcome(assigned, session, outcome, now)
            case remainder:
                assert_never(remainder)

    def _stored(self, assigned: AssignedPartition, session: ReadSession, stored: SegmentStored, now: datetime) -> None:
        assigned.failures = 0
        assigned.failing.succeeded(Attempt.COMPARISON)
        self.parts.health.solved(assigned.rereading)
        # the segment agrees after all
        assigned.doubted = assigned.doubted and not session.overlapping(stored.seal.offsets)
        report(self.parts.metrics, assigned, stored)
        self._apply(assigned, session, session.core.stored(stored.seal.offsets), now)

    def _on_session_outcome(
        self, assigned: AssignedPartition, session: ReadSession, outcome: UploadOutcome, now: datetime
    ) -> None:
        """Handle the outcome of a segment of the current session."""
        match outcome:
            case SegmentStored():
                self._stored(assigned, session, outcome, now)
            case SpoolLost(start=start, reason=reason):
                why = (
                    f"the spool lost the segment that begins at {start}: {reason}; check egress.spool_dir and its disk"
                )
                self._read_again(assigned, session, start, why, now)
            case UploadConflict(error=SegmentsDiffer(forked=OffsetRange()) as differ):
                # Read once more: the records may have been read before the log forked, by a process that was suspended
                # since. Only what the log holds now proves that the archive is of another log.
                evidence = from_contradiction(differ, session.core.committable) if assigned.doubted else None
                assigned.doubted = not assigned.doubted
                self._give_up(assigned, session, evidence, str(differ), now)
            case UploadConflict(offsets=offsets, error=error):
                if isinstance(error, TargetError):  # the comparison was refused: read and compare again
                    # reading again ends the stop, so the failure is kept until a comparison succeeds
                    assigned.failing.failed(Attempt.COMPARISON, str(error), now, is_refusal=True)
                    remainder: Remainder = Abandoned(session)
                else:
                    # the conflicting segment overlaps it, or else has its key: stop until that one is gone, or sound
                    overlapping = session.overlapping(offsets) or (Segment(assigned.source, LEVEL_STREAMING, offsets),)
                    remainder = Contested(session, overlapping, isinstance(error, CorruptSegment))
                self.parts.builder.discard(assigned.source)
                self._assignment.stop_with_remainder(assigned, remainder, str(error), now)
            case TopicRecreated(offsets=offsets):
                self._assignment.reopen(assigned, f"another topic, or none, once {offsets} was read")
            case UploadFailed(offsets=offsets, error=error):
                why = f"the segment {offsets} was not stored: {error}"
                self._read_again(assigned, session, offsets.start, why, now)
            case _:
                assert_never(outcome)

    def _read_again(
        self, assigned: AssignedPartition, session: ReadSession, start: int, why: str, now: datetime
    ) -> None:
        effects = session.core.spool_lost(start)
        if effects:  # else it was dropped already
            self._apply(assigned, session, effects, now)
            self._assignment.postpone(assigned, now, why)
            if assigned.failures >= REWINDS:
                self.parts.health.problem(assigned.rereading, f"read again {assigned.failures} times in a row: {why}")

    def _origin(self, assigned: AssignedPartition, session: ReadSession, now: datetime) -> SegmentOrigin:
        selected = self.parts.watcher.topics.get(assigned.partition.topic)
        return SegmentOrigin(
            topic_id=session.topic.facts.topic_id,
            cluster_id=session.topic.cluster_id,
            source_partition_count=selected.facts.partition_count if selected else None,
            isolation_level=self.parts.isolation_level,
            last_leader_epoch=self.parts.builder.leader_epoch(assigned.source),
            created_at=now,
            writer=self.parts.writer,
            role="egress",
            created_by=self.parts.created_by,
        )


def _leave_out(assigned: AssignedPartition, offset: int, reason: str) -> str:
    """Why the record at `offset` cannot be archived, and how to go on without it."""
    return (
        f"{assigned.partition}: {reason}. To archive the others, end every egress process, set the offset of the group "
        f"for this partition to {offset + 1} (kafka-consumer-groups.sh --reset-offsets), and start with "
        "egress.on_archive_behind = 'continue'. When the next segment is stored, `replicator status` names the gap; "
        f"`replicator gaps accept {assigned.source} START-END --reason TEXT --yes` lets its readers pass"
    )
