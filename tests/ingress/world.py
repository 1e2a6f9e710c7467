"""An archive, an event log and a target cluster: what outlives the ingress processes of the tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from io import BytesIO
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from formats.control.archive_begin import ArchiveBegin
from formats.control.catalog import Catalog, CatalogTopic, RemovedTopic, encode_catalog
from formats.control.claim import TopicClaim
from formats.control.gap import RecordedGap
from formats.control.heartbeat import WriterHeartbeat, encode_heartbeat
from formats.control.keys import catalog_prefix, heartbeat_prefix, watermarks_prefix
from formats.control.watermarks import SourceWatermarks, TopicWatermarks, encode_watermarks
from formats.footer import SegmentOrigin
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey, Skipped
from formats.messages.segment_events import Created, Removed, SegmentEvent
from formats.parquet.writer import ParquetFormat
from formats.policies.acls import AclBinding
from formats.policies.topic_configs import ConfigSource, ConfigValue
from formats.records.schema import SCHEMA
from formats.registry import SegmentFormat
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from formats.topic_selection import TopicPattern
from infra.archive.archive import Archive
from infra.archive.control import ControlStore
from infra.archive.generations import Generations
from infra.archive.last_good import Catalogs, catalogs_in, watermarks_in
from infra.archive.proofs import ProofStore
from infra.archive.segments import SegmentStore
from infra.archive.source_reports import SourceHeartbeats, SourceReports
from infra.contracts.cluster import ConsumerGroups, TopicPartition
from infra.kafka.internal_topics.ensure import CHECKPOINTS
from infra.settings.current import Current
from ingress.catalog.acl_applier import AclApplier
from ingress.catalog.applier import CatalogApplier
from ingress.catalog.creator import TopicCreator
from ingress.catalog.data_age import OldestRecords
from ingress.catalog.first_copy import FirstCopies, WatermarksOf
from ingress.catalog.mirror_topics import MirrorTopics
from ingress.catalog.ownership import LedgerView
from ingress.catalog.removals import RemovedSources
from ingress.groups.topic_ids import ClaimedTopicIds
from ingress.heartbeats import HeartbeatRound
from ingress.routing.archived import ArchivedTopics
from ingress.routing.destinations import DestinationFinder
from replicator.config import IngressSettings, IngressSource
from replicator.status.ingress import IngressSources, IngressStatus, Planned
from replicator.status.lag import LagSources, PartitionLag
from tests.fakes.cluster_facts import FakeGroups
from tests.fakes.executors import HandExecutor
from tests.fakes.heartbeats import FakeHeartbeats
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_catalog import FakeCatalogAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.kafka_ledger import FakeLedger
from tests.fakes.kafka_target import FakeLog, FakeTarget
from tests.fakes.surroundings import FailingStore, HandClock

FORMAT = ParquetFormat()
REGION = "a"
HERE = "here"  # the region that delivers
STAMP = 1_700_000_000_000
DELAY, LOST, RELIST = 60.0, 600.0, 300.0  # seconds: first_segment_delay, lost_segment_timeout, relist_interval


def source_settings(topic: str = "t", destination: str | None = "copy", **changes: Any) -> IngressSource:
    given: dict[str, Any] = {
        "region": REGION,
        "topic": TopicPattern(topic),
        "destination_topic": destination,
        "lost_segment_timeout": timedelta(seconds=LOST),
        "late_segment_retries": 5,
        "first_segment_delay": timedelta(seconds=DELAY),
    }
    return IngressSource(**(given | changes))


def source_topic(
    name: str = "t",
    *,
    partitions: int = 2,
    configs: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] = MappingProxyType({"retention.ms": "604800000"}),
    lineage: Sequence[str] = (),
) -> CatalogTopic:
    """As a catalogue lists it. `configs`: set at the topic."""
    own = {key: ConfigValue(value, ConfigSource.TOPIC) for key, value in (configs or {}).items()}
    return CatalogTopic(
        name=name,
        topic_id=f"id-{name}",
        partitions=partitions,
        replication_factor=1,
        configs={key: ConfigValue(value, ConfigSource.DEFAULT) for key, value in defaults.items()} | own,
        lineage=tuple(lineage),
    )


def records(offsets: Collection[int], *, stamp: int | None = None, value: bytes = b"") -> pa.RecordBatch:
    """The value of each record is its offset."""
    count = len(offsets)
    return pa.record_batch(
        [
            pa.array(list(offsets), pa.int64()),
            pa.array([STAMP + o if stamp is None else stamp for o in offsets], pa.int64()).view(
                SCHEMA.field("timestamp").type
            ),
            pa.array([0] * count, pa.int8()),
            pa.array([b"%d" % o for o in offsets], pa.binary()),
            pa.array([value] * count, pa.binary()),
            pa.nulls(count, SCHEMA.field("headers").type),
        ],
        schema=SCHEMA,
    )


class World:
    """What outlives a process."""

    def __init__(self, *sources: IngressSource, format: SegmentFormat = FORMAT) -> None:  # noqa: A002
        self.settings = IngressSettings(
            sources=sources or (source_settings(),), relist_interval=timedelta(seconds=RELIST)
        )
        self.format = format
        self.clock = HandClock()
        self.broker = FakeBroker()  # of the target: only which topics there are
        self.admin = FakeAdmin(self.broker)
        self.broker.create(self.settings.checkpoint_topic)
        self.admin.settings[self.settings.checkpoint_topic] = dict(CHECKPOINTS)
        self.catalog_admin = FakeCatalogAdmin(self.admin, configs=self.admin.settings)
        self.ledger = FakeLedger()
        self.heartbeats = FakeHeartbeats(self.broker)
        self.groups = FakeGroups()
        self.target = FakeTarget()
        self.log = FakeLog(clock=self.clock)
        self.objects = FailingStore(self.clock)
        self.store = SegmentStore(self.objects, "data")
        self.control = ControlStore(self.objects, "data")
        self.peek = SegmentStore(self.objects.memory, "data")  # never fails
        self._publisher = self.log.open()

    @property
    def archive(self) -> Archive:
        return Archive(self.store, self.control, self.format)

    def archived_topics(self) -> ArchivedTopics:
        return ArchivedTopics(
            self.store,
            self.control,
            self.target.checkpoint_store(),
            self.settings.own_topics,
            HERE,
            clock=self.clock,
            cluster_id=self.admin.cluster,
        )

    def creator(self) -> TopicCreator:
        return TopicCreator(self.admin, self.ledger, self.clock, self.settings.replication_factor)

    def finder(self, current: Current[IngressSettings] | None = None) -> DestinationFinder:
        return DestinationFinder(
            self.archive,
            self.archived_topics(),
            self.admin,
            current or Current(self.settings),
            self.creator(),
            self.catalogs(),
        )

    def catalogs(self) -> Catalogs:
        return catalogs_in(self.objects, "data")

    def applier(
        self, current: Current[IngressSettings] | None = None, watermarks: WatermarksOf | None = None
    ) -> CatalogApplier:
        current = current or Current(self.settings)
        view = LedgerView(self.ledger)
        copies = FirstCopies(self.store, self.control, watermarks or watermarks_in(self.objects, "data").refresh)
        return CatalogApplier(
            admin=self.admin,
            catalog_admin=self.catalog_admin,
            ledger=view,
            creator=self.creator(),
            acls=AclApplier(
                admin=self.catalog_admin,
                ledger=view,
                settings=current,
                clock=self.clock,
                here=HERE,
                own_principals={"User:replicator"},
            ),
            copies=copies,
            records=OldestRecords(self.archive),
            removals=RemovedSources(copies),
            settings=current,
            clock=self.clock,
        )

    def heartbeat_round(self, current: Current[IngressSettings] | None = None) -> HeartbeatRound:
        topics = MirrorTopics(
            admin=self.admin,
            catalog_admin=self.catalog_admin,
            ledger=self.ledger,
            creator=self.creator(),
            settings=current or Current(self.settings),
            clock=self.clock,
        )
        source = SourceHeartbeats(self.objects, "data")
        return HeartbeatRound(here=HERE, source=source, topics=topics, writer=self.heartbeats)

    # --- what an operator asks ---

    def planned(self) -> Planned:
        plan = self.archived_topics().plan(self.settings, self.catalogs().refresh(self.settings.regions))
        return Planned(refused=plan.reasons, kept_away=plan.kept_away_paths, followed=plan.followed)

    def status(self, groups: ConsumerGroups | None = None) -> IngressStatus:
        return self.ingress_sources(groups).read(self.clock.at, HandExecutor())

    def lags(self) -> list[PartitionLag]:
        return list(LagSources(self.ingress_sources(), self.objects, "data").read(self.clock.at, HandExecutor()))

    def ingress_sources(self, groups: ConsumerGroups | None = None) -> IngressSources:
        return IngressSources(
            settings=self.settings,
            region=HERE,
            own_topics=self.settings.own_topics,
            plan=self.planned(),
            catalogs=self.catalogs().refresh(self.settings.regions),
            admin=self.admin,
            cluster_id=self.admin.cluster_id(),
            groups=groups or FakeGroups(members={self.settings.group_id: 1}),
            checkpoints=self.target.checkpoint_store(),
            store=self.store,
            control=self.control,
            proofs=ProofStore(self.objects, "data", "b"),
            reports=SourceReports(self.objects, "data"),
            topic_ids=ClaimedTopicIds(self.control),
        )

    # --- the archive ---

    def put(
        self,
        start: int,
        end: int,
        *,
        level: int = 0,
        partition: int = 0,
        topic: str = "t",
        holes: Collection[int] = (),
        partitions: int | None = 2,
        notify: bool = True,
        stamp: int | None = None,
        value: bytes = b"",
        region: str = REGION,
        incarnation: str = "",
        topic_id: str = "",
    ) -> Segment:
        segment = Segment(SourcePartition(region, topic, partition, incarnation), level, OffsetRange(start, end))
        sink = BytesIO()
        writer = self.format.create(sink)
        offsets = [o for o in range(start, end + 1) if o not in holes]
        if offsets:
            writer.write([records(offsets, stamp=stamp, value=value)])
        origin = SegmentOrigin(
            created_at=self.clock.at,
            writer="test",
            source_partition_count=partitions,
            topic_id=topic_id,
            cluster_id="cluster-of-it" if topic_id else "",
        )
        writer.close(segment, origin)
        self.peek.store(segment, sink, sink.tell())
        if notify:
            self.notify(segment)
        return segment

    def claim(
        self, number: int, incarnation: str = "", *, topic: str = "t", at: datetime | None = None, topic_id: str = ""
    ) -> None:
        name = topic_id or incarnation or "first"
        claim = TopicClaim(topic_id=name, cluster_id="source", number=number, claimed_at=at or self.clock.at)
        ControlStore(self.objects.memory, "data").claims.record(
            REGION, f"{topic}@{incarnation}" if incarnation else topic, claim
        )

    def publish_catalog(
        self,
        *topics: CatalogTopic,
        region: str = REGION,
        cluster_id: str = "source",
        removed: Sequence[RemovedTopic] = (),
        acls: Collection[AclBinding] | None = (),
    ) -> None:
        """The next generation of the region's catalogue."""
        generations = Generations(self.objects.memory, catalog_prefix("data", region))
        catalog = Catalog(
            cluster_id=cluster_id,
            writer="test",
            observed_at=self.clock.at,
            topics={one.name: one for one in topics},
            removed=tuple(removed),
            acls=None if acls is None else frozenset(acls),
        )
        assert generations.put(generations.newest() + 1, encode_catalog(catalog))

    def publish_watermarks(self, *stable: int, topic: str = "t", topic_id: str = "", region: str = REGION) -> int:
        """The next generation of the region's watermarks, with one topic; returns its number."""
        ends = TopicWatermarks(
            topic_id=topic_id or topic, low=(0,) * len(stable), high=stable, stable=stable, position=stable
        )
        return self.publish_ends({topic: ends}, region=region)

    def publish_ends(self, topics: Mapping[str, TopicWatermarks], *, region: str = REGION) -> int:
        """The same, with these topics."""
        generations = Generations(self.objects.memory, watermarks_prefix("data", region))
        found = SourceWatermarks(cluster_id="source", writer="test", observed_at=self.clock.at, topics=topics)
        number = generations.newest() + 1
        assert generations.put(number, encode_watermarks(found))
        return number

    def beat(self, watermarks: int = 0, *, region: str = REGION, agrees: bool = True) -> None:
        """The next heartbeat of the region, which names these watermarks; `agrees`: with an observation just made."""
        generations = Generations(self.objects.memory, heartbeat_prefix("data", region))
        beat = WriterHeartbeat(
            writer="test",
            written_at=self.clock.at,
            interval_ms=5000,
            watermarks=watermarks,
            watermarks_at=self.clock.at if agrees else None,
        )
        assert generations.put(generations.newest() + 1, encode_heartbeat(beat))

    def record_begin(self, offset: int, *, partition: int = 0, incarnation: str = "") -> None:
        begin = ArchiveBegin(offset=offset, reason="test", recorded_at=self.clock.at)
        ControlStore(self.objects.memory, "data").begins.record(
            SourcePartition(REGION, "t", partition, incarnation), begin
        )

    def record_gap(self, start: int, end: int, *, partition: int = 0) -> None:
        source, offsets = SourcePartition(REGION, "t", partition), OffsetRange(start, end)
        gap = RecordedGap(
            source=source, offsets=offsets, reason="test", low=end + 1, high=end + 1, recorded_at=self.clock.at
        )
        ControlStore(self.objects.memory, "data").gaps.record(gap)

    def remove(self, *segments: Segment, notify: bool = True) -> None:
        self.peek.delete_many(segments)
        if notify:
            self.publish(*(Removed(s, self.clock.at) for s in segments))

    def notify(self, *segments: Segment) -> None:
        self.publish(*(Created(SegmentInfo(s, 1, self.clock.at)) for s in segments))

    def publish(self, *events: SegmentEvent) -> None:
        was_away, self.log.away = self.log.away, False
        self._publisher.publish(events)
        self.log.away = was_away

    def damage(self, segment: Segment, data: bytes = b"rubbish") -> None:
        self.objects.memory.replace(f"data/{segment}", data)

    # --- the target ---

    def offsets(self, partition: TopicPartition) -> list[int]:
        """Source offsets, in the order in which a consumer of the target sees the records."""
        return [record.source_offset for record in self.target.records(partition)]

    def checkpoint(
        self, partition: int = 0, *, topic: str = "t", destination: str = "copy", incarnation: str = ""
    ) -> int | None:
        found = self.target.checkpoints.get(
            key(partition, topic=topic, destination=destination, incarnation=incarnation)
        )
        return None if found is None else found.next_offset

    def skip(self, start: int, end: int, *, incarnation: str = "") -> None:
        """What an operator gives up."""
        gone = Skipped(
            key=key(incarnation=incarnation), offsets=OffsetRange(start, end), reason="test", at=self.clock.at
        )
        self.target.editor().skip(gone)

    def seed(self, next_offset: int, partition: int = 0) -> None:
        """A checkpoint seeded by an operator."""
        seeded = Checkpoint(next_offset, "id-copy", self.clock.at, Author.SEED)
        self.target.editor().seed(key(partition), seeded)

    def set_checkpoint(self, next_offset: int, partition: int = 0) -> None:
        self.target.checkpoints[key(partition)] = Checkpoint(next_offset, "id-copy", self.clock.at, Author.EXACTLY_ONCE)


def key(partition: int = 0, *, topic: str = "t", destination: str = "copy", incarnation: str = "") -> CheckpointKey:
    return CheckpointKey(SourcePartition(REGION, topic, partition, incarnation), destination)


def numbers(*ranges: tuple[int, int]) -> Sequence[int]:
    """Inclusive ranges, one after the other."""
    return [n for start, end in ranges for n in range(start, end + 1)]
