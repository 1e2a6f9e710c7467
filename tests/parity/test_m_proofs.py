"""Rows of docs/parity.md that no other test proves: each test is named after its row."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from formats.errors import ConfigError
from formats.messages.delivery_checkpoint import SEED, Author, Checkpoint, CheckpointKey
from formats.policies.acls import AclBinding, mirrored
from formats.policies.topic_configs import CREATED_WITH, ConfigChange
from formats.segment import SourcePartition
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from infra.contracts.cluster import TopicPartition
from infra.kafka.client.idempotent_producer import producer_properties
from infra.kafka.client.properties import placement_properties, reader_properties, source_properties
from infra.kafka.internal_topics.ensure import CHECKPOINTS, ensure_internal_topics
from ingress.controller import MEASURE
from ingress.routing.archived import kept_like_sources
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_catalog import FakeCatalogAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.ingress.acls import READ
from tests.ingress.process import Process, joined
from tests.ingress.world import DELAY, World, source_settings, source_topic

P0, P1 = TopicPartition("copy", 0), TopicPartition("copy", 1)
INTERVAL = 30  # seconds: topic_refresh_interval
MEASURE_SECONDS = MEASURE.total_seconds()  # between two measurements of a process


@dataclass(slots=True)
class AuditedAdmin(FakeAdmin):
    """Records what is created, and with what."""

    created: list[tuple[str, int, int, Mapping[str, str]]] = field(default_factory=list)

    def create_topic(self, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> bool:
        made = FakeAdmin.create_topic(
            self, name, partitions=partitions, replication_factor=replication_factor, configs=configs
        )
        self.created.append((name, partitions, replication_factor, configs))
        return made


@dataclass(slots=True)
class AuditedCatalogAdmin(FakeCatalogAdmin):
    """Records the name of every request that changes the cluster."""

    changes: list[str] = field(default_factory=list)

    def grow(self, topic: str, partitions: int) -> None:
        self.changes.append(f"grow {topic}")
        FakeCatalogAdmin.grow(self, topic, partitions)

    def change_configs(self, topic: str, change: ConfigChange) -> Mapping[str, str]:
        self.changes.append(f"configs of {topic}")
        return FakeCatalogAdmin.change_configs(self, topic, change)

    def create_acls(self, bindings: Collection[AclBinding]) -> Mapping[AclBinding, str]:
        self.changes.append("create ACLs")
        return FakeCatalogAdmin.create_acls(self, bindings)

    def delete_acls(self, bindings: Collection[AclBinding]) -> None:
        self.changes.append("delete ACLs")
        FakeCatalogAdmin.delete_acls(self, bindings)


class AuditedWorld(World):
    """A world whose target writes down what is asked of it."""

    def __init__(self, *sources: Any) -> None:
        super().__init__(*sources)
        self.admin: AuditedAdmin = AuditedAdmin(self.broker, settings=self.admin.settings)
        self.catalog_admin: AuditedCatalogAdmin = AuditedCatalogAdmin(self.admin, configs=self.admin.settings)


def delivered(world: World) -> Process:
    """Partition 0 of t is delivered, and its first copy is through. Its records are of now."""
    world.put(0, 3, stamp=int(world.clock.at.timestamp() * 1000))
    process = joined(world, P0)
    process.later(DELAY, turns=8)
    one_interval(process)
    return process


def one_interval(process: Process) -> None:
    process.later(INTERVAL)
    process.later(MEASURE_SECONDS)


class TestM02PartitionCounts:
    def test_m02_partitions_are_added_within_one_interval(self) -> None:
        world = World()
        world.publish_catalog(source_topic(partitions=2))
        process = delivered(world)
        world.publish_catalog(source_topic(partitions=4))
        one_interval(process)
        assert world.admin.describe(["copy"])["copy"].partition_count == 4

    def test_m02_no_record_of_a_partition_is_produced_before_it_exists(self) -> None:
        world = World()
        world.settings = replace(world.settings, add_partitions=False)
        world.publish_catalog(source_topic(partitions=2))
        process = delivered(world)
        world.put(0, 9, partition=3, partitions=4)
        process.later(1)
        process.later(1)
        assert world.target.records(TopicPartition("copy", 3)) == []
        assert "add partitions to it, at least 4" in process.stopped["a/t/3"]
        assert world.offsets(P0) == [0, 1, 2, 3], "the others are delivered"


class TestM09Configs:
    def test_m09_defaults_of_the_source_are_set_and_follow(self) -> None:
        world = World()
        world.settings = replace(world.settings, use_defaults_from="source")
        world.publish_catalog(source_topic(defaults={"retention.ms": "700000000", "segment.bytes": "5000"}))
        process = delivered(world)
        assert world.admin.settings["copy"]["segment.bytes"] == "5000"
        assert world.admin.settings["copy"]["retention.ms"] == "700000000"
        world.publish_catalog(source_topic(defaults={"retention.ms": "800000000", "segment.bytes": "5000"}))
        one_interval(process)
        assert world.admin.settings["copy"]["retention.ms"] == "800000000"

    def test_m09_excluded_configs_are_neither_set_nor_unset(self) -> None:
        world = AuditedWorld()
        excluded = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
        world.publish_catalog(source_topic(configs={**excluded, "segment.bytes": "1000"}))
        process = delivered(world)
        assert not excluded.keys() & world.admin.settings["copy"].keys()
        world.admin.settings["copy"]["min.insync.replicas"] = "1"  # by an operator of the target
        world.publish_catalog(source_topic(defaults={"retention.ms": "1", "min.insync.replicas": "1"}))
        one_interval(process)
        assert world.admin.settings["copy"]["min.insync.replicas"] == "1"

    DEFAULTS: Mapping[str, str] = {"retention.ms": "604800000", "segment.bytes": "1073741824"}

    def test_m09_what_only_an_operator_set_is_reported_and_stays(self, caplog: pytest.LogCaptureFixture) -> None:
        world = World()
        world.publish_catalog(source_topic(defaults=self.DEFAULTS))
        process = delivered(world)
        world.admin.settings["copy"] |= {"segment.bytes": "12345", "retention.ms": "1000000000000"}
        for _ in range(2):
            one_interval(process)
            assert world.admin.settings["copy"]["segment.bytes"] == "12345"
            assert world.admin.settings["copy"]["retention.ms"] == "1000000000000"
        [reason] = [vars(one)["reason"] for one in caplog.records if one.message == "destination_differs"]
        assert (
            "has retention.ms=1000000000000, segment.bytes=12345, which a/t has not and ingress did not set" in reason
        )

    def test_m09_what_only_an_operator_set_is_unset_under_the_authoritative_mode(self) -> None:
        """MirrorMaker 2 does so at every topic."""
        world = World()
        world.settings = replace(world.settings, configs="authoritative")
        world.publish_catalog(source_topic(defaults=self.DEFAULTS))
        process = delivered(world)
        world.admin.settings["copy"]["segment.bytes"] = "12345"
        one_interval(process)
        assert "segment.bytes" not in world.admin.settings["copy"]

    @pytest.mark.parametrize("restarts", [False, True])
    def test_m09_what_the_source_had_set_is_unset_whatever_set_it_here_before(self, *, restarts: bool) -> None:
        world = World()
        world.publish_catalog(source_topic(defaults=self.DEFAULTS))
        process = delivered(world)
        world.admin.settings["copy"]["segment.bytes"] = "12345"
        for configs in ({"segment.bytes": "2000"}, {}):
            world.publish_catalog(source_topic(configs=configs, defaults=self.DEFAULTS))
            if restarts:
                process.stop()
                process = joined(world, P0)
            one_interval(process)
            assert world.admin.settings["copy"].get("segment.bytes") == configs.get("segment.bytes")
        one_interval(process)
        world.admin.settings["copy"]["segment.bytes"] = "777"
        one_interval(process)
        assert world.admin.settings["copy"]["segment.bytes"] == "777", (
            "the source has it no longer: it is the operator's"
        )


class TestM10Creation:
    def test_m10_created_with_our_replication_factor_and_the_sources_configs_before_its_first_record(self) -> None:
        world = AuditedWorld()
        world.settings = replace(world.settings, replication_factor=3)
        configs = {"segment.bytes": "1000", "min.insync.replicas": "2"}
        world.publish_catalog(source_topic(partitions=5, configs=configs))
        world.put(0, 3)
        process = Process(world)
        process.turn(2)
        [(name, partitions, factor, given)] = world.admin.created
        assert (name, partitions, factor) == ("copy", 5, 3)
        assert given == {"segment.bytes": "1000", **CREATED_WITH}, "without what is excluded"
        assert world.target.records(P0) == []
        process.join(P0)
        assert world.offsets(P0) == [0, 1, 2, 3]

    def test_m10_no_client_of_ours_makes_a_broker_create_a_topic(self) -> None:
        name = "allow.auto.create.topics"
        assert producer_properties({}, memory_bytes=1 << 20)[name] is False
        with pytest.raises(ConfigError, match=name):
            producer_properties({name: "true"}, memory_bytes=1 << 20)
        source = source_properties({}, group_id="g", isolation_level="read_committed", memory_bytes=1, brokers=1)
        found: list[Mapping[str, object]] = [
            source,
            placement_properties({}, group_id="g"),
            reader_properties({name: "true"}),
        ]
        assert [one[name] for one in found] == ["false"] * 3


OPERATIONS = (
    *("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS"),
    *("ALTER_CONFIGS", "IDEMPOTENT_WRITE", "ALL"),
)
RESOURCES = ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")


def bindings() -> Iterator[AclBinding]:
    """Every kind of binding that a cluster may have of a resource called t."""
    for resource, pattern, operation, permission in product(
        RESOURCES, ("LITERAL", "PREFIXED"), OPERATIONS, ("ALLOW", "DENY")
    ):
        yield replace(
            READ, resource_type=resource, pattern_type=pattern, operation=operation, permission=permission, host="h"
        )


class TestM11Acls:
    def test_m11_the_whole_matrix_is_that_of_mirrormaker_2(self) -> None:
        found = {one: mirrored([one], "mirror", {"t": ["a.t"]}) for one in bindings()}
        for one, crossed in found.items():
            wanted: set[AclBinding] = set()
            if one.resource_type == "TOPIC" and one.pattern_type == "LITERAL":
                wanted = {replace(one, resource_name="a.t")}
                if (one.permission, one.operation) == ("ALLOW", "WRITE"):
                    wanted = set()
                if (one.permission, one.operation) == ("ALLOW", "ALL"):
                    wanted = {replace(one, resource_name="a.t", operation="READ")}
            assert crossed == wanted, str(one)
        assert sum(map(len, found.values())) == len(OPERATIONS) * 2 - 1

    def test_m11_a_revocation_is_gone_within_one_interval_and_foreign_acls_stay(self) -> None:
        world = World()
        foreign = replace(READ, resource_name="copy", principal="User:bob")
        world.catalog_admin.bindings.add(foreign)
        world.publish_catalog(source_topic(), acls=[READ])
        process = delivered(world)
        assert world.catalog_admin.bindings == {foreign, replace(READ, resource_name="copy")}
        world.publish_catalog(source_topic(), acls=[replace(READ, operation="DESCRIBE")])
        one_interval(process)
        assert world.catalog_admin.bindings == {foreign, replace(READ, resource_name="copy", operation="DESCRIBE")}


class TestM12Writers:
    WRITER = replace(READ, resource_name="copy", operation="WRITE", principal="User:bob")

    def reports(self, world: World, own_principals: Collection[str]) -> tuple[Collection[AclBinding], list[str]]:
        """ACLs that would be created, and what is left as it is, where ingress is known as one of `own_principals`."""
        process = delivered(world)
        world.catalog_admin.bindings.add(self.WRITER)
        applier, found = world.applier(), process.controller._watcher.found
        applier.acls.own_principals = own_principals
        kept = kept_like_sources({name: one.routes for name, one in found.destinations.items()})
        plan = applier.plan(kept, found.catalogs, process.controller._checkpoints.positions)
        return plan.acls.create, list(plan.reports)

    def test_m12_others_are_denied_to_write_to_what_we_created(self) -> None:
        world = World()
        world.publish_catalog(source_topic())
        denied = replace(self.WRITER, permission="DENY")
        assert self.reports(world, {"User:replicator"}) == ({denied}, [])

    def test_m12_where_the_replicator_is_not_known_that_is_reported(self) -> None:
        """Denied to write itself, it could not deliver."""
        world = World()
        world.publish_catalog(source_topic())
        created, [report] = self.reports(world, ())
        assert created == frozenset()
        assert "own_principals" in report

    def test_m12_protection_without_acls_is_refused(self) -> None:
        with pytest.raises(ValueError, match="protect: has no effect with acls = 'off'"):
            replace(World().settings, acls="off", protect=True)


class TestM20FeaturesOff:
    OFF: Mapping[str, Any] = {"create_topics": False, "add_partitions": False, "configs": "off", "acls": "off"}

    def test_m20_with_everything_off_no_request_changes_the_target(self) -> None:
        """Not even a topic that an earlier process created, with ACLs that it created."""
        world = AuditedWorld()
        world.publish_catalog(source_topic(partitions=2, configs={"segment.bytes": "1000"}), acls=[READ])
        delivered(world).stop()
        assert world.admin.created
        assert sorted(world.catalog_admin.changes) == ["configs of copy", "create ACLs"]
        world.admin.created.clear()
        world.catalog_admin.changes.clear()
        world.catalog_admin.bindings.add(replace(READ, resource_name="copy", operation="WRITE"))
        world.settings = replace(world.settings, **self.OFF)
        world.publish_catalog(source_topic(partitions=4, configs={"segment.bytes": "2000"}), source_topic("u"), acls=[])
        world.put(4, 9)
        world.put(0, 3, topic="u")
        process = joined(world, P0)
        one_interval(process)
        one_interval(process)
        assert world.offsets(P0) == [*range(10)]
        assert (world.admin.created, world.catalog_admin.changes) == ([], [])
        assert world.admin.asked["alter_configs"] == world.admin.asked["delete_records"] == 0
        assert not world.settings.alters_cluster, "so there is no ledger, either"

    def test_m20_internal_topics_that_exist_are_not_created_again(self) -> None:
        """Kafka refuses that to principals without CREATE, whether the topic exists or not."""
        admin = AuditedAdmin(FakeBroker())
        admin.broker.create("events")
        admin.broker.create("checkpoints")
        admin.broker.create("offsets")
        admin.settings |= {"checkpoints": dict(CHECKPOINTS), "offsets": dict(CHECKPOINTS)}
        admin.settings |= {"events": {"cleanup.policy": "delete", "retention.ms": "3600000"}}
        ensure_internal_topics(
            admin,
            segment_events_topic="events",
            segment_events_retention=timedelta(hours=1),
            checkpoint_topic="checkpoints",
            offset_map_topic="offsets",
            replication_factor=-1,
        )
        assert admin.asked["create_topic"] == 0

    def test_m20_under_the_legacy_policy_nothing_but_records_crosses(self) -> None:
        world = AuditedWorld(source_settings("t", None, replication_policy="LegacyReplicationPolicy"))
        world.publish_catalog(source_topic(partitions=1, configs={"segment.bytes": "1000"}), acls=[READ])
        world.put(0, 3, partitions=1)
        process = joined(world, TopicPartition("t", 0))
        process.later(DELAY, turns=8)
        process.later(INTERVAL)
        assert world.offsets(TopicPartition("t", 0)) == [0, 1, 2, 3]
        assert [(name, configs) for name, _, _, configs in world.admin.created] == [("t", CREATED_WITH)]
        assert (world.catalog_admin.changes, world.catalog_admin.bindings) == ([], set())


class TestM22Shapes:
    def test_m22_one_source_goes_to_two_targets_each_with_its_own_checkpoint(self) -> None:
        one, two = World(), World()
        two.objects = one.objects
        two.store, two.control = SegmentStore(one.objects, "data"), ControlStore(one.objects, "data")
        two.clock, two.peek = one.clock, one.peek
        first = one.put(0, 9)
        two.notify(first)
        at_one, at_two = joined(one, P0), joined(two, P0)
        one.target.poison[P0] = {15}
        second = one.put(10, 19)
        two.notify(second)
        at_one.turn(8)
        at_two.turn(8)
        assert two.offsets(P0) == [*range(20)]
        assert (one.checkpoint(), two.checkpoint()) == (15, 20), "what stops one does not hold up the other"
        del one.target.poison[P0]
        at_one.later(600, turns=8)
        assert one.offsets(P0) == [*range(20)]


class TestM23Filters:
    FILTER = "tests.formats.policies.user_policies:NoTemporary"

    def test_m23_a_filter_of_configs_decides_which_are_set_and_which_follow(self) -> None:
        world = World()
        world.settings = replace(world.settings, config_property_filter=self.FILTER)
        world.publish_catalog(source_topic(configs={"segment.bytes": "1000", "tmp.bytes": "1"}))
        process = delivered(world)
        assert "tmp.bytes" not in world.admin.settings["copy"]
        assert world.admin.settings["copy"]["segment.bytes"] == "1000"
        world.publish_catalog(source_topic(configs={"segment.bytes": "2000", "tmp.bytes": "2"}))
        one_interval(process)
        assert "tmp.bytes" not in world.admin.settings["copy"]
        assert world.admin.settings["copy"]["segment.bytes"] == "2000"

    def test_m23_a_filter_that_fails_leaves_the_configs_as_they_are_and_stops_no_record(self) -> None:
        world = World()
        world.settings = replace(world.settings, config_property_filter=self.FILTER)
        world.publish_catalog(source_topic(partitions=1, configs={"segment.bytes": "1000"}))
        process = delivered(world)
        world.publish_catalog(source_topic(partitions=2, configs={"forbidden": "1", "segment.bytes": "2000"}))
        one_interval(process)
        assert world.admin.settings["copy"]["segment.bytes"] == "1000"
        assert world.admin.describe(["copy"])["copy"].partition_count == 2, "the rest follows"
        applier, found = world.applier(), process.controller._watcher.found
        kept = kept_like_sources({name: one.routes for name, one in found.destinations.items()})
        [report] = applier.plan(kept, found.catalogs, process.controller._checkpoints.positions).reports
        assert "its configs stay as they are: " in report
        assert "raised KeyError: 'no such customer'" in report


class TestM26Diamond:
    """A to B to D and A to C to D, under the names of A."""

    T = TopicPartition("t", 0)

    def world(self) -> World:
        sources = [
            source_settings(
                "^.*",
                None,
                region=region,
                allow_merge=True,
                replication_policy="identity",
                first_segment_delay=timedelta(),
            )
            for region in "bc"
        ]
        return World(*sources)

    def observed(self, world: World, region: str, *, partitions: int = 1) -> None:
        topic = source_topic("t", partitions=partitions, lineage=["of-a"])
        world.publish_catalog(topic, region=region, cluster_id=region)

    def test_m26_each_record_arrives_once(self) -> None:
        world = self.world()
        for region in "bc":
            self.observed(world, region)
            world.put(0, 9, region=region, partitions=1)
        process = joined(world, self.T)
        for region in "cb":
            world.put(10, 19, region=region, partitions=1)
        process.later(INTERVAL, turns=8)
        assert world.offsets(self.T) == [*range(20)]
        assert process.ready

    def begun_with_c(self) -> tuple[World, Process]:
        """Delivery began with the way by c; the one by b, which counts more, is known since then."""
        world = self.world()
        self.observed(world, "c")
        world.put(0, 9, region="c", partitions=1)
        process = joined(world, self.T)
        assert world.offsets(self.T) == [*range(10)]
        self.observed(world, "b")
        world.put(0, 9, region="b", partitions=1)
        process.later(INTERVAL, turns=8)
        return world, process

    def more(self, world: World, process: Process, start: int) -> None:
        for region in "bc":
            world.put(start, start + 9, region=region, partitions=1)
        process.later(INTERVAL, turns=8)

    def test_m26_another_way_found_later_changes_nothing(self) -> None:
        world, process = self.begun_with_c()
        self.more(world, process, 10)
        assert world.offsets(self.T) == [*range(20)]
        assert process.ready

    def test_m26_the_way_is_kept_by_the_next_process(self) -> None:
        world, process = self.begun_with_c()
        process.stop()
        following = joined(world, self.T)
        self.more(world, following, 10)
        assert world.offsets(self.T) == [*range(20)]
        assert following.ready

    def test_m26_an_operator_switches_to_the_other_way_and_it_is_kept(self) -> None:
        world, process = self.begun_with_c()
        by_b, by_c = world.settings.sources
        process.current.replace(replace(world.settings, sources=(by_b,)))
        process.turn(8)
        self.more(world, process, 10)
        assert world.offsets(self.T) == [*range(10)], "where b's copy continues is not known"
        (why,) = process.stopped.values()
        assert SEED in why
        position = Checkpoint(10, "id-t", world.clock.at, Author.SEED)
        world.target.editor().seed(CheckpointKey(SourcePartition("b", "t", 0), "t"), position)
        process.later(INTERVAL, turns=8)
        process.current.replace(replace(world.settings, sources=(by_b, by_c)))
        self.more(world, process, 20)
        self.more(world, process, 30)
        assert world.offsets(self.T) == [*range(40)]
        assert process.ready

    def test_m26_two_processes_that_began_with_different_ways_double_nothing(self) -> None:
        """Neither saw what the other began: then the way by b counts for both, and an operator is asked for the
        partition that the other way filled."""
        world = self.world()
        other = TopicPartition("t", 1)
        self.observed(world, "c", partitions=2)
        world.put(0, 9, region="c")
        process = joined(world, self.T)
        assert world.offsets(self.T) == [*range(10)]
        self.observed(world, "b", partitions=2)
        world.target.put_checkpoint(
            CheckpointKey(SourcePartition("b", "t", 1), "t"),
            Checkpoint(0, "id-t", world.clock.at, Author.EXACTLY_ONCE, begun_at=0),
        )
        for partition in range(2):
            world.put(0, 9, region="b", partition=partition)
        process.placement.assign(other)
        process.later(INTERVAL, turns=8)
        assert world.offsets(self.T) == [*range(10)]
        assert world.offsets(other) == [*range(10)]
        assert list(process.stopped) == ["b/t/0"]
