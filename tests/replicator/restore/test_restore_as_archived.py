"""Plans whose destinations get the configs and ACLs that their source had."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from formats.errors import TargetError
from formats.int_range import IntRange
from formats.policies.acls import AclBinding
from formats.policies.topic_configs import CREATED_WITH
from replicator.restore.acl_restore import AclRestore, RestoredAcls
from replicator.restore.conflicts import ConflictKind
from replicator.selection import Renaming
from tests.fakes.kafka_catalog import FakeCatalogAdmin
from tests.ingress.world import World, source_topic
from tests.replicator.restore.planned import OWN, begin, existing, only, plan, reasons, select

COPY = select(renaming=Renaming({"t": "copy"}))


def archived(*, partitions: int | None = 2) -> World:
    world = World()
    world.put(0, 9, partitions=partitions)
    return world


def acl(principal: str, operation: str, permission: str = "ALLOW", *, topic: str = "t", **changes: Any) -> AclBinding:
    given = {"resource_type": "TOPIC", "pattern_type": "LITERAL", "host": "*", **changes}
    return AclBinding(
        resource_name=topic, principal=f"User:{principal}", operation=operation, permission=permission, **given
    )


# --- configs ----------------------------------------------------------------------------------------------------------


def test_a_destination_is_created_as_its_source_was() -> None:
    world = archived()
    world.publish_catalog(source_topic(configs={"segment.bytes": "1000", "retention.ms": "5"}))
    found = plan(world, COPY, configs_from="archive")
    topic = only(found)
    assert topic.configs == {**CREATED_WITH, "segment.bytes": "1000"}
    assert topic.creation.held == {"retention.ms": "5"}
    assert topic.source is not None
    assert (topic.source.generation, topic.source.observed_at) == (1, world.clock.at)
    assert (reasons(topic), found.warnings, topic.acls) == ({}, [], None)
    assert only(plan(world, COPY)).configs == CREATED_WITH
    assert only(plan(world, COPY)).source is None


def test_as_it_was_at_the_end_of_the_selected_timestamps() -> None:
    world = archived()
    world.publish_catalog(source_topic(configs={"segment.bytes": "1"}))
    then = world.clock.at
    world.clock.advance(60)
    world.publish_catalog(source_topic(configs={"segment.bytes": "2"}))
    for seconds, wanted in ((-1, None), (0, "1"), (59, "1"), (60, "2")):
        until = int((then + timedelta(seconds=seconds)).timestamp() * 1000)
        found = plan(world, select(timestamps=IntRange(0, until - 1)), configs_from="archive")
        assert only(found).configs.get("segment.bytes") == wanted
        assert bool(found.warnings) == (wanted is None)


def test_without_a_catalogue_it_is_created_as_ever_and_the_plan_says_so() -> None:
    found = plan(archived(), COPY, configs_from="archive", acls="archive")
    topic = only(found)
    assert topic.configs == CREATED_WITH
    assert topic.acls == RestoredAcls(why="the archive has no catalogue of a")
    assert found.warnings == ["copy gets no configs and no ACLs of its source: the archive has no catalogue of a"]
    assert not found.refused


def test_configs_that_the_source_did_not_describe() -> None:
    world = archived()
    topic = source_topic()
    world.publish_catalog(type(topic)(name="t", topic_id="", partitions=2, replication_factor=1, configs=None))
    found = plan(world, configs_from="archive")
    assert only(found).configs == CREATED_WITH
    assert "t gets no configs of its source: catalogue 1, observed at" in found.warnings[0]


def test_a_compacted_source_is_a_conflict_until_it_is_accepted() -> None:
    world = archived()
    world.publish_catalog(source_topic(configs={"cleanup.policy": "compact"}))
    assert set(reasons(only(plan(world, configs_from="archive")))) == {ConflictKind.COMPACTED}
    deleting = {"cleanup.policy": "delete"}
    topic = only(plan(world, configs_from="archive", configs=deleting))
    assert (topic.configs["cleanup.policy"], topic.creation.held["cleanup.policy"]) == ("delete", "compact")
    assert not topic.refused
    assert not plan(world, configs_from="archive", accept=[ConflictKind.COMPACTED]).refused


def test_a_config_that_the_target_refuses_is_left_out_and_the_others_stay() -> None:
    world = archived()
    world.publish_catalog(source_topic(configs={"segment.bytes": "1000", "remote.storage.enable": "true"}))
    world.admin.refuses_config = "remote.storage.enable"
    topic = only(plan(world, configs_from="archive"))
    assert topic.configs == {**CREATED_WITH, "segment.bytes": "1000"}
    assert topic.creation.refused == {"remote.storage.enable": "unknown config remote.storage.enable"}
    assert not topic.refused
    given = {"remote.storage.enable": "true"}
    topic = only(plan(world, configs_from="archive", configs=given))
    assert set(reasons(topic)) == {ConflictKind.NOT_ALLOWED}, "what the user gives is not left out"


def test_a_destination_without_configs() -> None:
    world = archived()
    topic = only(plan(world, configs_from="none"))
    assert topic.configs == {}
    assert set(reasons(topic)) == {ConflictKind.RETENTION}, "the records are older than Kafka's default"
    assert "--topic-config retention.ms=-1" in reasons(topic)[ConflictKind.RETENTION]
    for given in ({"retention.ms": "-1"}, {"cleanup.policy": "compact"}):
        topic = only(plan(world, configs_from="none", configs=given))
        assert topic.configs == given
        assert ConflictKind.RETENTION not in reasons(topic)
    world = World()
    world.put(0, 9, stamp=int(world.clock.at.timestamp() * 1000))
    assert not reasons(only(plan(world, configs_from="none")))


def test_the_catalogue_knows_the_partitions_where_no_segment_does() -> None:
    world = archived(partitions=None)
    world.publish_catalog(source_topic(partitions=7))
    assert set(reasons(only(plan(world)))) == {ConflictKind.PARTITION_COUNT}
    topic = only(plan(world, configs_from="archive"))
    assert (topic.partition_count, reasons(topic)) == (7, {})


def test_an_existing_destination_keeps_its_configs() -> None:
    world = existing()
    world.publish_catalog(source_topic(configs={"segment.bytes": "1000"}))
    found = plan(world, configs_from="archive")
    assert (only(found).configs, only(found).source, found.warnings) == ({}, None, [])


# --- ACLs -------------------------------------------------------------------------------------------------------------


def test_acls_cross_as_ingress_mirrors_them_and_those_that_exist_are_left() -> None:
    world = archived()
    crossing = [acl("alice", "READ"), acl("bob", "ALL"), acl("eve", "READ", "DENY")]
    others = [
        acl("alice", "WRITE"),
        acl("alice", "READ", topic="other"),
        acl("alice", "READ", topic="*"),
        acl("alice", "READ", pattern_type="PREFIXED"),
        acl("alice", "READ", resource_type="GROUP"),
    ]
    world.publish_catalog(source_topic(), acls=[*crossing, *others])
    cluster = FakeCatalogAdmin(
        world.admin, bindings={acl("alice", "READ", topic="copy"), acl("x", "ALL", topic="copy")}
    )
    acls = only(plan(world, COPY, acls="archive", acl_admin=cluster)).acls
    assert acls is not None
    assert acls.create == (acl("bob", "READ", topic="copy"), acl("eve", "READ", "DENY", topic="copy"))
    assert (acls.existing, acls.left_out, acls.why) == ((acl("alice", "READ", topic="copy"),), (), "")

    restore = AclRestore(lambda: cluster, OWN)
    for _ in range(2):
        restore.create(acls)
    assert cluster.bindings == {
        *(acl(who, "READ", topic="copy") for who in ("alice", "bob")),
        *(acl("eve", "READ", "DENY", topic="copy"), acl("x", "ALL", topic="copy")),
    }
    assert only(plan(world, COPY, acls="archive", acl_admin=cluster)).acls == RestoredAcls(
        existing=(*acls.existing, *acls.create)
    )


def test_an_existing_destination_gets_acls_too() -> None:
    """So does one that an earlier run created before it was killed."""
    world = existing()
    world.publish_catalog(source_topic(), acls=[acl("alice", "READ")])
    begin(world)
    acls = only(plan(world, acls="archive")).acls
    assert acls is not None
    assert acls.create == (acl("alice", "READ"),)


@pytest.mark.parametrize("who", ["replicator", "*"])
def test_what_would_deny_this_restore_is_left_out(who: str) -> None:
    world = archived()
    denied = [acl(who, "DESCRIBE", "DENY"), acl(who, "WRITE", "DENY")]
    world.publish_catalog(source_topic(), acls=[*denied, acl(who, "READ", "DENY"), acl("eve", "WRITE", "DENY")])
    acls = only(plan(world, acls="archive")).acls
    assert acls is not None
    assert acls.left_out == tuple(denied)
    assert list(acls.create) == sorted([acl(who, "READ", "DENY"), acl("eve", "WRITE", "DENY")])


def test_a_cluster_without_an_authorizer_has_no_acls_and_that_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    world = archived()
    world.publish_catalog(source_topic(), acls=[acl("alice", "READ")])
    cluster = FakeCatalogAdmin(world.admin, no_acls="none")
    found = plan(world, acls="archive", acl_admin=cluster)
    assert only(found).acls == RestoredAcls(why="this cluster has no authorizer, and so no ACLs")
    assert not found.refused
    AclRestore(lambda: cluster, OWN).create(RestoredAcls())
    AclRestore(lambda: cluster, OWN).create(RestoredAcls(create=(acl("alice", "READ"),)))
    assert [record.message for record in caplog.records] == ["acls_not_created"], "found out too late for the plan"


def test_a_cluster_whose_access_is_not_by_acls_gets_none_and_the_plan_says_why() -> None:
    world = archived()
    world.publish_catalog(source_topic(), acls=[acl("alice", "READ")])
    cluster = FakeCatalogAdmin(world.admin, other_access="describe the ACLs: AWS IAM decides")
    found = plan(world, acls="archive", acl_admin=cluster)
    assert only(found).acls == RestoredAcls(why="describe the ACLs: AWS IAM decides")
    assert not found.refused


def test_acls_that_the_source_did_not_describe() -> None:
    world = archived()
    world.publish_catalog(source_topic(), acls=None)
    found = plan(world, acls="archive")
    acls = only(found).acls
    assert acls is not None
    assert "has none" in acls.why
    assert "t gets no ACLs of its source" in found.warnings[0]


def test_acls_that_may_not_be_read_are_a_conflict() -> None:
    class Hidden(FakeCatalogAdmin):
        def acls(self) -> frozenset[AclBinding]:
            raise TargetError("describe the ACLs: not authorised")

    world = archived()
    world.publish_catalog(source_topic(), acls=[acl("alice", "READ")])
    topic = only(plan(world, acls="archive", acl_admin=Hidden(world.admin)))
    assert reasons(topic)[ConflictKind.NOT_ALLOWED].endswith("Or restore without them: --acls none")


def test_acls_that_are_refused_end_the_restore() -> None:
    cluster = FakeCatalogAdmin(World().admin, refuses_acls="no ALTER")
    with pytest.raises(TargetError, match=r"1 ACLs were refused: no ALTER\. Or restore without them: --acls none"):
        AclRestore(lambda: cluster, OWN).create(RestoredAcls(create=(acl("alice", "READ"),)))
