"""Delivers slices to the target in rounds: the available runs of several partitions, in one call of the TargetWriter.

    controller ──begin──> waiting ──> reading (one run ahead, on a pool) ──> round ──> TargetWriter.deliver
        <── Progressed / Done / Failed / Vanished / Corrupt ────────────────────────────┘

Runs on one thread, each round with one TargetWriter. At most `width` partitions are read at a time, one object of each,
so memory is bounded by width × (two runs + two row groups), however many partitions and segments there are; and
`small_width` more that have little to read, so that a round of short segments takes many partitions; and some that have
only their first checkpoint to write.

A refusal does not hold up other partitions. When a record is refused, or the user's transform fails for it, its
partition gets separate rounds until the record is found (`round_results`). A topic or a partition for which the target
accepts nothing gets separate rounds until it does. When the target refuses the process as a writer, all delivery stops:
one run is retried after pauses that grow (`halt`), and nothing is dropped meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import timedelta
from queue import Queue

from formats.coverage import SegmentSlice
from formats.errors import BrokerUnavailable, WriterRefused
from formats.int_range import INT64_MAX
from formats.messages.delivery_checkpoint import Author, Skipped
from infra.archive.run_reader import RunReader
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind, RunFailed, TargetRun, TargetWriter, TimestampRule, UnfencedWriter
from infra.runtime.lifecycle import Clock, Stop
from infra.runtime.metrics import Metrics
from ingress.delivery.events import DeliveryEvent, DeliveryTarget
from ingress.delivery.halt import Halt
from ingress.delivery.pace import Pace
from ingress.delivery.read_ahead import ReadAhead, SegmentRead
from ingress.delivery.round_parts import RoundPart, RunTaker
from ingress.delivery.round_results import RoundResults

ROUND_LINGER = timedelta(milliseconds=200)  # how long records may be delayed for a fuller transaction

IDLE = timedelta(milliseconds=50)
GIVING_UP = timedelta(seconds=5)  # for the client to abort a round


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
    _taker: RunTaker = field(init=False)
    _results: RoundResults = field(init=False)
    _halt: Halt = field(init=False)
    _pace: Pace = field(init=False)
    _in_round: Mapping[int, DeliveryTarget] = field(default_factory=dict)  # by epoch
    _left: set[int] = field(default_factory=set)  # epochs released since the current round began
    _held_back: bool = False  # available runs may not be delivered now
    _give_up_round: bool = False
    _round_began: float | None = None
    _mutex: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self._pace = Pace(self.round_records)
        self._read_ahead = ReadAhead(self.reader, self.pool, self.clock, self.width, self._mutex, self.small_width)
        self._taker = RunTaker(self._read_ahead, self.timestamps, self._author, self.clock, self.metrics)
        self._results = RoundResults(self._read_ahead, self.reports, self.metrics)
        self._halt = Halt(self.clock)

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
            if self._mutex.wait_for(lambda: self._in_round.keys().isdisjoint(epochs), max(timeout.total_seconds(), 0)):
                return True
            # records buffered in the producer must not reach the target after the next owner's records: drop the round,
            # and do not let a later release of other epochs undo that
            self._give_up_round = True
            return self._mutex.wait_for(
                lambda: self._in_round.keys().isdisjoint(epochs), min(timeout, GIVING_UP).total_seconds()
            )

    def may_still_write(self, target: TopicPartition) -> bool:
        """Whether the current round has an ownership of `target` that was released: its records and its checkpoint are
        there once the round has ended, or never. In the generation in which it began no fence keeps them out."""
        with self._mutex:
            return any(one.target == target for epoch, one in self._in_round.items() if epoch in self._left)

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
            self._held_back = self._halt.is_pausing
            if self._held_back:
                return False
            members = self._read_ahead.members(self._batch_size_class)
            if not members:
                return False
            if self._halt.reason:
                members = [m for m in members if m.ahead.done()][:1]
            # members and fence are read together: the target refuses their transaction once the group has another
            # generation
            fence = self.fence() if self.fence is not None else None
            self._held_back = self.fence is not None and fence is None
            if self._held_back:  # in no generation: the target accepts an empty fence from any process
                return False
            self._in_round = {m.delivery_target.epoch: m.delivery_target for m in members}
        try:
            self._round(members, fence)
        finally:
            with self._mutex:
                self._in_round, self._give_up_round, self._round_began = {}, False, None
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
        return self._halt.reason

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

    def _author(self, delivery_target: DeliveryTarget) -> Author:
        return self._writer(delivery_target).author

    def _batch_size_class(self, delivery_target: DeliveryTarget) -> tuple[bool, int]:
        """Partitions that share a round have the same writer, too."""
        size = self._writer(delivery_target).batch_size_class(delivery_target.target.topic)
        return delivery_target.preserves_offsets, size

    def _should_stop(self) -> bool:
        return self._give_up_round or self.abandon.is_set()

    # --- a round ---

    def _round(self, members: list[SegmentRead], fence: object) -> None:
        began = self._round_began = time.monotonic()
        parts: dict[int, RoundPart] = {}  # by epoch: several sources may go to one partition
        runs = self._runs(members, parts, began)
        writer = self._writer(members[0].delivery_target)  # of all members: `_batch_size_class` separates them
        try:
            failures = writer.deliver(runs, should_stop=self._should_stop, fence=fence)
        except WriterRefused as error:
            self._halt.refused(str(error))
            for part in parts.values():
                self._read_ahead.again(part.reading, part.begin, part.reading.narrow)
            return
        except BrokerUnavailable as error:
            # perhaps some runs were not taken: the rest was not produced, and is read again
            targets = {part.reading.delivery_target.target for part in parts.values()}
            failures = [RunFailed(p, "UNAVAILABLE", str(error), FailureKind.UNKNOWN) for p in targets]
        else:
            if any(part.has_run for part in parts.values()):  # else the target was not asked
                self._halt.lift()
        finally:
            runs.close()
        seconds = time.monotonic() - began
        self._pace.took(seconds, sum(part.read for part in parts.values()))
        self._results.finish(parts.values(), failures, seconds, self.clock.now())

    def _runs(
        self, members: list[SegmentRead], parts: dict[int, RoundPart], began: float
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
                    part = parts.setdefault(reading.delivery_target.epoch, RoundPart(reading, reading.position))
                    run = self._taker.take(reading, part)
                    if run is not None:
                        yield run
                    part.ended |= reading.narrow is not None
                    if self._halt.reason:  # one run at a time while refused, so that little is repeated
                        return
            if is_full() or self.stop.is_set() or not self._more(members, parts, began):
                return

    def _more(self, members: list[SegmentRead], parts: dict[int, RoundPart], began: float) -> bool:
        """Wait for a member's next run. False when none comes in time."""

        def coming() -> list[SegmentRead]:
            return [m for m in members if (p := parts.get(m.delivery_target.epoch)) is None or not p.ended]

        with self._mutex:
            left = began + self.linger.total_seconds() - time.monotonic()
            return self._mutex.wait_for(
                lambda: not coming() or any(m.ahead.done() for m in coming()) or self._should_stop(), max(left, 0)
            ) and any(m.ahead.done() for m in coming())
