"""Delivery that the test drives: its pool and its rounds run when the test says so."""

from __future__ import annotations

from datetime import timedelta

from formats.coverage import SegmentSlice
from formats.segment import Segment
from infra.archive.run_reader import SegmentRunReader
from infra.contracts.cluster import TopicPartition
from infra.kafka.producer.timestamps import TargetTimestamps
from infra.runtime.lifecycle import Stop
from ingress.delivery.events import DeliveryEvent, DeliveryTarget
from ingress.delivery.rounds import Delivery
from tests.fakes.executors import HandExecutor
from tests.fakes.surroundings import CountedMetrics
from tests.ingress.world import World

C, D = TopicPartition("copy", 0), TopicPartition("copy", 1)


class Hand:
    """A Delivery whose pool is driven by hand."""

    def __init__(
        self,
        world: World,
        *,
        records: int = 4,
        width: int = 8,
        small_width: int = 0,
        round_records: int = 1,
        linger: timedelta = timedelta(),
    ) -> None:
        world.broker.create("copy", partitions=8)
        self.world, self.pool, self.metrics = world, HandExecutor(), CountedMetrics()
        self.abandon = Stop()
        self.delivery = Delivery(
            reader=SegmentRunReader(world.archive, records, 1 << 20),
            writer=world.target.writer(),
            timestamps=TargetTimestamps(world.admin, world.clock),
            pool=self.pool,
            clock=world.clock,
            metrics=self.metrics,
            stop=Stop(),
            abandon=self.abandon,
            width=width,
            small_width=small_width,
            round_records=round_records,
            linger=linger,
        )

    def begin(
        self, segment: Segment, epoch: int = 1, from_offset: int = 0, target: TopicPartition | None = None
    ) -> DeliveryTarget:
        partition = target or TopicPartition("copy", segment.source.partition)
        given = DeliveryTarget(segment.source, partition, "id", epoch, clamp_timestamps=False)
        self.delivery.begin(given, [SegmentSlice.rest(segment, max(from_offset, segment.offsets.start))])
        return given

    def reports(self) -> list[DeliveryEvent]:
        found = []
        while not self.delivery.reports.empty():
            found.append(self.delivery.reports.get())
        return found
