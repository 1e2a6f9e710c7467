"""A target cluster in memory: what ingress writes to and reads its own topics from. Verified by tests/contracts.

    target = FakeTarget()
    writer = target.writer()                 TargetWriter; each process of a test has its own
    target.records(partition)                what a consumer of the partition would read
    target.checkpoints                       the checkpoint topic, as last written
    store = target.checkpoint_store()        CheckpointStore
    target.parked, target.skipped            what is in that topic beside positions
    editor = target.editor()                 CheckpointEditor

    target.fail_next(partition, keep=2)      the next run for it fails after 2 records; transient=False: for good
    target.stop_next(keep=2)                 the next deliver raises BrokerUnavailable after 2 records of every run
    target.crash_next()                      the next deliver raises Crashed between the records and the checkpoints
    target.away = True                       everything raises BrokerUnavailable, until False

    log = FakeLog()                          the segment-events topic
    event_log = log.open()                   EventLog; each process of a test has its own
    log.put(b"not an event")                 a foreign record
    log.lose("retention")                    readers that had not read all of it learn of a reset
    log.away = True                          publish raises, poll answers nothing, until False

Single-threaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa

from replicator.checkpoint import Checkpoint, CheckpointKey, Parked, Skipped
from replicator.errors import BrokerUnavailable, MalformedEvent
from replicator.events import SegmentEvent, decode, encode
from replicator.protocols import LogReset, RunFailed, TargetRun, TopicPartition


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
    away: bool = False
    checkpoints: dict[CheckpointKey, Checkpoint] = field(default_factory=dict)
    parked: dict[CheckpointKey, Parked] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    edits: list[str] = field(default_factory=list)  # names of the editor's calls that were acknowledged, in order
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

    def fail_next(
        self, partition: TopicPartition, *, code: str = "INJECTED", transient: bool = True, keep: int = 0
    ) -> None:
        self._failing[partition] = (RunFailed(partition, code, "injected by the test", transient), keep)

    def stop_next(self, *, keep: int = 0) -> None:
        self._stopping = keep

    def crash_next(self) -> None:
        self._crashing = True

    def _deliver(self, runs: Sequence[TargetRun]) -> Sequence[RunFailed]:
        if self._stopping is not None:
            keep, self._stopping = self._stopping, None
            for run in runs:
                self._append(run, keep)
            raise BrokerUnavailable("the fake target stopped in the middle")
        failed: dict[TopicPartition, RunFailed] = {}
        for run in runs:
            if run.partition in self._failing:
                failed[run.partition], keep = self._failing.pop(run.partition)
                self._append(run, keep)
            elif run.partition not in failed:
                self._append(run, run.count)
        if self._crashing:
            self._crashing = False
            raise Crashed
        self.checkpoints |= {run.key: run.checkpoint for run in runs if run.partition not in failed}
        return list(failed.values())

    def _append(self, run: TargetRun, keep: int) -> None:
        records = [record for batch in run.batches for record in target_records(batch)]
        self._logs.setdefault(run.partition, []).extend(records[:keep])


@dataclass(slots=True)
class FakeWriter:
    target: FakeTarget

    def deliver(self, runs: Sequence[TargetRun], *, should_stop: Callable[[], bool]) -> Sequence[RunFailed]:
        if self.target.away or (runs and should_stop()):
            raise BrokerUnavailable("the fake target is away")
        return self.target._deliver(runs)

    def close(self, timeout: timedelta) -> None:
        pass


@dataclass(slots=True)
class FakeCheckpointStore:
    target: FakeTarget
    _parked: Mapping[CheckpointKey, Parked] = field(default_factory=dict)
    _skipped: Sequence[Skipped] = ()

    def read(self) -> Mapping[CheckpointKey, Checkpoint]:
        if self.target.away:
            raise BrokerUnavailable("the fake target is away")
        self._parked, self._skipped = dict(self.target.parked), list(self.target.skipped)
        return dict(self.target.checkpoints)

    def parked(self) -> Mapping[CheckpointKey, Parked]:
        return self._parked

    def skipped(self) -> Sequence[Skipped]:
        return self._skipped

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
        self.target.checkpoints[key] = checkpoint

    def skip(self, skipped: Skipped) -> None:
        self._edit("skip")
        self.target.skipped.append(skipped)

    def close(self) -> None:
        pass

    def _edit(self, what: str) -> None:
        if self.target.away:
            raise BrokerUnavailable("the fake target is away")
        self.target.edits.append(what)


@dataclass(slots=True)
class FakeLog:
    away: bool = False
    _records: list[bytes] = field(default_factory=list)
    _start: int = 0  # first record still held
    _reason: str = ""

    def open(self) -> FakeEventLog:
        return FakeEventLog(self)

    def put(self, value: bytes) -> None:
        self._records.append(value)

    def lose(self, reason: str = "retention") -> None:
        """Drop everything that is in the log now, read or not."""
        self._start, self._reason = len(self._records), reason

    @property
    def end(self) -> int:
        return len(self._records)


@dataclass(slots=True)
class FakeEventLog:
    log: FakeLog
    _position: int | None = None

    def publish(self, events: Sequence[SegmentEvent]) -> None:
        if self.log.away:
            raise BrokerUnavailable("the fake event log is away")
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
            self._position = self.log.end  # noted before the reset is told, as the contract says
            return (LogReset(self.log._reason),)
        values, self._position = self.log._records[self._position :], self.log.end
        events: list[SegmentEvent] = []
        for value in values:
            try:
                events.append(decode(value))
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
