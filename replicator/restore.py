"""Restoring topics from the archive, put together: what the command and users of Python call.

with Restore(load("replicator.toml"), Selection(region="us-east-1", topics=[TopicPattern("sensor.events")])) as restore:
    plan = restore.plan()
    for partition in restore.run(plan):
        print(partition.plan.target, partition.records, partition.failed)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from types import TracebackType
from typing import Self

from formats.registry import load as load_format
from formats.scope import Scope
from formats.transform import Transform
from infra.kafka.admin import KafkaAdmin
from infra.kafka.checkpoint_editor import KafkaCheckpointEditor
from infra.kafka.checkpoints import KafkaCheckpointStore
from infra.kafka.internal_topics import ensure_checkpoint_topic
from infra.kafka.timestamps import TargetTimestamps
from infra.kafka.transactions import TransactionalWriter
from infra.metrics import PrometheusMetrics
from ingress.delivery import Delivery
from ingress.pieces import PieceReader, RunReader
from ingress.restore_plan import ACCEPTED, Objection, RestorePlan
from ingress.restore_planner import RestorePlanner, Wishes
from ingress.restoring import Partition, Restorer
from ingress.selection import Selection, checkpoint_topic
from ingress.throttle import Throttle, ThrottledReader
from replicator.app import DELIVERY_WIDTH, PRODUCER_BYTES, ROUND_LINGER, ROUND_RECORDS, RUN_BYTES, archive_objects
from replicator.checkpoint import Author, Checkpoint
from replicator.config import Config
from replicator.control_store import ControlStore
from replicator.durable import Step, durable
from replicator.errors import CheckpointConflict, TargetError
from replicator.lifecycle import Stop, SystemClock
from replicator.store import SegmentStore

__all__ = ["Restore", "Selection", "Wishes"]

BATCH_RECORDS = 10_000
TRANSACTION_TIMEOUT = timedelta(seconds=30)
TAKE_OVER_WITHIN = timedelta(seconds=60)
THREADS = 8


class Restore:
    """A context manager. One thread."""

    def __init__(
        self,
        config: Config,
        selection: Selection,
        *,
        restore_id: str = "",
        wishes: Wishes | None = None,
        transform: Transform | None = None,
        max_rate: int | None = None,
        follow: timedelta | None = None,
        stop: Stop | None = None,
    ) -> None:
        """`restore_id`: the same one goes on where it stood; empty: the selection's own. `max_rate`: bytes of records
        a second. `follow`: how often to look for new segments; None: what is stored when it begins. `stop` ends it at
        any moment: the same restore goes on later. Raises ConfigError."""
        self.selection, self.id = selection, restore_id or selection.digest
        self.stop = stop or Stop()
        self._config, self._wishes = config, wishes or Wishes()
        self._transform, self._max_rate, self._follow = transform or Transform(), max_rate, follow
        self._opened = ExitStack()
        self._clock = SystemClock()
        self._admin = KafkaAdmin(config.cluster.properties("admin"))
        objects = archive_objects(config.s3, self.stop, self._opened)
        self._store, self._control = SegmentStore(objects, config.s3.prefix), ControlStore(objects, config.s3.prefix)
        self._format = load_format(config.format, config.format_options)
        self._pool = ThreadPoolExecutor(THREADS, "ask")
        self._opened.callback(self._pool.shutdown, wait=False, cancel_futures=True)
        self._checkpoints: KafkaCheckpointStore | None = None

    def plan(self) -> RestorePlan:
        """Changes nothing. Raises ConfigError, StoreUnavailable, BrokerUnavailable."""
        topic = checkpoint_topic(self.selection, self.id)
        known = topic in self._admin.describe([topic])
        planner = RestorePlanner(
            store=self._store,
            control=self._control,
            format=self._format,
            admin=self._admin,
            clock=self._clock,
            pool=self._pool,
        )
        return planner.plan(self.selection, self.id, self._wishes, self._checkpoints_in(topic) if known else None)

    def run(
        self, plan: RestorePlan, told: Callable[[Sequence[Partition]], None] = lambda _: None
    ) -> Sequence[Partition]:
        """Carry `plan` out. Raises TargetError when something speaks against it that is not accepted, OwnershipLost
        when the same restore was begun elsewhere, BrokerUnavailable, StoreUnavailable."""
        if plan.refused:
            raise TargetError("this restore would not end well:\n" + "\n".join(objections_text(plan)))
        ids = self._make_topics(plan)
        ensure_checkpoint_topic(self._admin, plan.checkpoint_topic, replication_factor=self._wishes.replication_factor)
        writer = TransactionalWriter(
            self._config.cluster.properties("producer"),
            transactional_id=plan.checkpoint_topic,
            exclusive=False,
            transaction_timeout=TRANSACTION_TIMEOUT,
            checkpoint_topic=plan.checkpoint_topic,
            memory_bytes=PRODUCER_BYTES,
        )
        with ExitStack() as opened:
            opened.callback(writer.close, timedelta(seconds=2))
            writer.take_over(TAKE_OVER_WITHIN)  # before the positions are read: nobody else moves them from here on
            checkpoints = self._checkpoints_in(plan.checkpoint_topic)
            positions = checkpoints.read()
            self._write_down_the_beginning(plan, ids, {key.destination_topic for key in positions})
            delivery = self._delivery(writer, opened)
            restorer = Restorer(
                store=self._store,
                control=self._control,
                checkpoints=checkpoints,
                delivery=delivery,
                pool=self._pool,
                clock=self._clock,
                stop=self.stop,
                skip_missing=Objection.MISSING in self._wishes.accept,
                follow=self._follow,
                told=told,
                width=DELIVERY_WIDTH,
            )
            for topic in plan.topics:
                for partition in topic.partitions:
                    if partition.target.partition < topic.partition_count:
                        begun = positions.get(partition.key)
                        if isinstance(begun, CheckpointConflict):
                            raise begun
                        _same_life(topic.destination, ids[topic.destination], begun)
                        restorer.begin(partition, ids[topic.destination], clamp=topic.clamps, begun=begun)
            return _beside(delivery, restorer)

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _checkpoints_in(self, topic: str) -> KafkaCheckpointStore:
        if self._checkpoints is None:
            self._checkpoints = KafkaCheckpointStore(self._config.cluster.properties("consumer"), topic)
            self._opened.callback(self._checkpoints.close)
        return self._checkpoints

    def _make_topics(self, plan: RestorePlan) -> dict[str, str]:
        """All of them before the first record. Their ids."""
        for topic in plan.topics:
            if topic.facts is None:
                with durable(Step.CREATE_TOPIC):
                    is_new = self._admin.create_topic(
                        topic.destination,
                        partitions=topic.partition_count,
                        replication_factor=topic.replication_factor,
                        configs=topic.configs,
                    )
                if not is_new:
                    raise TargetError(f"{topic.destination} was created by somebody else meanwhile: plan again")
        names = [topic.destination for topic in plan.topics]
        return {name: facts.topic_id for name, facts in self._admin.describe(names).items()}

    def _write_down_the_beginning(self, plan: RestorePlan, ids: dict[str, str], begun: set[str]) -> None:
        """Which topics are this restore's, before their first record: an aborted transaction leaves offsets behind, and
        the next run must not take them for somebody else's records."""
        editor = KafkaCheckpointEditor(self._config.cluster.properties("producer"), plan.checkpoint_topic)
        try:
            for topic in plan.topics:
                first = next((p for p in topic.partitions if p.next_offset is not None), None)
                if first is not None and topic.destination not in begun:
                    at = Checkpoint(
                        first.next_offset or 0, ids[topic.destination], self._clock.now(), author=Author.SEED
                    )
                    editor.seed(first.key, at)
        finally:
            editor.close()

    def _delivery(self, writer: TransactionalWriter, opened: ExitStack) -> Delivery:
        reading = ThreadPoolExecutor(2, "read")
        opened.callback(reading.shutdown, wait=False, cancel_futures=True)
        scope = Scope(offsets=self.selection.offsets, stamps=self.selection.stamps)
        reader: RunReader = PieceReader(
            self._store, self._format, BATCH_RECORDS, RUN_BYTES, scope=scope, change=self._transform
        )
        if self._max_rate:
            reader = ThrottledReader(reader, Throttle(self._max_rate, self.stop))
        return Delivery(
            reader=reader,
            writer=writer,
            timestamps=TargetTimestamps(self._admin, self._clock),
            pool=reading,
            clock=self._clock,
            metrics=PrometheusMetrics(),
            stop=Stop(),
            abandon=Stop(),
            width=DELIVERY_WIDTH,
            round_records=ROUND_RECORDS,
            linger=ROUND_LINGER,
        )


def _same_life(destination: str, topic_id: str, begun: Checkpoint | None) -> None:
    """The plan looked, too; but that may be a while ago."""
    if begun is not None and topic_id and begun.destination_topic_id not in ("", topic_id):
        raise TargetError(
            f"{destination} was created again since this restore began there (topic id {topic_id}, it was "
            f"{begun.destination_topic_id}): begin another, by --id"
        )


def objections_text(plan: RestorePlan) -> list[str]:
    """One line for each, with what to do."""
    everything = [*plan.objections, *(o for topic in plan.topics for o in topic.objections)]
    return [
        f"  {o.what}: {o.why}"
        + (f"; or --accept {o.what}: {ACCEPTED[o.what]}" if o.what in ACCEPTED and not o.accepted else "")
        + (" (accepted)" if o.accepted else "")
        for o in everything
    ]


def _beside(delivery: Delivery, restorer: Restorer) -> Sequence[Partition]:
    """`restorer` here, `delivery` on a thread of its own; what fails there is raised here."""
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
    return partitions
