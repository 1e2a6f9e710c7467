"""A source region whose processes publish what they observe, in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from egress.catalog.election import Election
from egress.catalog.group_observer import GroupObserver
from egress.catalog.lineage import Lineages
from egress.catalog.observer import CatalogObserver, SelectedTopics
from egress.catalog.publication import Publication
from egress.catalog.publisher import ControlPublisher
from egress.catalog.schema_observer import SchemaObserver
from egress.catalog.watermark_observer import WatermarkObserver
from formats.control.catalog import Catalog, decode_catalog, encode_catalog
from formats.control.group_snapshot import GroupSnapshot, decode_group_snapshot, encode_group_snapshot
from formats.control.heartbeat import WriterHeartbeat, decode_heartbeat
from formats.control.schemas import SchemaSnapshot, decode_schemas, encode_schemas
from formats.control.watermarks import SourceWatermarks, decode_watermarks, encode_watermarks
from formats.errors import TargetError
from formats.messages.ledger import Ownership
from infra.archive.generations import Generations
from infra.contracts.cluster import Committed, TopicPartition
from infra.kafka.cluster.schema_registry import RestSchemaRegistry
from infra.runtime.call_budget import CallBudget
from infra.runtime.failures import Attempt
from infra.runtime.health import Health
from infra.runtime.lifecycle import Stop
from tests.egress.catalog.interrupted_admin import InterruptedAdmin
from tests.fakes.executors import HandExecutor
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_catalog import FakeLogEnds
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.kafka_groups import FakeGroup, FakeGroupReader
from tests.fakes.schema_registry import FakeRegistry
from tests.fakes.surroundings import FailingStore, HandClock

INTERVAL, REFRESH, OF_GROUPS = timedelta(seconds=5), timedelta(seconds=30), timedelta(seconds=60)
HOUR = timedelta(hours=1).total_seconds()


@dataclass
class Process:
    publisher: ControlPublisher
    source: InterruptedAdmin
    pool: HandExecutor

    @property
    def is_writer(self) -> bool:
        return self.publisher.election.is_writer


@dataclass
class Region:
    """One topic, whose partitions and records count the changes."""

    clock: HandClock = field(default_factory=HandClock)
    broker: FakeBroker = field(default_factory=FakeBroker)
    store: FailingStore = field(init=False)
    admin: FakeAdmin = field(init=False)
    ends: FakeLogEnds = field(init=False)
    groups: FakeGroupReader = field(default_factory=FakeGroupReader)
    group_interval: timedelta = timedelta()
    restate_after: timedelta | None = None
    no_positions: str = ""  # why the group's offsets may not be read

    def __post_init__(self) -> None:
        self.store = FailingStore(self.clock)
        self.admin, self.ends = FakeAdmin(self.broker), FakeLogEnds(self.broker)
        self.grow(1)

    def process(self, name: str, *, watermarks: bool = True, registry: FakeRegistry | None = None) -> Process:
        source, pool = InterruptedAdmin(self.admin), HandExecutor()
        topics = SelectedTopics(self.admin, source, select=lambda names: names)
        publisher = ControlPublisher(
            catalog=Publication(
                attempt=Attempt.CATALOG,
                generations=Generations(self.store, "catalog/"),
                encode=encode_catalog,
                decode=decode_catalog,
                observe=CatalogObserver(topics, Lineages(Ownership), name).observe,
                has_same_content=Catalog.has_same_content,
                interval=lambda: REFRESH,
                clock=self.clock,
                pool=pool,
            ),
            watermarks=Publication(
                attempt=Attempt.WATERMARKS,
                generations=Generations(self.store, "watermarks/"),
                encode=encode_watermarks,
                decode=decode_watermarks,
                observe=WatermarkObserver(topics, self.ends, self.committed, name, self.clock).observe,
                has_same_content=SourceWatermarks.has_same_content,
                interval=lambda: REFRESH,
                clock=self.clock,
                pool=pool,
                restate_after=self.restate_after,
            )
            if watermarks
            else None,
            groups=self._groups(topics, pool),
            schemas=None if registry is None else self._schemas(registry, pool),
            heartbeats=Generations(self.store, "heartbeat/"),
            election=Election(name, INTERVAL),
            clock=self.clock,
            health=Health(),
            stop=Stop(),
        )
        return Process(publisher, source, pool)

    def _groups(self, topics: SelectedTopics, pool: HandExecutor) -> Publication[GroupSnapshot]:
        observer = GroupObserver(
            topics=topics,
            groups=self.groups,
            select=list,
            named=list,
            budget=CallBudget(lambda: 10**9, self.clock, Stop()),
            pool=HandExecutor(),
            writer="w",
        )
        return Publication(
            attempt=Attempt.GROUPS,
            generations=Generations(self.store, "groups/"),
            encode=encode_group_snapshot,
            decode=decode_group_snapshot,
            observe=observer.observe,
            has_same_content=GroupSnapshot.has_same_content,
            interval=lambda: self.group_interval,
            clock=self.clock,
            pool=pool,
        )

    def _schemas(self, registry: FakeRegistry, pool: HandExecutor) -> Publication[SchemaSnapshot]:
        return Publication(
            attempt=Attempt.SCHEMAS,
            generations=Generations(self.store, "schemas/"),
            encode=encode_schemas,
            decode=decode_schemas,
            observe=SchemaObserver(RestSchemaRegistry(registry.send, "http://registry"), "w").observe,
            has_same_content=SchemaSnapshot.has_same_content,
            interval=lambda: REFRESH,
            clock=self.clock,
            pool=pool,
        )

    @property
    def partitions(self) -> int:
        return self.admin.describe(["t"])["t"].partition_count

    def grow(self, partitions: int) -> None:
        self.broker.create("t", partitions=partitions)

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        if self.no_positions:
            raise TargetError(self.no_positions)
        return {p: one for p, one in self.broker.committed("group").items() if p in partitions}

    def turn(self, *processes: Process, times: int = 1) -> None:
        """Each at the same time; then an interval passes."""
        for _ in range(times):
            for one in processes:
                one.publisher.turn(self.clock.now())
            self.later()

    def catalogs(self) -> list[Catalog]:
        """Every generation that is stored, in the order of their numbers."""
        return [decode_catalog(data) for data in self._generations("catalog/")]

    def watermarks(self) -> list[SourceWatermarks]:
        return [decode_watermarks(data) for data in self._generations("watermarks/")]

    def schemas(self) -> list[SchemaSnapshot]:
        return [decode_schemas(data) for data in self._generations("schemas/")]

    def snapshots(self) -> list[GroupSnapshot]:
        return [decode_group_snapshot(data) for data in self._generations("groups/")]

    def commit(self, group_id: str, offset: int) -> None:
        """In partition 0 of the topic."""
        self.groups.found[group_id] = FakeGroup(offsets={TopicPartition("t", 0): Committed(offset, "")})

    def heartbeat(self) -> WriterHeartbeat:
        """The newest."""
        heartbeats = Generations(self.store.memory, "heartbeat/")
        return decode_heartbeat(heartbeats.read(heartbeats.newest()))

    def _generations(self, prefix: str) -> Iterator[bytes]:
        found = Generations(self.store.memory, prefix)
        return (found.read(int(info.key[-20:])) for info in self.store.memory.list(prefix))

    def later(self, pause: timedelta = INTERVAL) -> None:
        self.clock.at += pause
