"""Ingress processes on the world of the tests, whose every turn of the loop the test makes."""

from __future__ import annotations

import uuid
from contextlib import suppress
from datetime import timedelta
from typing import Any

from infra.archive.run_reader import SegmentRunReader
from infra.archive.source_reports import SourceReports
from infra.contracts.cluster import TopicPartition
from infra.kafka.internal_topics.ensure import checkpoint_problems
from infra.kafka.internal_topics.parked_reporter import BackgroundParkedReporter
from infra.kafka.producer.timestamps import TargetTimestamps
from infra.runtime.health import Health
from infra.runtime.lifecycle import Stop
from infra.settings.current import Current
from ingress.catalog.sync import CatalogSync
from ingress.controller import IngressController, IngressParts
from ingress.delivery.events import DeliveryEvent
from ingress.delivery.rounds import Delivery
from ingress.group_ownership import GroupOwnership
from ingress.groups.groups import Groups
from ingress.groups.settings import GroupSettings
from ingress.groups.topic_ids import ClaimedTopicIds
from ingress.heartbeats import Heartbeats
from ingress.routing.path_owner import PathOwners
from ingress.segment_stages import SegmentStages
from ingress.source_metrics import SourceMetrics
from ingress.topics_not_arrived import TopicsNotArrived
from tests.fakes.executors import HandExecutor, NeverWaits
from tests.fakes.kafka_target import Crashed
from tests.fakes.placement import FakePlacement
from tests.fakes.surroundings import CountedMetrics
from tests.ingress.world import HERE, World

POOLS = ("pool", "reading", "checkpoint_pool")


class Process:
    """One ingress process, on hand-driven pools. `turn` is a turn of both its loops."""

    def __init__(
        self,
        world: World,
        *,
        run_records: int = 10_000,
        run_bytes: int = 8 << 20,
        width: int = 8,
        group_id: str = "",
        take_over: str = "",
        log_started: bool = True,
    ) -> None:
        """`log_started`: what the controller's `run` does first, which is not called when a test makes every turn."""
        self.world = world
        self.checkpoints = world.target.checkpoint_store()
        self.placement = FakePlacement()
        self.pool, self.reading, self.checkpoint_pool = HandExecutor(), HandExecutor(), HandExecutor()
        self.heartbeat_pool = HandExecutor()
        self.metrics, self.health = CountedMetrics(), Health()
        self.stages = SegmentStages(self.metrics, world.clock)
        self.stop_signal, self.abandon = Stop(), Stop()
        self.event_log = world.log.open()
        self.notes = BackgroundParkedReporter(self.checkpoints, world.target.editor(), self.stop_signal)
        reports: NeverWaits[DeliveryEvent] = NeverWaits()
        self.delivery = Delivery(
            reader=SegmentRunReader(
                world.archive,
                run_records,
                run_bytes,
                expect=PathOwners(world.control, timedelta()).expect,
                opened=self.stages.opened,
            ),
            writer=world.target.writer(),
            timestamps=TargetTimestamps(world.admin, world.clock),
            pool=self.reading,
            clock=world.clock,
            metrics=self.metrics,
            stop=self.stop_signal,
            abandon=self.abandon,
            width=width,
            reports=reports,
        )
        self.current = Current(world.settings)
        source_reports = SourceReports(world.objects, "data")
        self.finder = world.finder(self.current)
        self.controller = IngressController(
            IngressParts(
                placement=self.placement,
                event_log=self.event_log,
                checkpoints=self.checkpoints,
                checkpoint_problems=lambda: checkpoint_problems(world.admin, world.settings.checkpoint_topic),
                ownership=GroupOwnership(
                    topic=world.settings.checkpoint_topic,
                    group_id=group_id or world.settings.group_id,
                    take_over=take_over,
                    checkpoints=self.checkpoints,
                    editor=world.target.editor(),
                    groups=world.groups,
                    cluster_id=world.admin.cluster_id,
                    clock=world.clock,
                    make_id=lambda: uuid.uuid4().hex,
                ),
                target_records=world.target,
                notes=self.notes,
                store=world.store,
                control=world.control,
                finder=self.finder,
                delivery=self.delivery,
                stages=self.stages,
                catalog=CatalogSync(
                    world.applier(self.current, source_reports.watermarks),
                    self.pool,
                    world.settings.refresh_interval,
                    self.health,
                ),
                sources=SourceMetrics(
                    source_reports,
                    ClaimedTopicIds(world.control),
                    TopicsNotArrived(settings=self.current, own_topics=world.settings.own_topics, here=HERE),
                    self.metrics,
                    self.pool,
                    world.settings.refresh_interval,
                ),
                heartbeats=Heartbeats(
                    settings=self.current, round=world.heartbeat_round(self.current), pool=self.heartbeat_pool
                ),
                groups=Groups(
                    settings=self.current,
                    groups=GroupSettings(),
                    round=None,
                    pool=self.pool,
                    metrics=self.metrics,
                    health=self.health,
                ),
                pool=self.pool,
                checkpoint_pool=self.checkpoint_pool,
                clock=world.clock,
                jitter=lambda interval: interval,
                metrics=self.metrics,
                health=self.health,
                stop=self.stop_signal,
                abandon=self.abandon,
                relist_interval=world.settings.relist_interval,
                refresh_interval=world.settings.refresh_interval,
                shutdown_timeout=timedelta(seconds=0.05),
            )
        )
        if log_started:
            self.event_log.start()

    def control(self, count: int = 1) -> None:
        for _ in range(count):
            self.controller._turn()
            left_out = self.controller._assignment._assigned.left_out()
            assert all(one.is_at_rest for one in left_out), "the next turn has something to do for them"
            self.notes.write()

    def turn(self, count: int = 1) -> None:
        for _ in range(count):
            self.control()
            self.delivery.run_round()

    def later(self, seconds: float, turns: int = 4) -> None:
        self.world.clock.advance(seconds)
        self.turn(turns)

    def join(self, *partitions: TopicPartition) -> None:
        self.turn(2)
        self.placement.assign(*partitions)
        self.turn(6)

    def answer(self, pool: str, *, all_: bool) -> None:
        """What one of `POOLS` was asked: the next that waits, or all, and what comes later at once."""
        executor = getattr(self, pool)
        if executor.waiting and not all_:
            executor.run_next()
            return
        executor.holding = False
        executor.run_all()

    def stop(self) -> None:
        """In order: what both `run`s do once the signal came."""
        self.stop_signal.set()
        # `run` begins with the log, which a real one did long ago
        away, self.world.log.away = self.world.log.away, False
        self.controller.run()
        self.world.log.away = away
        self.delivery.run()

    def end(self, *, orderly: bool) -> None:
        """It may crash while it stops; else it is gone as it is."""
        if orderly:
            with suppress(Crashed):
                self.stop()

    @property
    def stopped(self) -> dict[str, str]:
        return dict(self.health.snapshot().stopped)

    @property
    def problems(self) -> dict[str, str]:
        return dict(self.health.snapshot().problems)

    @property
    def ready(self) -> bool:
        return self.health.snapshot().is_ready


def joined(world: World, *partitions: TopicPartition, **options: Any) -> Process:
    process = Process(world, **options)
    process.join(*(partitions or (TopicPartition("copy", 0), TopicPartition("copy", 1))))
    return process
