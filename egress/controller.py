"""The egress process: one consumer, its partitions, and the loop that moves records from the one to the archive.

Everything here runs on the poll thread, but for the pools behind `SegmentBuilder`, `StartLookup`, `Confirmations` and
`TopicWatcher`, whose answers are taken in once per turn. The decisions are `EgressPartition`'s; this applies their
effects.
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
from egress.read_session import ReadSession
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
from egress.start.resolver import StartAt
from egress.start_lookup import StartLookup
from egress.topics.claims import Blocked, another_cluster, is_last
from egress.topics.incarnation_check import Confirmations
from egress.topics.log_identity import ForkEvidence, from_contradiction, from_truncation
from egress.topics.watcher import Selected, TopicWatcher
from formats.errors import BrokerUnavailable, OwnershipLost, SegmentsDiffer, TargetError
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
REWINDS = 3  # in a row, of one partition: then an operator has to look at it
OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
GROUP = "group"  # in health


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressParts:
    """What the controller is built of; `replicator.services.egress` knows how."""

    region: str
    isolation_level: str
    writer: str
    consumer: SourceConsumer
    positioning: StartLookup
    watcher: TopicWatcher
    confirmations: Confirmations
    assembly: SegmentBuilder
    lag: LagGauge
    clock: Clock
    metrics: Metrics
    health: Health
    stop: Stop
    abandon: Stop  # ends retries against the store, once a shutdown's deadline has passed
    shutdown_timeout: timedelta


@dataclass(slots=True)
class EgressController:
    """`run` is the poll thread's; `parts.stop.set()` ends it from anywhere. Also the consumer's group listener."""

    parts: EgressParts
    _commits: Commits = field(init=False)
    _holdings: Assignment = field(init=False)
    _topics: Mapping[str, Selected] | None = None  # subscribed to
    _pressure: Pressure = field(init=False)
    _alarms: Alarms = field(init=False)

    def __post_init__(self) -> None:
        parts = self.parts
        self._commits = Commits(parts.consumer)
        self._holdings = Assignment(
            parts.region, parts.consumer, self._commits, parts.assembly, parts.lag, parts.metrics, parts.health
        )
        self._pressure = Pressure(parts.assembly, parts.consumer, self._holdings, parts.metrics)
        self._alarms = Alarms(parts.region, self._holdings, parts.health)

    def run(self) -> None:
        """Until stopped. Then: what is open is sealed, stored and committed within the shutdown's deadline."""
        try:
            while not self.parts.stop.is_set():
                self._turn()
        except BaseException:
            # a turn that broke off may have grown a range without its records: nothing of that is stored or committed
            self._holdings.forget(self._holdings.partitions)
            raise
        finally:
            try:
                self.parts.consumer.close(self.parts.shutdown_timeout)
            finally:
                self.parts.abandon.set()
                self.parts.assembly.close(timedelta(seconds=2))

    def _turn(self) -> None:
        parts = self.parts
        now = parts.clock.now()
        if parts.watcher.turn(now):
            self._alarms.tell_refused(parts.watcher.refused)
            if self._topics != parts.watcher.topics:  # else a place was claimed: no reason to join the group again
                self._subscribe()
            self._look(now)
        for event in parts.consumer.poll(POLL):
            self._on(event, parts.clock.now())
        parts.health.stopped(GROUP, parts.consumer.trouble)
        now = parts.clock.now()
        parts.confirmations.turn(now)
        for outcome in parts.assembly.outcomes():
            self._finished(outcome, now)
        for held, answer in parts.positioning.turn(self._holdings, parts.watcher.topics, now):
            self._position(held, answer, now)
        for held in self._holdings:
            self._tick(held, now)
        for held, session in self._pressure.turn():
            self._apply(held, session, session.core.relieve(), now)
        self._alarms.turn(now, topics=parts.watcher.alarm(now))
        parts.lag.committed(self._commits.turn(self._holdings.partitions, now))
        parts.lag.turn(now, {h.partition: h.source for h in self._holdings})
        parts.metrics.gauge("egress_memory_bytes", parts.assembly.held_bytes)
        parts.metrics.gauge("egress_spool_bytes", parts.assembly.spool_bytes)
        parts.metrics.gauge("egress_spool_limit_bytes", parts.assembly.spool_limit)
        parts.health.turn(now)

    def _subscribe(self) -> None:
        topics = self._topics = self.parts.watcher.topics
        log.info("topics_selected", extra={log_fields.COUNT: len(topics), log_fields.TOPIC: sorted(topics)[:20]})
        if topics:
            self.parts.consumer.subscribe(sorted(topics), self)
        self.parts.health.started(True)

    def _look(self, now: datetime) -> None:
        """The cluster may be another, a topic another life of its name, and the archive may go on in another place,
        without the consumer noticing."""
        watcher = self.parts.watcher
        for held in self._holdings:
            if held.stopped:
                held.ask_again(now)  # what changed may be the cause
            if watcher.other_cluster is not None:
                reason = another_cluster(watcher.other_cluster, watcher.cluster_id)
                self._drain(held, Reason.STOPPED, now)
                self._holdings.stop(held, reason, now)
                continue
            session, seen = held.session, watcher.topics.get(held.partition.topic)
            if session is None:
                continue
            topic_id = session.life.facts.topic_id
            if seen is not None and seen.facts.topic_id != topic_id:
                self._holdings.reopen(held, f"topic id {seen.facts.topic_id}, it was {topic_id}")
            elif held.reading is not None and not is_last(session.life, watcher.claimed):
                # what was read is stored first: the next place begins behind it
                self._drain(held, Reason.MOVED, now)
                held.end(now)
                log.info("archive_goes_on_elsewhere", extra=held.fields)

    def _drain(self, held: AssignedPartition, reason: Reason, now: datetime) -> None:
        """Seal what is open, if it is being read."""
        if (session := held.reading) is not None:
            self._apply(held, session, session.core.drain(reason), now)

    # --- group membership: called inside consumer.poll and consumer.close ---

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._holdings.add(partitions)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Seal, store and commit within the deadline; what is not stored by then is read again by the next owner."""
        reason = Reason.STOPPED if self.parts.stop.is_set() else Reason.MOVED
        deadline = Deadline(self.parts.shutdown_timeout)
        leaving = [h for h in self._holdings if h.partition in partitions]
        try:
            for held in leaving:
                self._drain(held, reason, self.parts.clock.now())
            expired = False
            while any(map(self._storing, leaving)) and not expired:
                expired = deadline.expired  # what is stored by then counts, however late we look
                self.parts.confirmations.turn(self.parts.clock.now())
                for outcome in self.parts.assembly.outcomes(min(deadline.left.total_seconds(), 0.1)):
                    self._finished(outcome, self.parts.clock.now())
            # stored, then committed: everything below these offsets is in the archive
            self._commits.settle(partitions, max(deadline.left, timedelta(seconds=2)))
        finally:
            self._holdings.forget(partitions)

    def _storing(self, held: AssignedPartition) -> bool:
        if isinstance(held.remainder, Abandoned):
            held.uploads(are_under_way=self.parts.assembly.uploading(held.source))
        return held.is_storing

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        log.warning("partitions_lost", extra={log_fields.COUNT: len(partitions)})
        self._holdings.forget(partitions)

    # --- where to begin ---

    def _position(self, held: AssignedPartition, answer: StartAt | Blocked, now: datetime) -> None:
        if isinstance(answer, Blocked):
            self._holdings.stop(held, answer.reason, now)
            return
        selected = self.parts.watcher.topics.get(held.partition.topic)
        if selected is None:
            return  # vanished while we asked: the revocation follows
        session, start = self._holdings.begin(held, answer, selected.settings), answer.start
        if start.lost:
            offsets = sum(o.next_offset - o.start for o in start.lost)
            self.parts.metrics.count("egress_recorded_gaps", len(start.lost), **held.labels)
            self.parts.metrics.count("egress_recorded_gap_offsets", offsets, **held.labels)
        log.info(
            "partition_begins",
            extra=held.fields | {log_fields.OFFSET: start.next_offset, log_fields.REASON: start.why},
        )
        # where it began is decided once: without this an idle partition would be positioned anew after a restart
        self._commits.add(held.partition, session.position(start.next_offset))
        self._apply(held, session, session.core.begin(), now)

    # --- records ---

    def _on(self, event: Fetched, now: datetime) -> None:
        match event:
            case Run():
                self._run(event, now)
            case Reached(partition=partition, next_offset=next_offset):
                held = self._holdings.get(partition)
                if held is not None and (session := held.reading) is not None:
                    self._apply(held, session, session.core.reached(next_offset, now), now)
                    if held.is_fetched and session.core.next_offset == next_offset:
                        session.points.read(event.point, session.core.open_start)
            case PartitionFailed(partition=partition, code=code, reason=reason):
                held = self._holdings.get(partition)
                if held is not None:
                    # what was read is stored all the same: the source may not have it any more
                    self._drain(held, Reason.STOPPED, now)
                    if code == OUT_OF_RANGE:
                        # trimmed, truncated or created again: where to begin says which, once what was read is stored
                        held.end(now + RETRY)
                        log.warning("partition_out_of_range", extra=held.fields | {log_fields.REASON: reason})
                    else:
                        self._holdings.stop(held, f"{held.partition}: the broker refuses it: {code}, {reason}", now)
            case LogTruncated(partition=partition):
                held = self._holdings.get(partition)
                if held is not None and (session := held.reading) is not None:
                    evidence = None  # that it is another log than the archived one, if only what was read since is not
                    if event.point == session.began_at:
                        evidence = from_truncation(event, session.core.committable)
                    self._give_up(held, session, evidence, event.reason, now)
            case ConsumerDisturbed(reason=reason):
                log.error("consumer_disturbed", extra={log_fields.REASON: reason})
                for held in self._holdings:
                    if (session := held.reading) is not None:
                        self._apply(held, session, session.core.disturbed(), now)
            case _:
                assert_never(event)

    def _give_up(
        self, held: AssignedPartition, session: ReadSession, evidence: ForkEvidence | None, why: str, now: datetime
    ) -> None:
        """The log is not the one that was read: what is not being stored yet is dropped, and it is asked anew where to
        begin. What is archived is never dropped: there the partition is held."""
        log.error("log_not_the_same", extra=held.fields | {log_fields.REASON: why})
        self.parts.metrics.count("egress_rewinds", 1, **held.labels)
        self.parts.assembly.discard(held.source)
        held.give_up(session, evidence, now)

    def _run(self, run: Run, now: datetime) -> None:
        held = self._holdings.get(run.partition)
        while held is not None and (session := held.reading) is not None:
            core = session.core
            head, rest = split(run, core.room)
            start = core.open_start
            for effect in core.consumed(head.first_offset, head.last_offset, head.count, head.size_bytes, now):
                if isinstance(effect, Append):
                    session.points.read(head.point, start)
                    self.parts.assembly.append(held.source, start, head)
                else:
                    self._apply(held, session, [effect], now)
            if rest is None:
                return
            run = rest

    def _tick(self, held: AssignedPartition, now: datetime) -> None:
        match held.state:
            case Reading(session=session) as reading:
                if (seek := reading.due_seek(now)) is not None:
                    self._seek(held, session, seek, now)
                self._apply(held, session, session.core.tick(now), now)
            case Draining() | Stopped():
                self._storing(held)
            case Locating():
                pass
            case _:
                assert_never(held.state)

    def _apply(self, held: AssignedPartition, session: ReadSession, effects: Sequence[Decision], now: datetime) -> None:
        for effect in effects:
            match effect:
                case Seal():
                    beside = session.beside(effect.offsets)
                    self.parts.assembly.seal(held.source, effect, self._origin(held, session, now), beside)
                case Commit(next_offset=next_offset):
                    self._commits.add(held.partition, session.position(next_offset))
                case Discard(from_offset=from_offset):
                    self.parts.metrics.count("egress_rewinds", 1, **held.labels)
                    self.parts.assembly.discard(held.source, from_offset)
                    session.points.unread(from_offset)
                case Seek():
                    held.seek(effect)  # made by `_tick`: what this poll fetched before it is not to be believed
                case _:
                    assert_never(effect)

    def _seek(self, held: AssignedPartition, session: ReadSession, seek: Seek, now: datetime) -> None:
        try:
            self.parts.consumer.start(held.partition, seek.next_offset, session.points.before(seek.next_offset))
        except BrokerUnavailable as error:
            self._holdings.later(held, now, f"seek: {error}")
            return
        except OwnershipLost:
            return  # the revocation follows
        held.sought()
        session.core.started(seek.epoch)
        if self._pressure.is_paused:
            self.parts.consumer.pause([held.partition])

    # --- what the pools answer ---

    def _finished(self, outcome: UploadOutcome, now: datetime) -> None:
        held = self._holdings.of(outcome.source)
        if held is None:
            return  # moved away since
        match held.remainder:
            case None:
                return
            case Abandoned(session=session) | Contested(session=session):
                if isinstance(outcome, SegmentStored):
                    self._stored(held, session, outcome, now)
            case Storing(session=session):
                self._settled(held, session, outcome, now)
            case remainder:
                assert_never(remainder)

    def _stored(self, held: AssignedPartition, session: ReadSession, stored: SegmentStored, now: datetime) -> None:
        held.failures = 0
        held.failing.worked(Attempt.COMPARISON)
        self.parts.health.solved(held.rereading)
        held.doubted = held.doubted and not session.beside(stored.seal.offsets)  # what was doubted agrees after all
        report(self.parts.metrics, held, stored)
        self._apply(held, session, session.core.stored(stored.seal.offsets), now)

    def _settled(self, held: AssignedPartition, session: ReadSession, outcome: UploadOutcome, now: datetime) -> None:
        """What becomes of a segment that is waited for."""
        match outcome:
            case SegmentStored():
                self._stored(held, session, outcome, now)
            case SpoolLost(start=start, reason=reason):
                why = f"the spool lost the segment that begins at {start}: {reason}; mend egress.spool_dir or its disk"
                self._read_again(held, session, start, why, now)
            case UploadConflict(error=SegmentsDiffer(forked=OffsetRange()) as differ):
                # Read once more: it may have been read before the log forked, by a process that slept since. Only what
                # the log holds now says that the archive is of another one.
                evidence = from_contradiction(differ, session.core.committable) if held.doubted else None
                held.doubted = not held.doubted
                self._give_up(held, session, evidence, str(differ), now)
            case UploadConflict(offsets=offsets, error=error):
                if isinstance(error, TargetError):  # a question about it was refused: it is read and compared again
                    # reading begins anew and lifts the stop, so the failure is kept until a comparison succeeds
                    held.failing.failed(Attempt.COMPARISON, str(error), now, is_refusal=True)
                    remainder: Remainder = Abandoned(session)
                else:
                    # what is in the way lies beside it, or else under its own key: it is held until that is gone
                    beside = session.beside(offsets) or (Segment(held.source, LEVEL_STREAMING, offsets),)
                    remainder = Contested(session, beside)
                self.parts.assembly.discard(held.source)
                self._holdings.stop_behind(held, remainder, str(error), now)
            case TopicRecreated(offsets=offsets):
                self._holdings.reopen(held, f"another topic, or none, once {offsets} was read")
            case UploadFailed(offsets=offsets, error=error):
                why = f"the segment {offsets} was not stored: {error}"
                self._read_again(held, session, offsets.start, why, now)
            case _:
                assert_never(outcome)

    def _read_again(self, held: AssignedPartition, session: ReadSession, start: int, why: str, now: datetime) -> None:
        effects = session.core.spool_lost(start)
        if effects:  # else it was given up already
            self._holdings.later(held, now, why)
            if held.failures >= REWINDS:
                self.parts.health.problem(held.rereading, f"read again {held.failures} times in a row: {why}")
            self._apply(held, session, effects, now)

    def _origin(self, held: AssignedPartition, session: ReadSession, now: datetime) -> SegmentOrigin:
        selected = self.parts.watcher.topics.get(held.partition.topic)
        return SegmentOrigin(
            topic_id=session.life.facts.topic_id,
            cluster_id=session.life.cluster_id,
            source_partition_count=selected.facts.partition_count if selected else None,
            isolation_level=self.parts.isolation_level,
            last_leader_epoch=self.parts.assembly.leader_epoch(held.source),
            created_at=now,
            writer=self.parts.writer,
        )
