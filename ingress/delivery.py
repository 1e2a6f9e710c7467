"""Moves pieces into the target, round by round: one run of every piece at hand, then one flush and their checkpoints.

    controller ──Start──> waiting ──> reading (one run ahead, on a pool) ──> round ──> TargetWriter.deliver
        <── Progressed* / Done / Failed / Vanished / Corrupt ─────────────────────────────┘

Runs on one thread with one TargetWriter. At most `width` pieces are open at a time, so memory is bounded by
width × (two runs + a row group), however many partitions there are.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from queue import SimpleQueue

from ingress.pieces import PieceReader, PieceRun
from replicator import logkeys
from replicator.checkpoint import Checkpoint, CheckpointKey
from replicator.coverage import Piece
from replicator.errors import BrokerUnavailable, CorruptSegment, SegmentNotFound, TargetError, TransientError
from replicator.lifecycle import Stop
from replicator.metrics import Metrics
from replicator.protocols import Clock, RunFailed, TargetRun, TargetWriter, TimestampRule, TopicPartition
from replicator.segment import Segment, SourcePartition

log = logging.getLogger(__name__)

IDLE = timedelta(milliseconds=50)


@dataclass(frozen=True, slots=True)
class Assignment:
    """One partition's way: where its pieces go. `epoch` tells this ownership from an earlier one."""

    source: SourcePartition
    target: TopicPartition
    target_topic_id: str
    epoch: int
    clamp_timestamps: bool

    @property
    def key(self) -> CheckpointKey:
        return CheckpointKey(self.source, self.target.topic)


@dataclass(frozen=True, slots=True)
class Progressed:
    """A run is in the target, and so is its checkpoint."""

    assignment: Assignment
    next_offset: int
    done: bool  # the piece is delivered to its end


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing is known of the run behind the last Progressed. `refused`: trying again at once will not help."""

    assignment: Assignment
    reason: str
    refused: bool


@dataclass(frozen=True, slots=True)
class Vanished:
    assignment: Assignment
    segment: Segment


@dataclass(frozen=True, slots=True)
class Corrupt:
    assignment: Assignment
    segment: Segment
    error: CorruptSegment


Report = Progressed | Failed | Vanished | Corrupt


@dataclass(slots=True, eq=False)
class _Active:
    assignment: Assignment
    piece: Piece
    runs: Iterator[PieceRun]
    ahead: Future[PieceRun]


@dataclass(slots=True)
class Delivery:
    """`run` is the delivery thread's; `begin` and `release` are called from the controller's."""

    reader: PieceReader
    writer: TargetWriter
    timestamps: TimestampRule
    pool: ThreadPoolExecutor  # reads and decodes
    clock: Clock
    metrics: Metrics
    stop: Stop
    abandon: Stop  # ends the wait for the target, once a shutdown's deadline has passed
    width: int = 8
    reports: SimpleQueue[Report] = field(default_factory=SimpleQueue)
    _waiting: deque[tuple[Assignment, Piece]] = field(default_factory=deque)
    _released: set[int] = field(default_factory=set)  # epochs whose partitions are not ours any more
    _active: dict[int, _Active] = field(default_factory=dict)  # by epoch
    _in_round: frozenset[int] = frozenset()
    _give_up_round: bool = False
    _round_began: float | None = None
    _mutex: threading.Condition = field(default_factory=threading.Condition)

    def begin(self, assignment: Assignment, piece: Piece) -> None:
        with self._mutex:
            self._waiting.append((assignment, piece))
            self._mutex.notify_all()

    def release(self, epochs: Collection[int], timeout: timedelta) -> bool:
        """No new round touches these; waits for the one under way. False when that did not end in time: its records
        may then arrive beside the next owner's."""
        with self._mutex:
            self._released.update(epochs)
            ended = self._mutex.wait_for(
                lambda: not self._in_round.intersection(epochs), max(timeout.total_seconds(), 0)
            )
            # what waits in the producer must not reach the target behind the next owner's records: drop the round
            if not ended:  # and a later release, of others, does not take that back
                self._give_up_round = True
            return ended

    def run(self) -> None:
        """Until stopped; the round under way is finished, unless `abandon` is set."""
        while not self.stop.is_set():
            if not self.turn():
                with self._mutex:
                    if not any(a.ahead.done() for a in self._active.values()):
                        self._mutex.wait(IDLE.total_seconds())
        for epoch in list(self._active):
            self._drop(epoch)

    def turn(self) -> bool:
        """One round. False when there was nothing to do."""
        with self._mutex:
            for epoch in self._released.intersection(self._active):
                self._drop(epoch)
            while self._waiting and len(self._active) < self.width:
                assignment, piece = self._waiting.popleft()
                if assignment.epoch not in self._released:
                    runs = self.reader.runs(piece)
                    self._active[assignment.epoch] = _Active(assignment, piece, runs, self._read_ahead(runs))
            ready = [a for a in self._active.values() if a.ahead.done()]
            if not ready and self._active:
                return False
            self._in_round = frozenset(a.assignment.epoch for a in ready)
        if not ready:
            return False
        try:
            self._round(ready)
        finally:
            with self._mutex:
                self._in_round, self._give_up_round, self._round_began = frozenset(), False, None
                self._mutex.notify_all()
        return True

    def _should_stop(self) -> bool:
        return self._give_up_round or self.abandon.is_set()

    @property
    def waiting_for_target(self) -> timedelta:
        """How long the round under way has lasted."""
        began = self._round_began
        return timedelta(seconds=time.monotonic() - began) if began is not None else timedelta()

    def _drop(self, epoch: int) -> None:
        active = self._active.pop(epoch)
        active.ahead.add_done_callback(lambda _, runs=active.runs: runs.close())  # type: ignore[misc]

    def _round(self, ready: list[_Active]) -> None:
        began = self._round_began = time.monotonic()
        loaded: list[tuple[_Active, PieceRun, TargetRun]] = []
        for active in ready:
            taken = self._take(active)
            if taken is not None:
                loaded.append((active, *taken))
        if not loaded:
            return
        try:
            failures = self.writer.deliver([t for _, _, t in loaded], should_stop=self._should_stop)
        except BrokerUnavailable as error:
            failures = [RunFailed(t.partition, "UNAVAILABLE", str(error), transient=True) for _, _, t in loaded]
        failed = {f.partition: f for f in failures}
        seconds = time.monotonic() - began
        for active, run, target in loaded:
            failure = failed.get(target.partition)
            if failure is None:
                self._measure(active.assignment, target, seconds)
                self.reports.put(Progressed(active.assignment, run.next_offset, run.last))
                if run.last:
                    self._active.pop(active.assignment.epoch, None)
            else:
                self._drop(active.assignment.epoch)
                reason = f"{failure.code}: {failure.reason}"
                self.reports.put(Failed(active.assignment, reason, refused=not failure.transient))

    def _take(self, active: _Active) -> tuple[PieceRun, TargetRun] | None:
        """The run that was read ahead, made fit for the target; the next one is read meanwhile."""
        assignment = active.assignment
        try:
            run = active.ahead.result()
            checked = self.timestamps.check(assignment.target.topic, run.batches, clamp=assignment.clamp_timestamps)
        except SegmentNotFound:
            self._end(active, Vanished(assignment, active.piece.segment))
            return None
        except CorruptSegment as error:
            self._end(active, Corrupt(assignment, active.piece.segment, error))
            return None
        except (TransientError, TargetError) as error:
            self._end(active, Failed(assignment, str(error), refused=isinstance(error, TargetError)))
            return None
        if checked.refused:
            self._end(active, Failed(assignment, checked.refused, refused=True))
            return None
        if checked.altered:
            self.metrics.count("altered_timestamps", checked.altered, **_labels(assignment))
        if not run.last:
            active.ahead = self._read_ahead(active.runs)
        checkpoint = Checkpoint(run.next_offset, assignment.target_topic_id, self.clock.now())
        target = TargetRun(
            assignment.target, tuple(checked.batches), run.count, run.size_bytes, assignment.key, checkpoint
        )
        return run, target

    def _read_ahead(self, runs: Iterator[PieceRun]) -> Future[PieceRun]:
        future = self.pool.submit(next, runs)
        future.add_done_callback(lambda _: self._wake())
        return future

    def _wake(self) -> None:
        with self._mutex:
            self._mutex.notify_all()

    def _end(self, active: _Active, report: Report) -> None:
        self._active.pop(active.assignment.epoch, None)
        self.reports.put(report)

    def _measure(self, assignment: Assignment, run: TargetRun, seconds: float) -> None:
        labels = _labels(assignment)
        self.metrics.count("record_count", run.count, **labels)
        self.metrics.count("record_bytes", run.size_bytes, **labels)
        self.metrics.observe("produce_latency_seconds", seconds, **labels)
        if run.batches:
            newest = run.batches[-1].column(1)[-1].value / 1000
            age = self.clock.now().timestamp() - newest
            self.metrics.observe("replication_latency_seconds", max(age, 0), **labels)
            self.metrics.observe("record_age_seconds", max(age - seconds, 0), **labels)
        log.debug("run_delivered", extra={logkeys.RECORDS: run.count, logkeys.BYTES: run.size_bytes})


def _labels(assignment: Assignment) -> dict[str, str]:
    source = assignment.source
    return {"region": source.region, "topic": source.topic, "partition": str(source.partition)}
