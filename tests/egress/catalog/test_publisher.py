"""Processes that publish the catalogue of one region: one at a time, and never an older truth over a newer one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from egress.catalog.election import LEAST_PATIENCE, Election
from egress.catalog.publisher import CATALOG, COLLECTED_WITHIN
from egress.settings import EgressSettings
from formats.control.catalog import decode_catalog
from formats.control.heartbeat import decode_heartbeat
from formats.control.watermarks import decode_watermarks
from infra.archive.generations import Generations
from infra.contracts.cluster import TopicPartition
from tests.egress.catalog.published_region import INTERVAL, OF_GROUPS, REFRESH, Process, Region
from tests.examples import machine
from tests.fakes.schema_registry import FakeRegistry


def test_the_first_process_publishes_and_writes_again_only_when_something_changed(region: Region) -> None:
    one = region.process("one")
    region.turn(one, times=20)
    assert [found.topics["t"].partitions for found in region.catalogs()] == [1]
    region.grow(2)
    region.turn(one, times=7)
    assert [found.topics["t"].partitions for found in region.catalogs()] == [1, 2]
    assert [found.topics["t"].partitions for found in region.watermarks()] == [1, 2]
    assert len(list(region.store.memory.list("heartbeat/"))) == 27


def test_heartbeats_name_the_newest_generations(region: Region) -> None:
    one = region.process("one")
    region.turn(one)
    region.broker.append(TopicPartition("t", 0), b"x")
    region.turn(one, times=7)
    newest = Generations(region.store.memory, "heartbeat/")
    beat = decode_heartbeat(newest.read(newest.newest()))
    assert (beat.writer, beat.catalog, beat.watermarks) == ("one", 1, 2)


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
