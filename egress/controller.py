"""The egress process: one consumer, its partitions, and the loop that moves records from the one to the archive.

Everything here runs on the poll thread, but for the pools behind `SegmentBuilder`, `StartLookup`, `Confirmations` and
`TopicWatcher`, whose answers are taken in once per turn. The decisions are `EgressPartition`'s; this applies their
effects.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import assert_never

from egress.assigned_partition import AssignedPartition
from egress.assignment import Assignment, report
from egress.lag import LagGauge
from egress.offset_commits import Commits
from egress.partition import (
    Append,
    Commit,
    Discard,
    Effect,
    Reason,
    Seal,
    Seek,
)
from egress.segments.builder import SegmentBuilder
from egress.segments.outcomes import SpoolLost, Stored, TopicRecreated, UploadConflict, UploadFailed, UploadOutcome
from egress.segments.split_run import split
from egress.start.resolver import StartAt
from egress.start_lookup import StartLookup
from egress.topics.claims import Blocked, another_cluster, is_last
from egress.topics.incarnation_check import Confirmations
from egress.topics.log_identity import from_contradiction, from_truncation
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
GROUP, TOPICS = "group", "topics"  # in health


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
    _refused: frozenset[str] = frozenset()  # topics of which `/readyz` says so
    _paused: bool = False

    def __post_init__(self) -> None:
        parts = self.parts
        self._commits = Commits(parts.consumer)
        self._holdings = Assignment(
            parts.region, parts.consumer, self._commits, parts.assembly, parts.lag, parts.metrics, parts.health
        )

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
            self._tell_refused()
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
            if held in self._holdings:  # else it moved away since
                self._position(held, answer, now)
        for held in self._holdings:
            self._tick(held, now)
        self._press(now)
        self._tell_failures(now)
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

    def _tell_refused(self) -> None:
        """Topics that the cluster does not show any more: the group takes their partitions away, so no partition is
        left to say it."""
        health, refused = self.parts.health, self.parts.watcher.refused
        for topic in self._refused - refused.keys():
            health.resumed(f"{self.parts.region}/{topic}")
        for topic, reason in refused.items():
            if topic not in self._refused:
                log.error("topic_refused", extra={log_fields.TOPIC: topic, log_fields.REASON: reason})
            health.stopped(f"{self.parts.region}/{topic}", reason)
        self._refused = frozenset(refused)

    def _tell_failures(self, now: datetime) -> None:
        """Failures in a row that last: it is tried as before, and an operator has to know of it."""
        health = self.parts.health
        health.problem(TOPICS, self.parts.watcher.alarm(now))
        for held in self._holdings:
            alarm = held.failing.alarm(now)
            if alarm != held.alarm:
                held.alarm = alarm
                health.problem(held.attempts, alarm)

    def _look(self, now: datetime) -> None:
        """The cluster may be another, a topic another life of its name, and the archive may go on in another place,
        without the consumer noticing."""
        watcher = self.parts.watcher
        for held in self._holdings:
            if held.stopped:
                held.retry_at = now  # what changed may be the cause
            if watcher.other_cluster is not None:
                reason = another_cluster(watcher.other_cluster, watcher.cluster_id)
                if (core := held.going) is not None:
                    self._apply(held, core.drain(Reason.STOPPED), now)
                self._holdings.stop(held, reason, now)
                continue
            seen = watcher.topics.get(held.partition.topic)
            if seen is not None and held.life is not None and seen.facts.topic_id != held.life.facts.topic_id:
                self._holdings.reopen(held, f"topic id {seen.facts.topic_id}, it was {held.life.facts.topic_id}")
            elif (core := held.going) is not None and held.life is not None and not is_last(held.life, watcher.claimed):
                # what was read is stored first: the next place begins behind it
                self._apply(held, core.drain(Reason.MOVED), now)
                held.end(now)
                log.info("archive_goes_on_elsewhere", extra=held.fields)

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
                if (core := held.going) is not None:
                    self._apply(held, core.drain(reason), self.parts.clock.now())
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
        if held.given_up:
            held.uploading = self.parts.assembly.uploading(held.source)
        return held.storing

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
        self._holdings.begin(held, answer, selected.settings)
        start, core = answer.start, held.core
        assert core is not None
        if start.lost:
            offsets = sum(o.next_offset - o.start for o in start.lost)
            self.parts.metrics.count("egress_recorded_gaps", len(start.lost), **held.labels)
            self.parts.metrics.count("egress_recorded_gap_offsets", offsets, **held.labels)
        log.info(
            "partition_begins",
            extra=held.fields | {log_fields.OFFSET: start.next_offset, log_fields.REASON: start.why},
        )
        # where it began is decided once: without this an idle partition would be positioned anew after a restart
        self._commits.add(held.partition, held.position(start.next_offset))
        self._apply(held, core.begin(), now)

    # --- records ---

    def _on(self, event: Fetched, now: datetime) -> None:
        match event:
            case Run():
                self._run(event, now)
            case Reached(partition=partition, next_offset=next_offset):
                held = self._holdings.get(partition)
                if held is not None and (core := held.going) is not None:
                    self._apply(held, core.reached(next_offset, now), now)
                    if held.seek is None and core.next_offset == next_offset:
                        held.points.read(event.point, core.open_start)
            case PartitionFailed(partition=partition, code=code, reason=reason):
                held = self._holdings.get(partition)
                if held is not None:
                    if (core := held.going) is not None:
                        # what was read is stored all the same: the source may not have it any more
                        self._apply(held, core.drain(Reason.STOPPED), now)
                    if code == OUT_OF_RANGE:
                        # trimmed, truncated or created again: where to begin says which, once what was read is stored
                        held.end(now + RETRY)
                        log.warning("partition_out_of_range", extra=held.fields | {log_fields.REASON: reason})
                    else:
                        self._holdings.stop(held, f"{held.partition}: the broker refuses it: {code}, {reason}", now)
            case LogTruncated(partition=partition):
                held = self._holdings.get(partition)
                if held is not None and (core := held.going) is not None:
                    if event.point == held.began_at:  # else only of what was read since, and of nothing archived
                        held.evidence = from_truncation(event, core.committable)
                    self._give_up(held, event.reason, now)
            case ConsumerDisturbed(reason=reason):
                log.error("consumer_disturbed", extra={log_fields.REASON: reason})
                for held in self._holdings:
                    if (core := held.going) is not None:
                        self._apply(held, core.disturbed(), now)
            case _:
                assert_never(event)

    def _give_up(self, held: AssignedPartition, why: str, now: datetime) -> None:
        """The log is not the one that was read: what is not being stored yet is dropped, and it is asked anew where to
        begin. What is archived is never dropped: there the partition is held."""
        log.error("log_not_the_same", extra=held.fields | {log_fields.REASON: why})
        self.parts.metrics.count("egress_rewinds", 1, **held.labels)
        self.parts.assembly.discard(held.source)
        held.give_up(now)

    def _run(self, run: Run, now: datetime) -> None:
        held = self._holdings.get(run.partition)
        while held is not None and (core := held.going) is not None:
            head, rest = split(run, core.room)
            start = core.open_start
            effects = core.consumed(head.first_offset, head.last_offset, head.count, head.size_bytes, now)
            if Append() in effects:
                held.points.read(head.point, start)
            self._apply(held, effects, now, head, start)
            if rest is None:
                return
            run = rest

    def _tick(self, held: AssignedPartition, now: datetime) -> None:
        if (core := held.going) is None:
            self._storing(held)
            return
        if held.seek is not None and (held.retry_at is None or now >= held.retry_at):
            self._seek(held, held.seek, now)
        self._apply(held, core.tick(now), now)

    def _apply(
        self, held: AssignedPartition, effects: list[Effect], now: datetime, run: Run | None = None, start: int = 0
    ) -> None:
        for effect in effects:
            match effect:
                case Append():
                    assert run is not None
                    self.parts.assembly.append(held.source, start, run)
                case Seal():
                    beside = held.beside(effect.offsets)
                    self.parts.assembly.seal(held.source, effect, self._origin(held, now), beside)
                case Commit(next_offset=next_offset):
                    self._commits.add(held.partition, held.position(next_offset))
                case Discard(from_offset=from_offset):
                    self.parts.metrics.count("egress_rewinds", 1, **held.labels)
                    self.parts.assembly.discard(held.source, from_offset)
                    held.points.unread(from_offset)
                case Seek():
                    held.seek = effect  # made by `_tick`: what this poll fetched before it is not to be believed
                case _:
                    assert_never(effect)

    def _seek(self, held: AssignedPartition, seek: Seek, now: datetime) -> None:
        assert held.core is not None
        held.retry_at = None
        try:
            self.parts.consumer.start(held.partition, seek.next_offset, held.points.before(seek.next_offset))
        except BrokerUnavailable as error:
            self._holdings.later(held, now, f"seek: {error}")
            return
        except OwnershipLost:
            return  # the revocation follows
        held.seek = None
        held.core.started(seek.epoch)
        if self._paused:
            self.parts.consumer.pause([held.partition])

    # --- what the pools answer ---

    def _finished(self, outcome: UploadOutcome, now: datetime) -> None:
        held = self._holdings.of(outcome.source)
        if held is None or held.core is None:
            return  # moved away since
        if (held.contested or held.given_up) and not isinstance(outcome, Stored):
            return
        match outcome:
            case Stored(seal=seal):
                held.failures = 0
                held.failing.worked(Attempt.COMPARISON)
                self.parts.health.solved(held.rereading)
                held.doubted = held.doubted and not held.beside(seal.offsets)  # what was doubted agrees after all
                report(self.parts.metrics, held, outcome)
                self._apply(held, held.core.stored(seal.offsets), now)
            case SpoolLost(start=start, reason=reason):
                why = f"the spool lost the segment that begins at {start}: {reason}; mend egress.spool_dir or its disk"
                self._read_again(held, start, why, now)
            case UploadConflict(error=SegmentsDiffer(forked=OffsetRange()) as differ):
                # Read once more: it may have been read before the log forked, by a process that slept since. Only what
                # the log holds now says that the archive is of another one.
                if held.doubted:
                    held.evidence = from_contradiction(differ, held.core.committable)
                held.doubted = not held.doubted
                self._give_up(held, str(differ), now)
            case UploadConflict(offsets=offsets, error=error):
                if isinstance(error, TargetError):  # a question about it was refused: it is read and compared again
                    # reading begins anew and lifts the stop, so the failure is kept until a comparison succeeds
                    held.failing.failed(Attempt.COMPARISON, str(error), now, is_refusal=True)
                    held.given_up = held.uploading = True
                else:
                    # what is in the way lies beside it, or else under its own key: it is held until that is gone
                    held.contested = held.beside(offsets) or (Segment(held.source, LEVEL_STREAMING, offsets),)
                self.parts.assembly.discard(held.source)
                self._holdings.stop(held, str(error), now)
            case TopicRecreated(offsets=offsets):
                self._holdings.reopen(held, f"another topic, or none, once {offsets} was read")
            case UploadFailed(offsets=offsets, error=error):
                self._read_again(held, offsets.start, f"the segment {offsets} was not stored: {error}", now)
            case _:
                assert_never(outcome)

    def _read_again(self, held: AssignedPartition, start: int, why: str, now: datetime) -> None:
        assert held.core is not None
        effects = held.core.spool_lost(start)
        if effects:  # else it was given up already
            self._holdings.later(held, now, why)
            if held.failures >= REWINDS:
                self.parts.health.problem(held.rereading, f"read again {held.failures} times in a row: {why}")
            self._apply(held, effects, now)

    # --- pressure and commits ---

    def _press(self, now: datetime) -> None:
        """Pause instead of block: the group membership needs the poll."""
        assembly, consumer = self.parts.assembly, self.parts.consumer
        if not self._paused and assembly.pressed:
            self._paused = True
            consumer.pause([p for p, h in self._holdings.partitions.items() if h.going])
            for held in self._holdings:
                self.parts.metrics.count("egress_pauses", 1, **held.labels)
            log.info("fetching_paused", extra={log_fields.BYTES: assembly.held_bytes + assembly.spool_bytes})
        elif self._paused and assembly.relieved:
            self._paused = False
            going = [p for p, h in self._holdings.partitions.items() if h.going and h.seek is None]
            consumer.resume(going)
            log.info("fetching_resumed", extra={log_fields.BYTES: assembly.held_bytes + assembly.spool_bytes})
        if self._paused:
            # what waits to be stored goes by itself; what is open would stay until it is full or old. In each turn:
            # the disk may shrink under somebody else's files.
            assembly.shed()
            for source in assembly.heaviest_open():
                heavy = self._holdings.of(source)
                if heavy is not None and (core := heavy.going) is not None:
                    self._apply(heavy, core.relieve(), now)

    def _origin(self, held: AssignedPartition, now: datetime) -> SegmentOrigin:
        assert held.life is not None
        selected = self.parts.watcher.topics.get(held.partition.topic)
        return SegmentOrigin(
            topic_id=held.life.facts.topic_id,
            cluster_id=held.life.cluster_id,
            source_partition_count=selected.facts.partition_count if selected else None,
            isolation_level=self.parts.isolation_level,
            last_leader_epoch=self.parts.assembly.leader_epoch(held.source),
            created_at=now,
            writer=self.parts.writer,
        )
