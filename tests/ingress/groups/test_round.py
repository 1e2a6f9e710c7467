"""A round for the consumer groups of the source regions: what is written, what is refused, and that one failure holds
nothing else up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from formats.errors import StoreUnavailable
from formats.incarnation import Incarnation
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.messages.map_key import MapKey
from formats.segment import OffsetRange, SourcePartition
from infra.contracts.cluster import Committed, TopicPartition
from infra.contracts.internal_topics import PartitionPages
from ingress.groups.flows import group_flows
from ingress.groups.round import RegionReport
from ingress.groups.translation import Exactness
from ingress.routing.destinations import RoutingTable
from ingress.routing.succession import ArchivedIncarnation
from tests.fakes.kafka_offset_map import FakeOffsetMap
from tests.ingress.groups.offset_maps import page
from tests.ingress.groups.regions import (
    APPLIED,
    RECORDS,
    REGIONS,
    Regions,
    checkpoints,
    delivery,
    map_key,
    offset_syncs,
)
from tests.ingress.world import source_settings


@pytest.fixture
def world() -> Iterator[Regions]:
    made = Regions()
    yield made
    made.close()


def test_groups_are_written_at_their_records_and_committed(world: Regions) -> None:
    world.publish("us", billing=107, ahead=130)
    world.clock.advance(30)
    found = world.run(world.process())
    assert found == {"us": found["us"], "ap": RegionReport(age=timedelta(0), has_arrived=False)}
    report = found["us"]
    assert (report.age.total_seconds(), report.checkpoints, report.problem) == (30, 2, "")
    assert {one.group: (one.downstream, one.exactness) for one in report.positions} == {
        "billing": (7, Exactness.EXACT),
        "ahead": (RECORDS, Exactness.CLAMPED),
    }
    assert world.checkpoints("us") == {"billing": (107, 7, "note"), "ahead": (130, RECORDS, "note")}
    assert world.syncs("us") == [("orders", 0, APPLIED - 1, RECORDS - 1)]
    where = TopicPartition("us.orders", 0)
    assert world.committed() == {"billing": {where: Committed(7, "note")}, "ahead": {where: Committed(RECORDS, "note")}}
    for topic in (checkpoints("us"), offset_syncs("us")):
        assert world.admin.settings[topic]["cleanup.policy"] == "compact"
        assert world.ledger.read().topic(topic, f"id-{topic}") is not None


def test_after_a_fork_a_group_that_had_not_reached_it_is_not_moved_past_its_records(world: Regions) -> None:
    route = world.table.destinations["us.orders"].routes[0]
    after = ArchivedIncarnation(incarnation=Incarnation("orders", "id-fork1"))
    forked = replace(route, incarnations=[*route.incarnations, after])
    table = replace(world.table.destinations["us.orders"], routes=[forked])
    new = CheckpointKey(SourcePartition("us", "orders", 0, "id-fork1"), "us.orders")
    began = Checkpoint(APPLIED + 5, world.topic_id("us"), world.clock.at, begun_at=APPLIED)
    world.offset_map.put(page(APPLIED, [(APPLIED, RECORDS, 5)], MapKey(new, world.topic_id("us"))))
    for _ in range(5):
        world.broker.append(TopicPartition("us.orders", 0), b"x")
    world.publish("us", slow=107, quick=APPLIED + 2)
    flows, _ = group_flows(world.settings)
    positions = {**world.positions(), new: began}
    world.process().run(flows, RoutingTable({"us.orders": table}, {}), positions)
    where = TopicPartition("us.orders", 0)
    assert world.committed() == {
        "slow": {where: Committed(7, "note")},
        "quick": {where: Committed(RECORDS + 2, "note")},
    }


def test_groups_stay_where_a_log_of_other_offsets_is_to_keep_those_of_the_source(world: Regions) -> None:
    """It was filled in map mode: the offsets of its records do not change with the setting."""
    world.publish("us", billing=107)
    world.run(world.process())
    before = world.committed()
    sources = [
        source_settings("orders", None, region=region, replication_policy="default", offsets="preserve")
        for region in REGIONS
    ]
    world.settings = replace(world.settings, sources=tuple(sources))
    world.publish("us", billing=109)
    [found] = world.run(world.process())["us"].positions
    assert (found.downstream, found.exactness) == (None, Exactness.UNKNOWN)
    assert "was filled before offsets = 'preserve' was set" in found.reason
    assert world.committed() == before


def test_a_destination_that_was_created_again_is_no_step_back(world: Regions) -> None:
    """What MirrorMaker 2's clients read of the one before would lie beyond the end of this one's log."""
    where = TopicPartition("us.orders", 0)
    for _ in range(200):
        world.broker.append(where, b"x")
    world.offset_map = FakeOffsetMap()
    world.offset_map.put(page(100, [(100, 200, 20)], map_key("us")))
    world.publish("us", billing=107)
    world.run(world.process(), "us")
    assert world.checkpoints("us")["billing"][:2] == (107, 207)
    world.broker.recreate("us.orders", partitions=1)
    for _ in range(RECORDS):
        world.broker.append(where, b"x")
    world.offset_map.put(page(100, [(100, 0, 20)], MapKey(delivery("us"), world.topic_id("us"))))
    world.groups.offsets.clear()  # the broker forgets those of a deleted topic
    world.publish("us", billing=109)
    world.run(world.process(), "us")
    assert world.checkpoints("us")["billing"][:2] == (109, 9)
    assert world.syncs("us") == [("orders", 0, APPLIED - 1, 219), ("orders", 0, APPLIED - 1, RECORDS - 1)]


def test_an_older_snapshot_than_the_one_that_was_followed_is_no_reset_at_the_source(world: Regions) -> None:
    """The newest one cannot be read by the process that begins."""
    for offset in (105, 107):
        world.publish("us", billing=offset)
    world.run(world.process(allow_rewind=True), "us")
    where = TopicPartition("us.orders", 0)
    assert world.committed() == {"billing": {where: Committed(7, "note")}}
    world.damage_newest("us")
    process = world.process(allow_rewind=True)
    report = world.run(process, "us")["us"]
    assert "cannot be read" in report.problem
    assert world.committed() == {"billing": {where: Committed(7, "note")}}
    assert world.checkpoints("us") == {"billing": (107, 7, "note")}
    world.publish("us", billing=105)  # it was reset
    world.run(process, "us")
    assert world.committed() == {"billing": {where: Committed(5, "note")}}
    assert world.checkpoints("us") == {"billing": (105, 5, "note")}


def test_a_round_that_was_overtaken_takes_its_snapshot_for_no_reset(world: Regions) -> None:
    """The partition has moved to another process, which has followed a newer snapshot, while this one read the map."""
    world.publish("us", billing=105)
    slow, quick = (world.process(allow_rewind=True) for _ in range(2))
    read = world.offset_map.read

    def overtaken() -> Mapping[MapKey, PartitionPages]:
        world.offset_map.read = read  # type: ignore[method-assign]
        world.publish("us", billing=107)
        world.run(quick, "us")
        return read()

    slow.retention = None
    world.offset_map.read = overtaken  # type: ignore[method-assign]
    world.run(slow, "us")
    where = TopicPartition("us.orders", 0)
    assert world.committed() == {"billing": {where: Committed(7, "note")}}
    assert world.checkpoints("us") == {"billing": (107, 7, "note")}


def test_what_has_not_changed_is_not_written_again(world: Regions) -> None:
    world.publish("us", billing=107)
    process = world.process()
    world.run(process)
    before = {topic: list(some) for topic, some in world.records.records.items()}
    assert world.run(process)["us"].checkpoints == 0
    assert world.run(world.process())["us"].checkpoints == 0, "nor by another process"
    assert world.records.records == before


def test_a_topic_that_is_deleted_is_created_again(world: Regions) -> None:
    world.publish("us", billing=107)
    world.records.exists = lambda topic: topic in world.admin.topics()
    process = world.process()
    assert world.run(process, "us")["us"].checkpoints == 1
    world.broker.delete(checkpoints("us"))
    del world.records.records[checkpoints("us")]
    assert "does not exist" in world.run(process, "us")["us"].problem
    report = world.run(process, "us")["us"]
    assert (report.checkpoints, report.problem) == (1, "")
    assert world.checkpoints("us") == {"billing": (107, 7, "note")}


def test_a_region_of_which_nothing_is_wanted_has_no_age(world: Regions) -> None:
    """Without a replication policy no topic is named for its checkpoints."""
    sources = [source_settings("orders", f"{region}.orders", region=region) for region in REGIONS]
    world.settings = replace(world.settings, sources=tuple(sources))
    assert world.run(world.process(sync=False)) == {}
    assert world.run(world.process()).keys() == set(REGIONS)


def test_without_sync_nothing_is_committed(world: Regions) -> None:
    world.publish("us", billing=107)
    assert world.run(world.process(sync=False))["us"].checkpoints == 1
    assert world.committed() == {}


@pytest.mark.parametrize("topic", [checkpoints("us"), offset_syncs("us")])
def test_topics_of_another_program_are_left_alone_until_they_are_adopted(world: Regions, topic: str) -> None:
    """MirrorMaker 2's own, which may be running."""
    world.publish("us", billing=107)
    world.foreign(topic)
    report = world.run(world.process())["us"]
    assert topic in report.problem
    assert "groups.adopt = true" in report.problem
    assert (report.checkpoints, dict(world.records.records)) == (0, {})
    assert world.committed().keys() == {"billing"}, "what is committed here needs none of them"
    report = world.run(world.process(adopt=True))["us"]
    assert (report.checkpoints, report.problem) == (1, "")
    assert world.checkpoints("us") == {"billing": (107, 7, "note")}


@pytest.mark.parametrize(("partitions", "policy"), [(2, "compact"), (1, "delete")])
def test_a_topic_that_is_none_of_mirrormaker_2s_is_not_adopted(world: Regions, partitions: int, policy: str) -> None:
    world.publish("us", billing=107)
    world.foreign(checkpoints("us"), partitions=partitions, policy=policy)
    report = world.run(world.process(adopt=True))["us"]
    assert "may be a user's" in report.problem
    assert dict(world.records.records) == {}


def test_one_that_writes_beside_is_noticed_also_after_adoption(world: Regions) -> None:
    world.publish("us", billing=107)
    process = world.process(adopt=True)
    world.run(process)
    [(key, value)] = world.records.records[checkpoints("us")]
    world.records.records[checkpoints("us")].append((key, (value or b"")[:-1] + b"?"))
    world.publish("us", billing=110)
    report = world.run(process)["us"]
    assert "somebody else writes to" in report.problem
    assert report.checkpoints == 0


def test_after_another_process_had_the_region_its_records_are_ours(world: Regions) -> None:
    world.publish("us", billing=107)
    first, second = world.process(), world.process()
    world.run(first, "us")
    world.run(first, "ap")  # us moved to another process
    world.publish("us", billing=110)
    world.run(second, "us")
    world.publish("us", billing=112)
    report = world.run(first, "us")["us"]
    assert (report.checkpoints, report.problem) == (1, "")


def test_a_region_that_fails_does_not_hold_up_the_others(world: Regions) -> None:
    for region in REGIONS:
        world.publish(region, **{f"of-{region}": 107})
    world.foreign(checkpoints("ap"))
    found = world.run(world.process())
    assert "groups.adopt" in found["ap"].problem
    assert (found["us"].problem, found["us"].checkpoints) == ("", 1)
    assert world.committed().keys() == {"of-ap", "of-us"}


def test_a_ledger_that_does_not_answer_is_a_problem_of_the_region(world: Regions) -> None:
    world.publish("us", billing=107)
    process = world.process()
    world.run(process)
    world.publish("us", billing=110)
    world.ledger.away = True
    report = world.run(process)["us"]
    assert "the ledger: planned" in report.problem
    assert report.checkpoints == 1, "both topics are known to be ours"
    assert world.committed()["billing"][TopicPartition("us.orders", 0)].next_offset == 7


def test_a_bucket_that_does_not_answer_is_no_absence(world: Regions) -> None:
    world.publish("us", billing=107)
    world.objects.away.add("list")
    with pytest.raises(StoreUnavailable):
        world.run(world.process())


class TestUpkeep:
    """Of the offset map: trimmed with the destination's log start, and copied to the bucket, at an interval."""

    def test_pages_go_with_their_records(self, world: Regions) -> None:
        world.publish("us", billing=103)
        world.broker.trim(TopicPartition("us.orders", 0), 11)
        [position] = world.run(world.process())["us"].positions
        assert world.offset_map.starts(map_key("us")) == [10, 15]
        assert world.offset_map.starts(map_key("ap")) == [0, 5, 10, 15]
        assert (position.downstream, position.exactness) == (11, Exactness.TRIMMED)
        assert world.copied("us").first_start == 10

    def test_pages_are_copied_by_the_process_that_keeps_the_region(self, world: Regions) -> None:
        world.run(world.process(), "us")
        assert world.copied("us").needed == (OffsetRange(0, RECORDS - 1),)
        assert map_key("ap") not in world.copies.stored()

    def test_not_before_the_interval_has_passed(self, world: Regions) -> None:
        world.publish("us", billing=107)
        process = world.process()
        world.run(process)
        assert process.retention is not None
        where, longer = TopicPartition("us.orders", 0), page(120, [(120, 20, 5)], map_key("us"))
        world.offset_map.put(longer)
        for _ in range(5):
            world.broker.append(where, b"x")
        world.broker.trim(where, 11)
        world.clock.advance(process.retention.interval.total_seconds() - 1)
        world.run(process)
        assert world.offset_map.starts(map_key("us")) == [0, 5, 10, 15, 20]
        assert world.copied("us").needed == (OffsetRange(0, RECORDS - 1),)
        world.clock.advance(1)
        world.run(process)
        assert world.offset_map.starts(map_key("us")) == [10, 15, 20]
        assert world.copied("us").needed[-1].end == 24

    def test_a_destination_that_may_not_be_described_is_not_gone(self, world: Regions) -> None:
        world.publish("ap", billing=107)
        process = world.process()
        world.admin.hides["us.orders"] = "not permitted"
        for _ in range(3):
            world.run(process)
            assert process.retention is not None
            world.clock.advance(process.retention.interval.total_seconds())
        assert world.offset_map.starts(map_key("us")) == [0, 5, 10, 15]

    def test_a_destination_that_is_gone_takes_its_map_along(self, world: Regions) -> None:
        world.publish("ap", billing=107)
        process = world.process()
        world.broker.delete("us.orders")
        world.run(process)
        assert world.offset_map.starts(map_key("us")), "one broker may not know it for a moment"
        assert process.retention is not None
        world.clock.advance(process.retention.interval.total_seconds())
        world.run(process)
        assert world.offset_map.starts(map_key("us")) == []

    def test_what_fails_is_named_and_repeated_and_groups_are_translated_all_the_same(self, world: Regions) -> None:
        world.publish("us", billing=107)
        process = world.process()
        world.objects.away.add("put_new")
        report = world.run(process)["us"]
        assert report.problem.startswith("the offset map is not trimmed or copied: ")
        assert world.checkpoints("us") == {"billing": (107, 7, "note")}
        world.objects.away.clear()
        assert world.run(process)["us"].problem == ""
        assert world.copied("us").needed
