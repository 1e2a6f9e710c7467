"""A partition begins as soon as its own start is known, and many of them take few listings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event

import pytest

from formats.errors import StoreUnavailable
from infra.contracts.cluster import TopicPartition
from infra.local.waiting import wait_until
from tests.egress.two_partitions import Make, P, Q, joined
from tests.egress.world import Process, World, rule, source
from tests.fakes.kafka_consumer import FakeSourceConsumer

OTHER = TopicPartition("other", 0)
PATIENCE = timedelta(seconds=30)
TOPICS, PARTITIONS = 20, 5


@pytest.fixture
def pools() -> Iterator[tuple[ThreadPoolExecutor, ThreadPoolExecutor]]:
    with ThreadPoolExecutor(2) as lookups, ThreadPoolExecutor(8) as listings:
        yield lookups, listings


class Hang:
    """Listings and puts whose prefix or key begins with `hanging` wait until they are released."""

    def __init__(self, world: World, hanging: str) -> None:
        self._released, self._hanging = Event(), hanging
        world.objects.before_each = self._wait

    def release(self) -> None:
        self._released.set()

    def _wait(self, operation: str, key: str) -> None:
        if operation in ("list", "put_new") and key.startswith(self._hanging):
            assert self._released.wait(PATIENCE.total_seconds())


def turns_until(process: Process, check: Callable[[], bool]) -> bool:
    def turn() -> bool:
        process.later(1, turns=1)
        return check()

    return wait_until(turn, PATIENCE)


@pytest.mark.parametrize(
    "hanging",
    [
        pytest.param("data/a/_control/v1/begins/t/1", id="put of a begin"),
        pytest.param("data/a/_control/v1/begins/other/", id="listing of control objects"),
        pytest.param("data/a/other/", id="listing of segments"),
    ],
)
def test_a_request_that_hangs_holds_up_its_own_partitions_only(
    make: Make, pools: tuple[ThreadPoolExecutor, ThreadPoolExecutor], hanging: str
) -> None:
    world = make(rule("^.*", max_segment_age=timedelta(seconds=1)))
    world.broker.create("other")
    for partition in (P, Q, OTHER):
        world.produce(partition, 3)
    hang = Hang(world, hanging)
    waiting = {Q} if "/t/" in hanging else {OTHER}
    process = world.process(lookup_pools=pools)
    process.turn(2)
    process.consumer.assign_all()
    try:
        rest = {P, Q, OTHER} - waiting
        assert turns_until(process, lambda: all(world.ranges(partition) for partition in rest)), world.objects.keys()
        assert not any(world.ranges(partition) for partition in waiting)
    finally:
        hang.release()
    assert turns_until(process, lambda: all(world.ranges(partition) for partition in (P, Q, OTHER)))
    process.stop()
    for partition in (P, Q, OTHER):
        world.expect(partition)


def test_what_fails_for_one_topic_is_asked_again_for_that_topic_only(world: World) -> None:
    world.broker.create("other")
    for partition in (P, Q, OTHER):
        world.produce(partition, 5)
    fails = True

    def before_each(operation: str, key: str) -> None:
        if fails and operation == "list" and key.startswith("data/a/other/"):
            raise StoreUnavailable(f"list {key}: planned")

    world.objects.before_each = before_each
    process = joined(world)
    process.later(0)
    assert (world.ranges(P), world.ranges(Q), world.ranges(OTHER)) == ([(0, 4)], [(0, 4)], [])
    fails = False
    process.later(0)
    assert world.ranges(OTHER) == [], "it is asked again after a second"
    process.later(2)
    process.later(0)
    assert world.ranges(OTHER) == [(0, 4)]


@pytest.mark.parametrize("topics", [1, 3, 4, 6, TOPICS])
def test_a_start_takes_few_listings(make: Make, topics: int) -> None:
    """At most one for each topic and twenty more: at the first start, with a commit, and without one."""
    world = make()
    names = [f"topic-{index:02}" for index in range(topics)]
    for name in names:
        world.broker.create(name, partitions=PARTITIONS)
    partitions = [TopicPartition(name, index) for name in names for index in range(PARTITIONS)]
    for number, life in enumerate(("first", "with commits", "without"), start=1):
        world.objects.asked.clear()
        process = joined(world, *partitions, consumer=FakeSourceConsumer(world.broker))
        listings = [prefix for operation, prefix in world.objects.asked if operation == "list"]
        assert len(listings) <= topics + 20, (life, listings)
        for partition in partitions:
            world.produce(partition, 1)
        process.turn(3)
        process.stop()
        for partition in partitions:  # without a commit, the last record is read and stored once more
            world.agree(partition)
            assert world.position(partition) == len(set(world.values(partition))) == number
        if life == "with commits":
            world.broker.committed("group").clear()


def test_a_region_of_many_archives_is_not_listed_for_few_topics(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """More control objects than listing each path would show: each path is listed."""
    monkeypatch.setattr("egress.start.archive_lookup.PAGE", 3)
    world = make()
    names = [f"topic-{number}" for number in range(4)]
    partitions = [TopicPartition(name, number) for name in names for number in range(2)]
    for name in names:
        world.broker.create(name, partitions=2)
    joined(world, *partitions).stop()
    world.broker.committed("group").clear()
    for partition in partitions:
        world.produce(partition, 2)
    world.objects.asked.clear()
    joined(world, *partitions, consumer=FakeSourceConsumer(world.broker)).stop()
    listings = [prefix for operation, prefix in world.objects.asked if operation == "list"]
    assert {f"data/a/_control/v1/begins/{name}/" for name in names} <= set(listings)
    for partition in partitions:
        world.expect(partition)
        found = world.control_peek.begins.of(source(partition))
        assert found is not None
        assert found.reason == "start policy"
