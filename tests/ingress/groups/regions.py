"""Two source regions as a round for their consumer groups finds them: on fakes, with the real maps, ledger codec and
copies."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from formats.control.group_snapshot import (
    CLASSIC,
    CommittedOffset,
    GroupSnapshot,
    SnapshotGroup,
    TopicCommits,
    encode_group_snapshot,
)
from formats.control.keys import groups_prefix
from formats.control.offset_map_copy import MapCopies
from formats.incarnation import Incarnation
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey
from formats.messages.map_key import MapKey
from formats.messages.mirrormaker import decode_checkpoint, decode_offset_sync
from formats.policies.mirror_topics import MIRROR_CONFIGS, why_not_mirrored
from formats.segment import SourcePartition
from infra.archive.control import ControlStore
from infra.archive.generations import Generations
from infra.archive.group_reports import GroupReports
from infra.archive.offset_maps import OffsetMapCopier, OffsetMapCopies
from infra.contracts.cluster import Committed, TopicFacts, TopicPartition
from infra.settings.current import Current
from ingress.catalog.creator import TopicCreator
from ingress.catalog.mirror_topics import MirrorTopics
from ingress.groups.flows import group_flows
from ingress.groups.lookup import MapReader
from ingress.groups.map_retention import MapRetention
from ingress.groups.map_trimmer import OffsetMapTrimmer
from ingress.groups.round import GroupRound, RegionReport
from ingress.groups.target_groups import TargetGroups
from ingress.groups.topic_ids import ClaimedTopicIds
from ingress.routing.archived import ArchivedTopic
from ingress.routing.destinations import Destination, RoutingTable
from ingress.routing.succession import ArchivedIncarnation
from ingress.settings import IngressSettings
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_catalog import FakeCatalogAdmin, FakeLogEnds
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.kafka_ledger import FakeLedger
from tests.fakes.kafka_offset_map import FakeOffsetMap
from tests.fakes.mirror_records import FakeMirrorRecords
from tests.fakes.surroundings import T0, FailingStore, HandClock
from tests.fakes.target_groups import MemoryGroups
from tests.ingress.groups.offset_maps import page
from tests.ingress.world import source_settings

REGIONS = ("ap", "us")
RECORDS = 20  # of each region here, from offset 100 on at the source
APPLIED = 100 + RECORDS


def delivery(region: str) -> CheckpointKey:
    return CheckpointKey(SourcePartition(region, "orders", 0), f"{region}.orders")


def map_key(region: str) -> MapKey:
    return MapKey(delivery(region), f"id-{region}.orders")


def checkpoints(region: str) -> str:
    return f"{region}.checkpoints.internal"


def offset_syncs(region: str) -> str:
    return f"mm2-offset-syncs.{region}.internal"


class Regions:
    """Two source regions, each with a topic of one partition that is delivered here in pages of five records."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.objects = FailingStore(self.clock)
        self.broker, self.offset_map, self.ledger = FakeBroker(), FakeOffsetMap(), FakeLedger()
        self.records, self.groups = FakeMirrorRecords(), MemoryGroups()
        self.admin = FakeAdmin(self.broker)
        self.copies = OffsetMapCopies(self.objects, "data", "here")
        self.settings = IngressSettings(
            sources=tuple(
                source_settings("orders", None, region=region, replication_policy="default") for region in REGIONS
            )
        )
        for region in REGIONS:
            where = TopicPartition(f"{region}.orders", 0)
            self.broker.create(where.topic, partitions=1)
            for _ in range(RECORDS):
                self.broker.append(where, b"x")
            self.offset_map.put(*(page(100 + n, [(100 + n, n, 5)], map_key(region)) for n in range(0, RECORDS, 5)))
        self._pool = ThreadPoolExecutor(2)

    def publish(self, region: str, **offsets: int) -> None:
        """A snapshot with the offset of each group."""
        groups = {
            group: SnapshotGroup(
                kind=CLASSIC,
                state="empty",
                members=0,
                topics={"orders": TopicCommits.of("", {0: CommittedOffset(next_offset=offset, metadata="note")})},
            )
            for group, offset in offsets.items()
        }
        snapshot = GroupSnapshot(cluster_id=f"of {region}", writer="w", observed_at=self.clock.at, groups=groups)
        generations = Generations(self.objects, groups_prefix("data", region))
        assert generations.put(generations.newest() + 1, encode_group_snapshot(snapshot))

    def damage(self, region: str) -> None:
        """A newer snapshot that cannot be decoded."""
        generations = Generations(self.objects, groups_prefix("data", region))
        assert generations.put(generations.newest() + 1, b"damaged")

    def damage_newest(self, region: str) -> None:
        """A process that has read it knows nothing of that."""
        generations = Generations(self.objects, groups_prefix("data", region))
        newest = generations.newest()
        self.objects.delete_many([generations.key(newest)])
        assert generations.put(newest, b"damaged")

    def process(self, *, adopt: bool = False, sync: bool = True, allow_rewind: bool = False) -> GroupRound:
        current = Current(self.settings)
        maps = MapReader(offset_map=self.offset_map, ends=FakeLogEnds(self.broker), admin=self.admin)
        return GroupRound(
            reports=GroupReports(self.objects, "data"),
            maps=maps,
            topic_ids=ClaimedTopicIds(ControlStore(self.objects, "data")),
            topics=MirrorTopics(
                admin=self.admin,
                catalog_admin=FakeCatalogAdmin(self.admin, configs=self.admin.settings),
                ledger=self.ledger,
                creator=TopicCreator(self.admin, self.ledger, self.clock, 1),
                settings=current,
                clock=self.clock,
                configs=MIRROR_CONFIGS,
                why_not=partial(why_not_mirrored, adopt=adopt),
            ),
            records=self.records,
            target=TargetGroups(
                groups=self.groups, writer=self.groups, ledger=self.ledger, pool=self._pool, allow_rewind=allow_rewind
            )
            if sync
            else None,
            retention=MapRetention(
                maps=maps,
                admin=self.admin,
                trimmer=OffsetMapTrimmer(self.offset_map, self.offset_map, self.copies),
                copier=OffsetMapCopier(self.copies),
            ),
            now=self.clock.now,
        )

    def run(self, process: GroupRound, *regions: str) -> Mapping[str, RegionReport]:
        flows, problems = group_flows(self.settings)
        assert problems == {}
        wanted = [flow for flow in flows if flow.region in (regions or REGIONS)]
        return process.run(wanted, self.table, self.positions())

    @property
    def table(self) -> RoutingTable:
        return RoutingTable({f"{region}.orders": self._destination(region) for region in REGIONS}, {})

    def positions(self) -> Mapping[CheckpointKey, Checkpoint]:
        checkpoint = Checkpoint(APPLIED, "", T0, Author.EXACTLY_ONCE, begun_at=100)
        return {delivery(one): replace(checkpoint, destination_topic_id=self.topic_id(one)) for one in REGIONS}

    def topic_id(self, region: str) -> str:
        """Of the destination, as it is now; of one that is gone, or may not be described, the first."""
        name = f"{region}.orders"
        found = None if name in self.admin.hides else self.admin.describe([name]).get(name)
        return f"id-{name}" if found is None else found.topic_id

    def _destination(self, region: str) -> Destination:
        route = ArchivedTopic(
            region=region,
            incarnations=[ArchivedIncarnation(incarnation=Incarnation("orders", ""))],
            settings=next(one for one in self.settings.sources if one.region == region),
        )
        return Destination(routes=[route], facts=TopicFacts(f"{region}.orders", self.topic_id(region), 1))

    def foreign(self, *topics: str, partitions: int = 1, policy: str = "compact") -> None:
        """Topics that another program created."""
        for topic in topics:
            self.broker.create(topic, partitions=partitions)
            self.admin.settings[topic] = {"cleanup.policy": policy}

    def checkpoints(self, region: str) -> Mapping[str, tuple[int, int, str]]:
        """By group, the newest: offset at the source, here, and metadata."""
        found = [
            decode_checkpoint(key or b"", value or b"") for key, value in self.records.records[checkpoints(region)]
        ]
        assert {(one.topic, one.partition) for one in found} <= {(f"{region}.orders", 0)}
        return {one.group: (one.upstream_offset, one.downstream_offset, one.metadata) for one in found}

    def syncs(self, region: str) -> list[tuple[str, int, int, int]]:
        found = [
            decode_offset_sync(key or b"", value or b"") for key, value in self.records.records[offset_syncs(region)]
        ]
        return [(one.topic, one.partition, one.upstream_offset, one.downstream_offset) for one in found]

    def copied(self, region: str) -> MapCopies:
        """Of the region's offset map, in the bucket."""
        return self.copies.stored()[map_key(region)]

    def committed(self) -> Mapping[str, Mapping[TopicPartition, Committed]]:
        return self.groups.offsets

    def close(self) -> None:
        self._pool.shutdown()
        self.offset_map.close()
