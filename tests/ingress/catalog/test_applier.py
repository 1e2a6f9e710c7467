"""Destinations become like their sources: partitions, configs and ACLs, of what we created, and of nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Literal

import pytest

from formats.control.catalog import CatalogTopic
from formats.control.keys import catalog_prefix, watermarks_prefix
from formats.messages.ledger import Failover, FailoverPhase
from infra.archive.generations import Generations
from infra.contracts.cluster import TopicPartition
from infra.settings.current import Current
from ingress.catalog.acl_applier import principals_of
from ingress.routing.archived import kept_like_sources
from tests.formats.policies.user_policies import FailsForNow
from tests.ingress.acls import READ
from tests.ingress.process import Process, joined
from tests.ingress.world import DELAY, REGION, World, source_settings, source_topic

P0, P1 = TopicPartition("copy", 0), TopicPartition("copy", 1)
SASL = {"security.protocol": "SASL_SSL"}
COPY_READ = replace(READ, resource_name="copy")


def follow(process: Process, times: int = 1) -> None:
    for _ in range(times):
        process.later(40)


def delivered(world: World) -> Process:
    """Partition 0 of t is delivered, and its first copy is through. Its records are of now."""
    world.put(0, 3, stamp=int(world.clock.at.timestamp() * 1000))
    process = joined(world, P0)
    process.later(DELAY, turns=8)
    follow(process, 2)
    return process


def test_created_as_the_catalogue_says_before_anything_is_stored() -> None:
    world = World()
    world.publish_catalog(source_topic(partitions=5, configs={"segment.bytes": "1000", "retention.ms": "5"}))
    joined(world, P0)
    assert world.admin.describe(["copy"])["copy"].partition_count == 5
    assert world.admin.settings["copy"]["segment.bytes"] == "1000"
    assert world.admin.settings["copy"]["retention.ms"] == "-1", "until the first copy is through"


def test_partitions_follow() -> None:
    world = World()
    world.publish_catalog(source_topic(partitions=2))
    process = delivered(world)
    world.publish_catalog(source_topic(partitions=4))
    world.put(0, 9, partition=3, partitions=4)
    follow(process, 2)
    assert world.admin.describe(["copy"])["copy"].partition_count == 4
    process.placement.assign(TopicPartition("copy", 3))
    process.turn(6)
    assert world.offsets(TopicPartition("copy", 3)) == [*range(10)]
    assert process.stopped == {}


def test_configs_are_set_and_unset() -> None:
    world = World()
    world.publish_catalog(source_topic(configs={"segment.bytes": "1000"}))
    process = delivered(world)
    assert world.admin.settings["copy"]["segment.bytes"] == "1000"
    world.publish_catalog(source_topic(configs={"segment.bytes": "2000"}))
    follow(process, 2)
    assert world.admin.settings["copy"]["segment.bytes"] == "2000"
    world.publish_catalog(source_topic(defaults={"retention.ms": "604800000", "segment.bytes": "1073741824"}))
    follow(process, 2)
    assert "segment.bytes" not in world.admin.settings["copy"]


def test_a_new_catalogue_is_applied_when_it_is_found() -> None:
    world = World()
    world.publish_catalog(source_topic(configs={"segment.bytes": "1000"}))
    process = delivered(world)
    world.publish_catalog(source_topic(configs={"segment.bytes": "2000"}))
    process.later(40, turns=2)  # asks for it; finds and applies it
    assert world.admin.settings["copy"]["segment.bytes"] == "2000"


def test_a_catalogue_that_is_older_than_what_was_applied_changes_nothing() -> None:
    """The next process cannot read the newest one: the one before it would shorten the retention again, and grant what
    was revoked since."""
    world = World()
    world.settings = replace(world.settings, acls="dr-full", protect=False)
    group = replace(READ, resource_type="GROUP", resource_name="billing")
    world.publish_catalog(source_topic(configs={"segment.bytes": "1000"}), acls=[READ, group])
    process = delivered(world)
    world.publish_catalog(source_topic(configs={"segment.bytes": "2000"}), acls=[])
    follow(process, 3)
    assert (world.admin.settings["copy"]["segment.bytes"], world.catalog_admin.bindings) == ("2000", set())
    generations = Generations(world.objects.memory, catalog_prefix("data", REGION))
    newest = generations.newest()
    world.objects.memory.delete_many([generations.key(newest)])
    assert generations.put(newest, b"damaged")
    process = joined(world, P0)
    follow(process, 3)
    assert (world.admin.settings["copy"]["segment.bytes"], world.catalog_admin.bindings) == ("2000", set())
    world.publish_catalog(source_topic(configs={"segment.bytes": "3000"}), acls=[READ])
    follow(process, 3)
    assert (world.admin.settings["copy"]["segment.bytes"], world.catalog_admin.bindings) == ("3000", {COPY_READ})


def test_a_source_changes_nothing_between_failover_and_failback() -> None:
    world = World()
    world.publish_catalog(source_topic(configs={"segment.bytes": "1000"}))
    process = delivered(world)
    failover = Failover(region=REGION, epoch=1, phase=FailoverPhase.ACTIVE, at=world.clock.at)
    world.ledger.write([failover])
    world.publish_catalog(source_topic(configs={"segment.bytes": "2000"}, partitions=7))
    follow(process, 2)
    assert world.admin.settings["copy"]["segment.bytes"] == "1000"
    assert world.admin.describe(["copy"])["copy"].partition_count < 7
    world.ledger.write([replace(failover, phase=FailoverPhase.FAILED_BACK)])
    follow(process, 2)
    assert world.admin.settings["copy"]["segment.bytes"] == "2000"
    assert world.admin.describe(["copy"])["copy"].partition_count == 7


def test_configs_follow_once_a_filter_that_failed_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new destination does not wait for it: its records would."""
    world = World()
    world.settings = replace(world.settings, config_property_filter=f"{FailsForNow.__module__}:FailsForNow")
    world.publish_catalog(source_topic(configs={"segment.bytes": "1000", "flush.ms": "5", "retention.ms": "86400000"}))
    process = delivered(world)
    assert world.offsets(P0) == [*range(4)]
    assert not {"segment.bytes", "flush.ms"} & world.admin.settings["copy"].keys()
    assert world.admin.settings["copy"]["retention.ms"] == "-1", "what the filter says of it is not known"
    monkeypatch.setattr(FailsForNow, "answers", True)
    follow(process, 2)
    found = world.admin.settings["copy"]
    assert (found["segment.bytes"], found["retention.ms"]) == ("1000", "86400000")
    assert "flush.ms" not in found
    world.publish_catalog(source_topic(configs={"retention.ms": "86400000"}, defaults={"segment.bytes": "9000"}))
    follow(process, 2)
    assert "segment.bytes" not in world.admin.settings["copy"], "it is ours to unset"


def test_a_first_copy_asks_for_no_watermarks_of_its_own() -> None:
    world = World(source_settings(first_segment_delay=timedelta(hours=1)))
    world.publish_catalog(source_topic(configs={"retention.ms": "86400000"}))
    world.publish_watermarks(10)
    world.record_begin(0)
    world.put(0, 3)
    process = joined(world, P0)
    follow(process, 2)
    before = len(world.objects.asked)
    follow(process)
    watermarks = watermarks_prefix("data", REGION)
    asked = [what for what, key in world.objects.asked[before:] if key.startswith(watermarks)]
    assert world.admin.settings["copy"]["retention.ms"] == "-1", "the first copy is under way"
    assert asked == ["list"], "for the lag"
    world.put(4, 9)
    follow(process, 2)
    assert world.admin.settings["copy"]["retention.ms"] == "86400000", "by the watermarks"


def test_retention_is_the_sources_once_the_first_copy_is_through() -> None:
    world = World()
    world.publish_catalog(source_topic(configs={"retention.ms": "86400000"}))
    world.put(0, 3)
    process = joined(world, P0)
    world.target.poison[P0] = {9}
    world.put(4, 9)
    process.turn(8)
    process.later(DELAY, turns=8)
    follow(process, 3)
    assert world.admin.settings["copy"]["retention.ms"] == "-1", "offset 9 is not delivered"
    del world.target.poison[P0]
    process.later(600, turns=8)
    follow(process, 3)
    assert world.admin.settings["copy"]["retention.ms"] == "86400000"
    world.put(10, 19)
    world.target.poison[P0] = {12}
    follow(process, 2)
    assert world.admin.settings["copy"]["retention.ms"] == "86400000", "once through is for good"


def test_a_topic_of_somebody_else_is_reported_and_never_altered(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.broker.create("copy", partitions=1)
    world.admin.settings["copy"] = {"retention.ms": "1"}
    world.publish_catalog(source_topic(configs={"retention.ms": "5"}))
    process = delivered(world)
    assert world.admin.settings["copy"] == {"retention.ms": "1"}
    assert world.admin.describe(["copy"])["copy"].partition_count == 1
    reasons = [vars(record)["reason"] for record in caplog.records if record.message == "destination_differs"]
    assert len(reasons) == 2, "each is logged once"
    assert any("we did not create it: add partitions" in reason for reason in reasons)
    assert process.ready


def test_a_recreated_destination_is_no_longer_ours() -> None:
    world = World()
    world.publish_catalog(source_topic(configs={"segment.bytes": "1000"}))
    process = delivered(world)
    world.broker.recreate("copy")
    world.admin.settings["copy"] = {}
    follow(process, 3)
    assert world.admin.settings["copy"] == {}


@pytest.mark.parametrize("wanted", [source_topic(configs={"segment.bytes": "1000"}), source_topic(partitions=4)])
def test_a_topic_that_is_recreated_while_others_are_changed_is_not_altered(wanted: CatalogTopic) -> None:
    """A plan of thousands of topics takes minutes, and Kafka changes topics by name."""
    world = World()
    world.publish_catalog(source_topic())
    delivered(world)
    world.publish_catalog(wanted)
    found = world.finder().find()
    applier = world.applier(Current(world.settings), lambda _: {})
    kept = kept_like_sources({name: one.routes for name, one in found.destinations.items()})
    plan = applier.plan(kept, found.catalogs, world.target.checkpoints)
    assert len(plan.topics.changes) == 1
    world.broker.recreate("copy")
    world.admin.settings["copy"] = {}
    before = world.admin.describe(["copy"])
    assert not applier.apply(plan).problems
    assert world.admin.describe(["copy"]) == before
    assert world.admin.settings["copy"] == {}


@pytest.mark.parametrize("partition", [P0, P1])
def test_only_the_process_with_partition_0_alters_a_topic(partition: TopicPartition) -> None:
    world = World()
    world.publish_catalog(source_topic(configs={"segment.bytes": "1000"}))
    world.put(0, 3)
    process = joined(world, partition)
    world.publish_catalog(source_topic(configs={"segment.bytes": "2000"}))
    follow(process, 2)
    assert world.admin.settings["copy"]["segment.bytes"] == ("2000" if partition == P0 else "1000")


def test_each_config_that_the_cluster_refuses_is_named_and_the_others_are_set() -> None:
    world = World()
    world.publish_catalog(source_topic())
    process = delivered(world)
    world.publish_catalog(source_topic(configs={"segment.bytes": "many", "cleanup.policy": "compact"}))
    follow(process, 3)
    assert world.admin.settings["copy"]["cleanup.policy"] == "compact"
    (problem,) = [text for text in process.problems.values() if "refuses" in text]
    assert "segment.bytes" in problem
    assert "cleanup.policy" not in problem
    world.publish_catalog(source_topic(configs={"cleanup.policy": "compact"}))
    follow(process, 3)
    assert process.problems == {}


def test_nothing_is_altered_when_everything_is_off() -> None:
    world = World(source_settings())
    world.settings = replace(world.settings, create_topics=False, add_partitions=False, configs="off", acls="off")
    world.broker.create("copy", partitions=1)
    world.publish_catalog(source_topic(partitions=3, configs={"segment.bytes": "1"}), acls=[READ])
    process = delivered(world)
    assert world.offsets(P0) == [0, 1, 2, 3]
    assert world.catalog_admin.bindings == set()
    assert world.admin.settings.get("copy", {}) == {}
    assert process.ready


def test_a_missing_destination_waits_when_none_may_be_created() -> None:
    world = World(source_settings())
    world.settings = replace(world.settings, create_topics=False)
    world.put(0, 3)
    process = Process(world)
    process.turn(2)
    assert "create_topics = false: create it with 2 partitions" in process.stopped["a/t/0"]


def test_what_may_not_be_created_is_no_change_of_a_plan() -> None:
    world = World(source_settings())
    world.settings = replace(world.settings, create_topics=False)
    world.publish_catalog(source_topic(partitions=3))
    catalogs = world.catalogs().refresh([REGION])
    kept = kept_like_sources(world.archived_topics().plan(world.settings, catalogs).chosen)
    plan = world.applier().plan(kept, catalogs, {})
    assert plan.changes == []
    [report] = plan.reports
    assert report.startswith("copy: does not exist, and create_topics = false: create it with 3 partitions")


def test_acls_follow_and_so_do_revocations() -> None:
    world = World()
    foreign = replace(COPY_READ, principal="User:bob")
    world.catalog_admin.bindings.add(foreign)
    world.publish_catalog(source_topic(), acls=[READ, replace(READ, operation="WRITE")])
    process = delivered(world)
    assert world.catalog_admin.bindings == {foreign, COPY_READ}
    world.publish_catalog(source_topic(), acls=None)
    follow(process, 2)
    assert world.catalog_admin.bindings == {foreign, COPY_READ}, "the source may not read them any more"
    world.publish_catalog(source_topic(), acls=[])
    follow(process, 2)
    assert world.catalog_admin.bindings == {foreign}


@pytest.mark.parametrize(
    ("principal", "operation", "left"),
    [
        ("User:replicator", "WRITE", set()),
        ("User:*", "WRITE", set()),
        ("User:*", "ALL", {"READ"}),
        ("User:replicator", "READ", {"READ"}),
        ("User:alice", "WRITE", {"WRITE"}),
    ],
)
def test_a_denial_at_the_source_does_not_keep_ingress_from_writing(
    principal: str, operation: str, left: set[str]
) -> None:
    """A source may deny its replicator to write, or freeze a topic; here that would stop its delivery."""
    world = World()
    denial = replace(READ, principal=principal, operation=operation, permission="DENY")
    world.publish_catalog(source_topic(), acls=[READ, denial])
    process = delivered(world)
    denied = {one.operation for one in world.catalog_admin.bindings if one.permission == "DENY"}
    assert denied == left
    assert COPY_READ in world.catalog_admin.bindings
    named = [text for text in reports_of(world, process) if "could not write its destinations" in text]
    assert len(named) == (left != {operation})


def test_under_dr_full_a_binding_of_all_topics_concerns_the_destinations_of_its_source_only() -> None:
    world = World(source_settings(), source_settings("u", "copy-u", region="z"))
    world.settings = replace(world.settings, acls="dr-full", protect=False)
    world.broker.create("local", partitions=1)
    world.publish_catalog(source_topic("u"), region="z", acls=[replace(READ, resource_name="u")])
    world.publish_catalog(source_topic(), acls=[replace(READ, resource_name="*")])
    process = joined(world, P0, TopicPartition("copy-u", 0))
    follow(process, 2)
    assert world.catalog_admin.bindings == {COPY_READ, replace(READ, resource_name="copy-u")}
    assert len(world.catalog_admin.bindings) == 2
    world.publish_catalog(source_topic(), acls=[replace(READ, resource_name="other")])
    follow(process, 2)
    assert world.catalog_admin.bindings == {replace(READ, resource_name="copy-u")}


def test_an_acl_that_was_there_before_is_not_ours() -> None:
    world = World()
    world.catalog_admin.bindings.add(COPY_READ)
    world.publish_catalog(source_topic(), acls=[READ])
    process = delivered(world)
    world.publish_catalog(source_topic(), acls=[])
    follow(process, 2)
    assert world.catalog_admin.bindings == {COPY_READ}


def test_a_target_whose_access_is_not_by_acls_gets_none_and_that_is_reported() -> None:
    world = World()
    world.catalog_admin.other_access = "describe the ACLs: AWS IAM decides"
    world.publish_catalog(source_topic(), acls=[READ])
    process = delivered(world)
    assert reports_of(world, process) == [
        "no ACL is created, and no destination protected: describe the ACLs: AWS IAM decides"
    ]
    assert process.ready


def test_a_removal_at_the_source_removes_nothing() -> None:
    world = World()
    world.publish_catalog(source_topic())
    process = delivered(world)
    world.publish_catalog(removed=[])
    follow(process, 2)
    assert world.admin.describe(["copy"])
    assert process.ready


def test_a_ledger_that_cannot_be_read_alters_nothing() -> None:
    world = World()
    world.publish_catalog(source_topic(configs={"segment.bytes": "1000"}))
    world.put(0, 3)
    process = joined(world, P0)
    process.stop()
    world.ledger.away = True
    world.publish_catalog(source_topic(configs={"segment.bytes": "2000"}))
    again = joined(world, P0)
    follow(again, 4)
    assert world.admin.settings["copy"]["segment.bytes"] == "1000"
    assert "every attempt to make the destinations like their sources" in again.problems["catalog"]


def test_a_ledger_that_may_not_be_read_is_a_problem_until_it_may() -> None:
    world = World()
    world.publish_catalog(source_topic())
    process = delivered(world)
    world.ledger.refuses = "allow READ on replicator.ledger"
    world.publish_catalog(source_topic(configs={"segment.bytes": "2000"}))
    process.later(40)
    for _ in range(5):
        process.later(6)
        assert "allow READ on replicator.ledger" in process.problems["catalog"]
    world.ledger.refuses = ""
    follow(process, 2)
    assert process.problems == {}


@pytest.mark.parametrize("fails", ["refused by the cluster", "not applied"])
def test_what_moved_to_another_process_is_no_problem_of_this_one_any_more(fails: str) -> None:
    world = World()
    world.publish_catalog(source_topic())
    process = delivered(world)
    world.publish_catalog(source_topic(configs={"segment.bytes": "many"}))
    world.ledger.away = fails == "not applied"
    follow(process, 4)
    assert process.problems
    process.placement.revoke(P0)
    follow(process, 1)
    assert process.problems == {}


@pytest.mark.parametrize(("guard", "wanted"), [("warn", None), ("raise", "700000000")])
def test_a_shorter_retention_is_reported_or_raised(guard: Literal["warn", "raise"], wanted: str | None) -> None:
    world = World()
    world.settings = replace(world.settings, retention_guard=guard)
    world.publish_catalog(source_topic(defaults={"retention.ms": "700000000"}))
    process = delivered(world)
    assert world.admin.settings["copy"].get("retention.ms") == wanted
    reports = reports_of(world, process)
    assert ["keeps records for 604800000 ms" in report for report in reports] == [True] * (guard == "warn")


DAY = 86_400_000


@pytest.mark.parametrize(("guard", "wanted"), [("warn", 7 * DAY), ("raise", 37 * DAY)])
def test_retention_does_not_silently_delete_what_the_first_copy_delivers(
    guard: Literal["warn", "raise"], wanted: int
) -> None:
    """The archive keeps a month, the source a week."""
    world = World()
    world.settings = replace(world.settings, retention_guard=guard)
    world.publish_catalog(source_topic(configs={"retention.ms": str(7 * DAY)}))
    month_ago = int(world.clock.at.timestamp() * 1000) - 30 * DAY
    world.put(0, 3, stamp=month_ago)
    process = joined(world, P0)
    early = reports_of(world, process)
    assert world.admin.settings["copy"]["retention.ms"] == "-1"
    process.later(DELAY, turns=8)
    follow(process, 2)
    now = int(world.admin.settings["copy"]["retention.ms"])
    assert wanted <= now <= wanted + 10 * 60_000, "the age is that at the end of the first copy"
    for _ in range(2):
        assert [f"keeps records for {7 * DAY} ms from the end" in one for one in early] == [True] * (guard == "warn")
        early = reports_of(world, process)  # and so it says afterwards
    process.later(86_400)
    follow(process, 2)
    assert int(world.admin.settings["copy"]["retention.ms"]) == now, "it does not grow with the clock"


def test_the_retention_waits_while_the_age_of_the_data_cannot_be_read() -> None:
    world = World()
    world.publish_catalog(source_topic(configs={"retention.ms": str(7 * DAY)}))
    world.put(0, 3)
    process = joined(world, P0)
    world.objects.away = {"open"}
    process.later(DELAY, turns=8)
    follow(process, 2)
    assert world.admin.settings["copy"]["retention.ms"] == "-1"


def reports_of(world: World, process: Process) -> list[str]:
    """What `replicator plan` leaves as it is."""
    kept = kept_like_sources({name: one.routes for name, one in process.controller._watcher.found.destinations.items()})
    plan = world.applier().plan(kept, world.catalogs().refresh([REGION]), process.controller._checkpoints.positions)
    return list(plan.reports)


def test_the_delay_before_the_first_copy_counts_from_the_creation() -> None:
    world = World(source_settings(first_segment_delay=timedelta(hours=1)))
    world.publish_catalog(source_topic(configs={"retention.ms": "5"}))
    world.put(0, 3)
    process = joined(world, P0)
    process.later(3000, turns=8)
    follow(process, 2)
    assert world.admin.settings["copy"]["retention.ms"] == "-1"
    process.later(600)
    follow(process, 2)
    assert world.admin.settings["copy"]["retention.ms"] == "5"


def test_acls_that_the_cluster_refused_are_not_ours(caplog: pytest.LogCaptureFixture) -> None:
    """The administrator creates them by hand, and a revocation must not delete those."""
    world = World()
    world.catalog_admin.refuses_acls = "allow ALTER on the cluster"
    world.publish_catalog(source_topic(), acls=[READ])
    with caplog.at_level("INFO"):
        process = delivered(world)
    assert "allow ALTER" in process.problems["ACLs at the source"]
    assert "acls_changed" not in caplog.messages
    world.catalog_admin.bindings.add(COPY_READ)
    world.catalog_admin.refuses_acls = ""
    world.publish_catalog(source_topic(), acls=[replace(READ, principal="User:carol")])
    follow(process, 3)
    assert COPY_READ in world.catalog_admin.bindings


def test_a_cluster_that_lists_no_acl_any_more_is_not_believed() -> None:
    world = World()
    world.publish_catalog(source_topic(), acls=[READ])
    process = delivered(world)
    hidden = set(world.catalog_admin.bindings)
    world.catalog_admin.bindings.clear()
    follow(process, 3)
    assert "allow DESCRIBE on the cluster" in process.problems["ACLs at the source"]
    assert world.catalog_admin.bindings == set(), "nothing is created again and again"
    world.catalog_admin.bindings |= hidden
    world.publish_catalog(source_topic(), acls=[replace(READ, principal="User:carol")])
    follow(process, 3)
    assert not world.catalog_admin.bindings & hidden, "what was revoked meanwhile is revoked here"
    assert process.problems == {}


def test_acls_of_groups_stay_while_a_region_is_not_known() -> None:
    group = replace(READ, resource_type="GROUP", resource_name="billing")
    world = World(source_settings(), source_settings("u", "copy-u", region="z"))
    world.settings = replace(world.settings, acls="dr-full")
    world.publish_catalog(source_topic("u"), region="z", acls=[group])
    world.publish_catalog(source_topic(), acls=[READ])
    process = delivered(world)
    follow(process, 2)
    assert group in world.catalog_admin.bindings
    world.publish_catalog(source_topic("u"), region="z", acls=None)
    follow(process, 3)
    assert group in world.catalog_admin.bindings
    world.publish_catalog(source_topic("u"), region="z", acls=[replace(group, principal="User:dan")])
    follow(process, 3)
    assert group not in world.catalog_admin.bindings


@pytest.mark.parametrize("here", ["5000000", "1000012"])
def test_the_largest_record_of_the_source_fits_and_a_larger_limit_stays(here: str) -> None:
    world = World()
    world.publish_catalog(source_topic(defaults={"max.message.bytes": "2000000", "retention.ms": "1"}))
    process = delivered(world)
    assert world.admin.settings["copy"]["max.message.bytes"] == "2000000", "also when the source's brokers set it"
    world.admin.settings["copy"]["max.message.bytes"] = here
    follow(process, 3)
    assert int(world.admin.settings["copy"]["max.message.bytes"]) == max(int(here), 2_000_000)


@pytest.mark.parametrize("first", ["3000000", "1000012"])
def test_the_largest_record_of_every_source_of_a_merged_topic_fits(first: str) -> None:
    """The other configs are those of the first source; records of the second would stop at its limit."""
    world = World(source_settings(allow_merge=True), source_settings(region="z", allow_merge=True))
    world.publish_catalog(source_topic(configs={"max.message.bytes": first, "segment.bytes": "1000"}))
    other = source_topic(configs={"max.message.bytes": "2000000", "segment.bytes": "9"})
    world.publish_catalog(other, region="z", cluster_id="z")
    joined(world, P0)
    assert world.admin.settings["copy"]["segment.bytes"] == "1000"
    assert int(world.admin.settings["copy"]["max.message.bytes"]) == max(int(first), 2_000_000)


@pytest.mark.parametrize(
    ("clients", "wanted"),
    [
        ([{}, {}], {"User:ANONYMOUS"}),
        (
            [{"security.protocol": "SASL_SSL", "sasl.username": name} for name in ("adm", "prod")],
            {"User:adm", "User:prod"},
        ),
        ([{"security.protocol": "SASL_SSL", "sasl.username": "adm"}, {"security.protocol": "SSL"}], set()),
    ],
)
def test_principals_are_those_of_all_clients_or_not_known(clients: list[dict[str, str]], wanted: set[str]) -> None:
    assert principals_of(clients, []) == wanted
    assert principals_of(clients, ["User:us"]) == {"User:us"}
