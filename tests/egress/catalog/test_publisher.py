"""Processes that publish the catalogue of one region: one at a time, and never an older truth over a newer one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from egress.catalog.election import LEAST_PATIENCE, Election
from egress.catalog.publisher import CATALOG, CatalogPublisher
from formats.control.catalog import Catalog, CatalogTopic, decode_catalog, with_removals
from formats.control.heartbeat import decode_heartbeat
from formats.errors import BrokerUnavailable
from infra.archive.generations import Generations
from infra.runtime.health import Health
from infra.runtime.lifecycle import Stop
from tests.examples import machine
from tests.fakes.surroundings import FailingStore, HandClock

INTERVAL, REFRESH = timedelta(seconds=5), timedelta(seconds=30)


@dataclass
class Cluster:
    """What there is to observe: one topic, whose partitions count the changes."""

    partitions: int = 1
    away: bool = False

    def catalog(self, writer: str, now: datetime) -> Catalog:
        if self.away:
            raise BrokerUnavailable("planned")
        topic = CatalogTopic(name="t", topic_id="id", partitions=self.partitions, replication_factor=1, configs={})
        return Catalog(cluster_id="c", writer=writer, observed_at=now, topics={"t": topic})


@dataclass
class Observer:
    cluster: Cluster
    writer: str
    meanwhile: Callable[[], None] = lambda: None  # what happens between the observation and its put

    def observe(self, before: Catalog | None, now: datetime) -> Catalog:
        found = with_removals(self.cluster.catalog(self.writer, now), before)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return found


@dataclass
class Region:
    clock: HandClock = field(default_factory=HandClock)
    cluster: Cluster = field(default_factory=Cluster)
    store: FailingStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = FailingStore(self.clock)

    def process(self, name: str) -> CatalogPublisher:
        return CatalogPublisher(
            observer=Observer(self.cluster, name),  # type: ignore[arg-type]  # the method that it has is all that is used
            catalogs=Generations(self.store, "catalog/"),
            heartbeats=Generations(self.store, "heartbeat/"),
            election=Election(name, INTERVAL),
            refresh=REFRESH,
            clock=self.clock,
            health=Health(),
            stop=Stop(),
        )

    def catalogs(self) -> list[Catalog]:
        """Every generation that is stored, in the order of their numbers."""
        found = Generations(self.store.memory, "catalog/")
        return [decode_catalog(found.read(int(info.key[-20:]))) for info in self.store.memory.list("catalog/")]

    def later(self, pause: timedelta = INTERVAL) -> None:
        self.clock.at += pause


@pytest.fixture
def region() -> Region:
    return Region()


def test_the_first_process_publishes_and_writes_again_only_when_something_changed(region: Region) -> None:
    one = region.process("one")
    for _ in range(20):
        one.turn(region.clock.now())
        region.later()
    assert [found.topics["t"].partitions for found in region.catalogs()] == [1]
    region.cluster.partitions = 2
    for _ in range(7):
        one.turn(region.clock.now())
        region.later()
    assert [found.topics["t"].partitions for found in region.catalogs()] == [1, 2]
    beats = list(region.store.memory.list("heartbeat/"))
    assert len(beats) == 27


def test_a_second_process_waits_as_long_as_the_first_one_beats(region: Region) -> None:
    one, two = region.process("one"), region.process("two")
    for _ in range(20):
        one.turn(region.clock.now())
        two.turn(region.clock.now())
        region.later()
    assert (one.election.is_writer, two.election.is_writer) == (True, False)
    assert {found.writer for found in region.catalogs()} == {"one"}


def test_it_takes_over_once_no_heartbeat_came_for_long_enough_and_publishes_at_once(region: Region) -> None:
    one, two = region.process("one"), region.process("two")
    one.turn(region.clock.now())
    two.turn(region.clock.now())
    region.later(LEAST_PATIENCE - timedelta(seconds=1))
    two.turn(region.clock.now())
    assert not two.election.is_writer
    region.later(timedelta(seconds=1))
    two.turn(region.clock.now())
    assert two.election.is_writer
    assert [found.writer for found in region.catalogs()] == ["one", "two"], "also though nothing changed"


def test_a_process_that_ends_is_succeeded_at_once(region: Region) -> None:
    one, two = region.process("one"), region.process("two")
    one.turn(region.clock.now())
    one.stop.set()
    one.run()
    last = max(info.key for info in region.store.memory.list("heartbeat/"))
    assert decode_heartbeat(Generations(region.store.memory, "heartbeat/").read(int(last[-20:]))).is_last
    two.turn(region.clock.now())
    assert two.election.is_writer


def test_a_frozen_writer_does_not_put_an_older_truth_over_a_newer_one(region: Region) -> None:
    one, two = region.process("one"), region.process("two")
    one.turn(region.clock.now())
    region.cluster.partitions = 2
    region.later(REFRESH)

    def frozen() -> None:
        """`one` has observed two partitions; it is frozen, and the cluster is as it was before."""
        region.cluster.partitions = 1
        two.turn(region.clock.now())
        region.later(LEAST_PATIENCE)
        two.turn(region.clock.now())
        assert two.election.is_writer

    assert isinstance(one.observer, Observer)
    one.observer.meanwhile = frozen
    one.turn(region.clock.now())
    assert not one.election.is_writer
    assert [found.topics["t"].partitions for found in region.catalogs()] == [1, 1]


def test_a_generation_that_cannot_be_decoded_is_followed_by_the_next(region: Region) -> None:
    Generations(region.store.memory, "catalog/").put(3, b"{")
    one = region.process("one")
    one.turn(region.clock.now())
    newest = Generations(region.store.memory, "catalog/")
    assert newest.newest() == 4
    assert decode_catalog(newest.read(4)).topics.keys() == {"t"}


def test_a_cluster_that_does_not_answer_is_reported_and_heartbeats_go_on(region: Region) -> None:
    one = region.process("one")
    region.cluster.away = True
    for _ in range(14):
        one.turn(region.clock.now())
        region.later()
    assert "to publish the catalogue" in one.health.snapshot().problems[CATALOG]
    assert len(list(region.store.memory.list("heartbeat/"))) == 14
    region.cluster.away = False
    one.turn(region.clock.now())
    assert one.health.snapshot().problems == {}
    assert len(region.catalogs()) == 1


def test_a_bucket_that_does_not_answer_ends_the_term(region: Region) -> None:
    one = region.process("one")
    one.turn(region.clock.now())
    region.store.away = {"put_new"}
    region.later(LEAST_PATIENCE)
    one.turn(region.clock.now())
    assert not one.election.is_writer, "another process may have taken over meanwhile"
    region.store.away = set()
    one.turn(region.clock.now())
    region.later(LEAST_PATIENCE)
    one.turn(region.clock.now())
    assert one.election.is_writer


class Publishers(RuleBasedStateMachine):
    """Three processes that are paused, fail and freeze between their observation and its put: the numbers of the
    generations are in the order of their observations."""

    def __init__(self) -> None:
        super().__init__()
        self.region = Region()
        self.processes = [self.region.process(name) for name in "abc"]

    @rule(which=st.integers(0, 2), pause=st.sampled_from([0, 1, 5, 16, 40]))
    def turn(self, which: int, pause: int) -> None:
        self.region.later(timedelta(seconds=pause))
        self.processes[which].turn(self.region.clock.now())

    @rule()
    def change(self) -> None:
        self.region.cluster.partitions += 1

    @rule(which=st.integers(0, 2), others=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 16])), max_size=4))
    def freeze(self, which: int, others: list[tuple[int, int]]) -> None:
        """The next observation of one process is put only after turns of others."""
        observer = self.processes[which].observer
        assert isinstance(observer, Observer)

        def meanwhile() -> None:
            for other, pause in others:
                if other != which:
                    self.region.later(timedelta(seconds=pause))
                    self.region.cluster.partitions += 1
                    self.processes[other].turn(self.region.clock.now())

        observer.meanwhile = meanwhile

    @rule(what=st.sampled_from(["put_new", "list", "open"]), away=st.booleans())
    def fail(self, what: str, away: bool) -> None:
        (self.region.store.away.add if away else self.region.store.away.discard)(what)

    @invariant()
    def numbers_are_in_the_order_of_observations(self) -> None:
        observed = [found.observed_at for found in self.region.catalogs()]
        assert observed == sorted(observed)
        counts = [found.topics["t"].partitions for found in self.region.catalogs()]
        assert counts == sorted(counts)


TestPublishers = Publishers.TestCase
TestPublishers.settings = machine(100)
