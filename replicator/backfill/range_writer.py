"""Reads one range of one partition and stores it as segments, cut as egress cuts them.

    records ──> EgressPartition (ranges that tile, holes) ──> SegmentBuilder ──> confirmed ──> stored

Where a segment ends depends on the records and the limits alone, not on time or on how records were fetched: a repeated
attempt at the same range puts the same keys. The first object stored stays, and the other is compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import assert_never

from egress.partition import Append, EgressPartition, Reason, Seal, SealPolicy
from egress.segments.builder import SegmentBuilder
from egress.segments.outcomes import SegmentStored, SpoolLost, TopicRecreated, UploadConflict, UploadFailed
from egress.segments.split_run import cut
from egress.topics.incarnation_check import Confirmations
from formats.coverage import uncovered
from formats.errors import BrokerUnavailable, ReplicatorError, StoreUnavailable, TargetError
from formats.footer import SegmentOrigin
from formats.segment import OffsetRange, SourcePartition
from infra.archive.archive import Archive
from infra.archive.forward_listing import all_ahead
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import Run
from infra.runtime.lifecycle import Clock, Deadline, Stop
from replicator.backfill.request import RangeOutcome, RangeTask

ReadRuns = Callable[[TopicPartition, int, int], Iterator[Run]]
"""The runs of a partition from an offset up to another one, exclusive: see `infra.kafka.consumer.partition_reader`."""

NEVER = timedelta(days=36500)  # no segment of a backfill is sealed by age
POLL_SECONDS = 0.2
PATIENCE = timedelta(minutes=10)  # with a segment that is neither stored nor refused


class BackfillStopped(ReplicatorError):
    """The backfill was stopped. What is stored stays, and the next run goes on after it."""


@dataclass(slots=True)
class _Tally:
    segments: int = 0
    records: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    skipped: int = 0
    last: tuple[int, int | None] | None = None  # offset and leader epoch of the last record read


@dataclass(slots=True, kw_only=True)
class RangeWriter:
    """For one range at a time, on one thread. `builder` is used for nothing else."""

    archive: Archive
    builder: SegmentBuilder
    confirmations: Confirmations
    read: ReadRuns
    isolation_level: str
    writer: str  # name of the writer in footers
    clock: Clock
    stop: Stop
    created_by: str = ""  # the operator's name for the installation
    _left: int = field(default=0, init=False)  # sealed segments without an outcome

    def write(self, task: RangeTask) -> RangeOutcome:
        """Store what no segment of the archive covers. Raises BackfillStopped, SegmentsDiffer, TargetError when the
        topic was created again or the log no longer holds an offset, and what a repetition may solve: BrokerUnavailable
        and StoreUnavailable."""
        ahead = all_ahead(self.archive.segments, task.source, task.offsets.start, limit=None)
        holes = uncovered((info.segment.offsets for info in ahead.infos), task.offsets)
        tally = _Tally()
        tally.skipped = task.offsets.count - sum(one.count for one in holes)
        try:
            for hole in holes:
                self._fill(task, hole, tally)
        except BaseException:
            self.builder.discard(task.source)
            raise
        last, epoch = tally.last or (None, None)
        return RangeOutcome(
            source=str(task.source),
            start=task.offsets.start,
            end=task.offsets.end,
            segments=tally.segments,
            records=tally.records,
            raw_bytes=tally.raw_bytes,
            stored_bytes=tally.stored_bytes,
            skipped=tally.skipped,
            last_offset=last,
            last_epoch=epoch,
        )

    def _fill(self, task: RangeTask, hole: OffsetRange, tally: _Tally) -> None:
        policy = SealPolicy(max_messages=task.max_messages, max_bytes=task.max_bytes, max_age=NEVER)
        core = EgressPartition(policy, hole.start)
        core.begin()
        core.started(core.epoch)
        partition = TopicPartition(task.source.topic, task.source.partition)
        for run in self.read(partition, hole.start, hole.next_offset):
            if self.stop.is_set():
                raise BackfillStopped(f"{task.source}: stopped before {hole.next_offset}")
            self._check_epoch(task.source, run, tally)
            self._append(task, core, run)
            self._settle(task.source, tally, wait=False)
            self._relieve(task, core, tally)
        # the broker has reported that no record is left before it: the rest are markers, aborted or removed records
        core.reached(hole.next_offset, self.clock.now())
        for effect in core.drain(Reason.RANGE_END):
            if isinstance(effect, Seal):
                self._seal(task, effect)
        self._settle(task.source, tally, wait=True)

    def _append(self, task: RangeTask, core: EgressPartition, run: Run) -> None:
        rest: Run | None = run
        while rest is not None:
            head, rest = cut(rest, core.room, core.room_bytes)
            start = core.open_start
            effects = core.consumed(head.first_offset, head.last_offset, head.count, head.size_bytes, self.clock.now())
            for effect in effects:
                match effect:
                    case Append():
                        self.builder.append(task.source, start, head)
                    case Seal():
                        self._seal(task, effect)
                    case _:  # no seek, no loss and no commit: the reader gives each record once, in order
                        raise AssertionError(effect)

    def _seal(self, task: RangeTask, seal: Seal) -> None:
        origin = SegmentOrigin(
            topic_id=task.topic_id,
            cluster_id=task.cluster_id,
            source_partition_count=task.partition_count,
            isolation_level=self.isolation_level,
            last_leader_epoch=self.builder.leader_epoch(task.source),
            created_at=self.clock.now(),
            writer=self.writer,
            role="backfill",
            created_by=self.created_by,
        )
        self._left += 1
        self.builder.seal(task.source, seal, origin)

    def _relieve(self, task: RangeTask, core: EgressPartition, tally: _Tally) -> None:
        """Wait while too much is in memory or in the spool. A segment that alone is too large for the spool is sealed
        early: another attempt may cut there differently, and both are compared where they overlap."""
        while self.builder.must_pause:
            if self._left == 0:
                for effect in core.seal_early():
                    if isinstance(effect, Seal):
                        self._seal(task, effect)
            if self._left == 0:
                return
            self._settle(task.source, tally, wait=False, timeout_seconds=POLL_SECONDS)

    def _settle(self, source: SourcePartition, tally: _Tally, *, wait: bool, timeout_seconds: float = 0) -> None:
        """Count finished segments; with `wait`, until all are."""
        deadline = Deadline(PATIENCE)
        while True:
            self.confirmations.poll(self.clock.now())
            outcomes = self.builder.outcomes(POLL_SECONDS if wait and self._left else timeout_seconds)
            for outcome in outcomes:
                deadline = Deadline(PATIENCE)
                self._left -= 1
                match outcome:
                    case SegmentStored(footer=footer):
                        tally.segments += outcome.new
                        tally.records += footer.count
                        tally.raw_bytes += footer.raw_bytes
                        tally.stored_bytes += outcome.stored_bytes if outcome.new else 0
                    case SpoolLost(reason=reason):
                        raise StoreUnavailable(f"{source}: {reason}")
                    case UploadFailed(error=error) | UploadConflict(error=error):
                        raise error
                    case TopicRecreated():
                        raise TargetError(f"{source}: the topic was deleted or created again meanwhile")
                    case _:
                        assert_never(outcome)
            if not wait or not self._left:
                return
            if self.stop.is_set():
                raise BackfillStopped(f"{source}: stopped while segments were being stored")
            if deadline.expired:
                raise BrokerUnavailable(f"{source}: no segment was confirmed or stored for {PATIENCE}")

    @staticmethod
    def _check_epoch(source: SourcePartition, run: Run, tally: _Tally) -> None:
        """Leader epochs never decrease in a log."""
        if run.last_leader_epoch is not None and tally.last is not None:
            before = tally.last[1]
            if before is not None and run.last_leader_epoch < before:
                raise TargetError(
                    f"{source}: the record at {run.first_offset} is of leader epoch {run.last_leader_epoch}, and the "
                    f"one before of {before}: its log was cut while it was read"
                )
        tally.last = (run.last_offset, run.last_leader_epoch)
