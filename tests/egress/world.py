"""A source cluster, an archive, and egress processes whose every turn of the loop the test makes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import egress.segments.builder
from egress.controller import EgressController, EgressParts
from egress.lag import LagGauge
from egress.open_transactions import StuckTransactions
from egress.segments.builder import SegmentBuilder
from egress.segments.spool import Spool
from egress.start.archive_lookup import ArchiveLookup
from egress.start.decision import StartDecision
from egress.start.resolver import StartResolver
from egress.start_lookup import StartLookup
from egress.topics.claims import TopicClaims
from egress.topics.incarnation_check import Confirm, Confirmations
from egress.topics.watcher import TopicWatcher
from formats.parquet.writer import ParquetFormat
from formats.registry import SegmentFormat
from formats.segment import Segment, SourcePartition
from formats.topic_selection import TopicPattern, TopicRule
from infra.archive.archive import Archive
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from infra.archive.upload import Uploader
from infra.contracts.cluster import Committed, TopicPartition
from infra.runtime.health import Health
from infra.runtime.lifecycle import Stop
from infra.settings.current import Current
from replicator.config import EgressSettings, EgressTopicSettings
from tests.fakes.archive import archive_of
from tests.fakes.executors import HandExecutor
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_catalog import FakeLogEnds
from tests.fakes.kafka_consumer import FakeBroker, FakeSourceConsumer
from tests.fakes.kafka_probe import BrokerProbe
from tests.fakes.small_disk import Quota
from tests.fakes.surroundings import CountedMetrics, FailingStore, HandClock

FORMAT = ParquetFormat()
REGION = "a"
MIB = 1024 * 1024
STUCK = timedelta(minutes=15)
AGE = 10.0  # seconds, of the default settings here


def settings(**changes: Any) -> EgressTopicSettings:
    given: dict[str, Any] = {
        "max_segment_messages": 5,
        "max_segment_size": MIB,
        "max_segment_age": timedelta(seconds=AGE),
    }
    return EgressTopicSettings(**(given | changes))


def rule(pattern: str, **changes: Any) -> TopicRule[EgressTopicSettings]:
    return TopicRule(TopicPattern(pattern), settings(**changes))


class World:
    """What outlives a process."""

    def __init__(
        self, directory: Path, *rules: TopicRule[EgressTopicSettings], segment_format: SegmentFormat = FORMAT
    ) -> None:
        self.directory, self.format = directory, segment_format
        self.rules = rules or (rule("^.*"),)
        self.clock = HandClock()
        self.broker = FakeBroker()
        self.admin, self.ends = FakeAdmin(self.broker), FakeLogEnds(self.broker)
        self.probe = BrokerProbe(self.broker)
        self.objects = FailingStore(self.clock)
        self.store = SegmentStore(self.objects, "data")
        self.peek = SegmentStore(self.objects.memory, "data")  # never fails
        self.control = ControlStore(self.objects, "data")
        self.control_peek = ControlStore(self.objects.memory, "data")
        self.processes: list[Process] = []
        self._values = itertools.count()

    def produce(self, partition: TopicPartition, count: int) -> None:
        """Records that are all different."""
        self.broker.append(partition, *(b"value-%d" % next(self._values) for _ in range(count)))

    def process(self, **options: Any) -> Process:
        process = Process(self, **options)
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in self.processes:
            process.crash()

    # --- contents of the archive and of the group ---

    def segments(self, partition: TopicPartition, incarnation: str = "") -> list[Segment]:
        """Segments in the plain path, or in that of a later incarnation."""
        return sorted(info.segment for info in self.peek.list(source(partition, incarnation)))

    def ranges(self, partition: TopicPartition, incarnation: str = "") -> list[tuple[int, int]]:
        return [(s.offsets.start, s.offsets.end) for s in self.segments(partition, incarnation)]

    def values(self, partition: TopicPartition, incarnation: str = "") -> list[bytes]:
        return [value for s in self.segments(partition, incarnation) for value in self.read(s).values()]

    def read(self, segment: Segment) -> dict[int, bytes]:
        with closing(self.format.open(self.peek.open(segment), segment)) as reader:
            return {
                offset: value
                for batch in reader.batches()
                for offset, value in zip(
                    batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True
                )
            }

    def committed(self, partition: TopicPartition, group: str = "group") -> Committed | None:
        return self.broker.committed(group).get(partition)

    def position(self, partition: TopicPartition) -> int:
        committed = self.committed(partition)
        return -1 if committed is None else committed.next_offset

    def expect(
        self, partition: TopicPartition, begun: int = 0, until: int | None = None, *, incarnation: str = ""
    ) -> None:
        """Ranges tile from `begun` without a seam or an overlap, hold the log's records, and all is committed."""
        log = self.broker.logs[partition]
        end = log.stable if until is None else until
        self.agree(partition, incarnation)
        at = begun
        for start, last in self.ranges(partition, incarnation):
            assert start == at, f"a seam at {at}: {self.ranges(partition, incarnation)}"
            at = last + 1
        assert (at, self.position(partition)) == (end, end), self.ranges(partition, incarnation)

    def agree(self, partition: TopicPartition, incarnation: str = "") -> None:
        """Every segment holds exactly the log's records of its range, as far as the log still has them."""
        log = self.broker.logs[partition]
        for segment in self.segments(partition, incarnation):
            wanted = {o: r.value for o, r in log.records.items() if o in segment.offsets}
            found = self.read(segment)
            assert {o: v for o, v in found.items() if o >= log.low} == wanted, segment


class Process:
    """One egress process, on hand-driven pools. `turn` is a turn of its loop."""

    def __init__(
        self,
        world: World,
        *,
        memory_bytes: int = 64 * MIB,
        spool_memory_bytes: int = 64 * MIB,
        accept_missing_archive: bool = False,
        shutdown_seconds: float = 0.05,
        source_compacted: bool = False,
        consumer: FakeSourceConsumer | None = None,
        cluster_id: str = "cluster",
        disk: Quota | None = None,
        lookup_pools: tuple[Executor, Executor] | None = None,
    ) -> None:
        """`lookup_pools`: threads for the lookups of starts, and for what they look up in parallel."""
        self.world = world
        self.consumer = consumer or FakeSourceConsumer(world.broker)
        self.encoders, self.uploads, self.pool = HandExecutor(), HandExecutor(), HandExecutor()
        self.metrics, self.health = CountedMetrics(), Health()
        self.stop_signal, self.abandon = Stop(), Stop()
        self.disk = disk or Quota()
        self.spool = Spool(world.directory, spool_memory_bytes, self.disk.disk())
        self.asks = HandExecutor()
        self.confirmations = Confirmations(world.admin, self.asks)
        self.builder = make_builder(
            world.store,
            world.format,
            self.spool,
            memory_bytes=memory_bytes,
            encoders=self.encoders,
            uploads=self.uploads,
            source_compacted=source_compacted,
            confirm=self.confirmations.ask,
        )
        claims = TopicClaims(REGION, world.control, world.clock)
        self.current = Current(EgressSettings(topics=tuple(world.rules)))
        self.watcher = TopicWatcher(
            world.admin, self.current, {"own"}, cluster_id, timedelta(seconds=30), self.pool, claims.claimed
        )
        lookup = ArchiveLookup(Archive(world.store, world.control, world.format))
        resolver = StartResolver(
            region=REGION,
            cluster_id=cluster_id,
            consumer=self.consumer,
            admin=world.admin,
            probe=world.probe,
            archive=lookup,
            claims=claims,
            decision=StartDecision(
                region=REGION,
                admin=world.admin,
                archive=lookup,
                control=world.control,
                clock=world.clock,
                accept_missing_archive=accept_missing_archive,
            ),
        )
        self.controller = EgressController(
            EgressParts(
                region=REGION,
                isolation_level="read_committed",
                writer="test",
                created_by="example_app",
                consumer=self.consumer,
                start_lookup=StartLookup(resolver, *(lookup_pools or (self.pool, HandExecutor()))),
                watcher=self.watcher,
                confirmations=self.confirmations,
                builder=self.builder,
                lag=LagGauge(
                    world.admin,
                    world.ends,
                    self.builder,
                    self.metrics,
                    timedelta(seconds=10),
                    self.pool,
                    StuckTransactions(STUCK),
                ),
                clock=world.clock,
                metrics=self.metrics,
                health=self.health,
                stop=self.stop_signal,
                abandon=self.abandon,
                shutdown_timeout=timedelta(seconds=shutdown_seconds),
            )
        )

    def turn(self, count: int = 1) -> None:
        for _ in range(count):
            self.controller._turn()
            left_out = self.controller._assignment._assigned.left_out()
            assert all(one.is_at_rest for one in left_out), "the next turn has something to do for them"

    def later(self, seconds: float = AGE, turns: int = 3) -> None:
        """Time passes, and the loop turns."""
        self.world.clock.advance(seconds)
        self.turn(turns)

    def join(self, *partitions: TopicPartition) -> None:
        """Subscribe, get them (all, if none are named), and find out where to begin."""
        self.turn(2)
        if partitions:
            self.consumer.assign(*partitions)
        else:
            self.consumer.assign_all()
        self.turn(3)

    def stop(self) -> None:
        """In order: what `run` does once the signal came."""
        self.stop_signal.set()
        self.controller.run()
        self.spool.close()

    def crash(self) -> None:
        """Nothing of it runs any more. Uploads that wait in `uploads` may still be run by the test: a zombie's."""
        self.encoders.drop_all()
        self.spool.close()

    @property
    def stopped(self) -> dict[str, str]:
        return dict(self.health.snapshot().stopped)


def make_builder(
    store: SegmentStore,
    format: SegmentFormat,  # noqa: A002
    spool: Spool,
    *,
    memory_bytes: int,
    encoders: HandExecutor,
    uploads: HandExecutor,
    source_compacted: bool = False,
    confirm: Confirm = lambda topic, origin, answer: answer(True),
) -> SegmentBuilder:
    """On these pools instead of threads."""
    pools: Sequence[HandExecutor] = (encoders, uploads)
    given = iter(pools)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(egress.segments.builder, "ThreadPoolExecutor", lambda *_: next(given))
        return SegmentBuilder(
            format_of=lambda _: format,
            confirm=confirm,
            uploader=Uploader(archive_of(store, format), source_compacted=lambda _: source_compacted),
            spool=spool,
            memory_bytes=memory_bytes,
            encode_threads=1,
            upload_threads=1,
        )


def source(partition: TopicPartition, incarnation: str = "") -> SourcePartition:
    return SourcePartition(REGION, partition.topic, partition.partition, incarnation)
