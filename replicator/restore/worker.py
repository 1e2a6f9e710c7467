"""Restores partitions: in the process that planned the restore, or one partition per Spark task.

A worker fences the earlier owner of its transactional id before it reads the position: an earlier attempt of a task, or
a task that was assumed lost, can no longer write.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from formats.control.restore_cut import Cut, encode_cut
from formats.coverage import SegmentSlice
from formats.errors import BrokerUnavailable, CheckpointConflict, TargetError
from formats.int_range import INT64_MAX
from formats.messages.delivery_checkpoint import CUT_KEY, Author, Checkpoint
from formats.records.scope import RecordFilter
from formats.records.transform import load as load_transform
from infra.archive.run_reader import RunReader, SegmentRunReader
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import TargetRun
from infra.kafka.client.properties import for_bounded_reads
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore
from infra.kafka.producer.ownership import Owner
from infra.kafka.producer.preserving import PreservingWriter
from infra.kafka.producer.timestamps import TargetTimestamps
from infra.kafka.producer.transactional import TransactionalWriter
from infra.runtime.lifecycle import Stop, SystemClock
from infra.runtime.prometheus import PrometheusMetrics
from ingress.delivery.rounds import ROUND_LINGER, Delivery
from ingress.delivery.sizes import (
    DECODING_THREADS,
    DELIVERY_WIDTH,
    PRODUCER_BYTES,
    READING_THREADS,
    ROUND_BYTES,
    ROUND_RECORDS,
    RUN_AGE,
    RUN_BYTES,
)
from replicator.config import Config
from replicator.restore.conflicts import CLAMPS
from replicator.restore.executor import PATIENCE, Restorer
from replicator.restore.kept_offsets import time_for
from replicator.restore.log_ends import LogEndFiller
from replicator.restore.partition_plan import PartitionPlan
from replicator.restore.passed_over import note_runs
from replicator.restore.preserving import preserving_writer
from replicator.restore.progress import RestoringPartition
from replicator.restore.target_topics import TargetTopics
from replicator.restore.throttle import Throttle, ThrottledReader
from replicator.services.archive import open_archive

BATCH_RECORDS = 10_000
TRANSACTION_TIMEOUT = timedelta(seconds=30)
TAKE_OVER_WITHIN = timedelta(seconds=60)
THREADS = 8

RestoreProgress = Callable[[Sequence[RestoringPartition]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreSettings:
    """How partitions are restored; the same for a whole restore. Can be pickled."""

    checkpoint_topic: str
    offset_map_topic: str
    scope: RecordFilter
    keep: Sequence[str] = ()  # names of functions that decide which records are kept
    change: Sequence[str] = ()  # names of functions that change records
    max_rate: int | None = None  # bytes of records per second
    follow: timedelta | None = None
    skip_missing: bool = False
    preserves_offsets: bool = False
    hole_limit: int = INT64_MAX  # offsets without a record, in a row, that are filled


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """One partition and its destination."""

    plan: PartitionPlan
    topic_id: str
    clamp: bool


class RestoreWorker:
    """For one thread. Resources are closed by the owner of `opened`."""

    def __init__(
        self, config: Config, settings: RestoreSettings, transactional_id: str, stop: Stop, opened: ExitStack
    ) -> None:
        """Raises ConfigError."""
        self._config, self._settings, self._stop, self._opened = config, settings, stop, opened
        self._clock = SystemClock()
        self.admin = KafkaAdmin(config.cluster.properties("admin"))
        self.archive = open_archive(config, stop, opened)
        self.pool = ThreadPoolExecutor(THREADS, "ask")
        opened.callback(self.pool.shutdown, wait=False, cancel_futures=True)
        self._transform = load_transform(settings.keep, settings.change)
        self._writer: TransactionalWriter | None = None
        self._checkpoints: KafkaCheckpointStore | None = None
        self._preserving_writer: PreservingWriter | None = None
        self._new: set[TopicPartition] = set()  # this process has begun them
        self._transactional_id = transactional_id

    @property
    def checkpoints(self) -> KafkaCheckpointStore:
        if self._checkpoints is None:
            consumer = for_bounded_reads(self._config.cluster.properties("consumer"))
            self._checkpoints = KafkaCheckpointStore(consumer, self._settings.checkpoint_topic)
            self._opened.callback(self._checkpoints.close)
        return self._checkpoints

    def take_over(self) -> TransactionalWriter:
        """Abort the open transaction of an earlier process and fence that process, even if it runs again later.

        Positions read afterwards are final. The checkpoint topic has to exist. Raises BrokerUnavailable.
        """
        if self._writer is None:
            writer = TransactionalWriter(
                self._config.cluster.properties("producer"),
                transactional_id=self._transactional_id,
                exclusive=False,
                transaction_timeout=TRANSACTION_TIMEOUT,
                checkpoint_topic=self._settings.checkpoint_topic,
                offset_map_topic=self._settings.offset_map_topic,
                memory_bytes=PRODUCER_BYTES,
            )
            self._opened.callback(writer.close, timedelta(seconds=2))
            writer.take_over(TAKE_OVER_WITHIN, Owner(self._transactional_id, self.checkpoints))
            self._writer = writer
        return self._writer

    def pin(self, cut: Cut) -> None:
        """Record the cut before the first record: a later run of this restore keeps to it. Raises TargetError when
        another process began with another one meanwhile, OwnershipLost, BrokerUnavailable."""
        writer = self.take_over()
        self.checkpoints.read()
        pinned = self.checkpoints.cut()
        if pinned is None:
            writer.record_cut((CUT_KEY, encode_cut(cut)), self._stop.is_set)
        elif pinned != cut:
            raise TargetError("this restore was begun by another process meanwhile, by other watermarks: give it again")

    def begin(self, tasks: Sequence[PartitionTask]) -> None:
        """Write a first checkpoint for each task, with the producer that a successor fences. A partition without one
        was never sent a record by this restore, if all of them are begun first. Raises OwnershipLost,
        BrokerUnavailable."""
        self._new |= {task.plan.target for task in tasks}
        at = self._clock.now()
        runs = [
            TargetRun(
                t.plan.target,
                (),
                0,
                0,
                t.plan.key,
                Checkpoint(t.plan.next_offset or 0, t.topic_id, at, Author.EXACTLY_ONCE, begun_at=t.plan.next_offset),
                position=t.plan.next_offset or 0,
                epoch=0,
            )
            for t in tasks
        ]
        self._deliver(runs, "write the first checkpoints")

    def _deliver(self, runs: Sequence[TargetRun], what: str) -> None:
        """Write checkpoints and notes without records."""
        failed = self.take_over().deliver(runs, should_stop=self._stop.is_set)
        if failed:
            raise BrokerUnavailable(f"{what}: {failed[0].reason}")

    def restore(
        self,
        tasks: Sequence[PartitionTask],
        on_progress: RestoreProgress = lambda _: None,
        until: Callable[[], bool] = lambda: False,
    ) -> Sequence[RestoringPartition]:
        """Restore `tasks` until they have ended, `stop` is set or `until` returns True. Raises OwnershipLost when
        another process took them over, CheckpointConflict, BrokerUnavailable, StoreUnavailable."""
        writer = self.take_over()
        positions = self.checkpoints.read()
        skipped = self.checkpoints.skipped()
        if self._settings.preserves_offsets:
            self._new |= {t.plan.target for t in tasks if t.plan.offsets is None and t.plan.key not in positions}
        preserving = self._preserving(writer) if self._settings.preserves_offsets else None
        topics = TargetTopics(self.admin, {task.plan.target.topic: task.topic_id for task in tasks}, self.pool)
        with ExitStack() as opened:
            delivery = self._delivery(writer, preserving, opened, tasks)
            restorer = Restorer(
                archive=self.archive,
                checkpoints=self.checkpoints,
                delivery=delivery,
                pool=self.pool,
                clock=self._clock,
                stop=self._stop,
                skip_missing=self._settings.skip_missing,
                follow=self._settings.follow,
                on_progress=on_progress,
                until=until,
                replaced=topics.turn,
                width=DELIVERY_WIDTH,
                transform=self._transform,
                preserves_offsets=preserving is not None,
                patience=PATIENCE + 2 * time_for(task.plan for task in tasks),
            )
            for task in tasks:
                begun = positions.get(task.plan.key)
                if isinstance(begun, CheckpointConflict):
                    raise begun
                _require_same_topic(task, begun)
                restorer.begin(task.plan, task.topic_id, clamp=task.clamp, begun=begun, skipped=skipped)
            partitions = _run_in_parallel(delivery, restorer)
            if preserving is not None:
                ends = LogEndFiller(writer=preserving, clock=self._clock, stop=self._stop, patience=PATIENCE)
                ends.reach(partitions)
        if any(partition.unwritten for partition in partitions):
            notes = note_runs(partitions, self.checkpoints.read(), self._clock.now())
            self._deliver(notes, "write what it passed over")
        return partitions

    def _preserving(self, writer: TransactionalWriter) -> PreservingWriter:
        if self._preserving_writer is None:
            self._preserving_writer = preserving_writer(
                self._config,
                self.admin,
                transactional_id=self._transactional_id,
                prove=partial(writer.prove_ownership, self._stop.is_set),
                new=self._new,
                transaction_timeout=TRANSACTION_TIMEOUT,
                hole_limit=self._settings.hole_limit,
                checkpoint_topic=self._settings.checkpoint_topic,
                offset_map_topic=self._settings.offset_map_topic,
                memory_bytes=PRODUCER_BYTES,
            )
            self._opened.callback(self._preserving_writer.close, timedelta(seconds=2))
        return self._preserving_writer

    def sample(
        self, plans: Sequence[PartitionPlan], count: int
    ) -> Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
        """See `Restore.sample`."""
        for plan in plans:
            slices = [SegmentSlice.rest(i.segment, i.segment.offsets.start) for i in plan.left[:1]]
            reader = SegmentRunReader(self.archive, count, RUN_BYTES, scope=self._settings.scope)
            for run in reader.runs(slices) if slices else ():
                for batch in run.batches:
                    before = batch.slice(0, count)
                    changed = {row["offset"]: row for row in self._transform(before, plan.source).to_pylist()}
                    return [(row, changed.get(row["offset"])) for row in before.to_pylist()]
        return []

    def _delivery(
        self,
        writer: TransactionalWriter,
        preserving: PreservingWriter | None,
        opened: ExitStack,
        tasks: Sequence[PartitionTask],
    ) -> Delivery:
        reading = ThreadPoolExecutor(READING_THREADS, "read")
        opened.callback(reading.shutdown, wait=False, cancel_futures=True)
        # a segment that was merged since the plan was made may extend beyond it; with `follow` that part is restored,
        # too
        planned = {} if self._settings.follow is not None else {t.plan.source: t.plan.last_offset for t in tasks}
        reader: RunReader = SegmentRunReader(
            self.archive,
            BATCH_RECORDS,
            RUN_BYTES,
            scope=self._settings.scope,
            last_offset=lambda source: planned.get(source, INT64_MAX),
            max_age=RUN_AGE,
            decoding=threading.Semaphore(DECODING_THREADS),
        )
        if self._settings.max_rate:
            reader = ThrottledReader(reader, Throttle(self._settings.max_rate, self._stop))
        return Delivery(
            reader=reader,
            writer=writer,
            preserving=preserving,
            timestamps=TargetTimestamps(self.admin, self._clock, CLAMPS),
            pool=reading,
            clock=self._clock,
            metrics=PrometheusMetrics(),
            stop=Stop(),
            abandon=Stop(),
            width=DELIVERY_WIDTH,
            round_records=ROUND_RECORDS,
            round_bytes=ROUND_BYTES,
            linger=ROUND_LINGER,
        )


def _require_same_topic(task: PartitionTask, begun: Checkpoint | None) -> None:
    """Raise TargetError if the destination was created again. The plan checked this, but perhaps a while ago."""
    if begun is not None and task.topic_id and begun.destination_topic_id not in ("", task.topic_id):
        raise TargetError(
            f"{task.plan.target.topic} was created again since this restore began there (topic id {task.topic_id}, it "
            f"was {begun.destination_topic_id}): start another one with --id"
        )


def _run_in_parallel(delivery: Delivery, restorer: Restorer) -> Sequence[RestoringPartition]:
    """Run `restorer` on this thread and `delivery` on another. An exception of either is raised here."""
    failure: list[BaseException] = []

    def deliver() -> None:
        try:
            delivery.run()
        except BaseException as error:
            failure.append(error)
            restorer.stop.set()

    thread = threading.Thread(target=deliver, name="delivery")
    thread.start()
    try:
        partitions = restorer.run()
    finally:
        delivery.stop.set()
        thread.join()
    if failure:
        raise failure[0]
    restorer.drain()
    return partitions
