"""Reads segment slices for delivery, of a limited number of partitions at a time, each one run ahead on a pool.

begin ──> waiting ──> open (read one run ahead) ──> taken, run by run ──> dropped
             ^            └─ again, from an offset on: ahead of all that wait

Memory is bounded by `width` reads of any size and, besides, `small_width` of at most `SMALL_BYTES`: a round takes what
is open, and a commit for every few partitions would take most of the time of short segments. How large a read is,
follows from its offsets and from the last run of the same partition; without one, it is of any size. First checkpoints
are read from nowhere: up to `FIRST_WIDTH` of them are open besides, so that many new partitions begin in few rounds.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Hashable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from enum import StrEnum, auto

from formats.coverage import SegmentSlice, remaining
from formats.messages.delivery_checkpoint import Skipped
from formats.segment import Segment
from infra.archive.run_reader import RunReader, SegmentRun
from infra.contracts.cluster import TopicPartition
from infra.runtime.lifecycle import Clock
from ingress.delivery.events import DeliveryTarget
from ingress.delivery.record_metrics import RunMeasures, measures_of

SMALL_BYTES = 256 << 10  # of records: what a partition of a few hundred records a second has in a second
FIRST_WIDTH = 100  # not more: after an abort without a named cause each topic of the round gets rounds of its own


class _Place(StrEnum):
    """What an open read takes up."""

    ANY = auto()
    SMALL = auto()
    FIRST = auto()


@dataclass(frozen=True, slots=True)
class Narrow:
    """A record below `until` is refused: read runs of `max_records` until it is alone in its run."""

    max_records: int
    until: int


@dataclass(frozen=True, slots=True)
class _Waiting:
    delivery_target: DeliveryTarget
    slices: Sequence[SegmentSlice]  # adjacent; none: only the first checkpoint is written
    dropped: int = 0  # records that the transform left out before the slices, since delivery began
    narrow: Narrow | None = None
    skipped: Sequence[Skipped] = ()  # offsets right before the slices


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """How far slices were taken."""

    next_offset: int
    dropped: int  # records below it that the transform left out, since delivery began


@dataclass(frozen=True, slots=True)
class RunAhead:
    """A run that was read, and what was measured of it then."""

    run: SegmentRun
    measures: RunMeasures


@dataclass(slots=True, eq=False)
class SegmentRead:
    delivery_target: DeliveryTarget
    slices: Sequence[SegmentSlice]
    narrow: Narrow | None
    runs: Generator[SegmentRun, None, None]
    ahead: Future[RunAhead]
    begin: ReadPosition
    position: ReadPosition  # of the next run to take
    skipped: Sequence[Skipped]  # recorded with the first run
    place: _Place

    @property
    def next_offset(self) -> int:
        return self.position.next_offset

    @property
    def segment(self) -> Segment:
        """The segment that the next run begins in."""
        return remaining(self.slices, self.next_offset)[0].segment


@dataclass(slots=True)
class ReadAhead:
    """Use from the delivery thread only, except for `begin` and `release`. `changed` guards the waiting slices; it is
    notified when slices are added, and when a run is read."""

    reader: RunReader
    pool: Executor
    clock: Clock
    width: int
    changed: threading.Condition
    small_width: int = 0
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _released: set[int] = field(default_factory=set)  # epochs whose partitions were revoked since the last round
    _open: dict[int, SegmentRead] = field(default_factory=dict)  # by epoch
    _record_bytes: dict[int, float] = field(default_factory=dict)  # of an average record of the last run, by epoch
    _served: dict[Hashable, int] = field(default_factory=dict)  # group of partitions -> its last round
    _apart: set[str | TopicPartition] = field(default_factory=set)  # topics and partitions that may make a round fail
    _rounds: int = 0

    def begin(
        self, delivery_target: DeliveryTarget, slices: Sequence[SegmentSlice], skipped: Sequence[Skipped], dropped: int
    ) -> None:
        with self.changed:
            self._waiting.append(_Waiting(delivery_target, slices, dropped, skipped=skipped))
            self.changed.notify_all()

    def release(self, epochs: Collection[int]) -> None:
        """Drop these epochs before the next round. Call with `changed` acquired."""
        self._released.update(epochs)

    @property
    def has_available(self) -> bool:
        return any(reading.ahead.done() for reading in self._open.values())

    def members(self, batch_size_class: Callable[[DeliveryTarget], Hashable]) -> list[SegmentRead]:
        """The reads that share the next round: of one batch size class, and none that may make it fail for the others;
        groups take turns. Opens waiting slices. Call with `changed` acquired."""
        self._drop_released()
        while self._waiting and (place := self._free_place(self._waiting[0])) is not None:
            self._begin_reading(self._waiting.popleft(), place)
        groups: dict[Hashable, list[SegmentRead]] = {}
        for reading in self._open.values():
            target = reading.delivery_target.target
            alone = reading.delivery_target.epoch if reading.narrow else 0
            apart = next((one for one in (target, target.topic) if one in self._apart), "")
            groups.setdefault((batch_size_class(reading.delivery_target), alone, apart), []).append(reading)
        ready = [group for group, readings in groups.items() if any(r.ahead.done() for r in readings)]
        if not ready:
            return []
        chosen = min(ready, key=lambda group: self._served.get(group, 0))
        self._rounds += 1
        self._served = {group: at for group, at in self._served.items() if group in groups} | {chosen: self._rounds}
        first = self._rounds % len(groups[chosen])  # so that a full round does not always leave out the same one
        return groups[chosen][first:] + groups[chosen][:first]

    def _drop_released(self) -> None:
        """Between two rounds nothing of them is in flight, and nothing of them is begun any more."""
        released, self._released = self._released, set()
        if not released:
            return
        for epoch in released:
            self.drop(epoch)
            self._record_bytes.pop(epoch, None)
        self._waiting = deque(one for one in self._waiting if one.delivery_target.epoch not in released)

    def set_apart(self, what: str | TopicPartition) -> None:
        """Give a topic or a partition separate rounds until `joins`; the partitions of a topic share them."""
        self._apart.add(what)

    def joins(self, partition: TopicPartition) -> None:
        """Records of `partition` were delivered: it shares rounds again."""
        self._apart -= {partition, partition.topic}

    def next_run(self, reading: SegmentRead, run: SegmentRun) -> None:
        """`run` was taken: start to read the next one."""
        reading.position = ReadPosition(run.next_offset, reading.position.dropped + run.dropped)
        if run.count:
            self._record_bytes[reading.delivery_target.epoch] = run.size_bytes / run.count
        if not run.last:
            reading.ahead = self._read_ahead(reading.runs)

    def again(self, reading: SegmentRead, position: ReadPosition, narrow: Narrow | None) -> None:
        """Read once more from `position`, ahead of all that wait."""
        self.drop(reading.delivery_target.epoch)
        # once the first run is delivered, the offsets skipped before it are recorded already
        skipped = reading.skipped if position == reading.begin else ()
        slices = remaining(reading.slices, position.next_offset)
        assert slices or not reading.slices, "read to its end: it would be taken for a first checkpoint"
        with self.changed:
            self._waiting.appendleft(_Waiting(reading.delivery_target, slices, position.dropped, narrow, skipped))

    def drop(self, epoch: int) -> None:
        reading = self._open.pop(epoch, None)
        if reading is not None:
            reading.ahead.add_done_callback(lambda _: reading.runs.close())

    def close(self) -> None:
        for epoch in list(self._open):
            self.drop(epoch)

    def _free_place(self, waiting: _Waiting) -> _Place | None:
        """Where it may be opened now; None: nowhere. The order of those that wait is kept."""
        if not waiting.slices and not waiting.delivery_target.preserves_offsets:  # those take over a log first
            return _Place.FIRST if self._taken(_Place.FIRST) < FIRST_WIDTH else None
        if self._taken(_Place.SMALL) < self.small_width and self._is_small(waiting):
            return _Place.SMALL
        return _Place.ANY if self._taken(_Place.ANY) < self.width else None

    def _taken(self, place: _Place) -> int:
        return sum(reading.place is place for reading in self._open.values())

    def _is_small(self, waiting: _Waiting) -> bool:
        record_bytes = self._record_bytes.get(waiting.delivery_target.epoch)
        if record_bytes is None:
            return False
        most = sum(one.offsets.count for one in waiting.slices)  # holes count, too
        return most * record_bytes <= SMALL_BYTES

    def _begin_reading(self, waiting: _Waiting, place: _Place) -> None:
        delivery_target, narrow, slices = waiting.delivery_target, waiting.narrow, waiting.slices
        assert delivery_target.epoch not in self._open, "begun again before its end: records would be left out"
        if slices:
            at = slices[0].offsets.start
            most = narrow.max_records if narrow else None
            runs = self.reader.runs(
                slices,
                max_records=most,
                transform=delivery_target.transform,
                lineage_header=delivery_target.lineage_header,
            )
            ahead = self._read_ahead(runs)
        else:
            at = delivery_target.begun_at or 0
            runs, ahead = _first_run(at), Future()
            ahead.set_result(self._read(runs))  # reads nothing: needs no thread
        begin = ReadPosition(at, waiting.dropped)
        self._open[delivery_target.epoch] = SegmentRead(
            delivery_target, slices, narrow, runs, ahead, begin, begin, waiting.skipped, place
        )

    def _read_ahead(self, runs: Generator[SegmentRun, None, None]) -> Future[RunAhead]:
        future = self.pool.submit(self._read, runs)
        future.add_done_callback(lambda _: self._wake())
        return future

    def _read(self, runs: Generator[SegmentRun, None, None]) -> RunAhead:
        """On the pool; of a first checkpoint on the delivery thread, since nothing is read."""
        run = next(runs)
        return RunAhead(run, measures_of(run.batches, self.clock.now()))

    def _wake(self) -> None:
        with self.changed:
            self.changed.notify_all()


def _first_run(next_offset: int) -> Generator[SegmentRun, None, None]:
    """A run without records, for the position alone."""
    yield SegmentRun((), 0, 0, next_offset, last=True)
