"""What a partition that cannot go on leaves in the target, for an operator who asks when every process is dead."""

from __future__ import annotations

from dataclasses import replace

from replicator.checkpoint import Parked
from replicator.protocols import TopicPartition
from tests.ingress.world import World, joined, key, numbers

C, D = TopicPartition("copy", 0), TopicPartition("copy", 1)


def test_a_parked_partition_says_where_why_and_since_when() -> None:
    world = World()
    world.put(0, 3)
    world.put(0, 3, partition=1)
    process = joined(world)
    world.target.poison[C] = {6}
    world.put(4, 9)
    process.turn(8)
    (note,) = world.target.parked.values()
    assert list(world.target.parked) == [key()]
    assert (note.next_offset, note.since) == (6, world.clock.at)
    assert "POISON" in note.reason
    del world.target.poison[C]
    process.later(40, turns=8)
    assert world.offsets(C) == numbers((0, 9))
    assert world.target.parked == {}


def test_the_note_outlives_the_process_and_goes_with_the_next_owners_progress() -> None:
    world = World()
    bad = world.put(0, 3)
    world.put(4, 5)
    world.damage(bad)
    joined(world).stop()
    assert list(world.target.parked) == [key()]
    world.remove(bad)
    owner = joined(world)
    assert list(world.target.parked) == [key()], "no progress yet"
    world.put(0, 3, level=1)
    owner.later(400, turns=8)
    assert world.offsets(C) == numbers((0, 5))
    assert world.target.parked == {}


def test_a_destination_created_again_parks_without_a_position() -> None:
    world = World()
    world.put(0, 3)
    world.set_checkpoint(3)
    world.target.checkpoints[key()] = replace(world.target.checkpoints[key()], destination_topic_id="earlier")
    joined(world)
    (note,) = world.target.parked.values()
    assert note.next_offset is None
    assert "created again" in note.reason


def test_a_partition_that_was_released_and_still_cannot_go_on_is_parked_again() -> None:
    world = World()
    world.damage(world.put(0, 3))
    world.put(4, 5)
    process = joined(world)
    assert isinstance(world.target.parked.pop(key()), Parked)
    process.later(4000, turns=8)
    assert list(world.target.parked) == [key()]


def test_partitions_that_go_on_write_nothing() -> None:
    world = World()
    world.put(0, 3)
    world.put(0, 3, partition=1)
    joined(world)
    assert world.offsets(D) == numbers((0, 3))
    assert world.target.edits == []
