"""Which archived topic goes where, and what is refused with which reason."""

from __future__ import annotations

from datetime import timedelta

import pytest

from formats.control.catalog import Catalog, encode_catalog
from formats.control.keys import catalog_prefix
from formats.errors import BrokerUnavailable, PluginFailed, StoreUnavailable, TargetError
from formats.policies.topic_configs import CREATED_WITH
from formats.segment import SourcePartition
from infra.archive.control import ControlStore
from infra.archive.generations import Generations
from infra.archive.segments import SegmentStore
from ingress.routing import destinations
from ingress.routing.destinations import PARTITIONS_EVERY, DestinationFinder
from tests.fakes.key_files import encrypted_around, keys_of
from tests.ingress.world import HERE, World, key, source_settings, source_topic


def finder(world: World) -> DestinationFinder:
    return world.finder()


def test_created_with_the_sources_count_and_settings_that_keep_everything() -> None:
    world = World()
    world.put(0, 9, partitions=3)
    world.put(0, 9, partition=2, partitions=3)
    found = finder(world).find()
    assert found.refused == {}
    destination = found.destinations["copy"]
    (route,) = destination.routes
    assert (route.region, route.incarnations[0].topic, destination.facts.partition_count) == ("a", "t", 3)
    assert world.admin.settings["copy"] == CREATED_WITH
    assert destination.routes[0].sources(2) == [SourcePartition("a", "t", 2)]


def test_newest_segment_has_the_count() -> None:
    world = World()
    world.put(0, 9, partitions=2)
    world.put(10, 19, partitions=6)
    assert finder(world).find().destinations["copy"].facts.partition_count == 6


def test_count_is_never_less_than_the_archive_has() -> None:
    world = World()
    world.put(0, 9, partitions=2)
    world.put(0, 9, partition=4, partitions=None)
    assert finder(world).find().destinations["copy"].facts.partition_count == 5


def test_unknown_count_is_refused_with_what_to_do() -> None:
    world = World()
    world.put(0, 9, partitions=None)
    found = finder(world).find()
    assert found.destinations == {}
    assert "set `partitions`" in found.refused["a/t"]
    assert world.admin.asked["create_topic"] == 0


def test_a_topic_whose_objects_are_all_deleted_is_created_once_there_is_one() -> None:
    """Some servers name its folders all the same."""
    world = World()
    world.objects.deleted.add("data/a/t/0/0/x")
    finder_ = finder(world)
    found = finder_.find()
    assert found.destinations == {}
    assert "no segment of a/t is stored any more" in found.refused["a/t"]
    world.put(0, 9, partitions=2)
    assert finder_.find().destinations["copy"].facts.partition_count == 2


def test_count_may_be_configured() -> None:
    world = World(source_settings(partitions=7))
    world.put(0, 9, partitions=None)
    assert finder(world).find().destinations["copy"].facts.partition_count == 7


def test_existing_topic_is_taken_as_it_is() -> None:
    world = World()
    world.broker.create("copy", partitions=9)
    world.put(0, 9, partitions=2)
    assert finder(world).find().destinations["copy"].facts.partition_count == 9
    assert "copy" not in world.admin.settings


def test_existing_topic_with_too_few_partitions_is_refused_for_those() -> None:
    world = World()
    world.broker.create("copy", partitions=2)
    for partition in (0, 1, 2, 5):
        world.put(0, 9, partition=partition, partitions=6)
    found = finder(world).find()
    assert list(found.destinations) == ["copy"]
    assert set(found.refused) == {"a/t/2", "a/t/5"}
    assert "at least 6" in found.refused["a/t/5"]


def test_too_few_partitions_are_listed_again_from_time_to_time() -> None:
    world = World()
    world.broker.create("copy", partitions=1)
    world.put(0, 9)
    world.put(0, 9, partition=1)
    finder_ = finder(world)
    assert set(finder_.find().refused) == {"a/t/1"}
    world.broker.create("copy", partitions=2)
    for _ in range(PARTITIONS_EVERY):
        refused = finder_.find().refused
    assert refused == {}


def test_partitions_are_listed_with_every_tenth_call_only() -> None:
    """A listing is a request for each topic."""
    world = World()
    world.put(0, 9)
    world.broker.create("copy", partitions=1)
    finder_ = finder(world)
    finder_.find()
    world.put(0, 9, partition=1)
    refused = [set(finder_.find().refused) for _ in range(PARTITIONS_EVERY)]
    assert refused == [set()] * (PARTITIONS_EVERY - 1) + [{"a/t/1"}]


def test_creation_that_is_refused_stops_that_topic_only() -> None:
    world = World(source_settings("^.*", None))
    world.put(0, 9, topic="t")
    world.put(0, 9, topic="u")
    world.admin.refuses["t.ingress"] = "no CREATE"
    found = finder(world).find()
    assert list(found.destinations) == ["u.ingress"]
    assert found.refused == {"a/t": "no CREATE"}


def test_what_is_refused_is_reported_by_partition() -> None:
    world = World(source_settings("^.*", None))
    world.put(0, 9, topic="t")
    world.put(0, 9, topic="t", partition=3)
    world.put(0, 9, topic="u", partition=1)
    world.broker.create("u.ingress", partitions=1)
    world.admin.refuses["t.ingress"] = "no CREATE"
    found = finder(world).find()
    assert set(found.refused_partitions) == {
        key(0, destination="t.ingress"),
        key(3, destination="t.ingress"),
        key(1, topic="u", destination="u.ingress"),
    }
    assert found.refused_partitions[key(3, destination="t.ingress")] == "no CREATE"
    assert "at least 2" in found.refused_partitions[key(1, topic="u", destination="u.ingress")]


def test_damaged_segment_does_not_hide_the_other_topics() -> None:
    world = World(source_settings("^.*", None))
    world.damage(world.put(0, 9, topic="t"))
    world.put(0, 9, topic="u")
    found = finder(world).find()
    assert list(found.destinations) == ["u.ingress"]
    assert "corrupt" in found.refused["a/t"]


@pytest.mark.parametrize("later", ["x-one-a", "one-a"])
def test_two_topics_are_never_merged(later: str) -> None:
    """Neither is preferred, whichever came first: each process sees that in its own way."""
    world = World(source_settings("^one-(.*)", "x-{topic}"), source_settings("^(x|y)-(.*)", "{topic}"))
    [earlier] = {"one-a", "x-one-a"} - {later}  # both go to x-one-a
    world.put(0, 9, topic=earlier)
    world.put(0, 9, topic="y-b")
    finder_ = finder(world)
    assert finder_.find().destinations["x-one-a"].routes[0].incarnations[0].topic == earlier
    world.put(0, 9, topic=later)
    for each in (finder_, finder(world)):
        found = each.find()
        assert list(found.destinations) == ["y-b"]
        assert set(found.refused) == {"a/one-a", "a/x-one-a"}
        assert all(
            "allow_merge = true for the source of each" in reason and "x-one-a" in reason
            for reason in found.refused.values()
        )


def test_internal_and_unknown_topics_and_other_incarnations_are_left_out() -> None:
    world = World(source_settings("^(t|__.*|replicator.*)", None))
    for topic in ("t", "__consumer_offsets", "replicator.checkpoint", "unknown"):
        world.put(0, 9, topic=topic)
    with_id = "data/a/t@other-life/0/0/00000000000000000000-00000000000000000009"
    world.objects.memory.replace(with_id, b"x")
    world.objects.memory.replace("data/a/_control/v1/cluster.json", b"{}")
    found = finder(world).find()
    assert list(found.destinations) == ["t.ingress"]
    assert list(found.refused) == ["a/t@other-life"]


@pytest.mark.parametrize("name", ["bad name", "t@a@b", "t@a.b"])
def test_a_foreign_folder_stops_nothing(name: str) -> None:
    world = World(source_settings("^.*", "{topic}.ingress"))
    world.put(0, 9)
    world.objects.memory.replace(f"data/a/{name}/0/0/00000000000000000000-00000000000000000009", b"x")
    found = finder(world).find()
    assert list(found.destinations) == ["t.ingress"]
    assert found.refused == {}


def test_source_that_matches_nothing_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    finder_ = finder(world)
    finder_.find()
    finder_.find()
    assert caplog.text.count("source_matches_no_topic") == 1
    world.put(0, 9)
    finder_.find()
    assert caplog.text.count("source_matches_no_topic") == 1


def test_other_regions_are_left_alone() -> None:
    world = World()
    world.put(0, 9, region="b")
    found = finder(world).find()
    assert (found.destinations, found.refused) == ({}, {})


def test_errors_come_out_and_change_nothing() -> None:
    world = World()
    world.put(0, 9)
    finder_ = finder(world)
    world.objects.away = {"list"}
    with pytest.raises(StoreUnavailable):
        finder_.find()
    world.objects.away = set()
    world.admin.away = True
    with pytest.raises(BrokerUnavailable):
        finder_.find()
    world.admin.away = False
    assert list(finder_.find().destinations) == ["copy"]


# --- later incarnations of a topic --------------------------------------------------------------------------------

SECOND = "a/t@2-ndLifeOfTopic"


def two_lives(policy: str) -> World:
    world = World(source_settings(on_recreate=policy))
    world.claim(0)
    world.claim(1, "2-ndLifeOfTopic")
    world.put(0, 9, partitions=1)
    world.put(0, 4, incarnation="2-ndLifeOfTopic", partitions=3)
    return world


def test_later_incarnation_is_refused_by_default_with_its_name_and_the_setting() -> None:
    world = two_lives("stop")
    assert World().settings.sources[0].on_recreate == "stop"
    found = finder(world).find()
    assert [i.path for i in found.destinations["copy"].routes[0].incarnations] == ["t"]
    assert list(found.refused) == [SECOND]
    assert all(text in found.refused[SECOND] for text in ("2-ndLifeOfTopic", "on_recreate", "'follow'", "'new-topic'"))


def test_what_lies_after_a_fork_is_refused_by_default_as_that() -> None:
    world = World(source_settings(on_recreate="stop"))
    world.claim(0)
    world.claim(1, "id-fork1")
    world.put(0, 9)
    world.put(5, 14, incarnation="id-fork1")
    found = finder(world).find()
    assert list(found.refused) == ["a/t@id-fork1"]
    reason = found.refused["a/t@id-fork1"]
    assert all(text in reason for text in ("the log of topic t forked at the source", "'follow'", "'new-topic'"))


def test_what_lies_after_a_fork_follows_or_gets_a_topic_named_after_it() -> None:
    for policy, wanted in (
        ("follow", {"copy": ["t", "t@2-ndLifeOfTopic", "t@2-ndLifeOfTopic-fork1"]}),
        (
            "new-topic",
            {
                "copy": ["t"],
                "copy.2-ndLife": ["t@2-ndLifeOfTopic"],
                "copy.2-ndLife-fork1": ["t@2-ndLifeOfTopic-fork1"],
            },
        ),
    ):
        world = two_lives(policy)
        world.claim(2, "2-ndLifeOfTopic-fork1")
        world.put(2, 8, incarnation="2-ndLifeOfTopic-fork1")
        found = finder(world).find()
        assert {d: [i.path for i in one.routes[0].incarnations] for d, one in found.destinations.items()} == wanted
        assert found.refused == {}


def test_later_incarnation_follows_into_the_same_topic_made_for_the_larger() -> None:
    found = finder(two_lives("follow")).find()
    assert [i.path for i in found.destinations["copy"].routes[0].incarnations] == ["t", "t@2-ndLifeOfTopic"]
    assert found.destinations["copy"].facts.partition_count == 3
    assert found.refused == {}


def test_incarnation_claimed_but_not_stored_keeps_its_number() -> None:
    world = two_lives("follow")
    world.claim(2, "third")
    world.put(0, 1, incarnation="fourth")
    world.claim(3, "fourth")
    paths = [i.path for i in finder(world).find().destinations["copy"].routes[0].incarnations]
    assert paths == ["t", "t@2-ndLifeOfTopic", "t@third", "t@fourth"]


def test_later_incarnation_without_a_claim_cannot_follow() -> None:
    world = two_lives("follow")
    world.put(0, 1, incarnation="unclaimed")
    found = finder(world).find()
    assert len(found.destinations["copy"].routes[0].incarnations) == 2
    assert "_control/v1/places/t@unclaimed" in found.refused["a/t@unclaimed"]


def test_claim_that_cannot_be_read_is_not_absent() -> None:
    world = two_lives("follow")
    world.put(0, 1, incarnation="third")
    key = "data/a/_control/v1/places/t@third"
    world.objects.memory.replace(key, b"rubbish")
    finder_ = finder(world)
    assert "not a claim of an archive path" in finder_.find().refused["a/t@third"]
    world.objects.memory.delete_many([key])
    world.claim(2, "third")
    found = finder_.find()
    assert found.refused == {}
    assert len(found.destinations["copy"].routes[0].incarnations) == 3


def test_claims_that_cannot_be_read_are_an_error_of_find() -> None:
    world = two_lives("follow")
    world.objects.away = {"open"}
    with pytest.raises(StoreUnavailable):
        finder(world).find()


def test_a_key_of_one_region_holds_up_no_other() -> None:
    """Its catalogue and the segments of a topic that is to be created are encrypted with a key that is not here."""
    world = World(source_settings(), source_settings("u", "copy-u", region="b"))
    clear = world.objects
    world.put(0, 4)
    world.objects = encrypted_around(clear.memory, keys_of("b", b=9))  # type: ignore[assignment]
    world.peek = SegmentStore(world.objects, "data")
    world.put(0, 4, topic="u", region="b")
    catalog = Catalog(cluster_id="c", writer="w", observed_at=world.clock.at, topics={}, removed=(), acls=frozenset())
    assert Generations(world.objects, catalog_prefix("data", "b")).put(1, encode_catalog(catalog))
    world.objects = encrypted_around(clear)  # type: ignore[assignment]
    world.store, world.control = SegmentStore(world.objects, "data"), ControlStore(world.objects, "data")
    found = finder(world).find()
    assert list(found.destinations) == ["copy"]
    assert "key 'b'" in found.refused["b/u"]
    assert "key 'b'" in found.problems["catalogue of b"]


def test_later_incarnation_gets_a_separate_topic_without_reading_claims() -> None:
    world = two_lives("new-topic")
    world.objects.memory.delete_many([key for key in world.objects.keys() if "_control" in key])  # noqa: SIM118
    found = finder(world).find()
    own = found.destinations["copy.2-ndLife"]
    assert [i.path for i in own.routes[0].incarnations] == ["t@2-ndLifeOfTopic"]
    assert own.facts.partition_count == 3
    assert found.destinations["copy"].facts.partition_count == 1
    assert found.refused == {}


def test_topic_of_an_incarnation_is_never_shared() -> None:
    world = World(source_settings("^.*", "{topic}", on_recreate="new-topic"))
    world.put(0, 9, incarnation="12345678-a")
    world.put(0, 9, incarnation="12345678-b")
    world.put(0, 9, topic="u")
    found = finder(world).find()
    assert list(found.destinations) == ["u"]
    assert set(found.refused) == {"a/t@12345678-a", "a/t@12345678-b"}
    assert all("t.12345678" in reason for reason in found.refused.values())


def test_name_that_grows_too_long_is_refused() -> None:
    world = World(source_settings("t", "c" * 245, on_recreate="new-topic"))
    world.put(0, 9)
    world.put(0, 9, incarnation="12345678")
    found = finder(world).find()
    assert list(found.destinations) == ["c" * 245]
    assert "249" in found.refused["a/t@12345678"]


def test_partitions_that_only_the_later_incarnation_has_are_refused_for_it() -> None:
    world = two_lives("follow")
    world.broker.create("copy", partitions=2)
    world.put(0, 4, incarnation="2-ndLifeOfTopic", partition=2)
    assert set(finder(world).find().refused) == {f"{SECOND}/2"}


# --- another cluster --------------------------------------------------------------------------------------------------


def test_another_cluster_at_the_address_stops_everything() -> None:
    world = World()
    world.put(0, 9)
    finder_ = finder(world)
    assert list(finder_.find().destinations) == ["copy"]
    world.admin.cluster = "another"
    found = finder_.find()
    assert found.destinations == {}
    assert "cluster with id another; this process began with cluster" in found.refused["cluster"]
    with pytest.raises(TargetError):
        finder_.facts(["copy"])
    world.admin.cluster = "cluster"
    assert list(finder_.find().destinations) == ["copy"]


def test_cluster_noted_at_start_is_compared_at_the_first_find() -> None:
    world = World()
    world.put(0, 9)
    finder_ = finder(world)
    finder_.cluster_id = "noted"
    assert list(finder_.find().refused) == ["cluster"]


POLICIES = "tests.formats.policies.user_policies"


def test_a_policy_names_the_destinations() -> None:
    world = World(source_settings("^.*", None, replication_policy="default", replication_policy_separator="_"))
    world.put(0, 9, topic="orders")
    assert list(finder(world).find().destinations) == ["a_orders"]


def test_a_policy_that_fails_for_one_topic_refuses_that_alone() -> None:
    world = World(source_settings("^.*", None, replication_policy=f"{POLICIES}:Suffixed"))
    for topic in ("orders", "forbidden"):
        world.put(0, 9, topic=topic)
    world.put(0, 9, topic="forbidden", incarnation="x")  # held back, too
    found = finder(world).find()
    assert list(found.destinations) == ["orders-from-a"]
    assert list(found.refused) == ["a/forbidden", "a/forbidden@x"]
    assert "raised KeyError: 'no such customer'" in found.refused["a/forbidden"]
    assert any("no such customer" in problem for problem in world.status().problems)


@pytest.mark.parametrize(
    ("alias", "why"), [("__a", "is internal"), ("a", ""), ("b" * 64, "characters, Kafka's limit is 249")]
)
def test_a_name_that_no_topic_may_have_is_refused(alias: str, why: str) -> None:
    world = World(source_settings("^.*", None, replication_policy="default", alias=alias))
    world.put(0, 9, topic="t" * 200)
    found = finder(world).find()
    assert bool(found.refused) == bool(why)
    assert all(why in reason for reason in found.refused.values())


def test_a_topic_that_was_here_before_is_kept_away_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = World(source_settings("^.*", None, replication_policy="default"))
    for topic in ("orders", f"{HERE}.orders", f"c.{HERE}.orders", f"c.not{HERE}.orders"):
        world.put(0, 9, topic=topic)
    finder_ = finder(world)
    for _ in range(2):
        found = finder_.find()
        assert sorted(found.destinations) == [f"a.c.not{HERE}.orders", "a.orders"]
        assert (found.refused, found.stopped) == ({}, {})
    assert caplog.text.count("topic_not_replicated") == 2  # each once
    [first, second] = sorted(world.archived_topics().plan(world.settings).kept_away, key=lambda one: one.topic.name)
    assert f"it went through {HERE} before, by its name (from c <- {HERE})" in first.reason
    assert second.topic.name == f"a/{HERE}.orders"
    assert not [one for one in world.status().partitions if one.key.source.topic == HERE + ".orders"]


def test_a_source_with_a_destination_topic_delivers_what_is_only_called_so() -> None:
    policy = {"replication_policy": "default"}
    local = source_settings(f"{HERE}.orders", "theirs.orders", **policy)
    world = World(source_settings("^.*", None, **policy), local)
    world.put(0, 9, topic=f"{HERE}.orders")
    assert list(finder(world).find().destinations) == ["theirs.orders"]


def test_internal_topics_of_the_policy_are_selected_by_name_only() -> None:
    policy = {"replication_policy": "default", "replication_policy_separator": "_"}
    world = World(source_settings("^.*", None, **policy), source_settings("c_checkpoints_internal", None, **policy))
    for topic in ("mm2-offset-syncs_b_internal", "b_checkpoints_internal", "c_checkpoints_internal"):
        world.put(0, 9, topic=topic)
    assert list(finder(world).find().destinations) == ["a_c_checkpoints_internal"]


def test_a_filter_that_fails_leaves_everything_as_it_was() -> None:
    world = World(source_settings("^.*", None, topic_filter=f"{POLICIES}:FailsForSome"))
    world.put(0, 9)
    assert list(finder(world).find().destinations) == ["t.ingress"]
    world.put(0, 9, topic="forbidden")
    with pytest.raises(PluginFailed, match="no such customer"):  # an outcome of the lookup: the last table stays
        finder(world).find()


def test_a_ledger_that_is_away_does_not_hold_up_what_exists() -> None:
    world = World(source_settings("^.*", None))
    world.put(0, 9, topic="t")
    world.put(0, 9, topic="u")
    world.broker.create("u.ingress", partitions=2)
    world.ledger.away = True
    found = finder(world).find()
    assert list(found.destinations) == ["u.ingress"]
    assert "ledger" in found.refused["a/t"]


def test_creations_take_limited_time_and_go_on_with_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destinations, "CREATED_WITHIN", timedelta())
    world = World(source_settings("^.*", None))
    world.put(0, 9, topic="t")
    world.broker.create("u.ingress", partitions=2)
    world.put(0, 9, topic="u")
    found = finder(world).find()
    assert (list(found.destinations), found.is_unfinished, found.refused) == (["u.ingress"], True, {})
    monkeypatch.undo()
    found = finder(world).find()
    assert (sorted(found.destinations), found.is_unfinished) == (["t.ingress", "u.ingress"], False)


def test_a_destination_that_cannot_keep_offsets_is_refused_until_it_can(caplog: pytest.LogCaptureFixture) -> None:
    """At the first call and at each later one: someone may alter it meanwhile."""
    world = World(source_settings(offsets="preserve"))
    world.put(0, 9, partitions=1)
    world.publish_catalog(source_topic(configs={"cleanup.policy": "delete"}))
    finder_ = finder(world)
    assert finder_.find().refused == {}
    world.admin.settings["copy"]["cleanup.policy"] = "compact"
    found = finder_.find()
    assert (found.destinations, list(found.refused_partitions)) == ({}, [key()])
    assert "Set cleanup.policy = delete here" in found.refused["a/t"]
    world.admin.settings["copy"] |= {"cleanup.policy": "delete", "unclean.leader.election.enable": "true"}
    for _ in range(2):
        found = finder_.find()
        assert (list(found.destinations), found.refused) == (["copy"], {})
    assert [record.message for record in caplog.records].count("preserve_at_risk") == 1


def test_configs_of_all_destinations_that_keep_offsets_are_asked_for_at_once() -> None:
    world = World(source_settings("^t.*", "{topic}.ingress", offsets="preserve"))
    for number in range(5):
        world.put(0, 9, topic=f"t{number}")
    finder_ = finder(world)
    for _ in range(2):
        before = world.admin.asked["configs"]
        assert len(finder_.find().destinations) == 5
        assert world.admin.asked["configs"] - before == 1


def test_a_destination_with_a_map_may_be_compacted() -> None:
    world = World()
    world.put(0, 9, partitions=1)
    world.publish_catalog(source_topic(configs={"cleanup.policy": "delete"}))
    finder_ = finder(world)
    finder_.find()
    world.admin.settings["copy"]["cleanup.policy"] = "compact"
    assert finder_.find().refused == {}
