"""Segments of another topic or cluster, copied into an archive path that is not theirs."""

from __future__ import annotations

import pytest

from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from tests.ingress.process import Process, joined
from tests.ingress.world import World, numbers, source_settings

C, D = TopicPartition("copy", 0), TopicPartition("copy", 1)
SOURCE = SourcePartition("a", "t", 0)


@pytest.fixture
def world() -> World:
    """The path is claimed for topic id "first"."""
    world = World()
    world.claim(0)
    world.put(0, 3, topic_id="first")
    return world


def test_the_path_s_own_segments_are_delivered(world: World) -> None:
    assert joined(world).ready
    assert world.offsets(C) == numbers((0, 3))


def test_another_topic_s_segment_stops_its_partition_and_both_ids_are_named(world: World) -> None:
    world.put(0, 3, partition=1, topic_id="first")
    foreign = world.put(4, 5, topic_id="theirs")
    process = joined(world)
    assert world.offsets(C) == numbers((0, 3)), "what lies before it is delivered"
    assert world.offsets(D) == numbers((0, 3))
    reason = process.stopped[str(SOURCE)]
    for what in (str(foreign), "topic id theirs (cluster cluster-of-it)", "topic id first (cluster source)"):
        assert what in reason
    for _ in range(3):
        process.later(400, turns=8)
    assert world.offsets(C) == numbers((0, 3))
    world.remove(foreign)
    world.put(4, 5, level=1, topic_id="first")
    process.later(400, turns=8)
    assert world.offsets(C) == numbers((0, 5))
    assert process.stopped == {}


def test_what_says_nothing_passes(world: World) -> None:
    """The ancestor's segments, and those of brokers without topic ids."""
    world.put(4, 5)
    assert joined(world).ready
    assert world.offsets(C) == numbers((0, 5))


def test_an_unclaimed_path_accepts_every_topic_until_it_is_claimed() -> None:
    world = World()
    world.put(0, 3, topic_id="theirs")
    process = joined(world, C)
    assert world.offsets(C) == numbers((0, 3))
    world.claim(0)
    world.put(4, 5, topic_id="theirs")
    process.turn(4)
    assert (world.offsets(C), list(process.stopped)) == (numbers((0, 3)), [str(SOURCE)])


def test_a_fork_s_path_belongs_to_the_topic_that_forked() -> None:
    """Its name is not its topic id."""
    world = World(source_settings(on_recreate="new-topic"))
    world.claim(0, "first-fork1", topic_id="first")
    world.put(0, 3, incarnation="first-fork1", topic_id="first")
    target = TopicPartition("copy.first-fo-fork1", 0)
    assert joined(world, target).ready
    assert world.offsets(target) == numbers((0, 3))


def test_a_claim_that_cannot_be_read_says_nothing(world: World) -> None:
    world.objects.memory.replace("data/a/_control/v1/places/t", b"rubbish")
    process = joined(world, C)
    assert "Copy _control/v1/places/t again" in process.stopped[str(SOURCE)]
    assert world.offsets(C) == []


def test_requests_to_an_unavailable_store_are_repeated(world: World) -> None:
    process = Process(world)
    process.turn(2)
    process.placement.assign(C)
    process.reading.holding = True
    process.turn(4)
    world.objects.away = {"open"}
    process.reading.holding = False
    process.reading.run_all()
    process.turn(2)
    world.objects.away = set()
    process.later(5)
    process.later(5, turns=8)
    assert (world.offsets(C), process.stopped) == (numbers((0, 3)), {})
