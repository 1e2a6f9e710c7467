"""A restore on fakes: planner, Restorer and Delivery, with turns that the test runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from formats.int_range import ANY_OFFSET, ANY_TIME, IntRange
from formats.messages.delivery_checkpoint import Checkpoint
from formats.records.scope import RecordFilter
from formats.records.transform import NO_TRANSFORM, Transform
from formats.registry import SegmentFormat
from formats.topic_selection import TopicPattern
from infra.archive.run_reader import SegmentRunReader
from infra.contracts.cluster import TopicPartition
from infra.kafka.producer.timestamps import TargetTimestamps
from infra.runtime.lifecycle import Stop
from ingress.delivery.events import DeliveryEvent
from ingress.delivery.rounds import Delivery
from replicator.restore.executor import PATIENCE, Restorer
from replicator.restore.partition_plan import PartitionPlan
from replicator.restore.plan import RestorePlan
from replicator.restore.planner import RestorePlanner
from replicator.restore.progress import RestoringPartition
from replicator.restore.target_options import TargetOptions
from replicator.restore.target_topics import TargetTopics
from replicator.selection import Renaming, Selection
from tests.fakes.archive import archive_of
from tests.fakes.executors import HandExecutor, NeverWaits
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.surroundings import CountedMetrics
from tests.ingress.world import FORMAT, REGION, World

TARGETS = [TopicPartition("copy", p) for p in range(4)]


def restorable(segment_format: SegmentFormat = FORMAT) -> World:
    """An empty archive, and the topic to restore into."""
    world = World(format=segment_format)
    world.broker.create("copy", partitions=len(TARGETS))
    return world


def without_clients(world: World, monkeypatch: pytest.MonkeyPatch, admin: FakeAdmin | None = None) -> None:
    """A `Restore` made from now on has the archive of `world`, and `admin` or that of `world` for its cluster."""
    monkeypatch.setattr("replicator.restore.worker.KafkaAdmin", lambda *_: admin or world.admin)
    monkeypatch.setattr("replicator.restore.worker.open_archive", lambda *_: world.archive)
    monkeypatch.setattr("replicator.restore.restore.s3_cold", lambda *_: None)


class Restoring:
    """One process: it plans and resumes from the checkpoints. `turn` runs one turn of both loops."""

    def __init__(
        self,
        world: World,
        *,
        offsets: IntRange = ANY_OFFSET,
        timestamps: IntRange = ANY_TIME,
        records: int = 4,
        width: int = 8,
        skip_missing: bool = False,
        follow: timedelta | None = None,
        patience: timedelta = PATIENCE,
        transform: Transform = NO_TRANSFORM,
        plans: Sequence[PartitionPlan] | None = None,
    ) -> None:
        self.world = world
        self.pool, self.reading, self.stop = HandExecutor(), HandExecutor(), Stop()
        reports: NeverWaits[DeliveryEvent] = NeverWaits()
        self.delivery = Delivery(
            reader=SegmentRunReader(
                world.archive, records, 1 << 20, scope=RecordFilter(offsets=offsets, timestamps=timestamps)
            ),
            writer=world.target.writer(),
            timestamps=TargetTimestamps(world.admin, world.clock),
            pool=self.reading,
            clock=world.clock,
            metrics=CountedMetrics(),
            stop=Stop(),
            abandon=Stop(),
            width=width,
            reports=reports,
        )
        self.restorer = Restorer(
            archive=world.archive,
            checkpoints=world.target.checkpoint_store(),
            delivery=self.delivery,
            pool=self.pool,
            clock=world.clock,
            stop=self.stop,
            skip_missing=skip_missing,
            follow=follow,
            replaced=TargetTopics(world.admin, {"copy": "id-copy"}, self.pool).turn,
            width=width,
            patience=patience,
            transform=transform,
        )
        self.plan = self._plan(offsets, timestamps)
        checkpoints = world.target.checkpoint_store()
        positions, skipped = checkpoints.read(), checkpoints.skipped()
        self.partitions: dict[int, RestoringPartition] = {}  # in the order of their turns
        for planned in self.plan.partitions if plans is None else plans:
            begun = positions.get(planned.key)
            assert begun is None or isinstance(begun, Checkpoint)
            partition = self.restorer.begin(planned, "id-copy", clamp=False, begun=begun, skipped=skipped)
            self.partitions[planned.source.partition] = partition

    def _plan(self, offsets: IntRange, timestamps: IntRange) -> RestorePlan:
        world = self.world
        planner = RestorePlanner(
            archive=archive_of(world.peek, world.format),
            admin=world.admin,
            clock=world.clock,
            pool=HandExecutor(),
        )
        selection = Selection(
            region=REGION,
            topics=[TopicPattern("t")],
            offsets=offsets,
            timestamps=timestamps,
            renaming=Renaming({"t": "copy"}),
        )
        return planner.plan(selection, selection.digest, TargetOptions(), world.target.checkpoint_store())

    def turn(self, count: int = 1, *, seconds: float = 0) -> None:
        for _ in range(count):
            self.world.clock.advance(seconds)
            self.restorer.turn()
            self.delivery.run_round()

    def finish(self, *, seconds: float = 1) -> None:
        """Advance the clock by this much in every turn."""
        for _ in range(2_000):
            if all(partition.is_over for partition in self.partitions.values()):
                return
            self.turn(seconds=seconds)
        states = [(p.plan.source.partition, p.next_offset, p.sequencer) for p in self.partitions.values()]
        raise AssertionError(f"it does not end: {states}")

    @property
    def failed(self) -> dict[int, str]:
        return {number: partition.failed for number, partition in self.partitions.items() if partition.failed}

    @property
    def done(self) -> set[int]:
        return {number for number, partition in self.partitions.items() if partition.is_done}
