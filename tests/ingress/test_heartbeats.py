"""Heartbeats in topics of the target: that a flow lives, and that its source does, for clients of MirrorMaker 2."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.incarnation import Incarnation
from formats.policies.named_policies import replication_policy
from formats.policies.upstream import replication_hops, upstream_clusters
from formats.records.milliseconds import ms_at_or_before
from infra.contracts.cluster import TopicFacts, TopicPartition
from ingress.heartbeat_flows import HeartbeatFlow, heartbeat_flows
from ingress.heartbeats import held_regions
from ingress.routing.archived import ArchivedTopic
from ingress.routing.destinations import Destination, RoutingTable
from ingress.routing.succession import ArchivedIncarnation
from replicator.commands.status_text import source_text
from replicator.config import IngressSettings, IngressSource
from tests.examples import property_examples
from tests.ingress.catalog.test_killed_applier import dies_at
from tests.ingress.process import Process
from tests.ingress.world import HERE, World, source_settings, source_topic

P0 = TopicPartition("a.t", 0)
USERS = "tests.formats.policies.user_policies"
SOURCE, FLOW = "a.heartbeats", "heartbeats"


def mirrored(topic: str = "^.*", **changes: Any) -> IngressSource:
    return source_settings(topic, None, **{"replication_policy": "default", **changes})


def running(*sources: IngressSource, partition: TopicPartition = P0) -> tuple[World, Process]:
    world = World(*(sources or (mirrored(),)))
    world.publish_catalog(source_topic("t"))
    world.put(0, 9)
    process = Process(world)
    process.join(partition)
    process.later(5)  # the first poll
    return world, process


def stamps(world: World, topic: str) -> list[int]:
    return [beat.timestamp_ms for beat in world.heartbeats.beats(topic)]


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why heartbeats were not written, as logged."""
    return [str(vars(one)["error"]) for one in caplog.records if one.message == "heartbeats_not_written"]


def test_records_are_those_of_mirrormaker_byte_for_byte() -> None:
    """Of the flow as its connector from a to here writes them; of the source as that of here to a writes them there."""
    world, process = running()
    world.beat()
    process.later(5)
    arrived, now = world.clock.at - timedelta(seconds=5), world.clock.at
    (*_, (_, flow_key, flow_value)) = (one for one in world.heartbeats.records if one[0] == FLOW)
    assert flow_key == b"\x00\x01a\x00\x04here"
    assert flow_value == b"\x00\x00" + ms_at_or_before(now).to_bytes(8, "big")
    ((_, key, value),) = (one for one in world.heartbeats.records if one[0] == SOURCE)
    assert key == b"\x00\x04here\x00\x01a"
    assert value == b"\x00\x00" + ms_at_or_before(arrived).to_bytes(8, "big"), "the source's own time"


def test_a_source_that_is_silent_has_none_while_the_flow_lives() -> None:
    world, process = running()
    for _ in range(3):
        world.beat()
        process.later(5)
    seen, of_flow = stamps(world, SOURCE), len(stamps(world, FLOW))
    assert len(seen) == len(set(seen)) == 3
    for _ in range(3):
        process.later(5)
    assert stamps(world, SOURCE) == seen
    assert len(stamps(world, FLOW)) == of_flow + 3


def test_a_source_lives_while_its_records_stand_still() -> None:
    """Two facts: the pipe is alive, and the data is stuck."""
    world, process = running()
    world.put(20, 29)  # 10 to 19 are missing
    world.publish_watermarks(100)
    before = world.offsets(P0)
    for _ in range(3):
        world.beat()
        process.later(5)
    assert world.offsets(P0) == before
    assert len(stamps(world, SOURCE)) == 3


def test_only_what_is_new_since_the_first_poll_is_written() -> None:
    """Another process may have written what is there."""
    world = World(mirrored())
    world.publish_catalog(source_topic("t"))
    world.put(0, 9)
    world.beat()
    process = Process(world)
    process.join(P0)
    process.later(5)
    assert (stamps(world, SOURCE), bool(stamps(world, FLOW))) == ([], True)


class TestOneWriter:
    """Each heartbeat of the source is written by one process at most, whichever owns the region."""

    @property_examples()
    @given(st.lists(st.sampled_from(["beat", "one", "two", "both away"]), max_size=30))
    def test_while_it_moves(self, steps: list[str]) -> None:
        world = World(mirrored())
        rounds = {name: world.heartbeat_round() for name in ("one", "two")}
        flow, beats = replace(heartbeat_flows(world.settings)[0][0], lineage=("source",)), list[int]()
        for step in steps:
            world.clock.advance(5)
            world.heartbeats.away = step == "both away"
            if step == "beat":
                world.beat()
                beats.append(ms_at_or_before(world.clock.at))
            elif step in rounds:
                for name, round_ in rounds.items():
                    round_.write([flow] if name == step else [], (), world.clock.at)
            else:
                for round_ in rounds.values():
                    round_.write([], (), world.clock.at)
        written = stamps(world, SOURCE)
        assert written == sorted(set(written))
        assert set(written) <= set(beats)

    @property_examples()
    @given(
        st.dictionaries(st.sampled_from("pqrstu"), st.sets(st.sampled_from("abc"), min_size=1), min_size=1),
        st.data(),
    )
    def test_a_region_has_one_owner(self, regions_of: Mapping[str, Collection[str]], data: st.DataObject) -> None:
        owner = {name: data.draw(st.sampled_from("123")) for name in regions_of}  # of partition 0
        found = RoutingTable(
            {
                name: Destination(routes=[archived(one) for one in sorted(some)], facts=TopicFacts(name, "", 1))
                for name, some in regions_of.items()
            },
            {},
        )
        held = [held_regions(found, {name for name in owner if owner[name] == process}) for process in "123"]
        assert sorted(region for one in held for region in one) == sorted(
            {region for some in regions_of.values() for region in some}
        )


def archived(region: str) -> ArchivedTopic:
    incarnation = ArchivedIncarnation(incarnation=Incarnation("t"))
    return ArchivedTopic(region=region, incarnations=[incarnation], settings=mirrored())


class TestNames:
    @pytest.mark.parametrize(
        ("changes", "topics"),
        [
            ({}, [(FLOW, SOURCE)]),
            ({"alias": "us"}, [(FLOW, "us.heartbeats")]),
            ({"replication_policy_separator": "_"}, [(FLOW, "a_heartbeats")]),
            ({"replication_policy": "identity"}, [(FLOW, SOURCE)]),
            ({"destination_topic": "{topic}.copy"}, [(FLOW, SOURCE)]),
            ({"replication_policy": "LegacyReplicationPolicy"}, []),
            ({"replication_policy": None}, []),
            ({"heartbeats": False}, []),
            (
                {"alias": "x" * 64, "replication_policy_separator": "." * 64},
                [(FLOW, f"{'x' * 64}{'.' * 64}heartbeats")],
            ),
            ({"replication_policy": f"{USERS}:OwnHeartbeats"}, [("pulse", "pulse-from-a")]),
            ({"replication_policy": f"{USERS}:FailsForHeartbeats"}, []),
            ({"replication_policy": f"{USERS}:OddHeartbeats"}, []),
        ],
    )
    def test_are_those_of_the_policy(self, changes: Mapping[str, Any], topics: Collection[tuple[str, str]]) -> None:
        flows, problems = heartbeat_flows(IngressSettings(sources=(mirrored(**changes),)))
        assert [(flow.topic, flow.source_topic) for flow in flows] == list(topics)
        assert bool(problems) == str(changes.get("replication_policy")).endswith(
            (":FailsForHeartbeats", ":OddHeartbeats")
        )

    def test_that_the_policy_cannot_say_refuse_no_other_topic(self) -> None:
        assert mirrored(replication_policy=f"{USERS}:FailsForHeartbeats").refusal("orders", HERE) == ""

    def test_of_two_regions_with_one_alias_the_first_has_the_topic(self) -> None:
        sources = (mirrored("t"), mirrored("u", region="b", alias="a"))
        flows, problems = heartbeat_flows(IngressSettings(sources=sources))
        assert flows == [HeartbeatFlow(region="a", alias="a", topic=FLOW, source_topic=SOURCE)]
        assert "alias" in problems["b"]

    def test_say_the_hops_down_a_chain(self) -> None:
        """a -> b -> here: what arrived at b goes on as records, under the name of the flow from b."""
        flow_from_b = mirrored("^.*", region="b")
        assert flow_from_b.refusal(SOURCE, HERE) == ""
        at_the_end = {FLOW, "b.heartbeats", flow_from_b.destination(SOURCE)}
        policy = replication_policy("default", "b", ".")
        assert upstream_clusters(policy, at_the_end) == {"a", "b"}
        assert {alias: replication_hops(policy, at_the_end, alias) for alias in "ab"} == {"a": 2, "b": 1}
        assert "went through a before" in mirrored("^.*", region="b").refusal(SOURCE, "a"), "not back to a"


def test_a_chain_goes_on_as_records() -> None:
    world = World(mirrored("^.*"))
    world.publish_catalog(source_topic("x.heartbeats", partitions=1))
    world.put(0, 4, topic="x.heartbeats")
    copy = TopicPartition("a.x.heartbeats", 0)
    Process(world).join(copy)
    assert world.offsets(copy) == [0, 1, 2, 3, 4]


class TestRecordsOfTheSource:
    """A source may have a topic `heartbeats`: MirrorMaker 2's, or that of egress."""

    def test_are_not_delivered_by_an_expression(self) -> None:
        world, process = running()
        world.publish_catalog(source_topic("t"), source_topic(FLOW))
        world.put(0, 9, topic=FLOW)
        process.later(40)
        world.beat()
        process.later(5)
        assert world.offsets(TopicPartition(SOURCE, 0)) == []
        assert len(stamps(world, SOURCE)) == 1
        assert process.stopped == {}
        assert "arrive through the bucket" in mirrored().refusal(FLOW, HERE)

    def test_are_delivered_by_the_name_and_nothing_is_written_beside(self) -> None:
        named = TopicPartition(SOURCE, 0)
        world = World(mirrored("t"), mirrored(FLOW))
        world.publish_catalog(source_topic("t"), source_topic(FLOW))
        world.put(0, 9)
        world.put(0, 4, topic=FLOW)
        process = Process(world)
        process.join(P0, named)
        for _ in range(3):
            world.beat()
            process.later(5)
        assert world.offsets(named) == [0, 1, 2, 3, 4]
        assert (stamps(world, SOURCE), bool(stamps(world, FLOW))) == ([], True)

    def test_are_delivered_as_any_other_without_heartbeats(self) -> None:
        assert mirrored(heartbeats=False).refusal(FLOW, HERE) == ""


class TestTopics:
    def test_are_created_compacted_and_entered_in_the_ledger(self) -> None:
        world, process = running()
        world.beat()
        process.later(5)
        for topic, source, lineage in ((FLOW, "here/heartbeats", ()), (SOURCE, "a/heartbeats", ("source",))):
            facts = world.admin.describe([topic])[topic]
            assert (facts.partition_count, world.admin.configs(topic)["cleanup.policy"]) == (1, "compact")
            owned = world.ledger.read().topic(topic, facts.topic_id)
            assert owned is not None
            assert (owned.source, owned.lineage) == (source, lineage)

    def test_of_mirrormaker_are_used_and_not_owned(self) -> None:
        world = World(mirrored())
        world.broker.create(FLOW)
        world.admin.settings[FLOW] = {"cleanup.policy": "compact"}
        world.publish_catalog(source_topic("t"))
        world.put(0, 9)
        process = Process(world)
        process.join(P0)
        process.later(5)
        assert stamps(world, FLOW)
        assert FLOW not in {name for name, _ in world.ledger.read().topics}

    @pytest.mark.parametrize(("partitions", "policy"), [(3, "compact"), (1, "delete"), (1, "compact,delete")])
    def test_of_users_are_left_alone(self, partitions: int, policy: str, caplog: pytest.LogCaptureFixture) -> None:
        world = World(mirrored())
        world.broker.create(FLOW, partitions=partitions)
        world.admin.settings[FLOW] = {"cleanup.policy": policy}
        world.publish_catalog(source_topic("t"))
        world.put(0, 9)
        process = Process(world)
        process.join(P0)
        process.later(5)
        for _ in range(30):
            world.beat()
            process.later(5)
        assert (stamps(world, FLOW), len(stamps(world, SOURCE))) == ([], 30)
        assert [
            "user" in str(vars(one)["error"]) for one in caplog.records if one.message == "heartbeats_not_written"
        ] == [True]

    def test_that_were_deleted_are_created_again(self) -> None:
        world, process = running()
        process.later(5)
        world.broker.delete(FLOW)
        before = len(stamps(world, FLOW))
        process.later(5)
        process.later(5)
        assert len(stamps(world, FLOW)) == before + 1

    @property_examples()
    @given(deaths=st.lists(st.integers(0, 12), max_size=5))
    def test_are_owned_wherever_processes_die(self, deaths: list[int]) -> None:
        world = World(mirrored())
        flow = replace(heartbeat_flows(world.settings)[0][0], lineage=("source",))
        world.beat()
        for number in [*deaths, None]:
            round_ = world.heartbeat_round()
            with dies_at(10_000 if number is None else number):
                for _ in range(3):
                    world.clock.advance(5)
                    round_.write([flow], (), world.clock.at)
                    world.beat()
        owned = world.ledger.read().topics
        facts = world.admin.describe([FLOW, SOURCE])
        assert owned.keys() >= {(name, one.topic_id) for name, one in facts.items()}
        assert owned[SOURCE, facts[SOURCE].topic_id].lineage == ("source",)
        written = stamps(world, SOURCE)
        assert written == sorted(set(written))


class TestMissingRights:
    def test_leave_out_heartbeats_and_are_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        world = World(mirrored())
        world.heartbeats.refuses = {FLOW: "allow WRITE on it"}
        world.admin.refuses[SOURCE] = "allow CREATE on it"
        world.publish_catalog(source_topic("t"))
        world.put(0, 9)
        process = Process(world)
        process.join(P0)
        for _ in range(60):
            world.beat()
            process.later(5)
        assert world.offsets(P0) == list(range(10))
        assert (process.ready, process.problems, process.stopped) == (True, {}, {})
        assert sorted(errors(caplog)) == ["allow CREATE on it", "allow WRITE on it"]
        assert world.heartbeats.attempts <= 6, "once a minute"
        world.heartbeats.refuses, world.admin.refuses = {}, {}
        for _ in range(13):
            world.beat()
            process.later(5)
        assert stamps(world, FLOW)
        assert stamps(world, SOURCE)

    def test_to_create_need_a_topic(self, caplog: pytest.LogCaptureFixture) -> None:
        world = World(mirrored())
        world.settings = replace(world.settings, create_topics=False)
        for name in (FLOW, "a.t"):
            world.broker.create(name)
            world.admin.settings[name] = {"cleanup.policy": "compact"}
        world.publish_catalog(source_topic("t"))
        world.put(0, 9)
        process = Process(world)
        process.join(P0)
        for _ in range(3):
            world.beat()
            process.later(5)
        assert stamps(world, FLOW)
        assert world.ledger.records == []
        (why,) = errors(caplog)
        assert "create_topics = false" in why


def test_what_an_hour_costs() -> None:
    """As docs/control-plane.md says."""
    world = World(mirrored())
    flow, round_ = heartbeat_flows(world.settings)[0][0], world.heartbeat_round()
    world.beat()
    round_.write([flow], (), world.clock.at)
    world.objects.calls.clear()
    for _ in range(720):
        world.clock.advance(5)
        world.beat()
        round_.write([flow], (), world.clock.at)
    assert dict(world.objects.calls) == {"list": 720, "open": 720}
    assert (len(stamps(world, FLOW)), len(stamps(world, SOURCE))) == (721, 720)
    assert world.admin.asked["describe"] < 10


def test_a_cluster_that_does_not_answer_delays_no_record() -> None:
    world, process = running()
    process.heartbeat_pool.holding = True  # the requests never come back
    world.beat()
    world.put(10, 19)
    process.later(5)
    assert world.offsets(P0) == list(range(20))
    process.later(5)
    assert process.heartbeat_pool.waiting == 1, "one at a time"


def test_a_heartbeat_that_was_not_written_is_followed_by_the_next() -> None:
    world, process = running()
    world.beat()
    world.heartbeats.away = True
    process.later(5)
    world.beat()
    world.heartbeats.away = False
    process.later(5)
    assert [beat.timestamp_ms for beat in world.heartbeats.beats(SOURCE)] == [
        ms_at_or_before(world.clock.at - timedelta(seconds=5))
    ]


def test_settings_that_are_replaced_count_at_once() -> None:
    world, process = running()
    process.later(5)
    before = len(stamps(world, FLOW))
    process.current.replace(IngressSettings(sources=(mirrored(heartbeats=False),)))
    process.later(5)
    process.later(5)
    assert len(stamps(world, FLOW)) == before


def test_status_names_the_topic() -> None:
    world = World(mirrored())
    world.publish_catalog(source_topic("t"))
    world.beat()
    (source,) = world.status().sources
    assert source_text(source, world.clock.at) == "source a: heartbeat 0s ago, a.heartbeats does not exist yet"
    world.broker.create(SOURCE)
    (source,) = world.status().sources
    assert source_text(source, world.clock.at) == "source a: heartbeat 0s ago, written to a.heartbeats"
