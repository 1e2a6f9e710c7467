"""A target cluster in memory: what ingress writes to and reads its own topics from. Verified by tests/contracts.

    target = FakeTarget()
    writer = target.writer()                 TargetWriter; each process of a test has its own
    target.records(partition)                what a consumer of the partition would read
    target.checkpoints                       the checkpoint topic, as last written
    store = target.checkpoint_store()        CheckpointStore
    target.occupied[partition] = Occupancy(…) records of others there, or unknown
    target.parked, .skipped, .waiting, .claims    what is in that topic beside positions
    editor = target.editor()                 CheckpointEditor

    target.fail_next(partition, keep=2)      the next runs for it fail; at least once: after 2 records
    target.poison[partition] = {7}           the record of that source offset is refused, always
    target.denied.add(topic)                 nothing goes there, until it is removed
    target.refusing = "why"                  every deliver raises WriterRefused, until it is empty
    target.stop_next(keep=2)                 the next deliver raises BrokerUnavailable after 2 records of every run, or
                                             with its transaction committed (keep=0: not committed)
    target.crash_next()                      the next deliver raises Crashed before its checkpoints
    target.away = True                       everything raises BrokerUnavailable, until False

    log = FakeLog()                          the segment-events topic
    event_log = log.open()                   EventLog; each process of a test has its own
    log.put(b"not an event")                 a foreign record
    log.lose("retention")                    readers that had not read all of it learn of a reset
    log.away = True                          publish raises, poll answers nothing, until False
    log.refuses = "why"                      publish raises TargetError, until ""

Single-threaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa

from formats.errors import BrokerUnavailable, CheckpointConflict, MalformedEvent, TargetError, WriterRefused
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey, Parked, Skipped, Waiting, follow
from formats.messages.group_claim import GroupClaim
from formats.messages.segment_events import SegmentEvent, decode, encode
from infra.contracts.cluster import Occupancy, TopicPartition
from infra.contracts.internal_topics import LogReset
from infra.contracts.producer import FailureKind, RunFailed, TargetRun
from infra.runtime.lifecycle import Clock, SystemClock


class Crashed(Exception):
    """The process is gone. Not an error of ours: nothing may catch it but the test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRecord:
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    source_offset: int = field(default=-1, compare=False)  # only a fake knows it


@dataclass(slots=True)
class FakeTarget:
    exactly_once: bool = True  # a call is a transaction: all of it is there, or nothing
    away: bool = False
    checkpoints: dict[CheckpointKey, Checkpoint] = field(default_factory=dict)
    last_put: dict[CheckpointKey, Checkpoint] = field(default_factory=dict)  # what compaction would leave
    conflicts: dict[CheckpointKey, CheckpointConflict] = field(default_factory=dict)
    occupied: dict[TopicPartition, Occupancy] = field(default_factory=dict)  # by others, whatever was delivered
    poison: dict[TopicPartition, set[int]] = field(default_factory=dict)  # source offsets that are always refused
    parked: dict[CheckpointKey, Parked] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    waiting: dict[CheckpointKey, Waiting] = field(default_factory=dict)
    claims: list[GroupClaim] = field(default_factory=list)
    denied: set[str] = field(default_factory=set)
    refusing: str = ""
    rounds: list[int] = field(default_factory=list)  # records of each call of a writer
    edits: list[str] = field(default_factory=list)  # the editor's calls about partitions, as acknowledged, in order
    _logs: dict[TopicPartition, list[TargetRecord]] = field(default_factory=dict)
    _failing: dict[TopicPartition, tuple[RunFailed, int]] = field(default_factory=dict)
    _stopping: int | None = None
    _crashing: bool = False

    def writer(self) -> FakeWriter:
        return FakeWriter(self)

    def checkpoint_store(self) -> FakeCheckpointStore:
        return FakeCheckpointStore(self)

    def editor(self) -> FakeEditor:
        return FakeEditor(self)

    def records(self, partition: TopicPartition) -> list[TargetRecord]:
        return list(self._logs.get(partition, ()))

    def occupancies(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Occupancy]:
        """A TargetRecords."""
        if self.away:
            raise BrokerUnavailable("the fake target is away")
        return {p: self.occupied.get(p, Occupancy(holds_records=bool(self._logs.get(p)))) for p in partitions}

    def fail_next(
        self,
        partition: TopicPartition,
        *,
        code: str = "INJECTED",
        kind: FailureKind = FailureKind.RETRY_LATER,
        keep: int = 0,
    ) -> None:
        self._failing[partition] = (RunFailed(partition, code, "injected by the test", kind), keep)

    def stop_next(self, *, keep: int = 0) -> None:
        self._stopping = keep

    def crash_next(self) -> None:
        self._crashing = True

    def _deliver(self, runs: Sequence[TargetRun]) -> Sequence[RunFailed]:
        if self._stopping is not None:
            keep, self._stopping = self._stopping, None
            for run in runs:
                self._append(run, keep if not self.exactly_once else run.count if keep else 0)
            if keep and self.exactly_once:
                self._checkpoint(runs)
            raise BrokerUnavailable("the fake target stopped in the middle")
        failed: dict[TopicPartition, RunFailed] = {}
        kept: dict[TopicPartition, int] = {}
        denied = [run for run in runs if run.partition.topic in self.denied]
        if denied and self.exactly_once and len({run.partition.topic for run in runs}) > 1:
            return [
                RunFailed(run.partition, "ABORTED", "one of several topics", FailureKind.DELIVER_SEPARATELY)
                for run in runs
            ]
        for run in denied:
            failed[run.partition] = RunFailed(run.partition, "DENIED", "by the test", FailureKind.DENIED)
            kept[run.partition] = 0
        for run in runs:
            if run.partition in self._failing and run.partition not in failed:
                failed[run.partition], kept[run.partition] = self._failing.pop(run.partition)
            elif (before := self._before_poison(run)) is not None and run.partition not in failed:
                failed[run.partition] = RunFailed(run.partition, "POISON", "planted by the test", FailureKind.REJECTED)
                kept[run.partition] = before
        if failed and self.exactly_once:
            innocent = {
                r.partition: RunFailed(r.partition, "ABORTED", "with others", FailureKind.RETRY_NOW) for r in runs
            }
            return list((innocent | failed).values())
        if self._crashing and self.exactly_once:
            self._crashing = False
            raise Crashed
        for run in runs:
            self._append(run, kept.pop(run.partition, 0) if run.partition in failed else run.count)
        if self._crashing:
            self._crashing = False
            raise Crashed
        self._checkpoint([run for run in runs if run.partition not in failed])
        return list(failed.values())

    def put_checkpoint(self, key: CheckpointKey, checkpoint: Checkpoint) -> None:
        """As a reader of the topic puts them together."""
        self.last_put[key] = checkpoint
        word = follow(key, self.conflicts.pop(key, None) or self.checkpoints.get(key), checkpoint)
        if isinstance(word, CheckpointConflict):
            self.conflicts[key] = word
        else:
            self.checkpoints[key] = word

    def _checkpoint(self, runs: Sequence[TargetRun]) -> None:
        for run in runs:
            self.skipped += [one for one in run.skipped if one not in self.skipped]
            self.put_checkpoint(run.key, run.checkpoint)

    def _before_poison(self, run: TargetRun) -> int | None:
        offsets = [o for batch in run.batches for o in batch.column("offset").to_pylist()]
        poison = self.poison.get(run.partition, set())
        return next((n for n, offset in enumerate(offsets) if offset in poison), None)

    def _append(self, run: TargetRun, keep: int) -> None:
        records = [record for batch in run.batches for record in target_records(batch)]
        self._logs.setdefault(run.partition, []).extend(records[:keep])


@dataclass(slots=True)
class FakeWriter:
    target: FakeTarget

    @property
    def author(self) -> Author:
        return Author.EXACTLY_ONCE if self.target.exactly_once else Author.AT_LEAST_ONCE

    def batch_size_class(self, topic: str) -> int:
        return 0

    def deliver(
        self, runs: Iterable[TargetRun], *, should_stop: Callable[[], bool], fence: object = None
    ) -> Sequence[RunFailed]:
        taken = list(runs)
        if self.target.away or (taken and should_stop()):
            raise BrokerUnavailable("the fake target is away")
        self.target.rounds.append(sum(run.count for run in taken))
        if taken and self.target.refusing:
            raise WriterRefused(self.target.refusing)
        return self.target._deliver(taken)

    def close(self, timeout: timedelta) -> None:
        pass


@dataclass(slots=True)
class FakeCheckpointStore:
    target: FakeTarget
    _parked: Mapping[CheckpointKey, Parked] = field(default_factory=dict)
    _skipped: Sequence[Skipped] = ()
    _waiting: Mapping[CheckpointKey, Waiting] = field(default_factory=dict)
    _claims: Sequence[GroupClaim] = ()

    def read(self) -> Mapping[CheckpointKey, Checkpoint | CheckpointConflict]:
        if self.target.away:
            raise BrokerUnavailable("the fake target is away")
        self._parked, self._skipped = dict(self.target.parked), list(self.target.skipped)
        self._waiting, self._claims = dict(self.target.waiting), list(self.target.claims)
        return self.target.checkpoints | self.target.conflicts

    def parked(self) -> Mapping[CheckpointKey, Parked]:
        return self._parked

    def skipped(self) -> Sequence[Skipped]:
        return self._skipped

    def waiting(self) -> Mapping[CheckpointKey, Waiting]:
        return self._waiting

    def claims(self) -> Sequence[GroupClaim]:
        return self._claims

    def close(self) -> None:
        pass


@dataclass(slots=True)
class FakeEditor:
    target: FakeTarget

    def park(self, key: CheckpointKey, parked: Parked | None) -> None:
        self._edit("park" if parked else "release")
        if parked is None:
            self.target.parked.pop(key, None)
        else:
            self.target.parked[key] = parked

    def seed(self, key: CheckpointKey, checkpoint: Checkpoint) -> None:
        self._edit("seed")
        self.target.put_checkpoint(key, checkpoint)

    def skip(self, skipped: Skipped) -> None:
        self._edit("skip")
        self.target.skipped.append(skipped)

    def wait(self, key: CheckpointKey, waiting: Waiting | None) -> None:
        self._edit("wait" if waiting else "go on")
        if waiting is None:
            self.target.waiting.pop(key, None)
        else:
            self.target.waiting[key] = waiting

    def claim(self, claim: GroupClaim) -> None:
        self._reach()
        self.target.claims.append(claim)

    def withdraw(self, claim: GroupClaim) -> None:
        self._reach()
        self.target.claims.remove(claim)

    def close(self) -> None:
        pass

    def _edit(self, what: str) -> None:
        self._reach()
        self.target.edits.append(what)

    def _reach(self) -> None:
        if self.target.away:
            raise BrokerUnavailable("the fake target is away")


@dataclass(slots=True)
class FakeLog:
    away: bool = False
    refuses: str = ""
    clock: Clock = field(default_factory=SystemClock)
    _records: list[tuple[bytes, datetime]] = field(default_factory=list)  # with the time of publication
    _start: int = 0  # first record still held
    _reason: str = ""

    def open(self) -> FakeEventLog:
        return FakeEventLog(self)

    def put(self, value: bytes) -> None:
        self._records.append((value, self.clock.now()))

    def lose(self, reason: str = "retention") -> None:
        """Drop everything that is in the log now, read or not."""
        self._start, self._reason = len(self._records), reason

    @property
    def end(self) -> int:
        return len(self._records)


@dataclass(slots=True)
class FakeEventLog:
    log: FakeLog
    problem: str = ""
    _position: int | None = None

    def publish(self, events: Sequence[SegmentEvent]) -> None:
        if self.log.away:
            raise BrokerUnavailable("the fake event log is away")
        if self.log.refuses:
            raise TargetError(self.log.refuses)
        for event in events:
            self.log.put(encode(event))

    def start(self) -> None:
        if self.log.away:
            raise BrokerUnavailable("the fake event log is away")
        self._position = self.log.end

    def poll(self, timeout: timedelta) -> Sequence[SegmentEvent | LogReset]:
        if self.log.away or self._position is None:
            return ()
        if self._position < self.log._start:
            self._position = self.log.end  # noted before the reset is reported, as the contract says
            return (LogReset(self.log._reason),)
        values, self._position = self.log._records[self._position :], self.log.end
        events: list[SegmentEvent] = []
        for value, published_at in values:
            try:
                events.append(decode(value, published_at))
            except MalformedEvent:
                continue
        return events

    def close(self) -> None:
        pass


def target_records(batch: pa.RecordBatch) -> list[TargetRecord]:
    """What a consumer of the target should see of a batch."""
    columns = (
        batch.column("offset").to_pylist(),
        batch.column("timestamp").view(pa.int64()).to_pylist(),
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        batch.column("headers").to_pylist(),
    )
    return [
        TargetRecord(
            source_offset=offset,
            timestamp_ms=stamp,
            key=key,
            value=value,
            headers=tuple((h["key"], h["value"]) for h in headers or ()),
        )
        for offset, stamp, key, value, headers in zip(*columns, strict=True)
    ]
