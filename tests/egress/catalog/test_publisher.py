"""Processes that publish the catalogue of one region: one at a time, and never an older truth over a newer one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from egress.catalog.election import LEAST_PATIENCE, Election
from egress.catalog.group_observer import GroupObserver
from egress.catalog.lineage import Lineages
from egress.catalog.observer import CatalogObserver, SelectedTopics
from egress.catalog.publication import Publication
from egress.catalog.publisher import CATALOG, COLLECTED_WITHIN, ControlPublisher
from egress.catalog.schema_observer import SchemaObserver
from egress.catalog.watermark_observer import WatermarkObserver
from egress.settings import EgressSettings
from formats.control.catalog import Catalog, decode_catalog, encode_catalog
from formats.control.group_snapshot import GroupSnapshot, decode_group_snapshot, encode_group_snapshot
from formats.control.heartbeat import WriterHeartbeat, decode_heartbeat
from formats.control.schemas import SchemaSnapshot, decode_schemas, encode_schemas
from formats.control.watermarks import SourceWatermarks, TopicWatermarks, decode_watermarks, encode_watermarks
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
from tests.examples import machine
from tests.fakes.executors import HandExecutor
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_catalog import FakeLogEnds
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.kafka_groups import FakeGroup, FakeGroupReader
from tests.fakes.schema_registry import FakeRegistry
from tests.fakes.surroundings import FailingStore, HandClock
from tests.ingress.acls import READ

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


@pytest.fixture
def region() -> Region:
    return Region()


def test_the_first_process_publishes_and_writes_again_only_when_something_changed(region: Region) -> None:
    one = region.process("one")
    region.turn(one, times=20)
    assert [found.topics["t"].partitions for found in region.catalogs()] == [1]
    region.grow(2)
    region.turn(one, times=7)
    assert [found.topics["t"].partitions for found in region.catalogs()] == [1, 2]
    assert [found.topics["t"].partitions for found in region.watermarks()] == [1, 2]
    assert len(list(region.store.memory.list("heartbeat/"))) == 27


def test_watermarks_say_how_far_logs_go_and_what_is_archived(region: Region) -> None:
    one = region.process("one")
    region.grow(2)
    region.turn(one)
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    region.broker.append(first, b"1", b"2", b"3")
    region.broker.trim(first, 1)
    region.broker.begin(first, b"4")
    region.broker.committed("group")[first] = Committed(2, "")
    region.turn(one, times=7)
    before, after = region.watermarks()
    none, both, without_transaction = (None, None), frozenset({0, 1}), frozenset({1})
    nothing = TopicWatermarks(topic_id="id-t", low=(0, 0), high=(0, 0), stable=(0, 0), position=none, settled=both)
    assert before.topics == {"t": nothing}
    assert after.topics == {
        "t": TopicWatermarks(
            topic_id="id-t", low=(1, 0), high=(4, 0), stable=(3, 0), position=(2, None), settled=without_transaction
        )
    }
    assert len(region.catalogs()) == 1
    assert second not in region.broker.committed("group")


@pytest.mark.parametrize(
    ("of", "position"), [("id-t", 2), ("id-t-fork1", 2), ("id-before", None)], ids=["this topic", "its fork", "another"]
)
def test_a_commit_for_an_earlier_topic_of_this_name_says_nothing_of_what_is_archived(
    region: Region, of: str, position: int | None
) -> None:
    """It stays until egress begins the topic as it is now: after a while, or once an operator has decided."""
    partition = TopicPartition("t", 0)
    region.broker.append(partition, b"1", b"2", b"3")
    region.broker.committed("group")[partition] = Committed(2, f"start=0 partitions=1 topic={of}")
    region.turn(region.process("one"))
    (found,) = region.watermarks()
    assert found.topics["t"].position == (position,)


def test_heartbeats_name_the_newest_generations(region: Region) -> None:
    one = region.process("one")
    region.turn(one)
    region.broker.append(TopicPartition("t", 0), b"x")
    region.turn(one, times=7)
    newest = Generations(region.store.memory, "heartbeat/")
    beat = decode_heartbeat(newest.read(newest.newest()))
    assert (beat.writer, beat.catalog, beat.watermarks) == ("one", 1, 2)


def test_heartbeats_say_until_when_the_watermarks_were_observed_to_be_those(region: Region) -> None:
    one = region.process("one")
    heartbeats = Generations(region.store.memory, "heartbeat/")

    def observed_at() -> datetime | None:
        return decode_heartbeat(heartbeats.read(heartbeats.newest())).watermarks_at

    began = region.clock.at
    region.turn(one, times=2)
    assert observed_at() == began
    region.turn(one, times=20)
    last = observed_at()
    assert last is not None
    assert last > began, "the same was observed again"
    region.ends.away = True
    region.turn(one, times=20)
    assert one.is_writer, "heartbeats go on"
    assert observed_at() == last


def test_what_was_the_same_for_long_is_put_once_more_before_a_change(region: Region) -> None:
    """So that the moments in between are known once it has changed."""
    region.restate_after = 2 * REFRESH
    one = region.process("one")
    began = region.clock.at
    region.turn(one, times=20)
    assert len(region.watermarks()) == 1
    region.broker.append(TopicPartition("t", 0), b"x")
    region.turn(one, times=7)
    first, again, last = region.watermarks()
    assert (first.topics, first.observed_at) == (again.topics, began)
    assert began + 2 * REFRESH <= again.observed_at < last.observed_at
    assert again.settled_at is not None
    assert again.observed_at <= again.settled_at
    assert last.topics["t"].high == (1,)
    region.broker.append(TopicPartition("t", 0), b"x")
    region.turn(one, times=7)
    assert [found.topics["t"].high for found in region.watermarks()] == [(0,), (0,), (1,), (2,)], "it was not for long"


def test_only_what_both_collections_agree_on_is_settled(region: Region) -> None:
    one = region.process("one")
    region.grow(3)
    written, refused = TopicPartition("t", 0), TopicPartition("t", 1)

    def between() -> None:
        region.broker.append(written, b"x")
        region.ends.refuses[refused] = "no"

    region.ends.then = between
    began = region.clock.at
    region.turn(one, times=2)
    [found] = region.watermarks()
    assert found.topics["t"].high == (1, 0, 0)
    assert found.topics["t"].settled == {2}
    assert found.settled_at is not None
    assert found.settled_at >= found.observed_at == began
    region.ends.refuses.clear()
    region.turn(one, times=7)
    *_, found = region.watermarks()
    assert found.topics["t"].high == (1, 0, 0)
    assert found.topics["t"].settled == {0, 1, 2}
    count = len(region.watermarks())
    region.ends.then = lambda: region.ends.refuses.update({refused: "no"})
    region.turn(one, times=7)
    assert len(region.watermarks()) == count, "its offsets are the same, so it is settled as before"


def test_a_topic_that_is_created_again_between_the_collections_is_not_settled(region: Region) -> None:
    one = region.process("one")
    region.ends.then = lambda: set(region.broker.recreate("t")).clear()
    region.turn(one, times=2)
    [found] = region.watermarks()
    assert (found.topics["t"].settled, found.settled_at) == (frozenset(), None)


def test_a_second_collection_that_fails_costs_only_the_settlement(region: Region) -> None:
    one = region.process("one")
    region.ends.then = lambda: setattr(region.ends, "away", True)
    region.turn(one, times=2)
    [found] = region.watermarks()
    assert (found.topics["t"].high, found.topics["t"].settled, found.settled_at) == ((0,), frozenset(), None)


def test_watermarks_may_be_off(region: Region) -> None:
    region.turn(region.process("one", watermarks=False), times=7)
    assert (len(region.catalogs()), region.watermarks()) == (1, [])


def test_schemas_are_published_when_they_change_whatever_the_cluster_does(region: Region) -> None:
    registry = FakeRegistry()
    one = region.process("one", registry=registry)
    first = registry.add("t-value", '"int"')
    region.turn(one, times=20)
    assert [set(found.schemas) for found in region.schemas()] == [{first}]
    region.admin.away = True
    registry.hide("t-value", 1)
    region.turn(one, times=7)
    assert [found.versions[0].is_deleted for found in region.schemas()] == [False, True]


def test_a_registry_that_is_away_stops_nothing_else_and_is_reported(region: Region) -> None:
    registry = FakeRegistry(refusing=(401, 40101, "no right"))
    one = region.process("one", registry=registry)
    region.turn(one, times=20)
    region.grow(2)
    region.turn(one, times=7)
    assert region.schemas() == []
    assert len(region.catalogs()) == len(region.watermarks()) == 2
    assert one.is_writer
    problem = one.publisher.health.snapshot().problems[CATALOG]
    assert "to publish the schemas" in problem
    assert "401 no right" in problem
    registry.refusing = None
    region.turn(one, times=7)
    assert [found.versions for found in region.schemas()] == [()]
    assert one.publisher.health.snapshot().problems == {}


class TestGroups:
    def test_are_stored_when_a_group_commits(self, region: Region) -> None:
        region.group_interval = OF_GROUPS
        region.commit("g", 5)
        one = region.process("one")
        region.turn(one, times=40)
        assert [found.groups["g"].topics["t"].next_offsets for found in region.snapshots()] == [(5,)]
        region.commit("g", 6)
        region.turn(one, times=13)
        assert [found.groups["g"].topics["t"].next_offsets for found in region.snapshots()] == [(5,), (6,)]

    def test_a_snapshot_without_groups_is_one(self, region: Region) -> None:
        region.group_interval = OF_GROUPS
        region.turn(region.process("one"), times=2)
        assert [found.groups for found in region.snapshots()] == [{}]

    def test_nothing_is_asked_without_an_interval_and_one_that_is_set_later_holds(self, region: Region) -> None:
        one = region.process("one")
        region.turn(one, times=20)
        assert (region.snapshots(), region.groups.asked, region.heartbeat().groups) == ([], {}, 0)
        region.group_interval = OF_GROUPS
        region.turn(one)
        assert len(region.snapshots()) == 1
        asked = region.groups.asked["listing"]
        region.turn(one, times=20)
        assert region.groups.asked["listing"] == asked + 1
        region.group_interval = timedelta(seconds=5)
        region.turn(one, times=10)
        assert region.groups.asked["listing"] == asked + 11, "from the next turn on"
        region.group_interval = timedelta()
        region.turn(one, times=20)
        assert region.groups.asked["listing"] == asked + 11

    def test_heartbeats_say_until_when_they_were_observed_to_be_those(self, region: Region) -> None:
        region.group_interval = OF_GROUPS
        region.commit("g", 5)
        one = region.process("one")
        began = region.clock.at
        region.turn(one, times=2)
        assert (region.heartbeat().groups, region.heartbeat().groups_at) == (1, began)
        region.turn(one, times=26)
        assert (region.heartbeat().groups, region.heartbeat().groups_at) == (1, began + 2 * OF_GROUPS)
        region.groups.away = True
        region.turn(one, times=26)
        assert region.heartbeat().groups_at == began + 2 * OF_GROUPS

    def test_a_cluster_that_refuses_groups_holds_up_nothing_else_and_is_reported(self, region: Region) -> None:
        region.group_interval = OF_GROUPS
        region.groups.away = True
        one = region.process("one")
        region.turn(one, times=20)
        assert (region.snapshots(), len(region.catalogs()), len(region.watermarks())) == ([], 1, 1)
        assert one.is_writer
        assert "to publish the offsets of consumer groups" in one.publisher.health.snapshot().problems[CATALOG]
        region.groups.away = False
        region.turn(one)
        assert len(region.snapshots()) == 1
        assert one.publisher.health.snapshot().problems == {}

    def test_a_group_that_may_not_be_described_is_logged_once(
        self, region: Region, caplog: pytest.LogCaptureFixture
    ) -> None:
        region.group_interval = OF_GROUPS
        region.commit("g", 5)
        region.groups.refuses["g"] = "allow DESCRIBE on the group"
        one = region.process("one")
        region.turn(one, times=40)
        assert [found.unreadable for found in region.snapshots()] == [{"g": "allow DESCRIBE on the group"}]
        operations = [vars(record)["operation"] for record in caplog.records if record.message == "not_observed"]
        assert operations.count("groups") == 1
        assert one.publisher.health.snapshot().problems == {}


class TestRights:
    """A missing right leaves out what it is for, in the object's `problems` and once in the log."""

    def test_without_read_on_the_group(self, region: Region, caplog: pytest.LogCaptureFixture) -> None:
        one = region.process("one")
        region.broker.committed("group")[TopicPartition("t", 0)] = Committed(0, "")
        region.no_positions = "allow READ on the group"
        region.turn(one, times=20)
        [found] = region.watermarks()
        assert found.problems == {"position": "allow READ on the group"}
        assert (found.topics["t"].high, found.topics["t"].position) == ((0,), (None,))
        operations = [vars(record)["operation"] for record in caplog.records if record.message == "not_observed"]
        assert operations.count("position") == 1
        region.no_positions = ""
        region.turn(one, times=7)
        assert region.watermarks()[-1].topics["t"].position == (0,)
        assert region.watermarks()[-1].problems == {}

    def test_without_a_right_on_some_partitions(self, region: Region) -> None:
        region.grow(2)
        region.ends.refuses[TopicPartition("t", 1)] = "allow DESCRIBE on the topic"
        region.turn(region.process("one"))
        [found] = region.watermarks()
        assert found.problems == {"offsets": "of 1 partitions, first t/1: allow DESCRIBE on the topic"}
        assert found.topics["t"].low == found.topics["t"].high == found.topics["t"].stable == (0, None)

    def test_an_empty_list_of_acls_is_no_answer(self, region: Region) -> None:
        """The client gives it to a principal that may not list them, and the target would revoke them all."""
        one = region.process("one")
        region.turn(one, times=2)
        found = region.catalogs()[-1]
        assert found.acls is None
        assert "nothing is revoked at the target" in found.problems["acls"]

    def test_that_the_last_acl_was_revoked_is_believed_where_all_are_seen(self, region: Region) -> None:
        one = region.process("one")
        one.source.bindings.add(READ)
        region.turn(one, times=2)
        assert region.catalogs()[-1].acls == frozenset({READ})
        one.source.bindings.clear()
        region.turn(one, times=7)
        assert region.catalogs()[-1].acls is None, "the right to list them may have gone"
        one.source.sees_all = True
        region.clock.advance(HOUR)
        region.turn(one, times=7)
        found = region.catalogs()[-1]
        assert (found.acls, found.problems) == (frozenset(), {})
        one.source.no_acls = "the authorizer is gone"
        region.turn(one, times=7)
        assert region.catalogs()[-1].acls is None

    def test_whether_all_are_seen_is_asked_once_in_an_hour(self, region: Region) -> None:
        """The Kafka client may end the process on this question."""
        one = region.process("one")
        region.turn(one, times=2)
        one.source.sees_all = True
        region.turn(one, times=7)
        assert region.catalogs()[-1].acls is None, "as it was answered"
        region.clock.advance(HOUR)
        region.turn(one, times=7)
        assert region.catalogs()[-1].acls == frozenset()
        one.source.sees_all = False
        region.turn(one, times=7)
        assert region.catalogs()[-1].acls == frozenset(), "there is nothing left to revoke"
        region.clock.advance(HOUR)
        region.turn(one, times=7)
        assert region.catalogs()[-1].acls is None

    def test_that_all_were_seen_before_there_was_one_says_nothing_of_its_end(self, region: Region) -> None:
        one = region.process("one")
        one.source.sees_all = True
        region.turn(one, times=2)
        assert region.catalogs()[-1].acls == frozenset()
        one.source.bindings.add(READ)
        region.turn(one, times=7)
        assert region.catalogs()[-1].acls == frozenset({READ})
        one.source.bindings.clear()
        one.source.sees_all = False
        region.turn(one, times=7)
        assert region.catalogs()[-1].acls is None, "the right to list them may have gone"

    def test_without_rights_on_configs_and_acls(self, region: Region) -> None:
        one = region.process("one")
        one.source.no_acls, one.source.refuses_configs["t"] = "no authorizer", "allow DESCRIBE_CONFIGS"
        region.turn(one)
        [found] = region.catalogs()
        assert found.problems == {"acls": "no authorizer", "configs": "of 1 topics, first t: allow DESCRIBE_CONFIGS"}
        assert (found.acls, found.topics["t"].configs) == (None, None)
        assert one.publisher.health.snapshot().problems == {}


def test_a_second_process_waits_as_long_as_the_first_one_beats(region: Region) -> None:
    one, two = region.process("one"), region.process("two")
    region.turn(one, two, times=20)
    assert (one.is_writer, two.is_writer) == (True, False)
    assert {found.writer for found in region.catalogs()} == {"one"}


def test_it_takes_over_once_no_heartbeat_came_for_long_enough_and_publishes_at_once(region: Region) -> None:
    one, two = region.process("one"), region.process("two")
    region.turn(one, two)
    region.later(LEAST_PATIENCE - INTERVAL - timedelta(seconds=1))
    two.publisher.turn(region.clock.now())
    assert not two.is_writer
    region.later(timedelta(seconds=1))
    two.publisher.turn(region.clock.now())
    assert two.is_writer
    assert [found.writer for found in region.catalogs()] == ["one", "two"], "also though nothing changed"
    assert [found.writer for found in region.watermarks()] == ["one", "two"]


def test_a_writer_with_a_longer_interval_is_waited_for_as_long_as_it_says(region: Region) -> None:
    one, two = region.process("one"), region.process("two")
    one.publisher.election = Election("one", 4 * INTERVAL)
    region.turn(one, two, times=12)
    assert (one.is_writer, two.is_writer) == (True, False)
    region.turn(two, times=8)
    assert not two.is_writer
    region.turn(two)
    assert two.is_writer


def test_what_was_observed_is_put_soon_after_the_answer(region: Region) -> None:
    """And not one heartbeat interval later."""
    one = region.process("one")
    one.pool.holding = True
    assert one.publisher.pause == INTERVAL
    one.publisher.turn(region.clock.now())
    assert one.publisher.pause == COLLECTED_WITHIN
    one.pool.run_all()
    one.publisher.turn(region.clock.now())
    assert (len(region.catalogs()), len(region.watermarks())) == (1, 1)
    assert one.publisher.pause == INTERVAL


def test_a_process_that_ends_is_succeeded_at_once(region: Region) -> None:
    one, two = region.process("one"), region.process("two")
    region.turn(one, two)
    one.publisher.stop.set()
    one.publisher.run()
    last = max(info.key for info in region.store.memory.list("heartbeat/"))
    assert decode_heartbeat(Generations(region.store.memory, "heartbeat/").read(int(last[-20:]))).is_last
    three = region.process("three")
    region.turn(three)
    assert three.is_writer, "one that starts"
    three.publisher.stop.set()
    three.publisher.run()
    region.turn(two, times=2)
    assert two.is_writer, "one that waits reads what was the last once no new one comes"


def test_a_frozen_writer_does_not_put_an_older_truth_over_a_newer_one(region: Region) -> None:
    one, two = region.process("one"), region.process("two")
    region.turn(one)
    region.grow(2)
    region.later(REFRESH)

    def frozen() -> None:
        """`one` has observed two partitions; it is frozen, and the cluster is as it was before."""
        del region.broker.logs[TopicPartition("t", 1)]
        region.turn(two)
        region.later(LEAST_PATIENCE)
        region.turn(two)
        assert two.is_writer

    one.source.meanwhile = frozen
    one.publisher.turn(region.clock.now())
    assert not one.is_writer
    assert [found.topics["t"].partitions for found in region.catalogs()] == [1, 1]
    assert [found.writer for found in region.watermarks()] == ["one", "two"]


def test_a_writer_that_was_frozen_for_long_is_none_though_heartbeats_of_its_successor_were_thinned(
    region: Region,
) -> None:
    """Of those that are older than an hour `gc` leaves the newest only: the number that the frozen one would put next
    is free again."""
    one, two = region.process("one"), region.process("two")
    region.turn(one, two)
    region.later(LEAST_PATIENCE)
    region.turn(two, times=20)
    assert two.is_writer
    heartbeats = sorted(info.key for info in region.store.memory.list("heartbeat/"))
    region.store.memory.delete_many(heartbeats[:-1])
    region.turn(one, two, times=7)
    assert (one.is_writer, two.is_writer) == (False, True)
    assert region.heartbeat().writer == "two"


@pytest.mark.parametrize("kind", ["catalog", "watermarks"])
def test_a_generation_that_cannot_be_decoded_is_followed_by_the_next(region: Region, kind: str) -> None:
    newest = Generations(region.store.memory, f"{kind}/")
    newest.put(3, b"{")
    region.turn(region.process("one"), times=20)
    assert newest.newest() == 4
    decode = decode_catalog if kind == "catalog" else decode_watermarks
    assert decode(newest.read(4)).topics.keys() == {"t"}


def test_generations_begin_anew_in_an_emptied_bucket(region: Region) -> None:
    one = region.process("one")
    region.turn(one)
    region.store.memory.delete_many(region.store.keys())
    region.turn(one, times=7)
    assert (len(region.catalogs()), len(region.watermarks())) == (1, 1)


def test_a_cluster_that_does_not_answer_is_reported_and_heartbeats_go_on(region: Region) -> None:
    one = region.process("one")
    region.admin.away = True
    region.turn(one, times=14)
    assert "to publish the catalogue" in one.publisher.health.snapshot().problems[CATALOG]
    assert len(list(region.store.memory.list("heartbeat/"))) == 14
    region.admin.away = False
    region.turn(one)
    assert one.publisher.health.snapshot().problems == {}
    assert len(region.catalogs()) == 1


def test_what_fails_does_not_hold_up_the_other(region: Region) -> None:
    one = region.process("one")
    region.ends.away = True
    region.turn(one, times=14)
    assert "to publish the watermarks" in one.publisher.health.snapshot().problems[CATALOG]
    assert (len(region.catalogs()), len(region.watermarks())) == (1, 0)
    region.ends.away = False
    region.turn(one)
    assert len(region.watermarks()) == 1


def test_a_cluster_that_takes_long_holds_up_no_heartbeat(region: Region) -> None:
    one, two = region.process("one"), region.process("two")
    one.pool.holding = True
    region.turn(one, two, times=20)
    assert (one.is_writer, region.catalogs()) == (True, [])
    one.pool.run_all()
    region.turn(one, two)
    assert (len(region.catalogs()), len(region.watermarks())) == (1, 1)


def test_what_was_observed_in_an_earlier_term_is_not_put(region: Region) -> None:
    one, two = region.process("one"), region.process("two")
    one.pool.holding = True
    region.turn(one)
    region.later(LEAST_PATIENCE)
    region.turn(two)
    region.later(LEAST_PATIENCE)
    region.turn(two, times=7)
    assert two.is_writer
    one.pool.run_all()
    region.turn(one, times=2)
    assert not one.is_writer
    region.later(LEAST_PATIENCE)
    region.grow(2)
    region.turn(one, times=2)
    one.pool.run_all()
    region.turn(one)
    assert one.is_writer
    assert [(found.writer, found.topics["t"].partitions) for found in region.catalogs()] == [("two", 1), ("one", 2)]


def test_failures_count_from_the_first_one_while_the_next_attempt_is_under_way(region: Region) -> None:
    one = region.process("one")
    one.pool.holding = region.admin.away = True
    for _ in range(14):
        region.turn(one)
        one.pool.run_all()
        region.turn(one)
    assert "to publish the catalogue" in one.publisher.health.snapshot().problems[CATALOG]


def test_a_bucket_that_does_not_answer_ends_the_term(region: Region) -> None:
    one = region.process("one")
    region.turn(one)
    region.store.away = {"put_new"}
    region.later(LEAST_PATIENCE - INTERVAL)
    one.publisher.turn(region.clock.now())
    assert not one.is_writer, "another process may have taken over meanwhile"
    region.store.away = set()
    one.publisher.turn(region.clock.now())
    region.later(LEAST_PATIENCE)
    one.publisher.turn(region.clock.now())
    assert one.is_writer


def test_a_process_that_is_the_writer_again_observes_at_once(region: Region) -> None:
    region.group_interval = timedelta(hours=1)
    one = region.process("one")
    region.turn(one)
    region.store.away = {"put_new"}
    region.turn(one, times=LEAST_PATIENCE // INTERVAL)
    assert not one.is_writer
    region.store.away = set()
    region.turn(one, times=2 * (LEAST_PATIENCE // INTERVAL))
    assert one.is_writer
    assert len(region.catalogs()) == len(region.watermarks()) == len(region.snapshots()) == 2


class TestIdleCost:
    """Requests of an hour in which nothing changes, with default intervals: docs/operations.md states them."""

    HOUR = timedelta(hours=1)

    def test_the_intervals_are_the_defaults(self) -> None:
        defaults = {field.name: field.default for field in fields(EgressSettings)}
        assert defaults["heartbeat_interval"] == INTERVAL
        assert defaults["topic_refresh_interval"] == defaults["watermark_interval"] == REFRESH
        assert (defaults["groups"], defaults["group_interval"]) == ((), OF_GROUPS), "by default nothing is asked"

    def stated(self, row: str) -> Mapping[str, int]:
        page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
        [line] = [one for one in page.split("<!-- idle requests -->")[1].splitlines() if one.startswith(f"| {row} |")]
        numbers = map(int, line.split("|")[2:5])
        return {name: count for name, count in zip(("put_new", "list", "open"), numbers, strict=True) if count}

    def requests(self, region: Region, *processes: Process) -> Mapping[str, int]:
        """Of one hour of the last process, beside the others."""
        region.turn(*processes, times=12)
        counted: Counter[str] = Counter()
        for _ in range(self.HOUR // INTERVAL):
            for one in processes:
                before = Counter(region.store.calls)
                one.publisher.turn(region.clock.now())
                if one is processes[-1]:
                    counted += region.store.calls - before
            region.later()
        return counted

    def test_of_the_writer(self, region: Region) -> None:
        assert self.requests(region, region.process("one")) == self.stated("the writer")

    def test_of_a_writer_without_watermarks(self, region: Region) -> None:
        found = self.requests(region, region.process("one", watermarks=False))
        assert found == self.stated('the writer, `watermark_interval = "0s"`')

    def test_of_a_writer_with_groups(self, region: Region) -> None:
        region.group_interval = OF_GROUPS
        region.commit("g", 5)
        assert self.requests(region, region.process("one")) == self.stated("the writer, with `groups`")

    def test_of_a_standby(self, region: Region) -> None:
        found = self.requests(region, region.process("one"), region.process("two"))
        assert found == self.stated("each other egress process of the region")


def test_a_topic_that_may_not_be_described_any_more_was_not_removed(region: Region) -> None:
    one = region.process("one")
    region.broker.create("u", partitions=1)
    region.broker.create("v", partitions=1)
    region.turn(one)
    region.admin.hides["t"] = "no DESCRIBE"  # so no listing shows it
    region.broker.delete("u")
    region.turn(one, times=20)
    found = region.catalogs()[-1]
    assert (set(found.topics), set(found.removed_names)) == ({"v"}, {"u"})
    del region.admin.hides["t"]
    region.turn(one, times=20)
    found = region.catalogs()[-1]
    assert (set(found.topics), set(found.removed_names)) == ({"t", "v"}, {"u"})


class Publishers(RuleBasedStateMachine):
    """Three processes that are paused, fail and freeze between their observation and its put: the numbers of the
    generations are in the order of their observations."""

    def __init__(self) -> None:
        super().__init__()
        self.region = Region(restate_after=REFRESH)
        self.processes = [self.region.process(name) for name in "abc"]

    @rule(which=st.integers(0, 2), pause=st.sampled_from([0, 1, 5, 16, 40]))
    def turn(self, which: int, pause: int) -> None:
        self.region.later(timedelta(seconds=pause))
        self.processes[which].publisher.turn(self.region.clock.now())

    @rule()
    def change(self) -> None:
        self.region.grow(self.region.partitions + 1)

    @rule(which=st.integers(0, 2), others=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 16])), max_size=4))
    def freeze(self, which: int, others: list[tuple[int, int]]) -> None:
        """The next observation of one process is put only after turns of others."""

        def meanwhile() -> None:
            for other, pause in others:
                if other != which:
                    self.region.later(timedelta(seconds=pause))
                    self.change()
                    self.processes[other].publisher.turn(self.region.clock.now())

        self.processes[which].source.meanwhile = meanwhile

    @rule(which=st.integers(0, 2), holding=st.booleans())
    def wait_for_the_cluster(self, which: int, *, holding: bool) -> None:
        """Observations of one process are made, and put in a turn after that, only once it waits no more."""
        self.processes[which].pool.holding = holding
        if not holding:
            self.processes[which].pool.run_all()

    @rule(what=st.sampled_from(["put_new", "list", "open"]), away=st.booleans())
    def fail(self, what: str, away: bool) -> None:
        (self.region.store.away.add if away else self.region.store.away.discard)(what)

    @invariant()
    def numbers_are_in_the_order_of_observations(self) -> None:
        for stored in (self.region.catalogs(), self.region.watermarks()):
            observed = [found.observed_at for found in stored]
            assert observed == sorted(observed)
            counts = [found.topics["t"].partitions for found in stored]
            assert counts == sorted(counts)


TestPublishers = Publishers.TestCase
TestPublishers.settings = machine(60)
