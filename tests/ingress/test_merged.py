"""Several sources that allow it share a destination: partition i of each goes to partition i, in its own order."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.messages.delivery_checkpoint import CheckpointKey
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind
from tests.examples import machine
from tests.fakes.kafka_target import Crashed
from tests.ingress.process import Process, joined
from tests.ingress.world import World, numbers, source_settings

C, D = TopicPartition("copy", 0), TopicPartition("copy", 1)
TOPICS = ("one", "two")


def merging(**settings: object) -> World:
    """Of two topics into one, delivered by its own value, so that the target shows whose a record is."""
    merge = {"allow_merge": True, "first_segment_delay": timedelta(), **settings}
    return World(*(source_settings(topic, "copy", **merge) for topic in TOPICS))


def put(world: World, topic: str, start: int, end: int, *, partition: int = 0) -> None:
    world.put(start, end, topic=topic, partition=partition, value=topic.encode())


def delivered(world: World, topic: str, partition: TopicPartition = C) -> list[int]:
    """Source offsets of its records, in the order in which the target has them."""
    return [r.source_offset for r in world.target.records(partition) if r.value == topic.encode()]


def checkpoint(world: World, topic: str, partition: int = 0) -> int | None:
    found = world.target.checkpoints.get(CheckpointKey(SourcePartition("a", topic, partition), "copy"))
    return None if found is None else found.next_offset


def test_each_source_has_its_order_and_its_checkpoint() -> None:
    world = merging()
    for n in range(3):
        put(world, "one", 10 * n, 10 * n + 9)
        put(world, "two", 100 + 5 * n, 104 + 5 * n)
    put(world, "two", 0, 3, partition=1)
    process = joined(world)
    assert delivered(world, "one") == numbers((0, 29))
    assert delivered(world, "two") == numbers((100, 114))
    assert delivered(world, "two", D) == numbers((0, 3))
    assert (checkpoint(world, "one"), checkpoint(world, "two"), checkpoint(world, "two", 1)) == (30, 115, 4)
    assert len(world.target.rounds) <= 4, "they share rounds"
    assert process.ready


def test_a_source_that_comes_later_is_delivered_too() -> None:
    world = merging()
    put(world, "one", 0, 9)
    process = joined(world)
    put(world, "two", 0, 4)
    process.later(60, turns=10)
    assert (delivered(world, "one"), delivered(world, "two")) == (numbers((0, 9)), numbers((0, 4)))
    put(world, "one", 10, 19)
    process.turn(6)
    assert delivered(world, "one") == numbers((0, 19))


def test_m03_not_every_one_allows_it() -> None:
    world = World(
        source_settings("one", "copy", allow_merge=True),
        source_settings("^t(.*)", "copy", allow_merge=True),
        source_settings("^one-(.*)", "x-{topic}", allow_merge=True),
        source_settings("^x-(.*)", "{topic}"),
    )
    for topic in ("one", "two", "x-one-a", "one-a"):
        world.put(0, 3, topic=topic)
    process = Process(world)
    process.turn(3)
    assert set(process.stopped) == {"a/x-one-a/0", "a/one-a/0"}
    assert "allow_merge = true for the source of each" in process.stopped["a/one-a/0"]
    assert set(process.placement.topics) == {"copy"}


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize("poison", [0, 7])
def test_a_refused_record_of_one_does_not_stop_the_other(exactly_once: bool, poison: int) -> None:
    """The target names the partition, which both go to."""
    world = merging()
    world.target.exactly_once = exactly_once
    world.target.poison[C] = {poison}
    put(world, "one", 0, 9)
    put(world, "two", 100, 100)
    process = joined(world)
    process.turn(20)
    assert f"the record at offset {poison} is refused" in process.stopped["a/one/0"]
    assert list(process.stopped) == ["a/one/0"]
    assert (sorted(set(delivered(world, "one"))), delivered(world, "two")[-1:]) == ([*range(poison)], [100])
    assert checkpoint(world, "two") == 101


def test_one_continues_where_it_was_when_the_other_is_positioned_again() -> None:
    world = merging()
    put(world, "one", 0, 9)
    put(world, "two", 0, 9)
    process = joined(world)
    put(world, "one", 10, 19)
    world.target.stop_next(keep=1)
    process.later(1)
    put(world, "two", 10, 19)
    process.later(1)
    assert delivered(world, "one") == delivered(world, "two") == numbers((0, 19))


Ops = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(TOPICS), st.integers(1, 9)),
        st.tuples(st.just("fail"), st.sampled_from([f.name for f in FailureKind]), st.just(0)),
        st.tuples(st.just("stop"), st.just(""), st.integers(0, 1)),
        st.tuples(st.just("crash"), st.just(""), st.just(0)),
        st.tuples(st.just("restart"), st.just(""), st.just(0)),
        st.tuples(st.just("turn"), st.just(""), st.integers(1, 6)),
        st.tuples(st.just("later"), st.just(""), st.integers(1, 60)),
    ),
    max_size=50,
)


@machine(100)
@given(Ops)
def test_every_record_of_each_once_and_in_order(ops: list[tuple[str, str, int]]) -> None:
    world = merging()
    ends = dict.fromkeys(TOPICS, 0)
    for topic in TOPICS:
        put(world, topic, 0, 0)
        ends[topic] = 1
    process = joined(world)

    def begun() -> Process:
        try:
            return joined(world)
        except Crashed:
            return joined(world)

    def guarded(turns: int, seconds: int = 0) -> Process:
        try:
            process.later(seconds, turns=turns)
        except Crashed:
            return begun()
        return process

    for what, name, number in ops:
        match what:
            case "put":
                put(world, name, ends[name], ends[name] + number - 1)
                ends[name] += number
            case "fail":
                world.target.fail_next(C, kind=FailureKind[name])
            case "stop":
                world.target.stop_next(keep=number)
            case "crash":
                world.target.crash_next()
            case "restart":
                process = begun()
            case "turn":
                process = guarded(number)
            case "later":
                process = guarded(2, number)
        for topic in TOPICS:
            found = delivered(world, topic)
            assert found == [*range(len(found))], "once and in order"
            assert (checkpoint(world, topic) or 0) == len(found), "as its own checkpoint says"
    world.target._failing.clear()
    world.target._stopping, world.target._crashing = None, False
    for _ in range(8):
        process = guarded(4, 400)
    assert {topic: len(delivered(world, topic)) for topic in TOPICS} == ends
    assert process.ready
