"""What a partition that cannot go on leaves in the target, for an operator who asks when every process is dead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.checkpoint import Parked, still_parked
from replicator.protocols import TopicPartition
from tests.ingress.world import World, joined, key, numbers, source_settings

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


@pytest.mark.parametrize("begun", [True, False])
def test_what_a_round_of_unknown_outcome_delivered_is_not_parked_any_more(begun: bool) -> None:
    """The refused records are in the target, and no answer said so; nothing more is stored that could be delivered."""
    world = World()
    if begun:
        world.set_checkpoint(0)
    world.put(0, 3)
    process = world.process()
    process.turn(2)
    world.target.poison[C] = {0}
    process.placement.assign(C)
    process.turn(6)
    assert list(process.stopped) == [f"{key().source}"]
    del world.target.poison[C]
    world.target.stop_next(keep=1)  # committed
    process.later(40, turns=8)
    process.later(40, turns=8)
    assert world.offsets(C) == numbers((0, 3))
    assert process.stopped == {}
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


def rivals() -> World:
    """Two topics that want to be delivered to one: neither is."""
    world = World(source_settings("^one-(.*)", "x-{topic}"), source_settings("^x-(.*)", "{topic}"))
    world.put(0, 3, topic="one-a")
    world.put(0, 3, topic="one-a", partition=1)
    world.put(0, 3, topic="x-one-a")
    return world


def test_a_refused_topic_says_so_by_partition() -> None:
    world = rivals()
    process = world.process()
    process.turn(3)
    notes = world.target.parked
    assert set(notes) == {
        key(0, topic="one-a", destination="x-one-a"),
        key(1, topic="one-a", destination="x-one-a"),
        key(0, topic="x-one-a", destination="x-one-a"),
    }
    assert all(note.next_offset is None and "allow_merge = true" in note.reason for note in notes.values())
    since = {note.since for note in notes.values()}
    process.later(3600)
    world.process().turn(3)
    assert {note.since for note in world.target.parked.values()} == since
    assert world.target.edits == ["park"] * 3, "whoever looks, and however often"


def test_the_note_of_a_refused_topic_goes_once_it_has_a_place() -> None:
    """Also when nothing is left to deliver, and when everybody who said so is dead."""
    world = World()
    world.put(0, 3)
    joined(world).stop()
    assert world.checkpoint() == 4
    world.admin.hides["copy"] = "no DESCRIBE"
    refused = world.process()
    refused.turn(3)
    assert set(world.target.parked) == {key()}
    refused.stop()
    world.admin.hides.clear()
    joined(world)
    assert world.target.parked == {}


def test_a_partition_refused_again_is_parked_anew() -> None:
    world = World()
    world.put(0, 3)
    world.target.parked[key()] = Parked(None, "earlier", world.clock.at)
    world.clock.advance(60)
    world.set_checkpoint(4)  # it went on since, and nobody removed the note
    world.clock.advance(60)
    world.admin.hides["copy"] = "no DESCRIBE"
    world.process().turn(3)
    note = world.target.parked[key()]
    assert (note.since, still_parked(note, world.target.checkpoints[key()])) == (world.clock.at, True)


def test_nothing_is_left_in_another_cluster() -> None:
    world = World()
    world.put(0, 3)
    process = joined(world)
    world.admin.cluster = "another"
    process.later(60)
    assert "cluster" in process.stopped
    assert world.target.edits == []


def test_partitions_that_go_on_write_nothing() -> None:
    world = World()
    world.put(0, 3)
    world.put(0, 3, partition=1)
    joined(world)
    assert world.offsets(D) == numbers((0, 3))
    assert world.target.edits == []
