"""Delivers slices to the target in rounds: the available runs of several partitions, in one call of the TargetWriter.

    controller ──begin──> waiting ──> reading (one run ahead, on a pool) ──> round ──> TargetWriter.deliver
        <── Progressed / Done / Failed / Vanished / Corrupt ────────────────────────────┘

Runs on one thread, each round with one TargetWriter. At most `width` partitions are read at a time, one object of each,
so memory is bounded by width × (two runs + two row groups), however many partitions and segments there are; and
`small_width` more that have little to read, so that a round of short segments takes many partitions; and some that have
only their first checkpoint to write.

A refusal does not hold up other partitions. When a record is refused, its partition gets separate rounds, with runs
halved until the record is alone; the records before it are delivered then, and the position is its offset. So is a
record for which the user's transform fails. A topic or a
partition for which the target accepts nothing gets separate rounds until it does. When the target refuses the process
as a writer, all delivery stops: one run is retried after pauses that grow, and nothing is dropped meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from queue import Queue

from formats.coverage import SegmentSlice
from formats.errors import (
    BrokerUnavailable,
    CorruptSegment,
    ForeignSegment,
    SegmentNotFound,
    TargetError,
    TransformFailed,
    TransientError,
    WriterRefused,
)
from formats.int_range import INT64_MAX
from formats.messages.delivery_checkpoint import Checkpoint, Skipped
from formats.records.statistics import last_offset
from infra.archive.run_reader import RunReader
from infra.contracts.producer import FailureKind, RunFailed, TargetRun, TargetWriter, TimestampRule, UnfencedWriter
from infra.runtime import log_fields
from infra.runtime.lifecycle import Clock, Stop
from infra.runtime.metrics import Metrics
from infra.runtime.retry import Backoff
from ingress.delivery.events import Corrupt, DeliveryEvent, DeliveryFailed, DeliveryTarget, Progressed, Vanished
from ingress.delivery.pace import Pace
from ingress.delivery.read_ahead import Narrow, ReadAhead, ReadPosition, SegmentRead
from ingress.delivery.record_metrics import RecordMetrics

log = logging.getLogger(__name__)

ROUND_LINGER = timedelta(milliseconds=200)  # how long records may be delayed for a fuller transaction

IDLE = timedelta(milliseconds=50)
HALT = Backoff(timedelta(seconds=1), timedelta(minutes=1))  # while the target refuses the writer
GIVING_UP = timedelta(seconds=5)  # for the client to abort a round


@dataclass(slots=True)
class _Part:
    """The records of one partition in the current round."""

    reading: SegmentRead
    begin: ReadPosition
    count: int = 0
    dropped: int = 0
    size_bytes: int = 0
    last_offset: int = -1  # of a record
    records: RecordMetrics = field(default_factory=RecordMetrics)
    ended: bool = False  # no more runs of it in this round
    done: bool = False  # the slices are read to their end
    then: DeliveryEvent | _RefusedRun | None = None  # why it ended; reported once the records before are delivered

    @property
    def read(self) -> int:
        """Records of its runs, with those that the transform left out."""
        return self.count + self.dropped


@dataclass(frozen=True, slots=True)
class _RefusedRun:
    """A run that cannot be produced as it is."""

    reason: str
    count: int  # of its records, with those that the transform left out: the position is to reach the refused one
    last_offset: int  # the refused record is not after it


@dataclass(slots=True)
class Delivery:
    """`run` runs on the delivery thread; `begin` and `release` are called from the controller's thread."""

    reader: RunReader
    writer: TargetWriter
    timestamps: TimestampRule
    pool: Executor  # reads and decodes
    clock: Clock
    metrics: Metrics
    stop: Stop
    abandon: Stop  # ends the wait for the target, once a shutdown's deadline has passed
    preserving: UnfencedWriter | None = None  # for partitions that keep the source's offsets; None: there are none
    fence: Callable[[], object | None] | None = None  # `Placement.fence`; None: no other process can own the partitions
    width: int = 8
    small_width: int = 0  # reads of few bytes besides
    round_records: int = 1  # a round takes available runs until it has so many records,
    round_bytes: int = INT64_MAX  # or so many bytes
    linger: timedelta = timedelta()  # how long a round waits for them
    # no SimpleQueue: its `get` waits for ever when a signal interrupts it as its timeout ends (CPython 3.11; seen)
    reports: Queue[DeliveryEvent] = field(default_factory=Queue)
    _read_ahead: ReadAhead = field(init=False)
    _pace: Pace = field(init=False)
    _in_round: frozenset[int] = frozenset()
    _left: set[int] = field(default_factory=set)  # epochs that are over, which `preserving` has yet to release
    _held_back: bool = False  # available runs may not be delivered now
    _halted: str = ""
    _halts: int = 0  # in a row
    _halted_until: datetime | None = None
    _give_up_round: bool = False
    _round_began: float | None = None
    _mutex: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self._pace = Pace(self.round_records)
        self._read_ahead = ReadAhead(self.reader, self.pool, self.clock, self.width, self._mutex, self.small_width)

    def begin(
        self,
        delivery_target: DeliveryTarget,
        slices: Sequence[SegmentSlice],
        skipped: Sequence[Skipped] = (),
        *,
        dropped: int = 0,
    ) -> None:
        """Deliver adjacent slices. `reports` has the progress; when a slice fails, the records before it are delivered.
        Without a slice only the partition's first checkpoint is written, at `delivery_target.begun_at`. `skipped`:
        offsets before the slices that were given up; they are recorded with the first position after them. `dropped`:
        records that the transform left out before the slices, as the last checkpoint counts them."""
        self._read_ahead.begin(delivery_target, slices, skipped, dropped)

    def release(self, epochs: Collection[int], timeout: timedelta) -> bool:
        """Exclude these epochs from new rounds. Waits for the current round, and aborts it after `timeout`. False when
        even the abort did not end in time: without transactions its records may then mix with the next owner's."""
        with self._mutex:
            self._read_ahead.release(epochs)
            self._left.update(epochs)
            if self._mutex.wait_for(lambda: not self._in_round.intersection(epochs), max(timeout.total_seconds(), 0)):
                return True
            # records buffered in the producer must not reach the target after the next owner's records: drop the round,
            # and do not let a later release of other epochs undo that
            self._give_up_round = True
            return self._mutex.wait_for(
                lambda: not self._in_round.intersection(epochs), min(timeout, GIVING_UP).total_seconds()
            )

    def run(self) -> None:
        """Run until stopped; the current round is finished, unless `abandon` is set."""
        while not self.stop.is_set():
            if not self.run_round():
                with self._mutex:
                    if self._held_back or not self._read_ahead.has_available:
                        self._mutex.wait(IDLE.total_seconds())
        self._read_ahead.close()

    def run_round(self) -> bool:
        """One round. False when there was nothing to deliver, or nothing may be delivered now."""
        self._leave()
        with self._mutex:
            self._held_back = self._halted_until is not None and self.clock.now() < self._halted_until
            if self._held_back:
                return False
            members = self._read_ahead.members(self._batch_size_class)
            if not members:
                return False
            if self._halted:
                members = [m for m in members if m.ahead.done()][:1]
            # members and fence are read together: the target refuses their transaction once the group has another
            # generation
            fence = self.fence() if self.fence is not None else None
            self._held_back = self.fence is not None and fence is None
            if self._held_back:  # in no generation: the target accepts an empty fence from any process
                return False
            self._in_round = frozenset(m.delivery_target.epoch for m in members)
        try:
            self._round(members, fence)
        finally:
            with self._mutex:
                self._in_round, self._give_up_round, self._round_began = frozenset(), False, None
                self._mutex.notify_all()
        return True

    def _leave(self) -> None:
        """Between two rounds: nothing of what was released is in flight."""
        with self._mutex:
            left, self._left = self._left, set()
        if left and self.preserving is not None:
            self.preserving.leave(left)

    @property
    def halted(self) -> str:
        """Why the target accepts nothing from this process; empty when it does. Any thread may read it."""
        return self._halted

    @property
    def waiting_for_target(self) -> timedelta:
        """How long the current round has lasted; zero between rounds."""
        began = self._round_began
        return timedelta(seconds=time.monotonic() - began) if began is not None else timedelta()

    def _writer(self, delivery_target: DeliveryTarget) -> TargetWriter:
        if not delivery_target.preserves_offsets:
            return self.writer
        assert self.preserving is not None
        return self.preserving

    def _batch_size_class(self, delivery_target: DeliveryTarget) -> tuple[bool, int]:
        """Partitions that share a round have the same writer, too."""
        size = self._writer(delivery_target).batch_size_class(delivery_target.target.topic)
        return delivery_target.preserves_offsets, size

    def _should_stop(self) -> bool:
        return self._give_up_round or self.abandon.is_set()

    # --- a round ---

    def _round(self, members: list[SegmentRead], fence: object) -> None:
        began = self._round_began = time.monotonic()
        parts: dict[int, _Part] = {}  # by epoch: several sources may go to one partition
        runs = self._runs(members, parts, began)
        try:
            writer = self._writer(members[0].delivery_target)  # of all members: `_batch_size_class` separates them
            failures = writer.deliver(runs, should_stop=self._should_stop, fence=fence)
        except WriterRefused as error:
            self._halt(str(error))
            for part in parts.values():
                self._read_ahead.again(part.reading, part.begin, part.reading.narrow)
            return
        except BrokerUnavailable as error:
            # perhaps some runs were not taken: the rest was not produced, and is read again
            targets = {part.reading.delivery_target.target for part in parts.values()}
            failures = [RunFailed(p, "UNAVAILABLE", str(error), FailureKind.UNKNOWN) for p in targets]
        else:
            if parts:
                self._halt("")
        finally:
            runs.close()
        failed = {f.partition: f for f in failures}
        seconds, at = time.monotonic() - began, self.clock.now()
        self._pace.took(seconds, sum(part.read for part in parts.values()))
        sharing = Counter(part.reading.delivery_target.target for part in parts.values())
        for part in parts.values():
            target = part.reading.delivery_target.target
            self._finish(part, failed.get(target), seconds, at, shares_partition=sharing[target] > 1)

    def _halt(self, reason: str) -> None:
        """Set why the target refuses this process; empty when it does not."""
        if reason and reason != self._halted:
            log.error("delivery_halted", extra={log_fields.REASON: reason})
        elif self._halted and not reason:
            log.info("delivery_goes_on")
        pause = HALT.delay(self._halts)
        self._halted, self._halts = reason, self._halts + 1 if reason else 0
        self._halted_until = self.clock.now() + pause if reason else None

    def _runs(
        self, members: list[SegmentRead], parts: dict[int, _Part], began: float
    ) -> Generator[TargetRun, None, None]:
        """The available runs of every member, repeatedly until the round is full."""

        def is_full() -> bool:
            return (
                sum(part.read for part in parts.values()) >= self._pace.limit
                or sum(part.size_bytes for part in parts.values()) >= self.round_bytes
            )

        while True:
            for reading in members:
                if self._pace.slowed and is_full():
                    return
                part = parts.get(reading.delivery_target.epoch)
                if reading.ahead.done() and (part is None or not part.ended):
                    part = parts.setdefault(reading.delivery_target.epoch, _Part(reading, reading.position))
                    run = self._take(reading, part)
                    if run is not None:
                        yield run
                    part.ended |= reading.narrow is not None
                    if self._halted:  # one run at a time while refused, so that little is repeated
                        return
            if is_full() or self.stop.is_set() or not self._more(members, parts, began):
                return

    def _more(self, members: list[SegmentRead], parts: dict[int, _Part], began: float) -> bool:
        """Wait for a member's next run. False when none comes in time."""

        def coming() -> list[SegmentRead]:
            return [m for m in members if (p := parts.get(m.delivery_target.epoch)) is None or not p.ended]

        with self._mutex:
            left = began + self.linger.total_seconds() - time.monotonic()
            return self._mutex.wait_for(
                lambda: not coming() or any(m.ahead.done() for m in coming()) or self._should_stop(), max(left, 0)
            ) and any(m.ahead.done() for m in coming())

    def _take(self, reading: SegmentRead, part: _Part) -> TargetRun | None:
        """The run that was read ahead, with its timestamps checked for the target; starts to read the next one."""
        delivery_target = reading.delivery_target
        try:
            ahead = reading.ahead.result()
            run = ahead.run
            checked = self.timestamps.check(
                delivery_target.target.topic, run.batches, clamp=delivery_target.clamp_timestamps
            )
        except SegmentNotFound:
            part.then = Vanished(delivery_target, reading.segment)
        except CorruptSegment as error:
            part.then = Corrupt(delivery_target, reading.segment, error)
        except TransientError as error:
            part.then = DeliveryFailed(delivery_target, str(error), FailureKind.RETRY_LATER)
        except TransformFailed as error:
            remedy = "correct the function, and start this process again"
            part.then = _RefusedRun(f"{error}; {remedy}", error.count, error.last_offset)
        except (ForeignSegment, TargetError) as error:
            part.then = DeliveryFailed(delivery_target, str(error), FailureKind.REJECTED)
        else:
            if checked.refused:
                part.then = _RefusedRun(checked.refused, run.count + run.dropped, last_offset(run.batches[-1]))
        if part.then is not None:
            part.ended = True
            return None
        if checked.altered:
            self.metrics.count("altered_timestamps", checked.altered, **delivery_target.labels)
        is_first, position = reading.position == reading.begin, reading.position.next_offset
        part.ended = part.done = run.last
        part.count += run.count
        part.dropped += run.dropped
        part.size_bytes += run.size_bytes
        if run.batches:
            part.last_offset = last_offset(run.batches[-1])
            part.records.add(ahead.measures)
        self._read_ahead.next_run(reading, run)
        at = self.clock.now()
        checkpoint = Checkpoint(
            run.next_offset,
            delivery_target.target_topic_id,
            at,
            self._writer(delivery_target).author,
            begun_at=delivery_target.begun_at,
            dropped=reading.position.dropped,
        )
        return TargetRun(
            delivery_target.target,
            tuple(checked.batches),
            run.count,
            run.size_bytes,
            delivery_target.key,
            checkpoint,
            position,
            delivery_target.epoch,
            reading.skipped if is_first else (),
            delivery_target.delivered,
        )

    # --- results of a round ---

    def _finish(
        self, part: _Part, failure: RunFailed | None, seconds: float, at: datetime, *, shares_partition: bool
    ) -> None:
        """`seconds`: how long the round took; `at`: its end. `shares_partition`: another source is delivered to the
        same target partition in this round."""
        reading, delivery_target = part.reading, part.reading.delivery_target
        if failure is None:
            if part.count:
                self._read_ahead.joins(delivery_target.target)
            if reading.next_offset > part.begin.next_offset or part.done:
                self._measure(delivery_target, part, seconds, at)
                position, count = reading.position, part.count
                self.reports.put(
                    Progressed(
                        delivery_target, position.next_offset, part.done, count, part.size_bytes, position.dropped
                    )
                )
            self._after(part)
        elif failure.kind in (FailureKind.RETRY_NOW, FailureKind.DELIVER_SEPARATELY):
            if failure.kind is FailureKind.DELIVER_SEPARATELY:
                self._read_ahead.set_apart(delivery_target.target.topic)
            self._read_ahead.again(reading, part.begin, reading.narrow)
        elif failure.kind is FailureKind.REJECTED and shares_partition:  # separate rounds show whose record it is
            self._read_ahead.again(reading, part.begin, Narrow(max(part.read, 1), part.last_offset + 1))
        elif failure.kind is FailureKind.REJECTED:
            reason = f"{failure.code}: {failure.reason}"
            count = part.read if part.count else 0
            self._refused(reading, part.begin, _RefusedRun(reason, count, part.last_offset))
        else:
            if failure.kind is FailureKind.DENIED:
                self._read_ahead.set_apart(delivery_target.target.topic)
            elif failure.kind is FailureKind.STALLED:
                self._read_ahead.set_apart(delivery_target.target)
            self._read_ahead.drop(delivery_target.epoch)
            self.reports.put(DeliveryFailed(delivery_target, f"{failure.code}: {failure.reason}", failure.kind))

    def _after(self, part: _Part) -> None:
        reading, then = part.reading, part.then
        if isinstance(then, _RefusedRun):
            self._refused(reading, reading.position, then)
        elif then is not None:
            self._read_ahead.drop(reading.delivery_target.epoch)
            self.reports.put(then)
        elif part.done:
            self._read_ahead.drop(reading.delivery_target.epoch)
        elif reading.narrow is not None and reading.next_offset >= reading.narrow.until:
            # it was refused only together with another source
            self._read_ahead.again(reading, reading.position, None)

    def _refused(self, reading: SegmentRead, position: ReadPosition, refusal: _RefusedRun) -> None:
        narrow = reading.narrow
        if refusal.count == 0:  # without records: the first checkpoint was refused
            self._read_ahead.drop(reading.delivery_target.epoch)
            self.reports.put(DeliveryFailed(reading.delivery_target, refusal.reason, FailureKind.REJECTED))
            return
        if refusal.count == 1 or (narrow is not None and narrow.max_records == 1):
            self._read_ahead.drop(reading.delivery_target.epoch)
            reason = f"the record at offset {refusal.last_offset} is refused: {refusal.reason}"
            self.reports.put(DeliveryFailed(reading.delivery_target, reason, FailureKind.REJECTED, refusal.last_offset))
            return
        # a run may leave out as many records again, so its count alone might never fall
        most = refusal.count if narrow is None else min(refusal.count, narrow.max_records)
        self._read_ahead.again(reading, position, Narrow(max(most // 2, 1), refusal.last_offset + 1))

    def _measure(self, delivery_target: DeliveryTarget, part: _Part, seconds: float, at: datetime) -> None:
        part.records.acknowledged(at, self.metrics, delivery_target.record_labels)
        if delivery_target.transform:
            self.metrics.count("dropped_records", part.dropped, **delivery_target.record_labels)
        self.metrics.observe("produce_latency_seconds", seconds, **delivery_target.labels)
        log.debug("run_delivered", extra={log_fields.RECORDS: part.count, log_fields.BYTES: part.size_bytes})
