"""What a partition that cannot continue leaves in the target, for an operator when every process is dead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from formats.messages.delivery_checkpoint import Parked, still_parked
from infra.contracts.cluster import TopicPartition
from tests.ingress.process import Process, joined
from tests.ingress.world import LOST, RELIST, World, key, numbers, source_settings

SOURCE = str(key().source)
C, D = TopicPartition("copy", 0), TopicPartition("copy", 1)


def test_a_parked_partition_says_where_why_and_since_when() -> None:
    world = World()
    world.put(0, 3)
    world.put(0, 3, partition=1)
    process = joined(world)
    world.target.poison[C] = {6}
    world.put(4, 9)
    process.turn(8)
    (parked,) = world.target.parked.values()
    assert list(world.target.parked) == [key()]
    assert (parked.next_offset, parked.since) == (6, world.clock.at)
    assert "POISON" in parked.reason
    del world.target.poison[C]
    process.later(40, turns=8)
    assert world.offsets(C) == numbers((0, 9))
    assert world.target.parked == {}


@pytest.mark.parametrize("begun", [True, False])
def test_what_a_round_of_unknown_outcome_delivered_is_not_parked_any_more(begun: bool) -> None:
    """The refused records are in the target, but the answer was lost; no more stored records could be delivered."""
    world = World()
    if begun:
        world.set_checkpoint(0)
    world.put(0, 3)
    process = Process(world)
    process.turn(2)
    world.target.poison[C] = {0}
    process.placement.assign(C)
    process.turn(6)
    assert list(process.stopped) == [SOURCE]
    del world.target.poison[C]
    world.target.stop_next(keep=1)  # committed
    process.later(40, turns=8)
    process.later(40, turns=8)
    assert world.offsets(C) == numbers((0, 3))
    assert process.stopped == {}
    assert world.target.parked == {}


def test_the_parked_record_outlives_the_process_and_goes_with_the_next_owners_progress() -> None:
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
    (parked,) = world.target.parked.values()
    assert parked.next_offset is None
    assert "created again" in parked.reason
    assert parked.needs_seed


def test_a_partition_that_was_released_and_still_cannot_continue_is_parked_again() -> None:
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
    process = Process(world)
    process.turn(3)
    parked_records = world.target.parked
    assert set(parked_records) == {
        key(0, topic="one-a", destination="x-one-a"),
        key(1, topic="one-a", destination="x-one-a"),
        key(0, topic="x-one-a", destination="x-one-a"),
    }
    assert all(
        parked.next_offset is None and "allow_merge = true" in parked.reason for parked in parked_records.values()
    )
    since = {parked.since for parked in parked_records.values()}
    process.later(3600)
    Process(world).turn(3)
    assert {parked.since for parked in world.target.parked.values()} == since
    assert world.target.edits == ["park"] * 3, "whichever process refreshes, and however often"


def test_the_parked_record_of_a_refused_topic_is_removed_once_it_has_a_destination() -> None:
    """Also when nothing is left to deliver, and when every process that wrote the parked record is dead."""
    world = World()
    world.put(0, 3)
    joined(world).stop()
    assert world.checkpoint() == 4
    world.admin.hides["copy"] = "no DESCRIBE"
    refused = Process(world)
    refused.turn(3)
    assert set(world.target.parked) == {key()}
    refused.stop()
    world.admin.hides.clear()
    joined(world)
    assert world.target.parked == {}


def test_a_partition_refused_again_is_parked_again() -> None:
    world = World()
    world.put(0, 3)
    world.target.parked[key()] = Parked(None, "earlier", world.clock.at)
    world.clock.advance(60)
    world.set_checkpoint(4)  # delivery continued since, and the parked record was not removed
    world.clock.advance(60)
    world.admin.hides["copy"] = "no DESCRIBE"
    Process(world).turn(3)
    parked = world.target.parked[key()]
    assert (parked.since, still_parked(parked, world.target.checkpoints[key()])) == (world.clock.at, True)


def test_nothing_is_left_in_another_cluster() -> None:
    world = World()
    world.put(0, 3)
    process = joined(world)
    world.admin.cluster = "another"
    process.later(60)
    assert "cluster" in process.stopped
    assert world.target.edits == []


def test_partitions_that_continue_write_nothing() -> None:
    world = World()
    world.put(0, 3)
    world.put(0, 3, partition=1)
    joined(world)
    assert world.offsets(D) == numbers((0, 3))
    assert world.target.edits == []


# --- what stopped it is not stored any more ---------------------------------------------------------------------------


def later(process: Process, times: int) -> None:
    for _ in range(times):
        process.later(RELIST, turns=6)


def test_a_segment_of_another_log_that_is_removed_as_the_reason_says() -> None:
    world = World()
    world.claim(0, topic_id="ours")
    world.put(0, 3, topic_id="ours")
    foreign = world.put(4, 5, topic_id="theirs")
    process = joined(world, C)
    process.later(1, turns=8)
    assert world.offsets(C) == numbers((0, 3))
    assert "Remove it from there" in process.stopped[SOURCE]
    world.remove(foreign)
    later(process, 3)
    assert (process.stopped, world.target.parked) == ({}, {})


def test_a_refused_record_whose_segment_retention_removed() -> None:
    world = World()
    world.put(0, 3)
    process = joined(world, C)
    world.target.poison[C] = {4}
    refused = world.put(4, 5)
    process.turn(8)
    assert "POISON" in process.stopped[SOURCE]
    world.remove(refused)
    later(process, 3)
    assert (process.stopped, world.target.parked) == ({}, {})


def test_a_corrupt_segment_that_was_removed() -> None:
    world = World()
    world.put(0, 3)
    process = joined(world, C)
    corrupt = world.put(4, 5)
    world.damage(corrupt)
    process.turn(8)
    assert process.stopped
    world.remove(corrupt)
    later(process, 3)
    assert (process.stopped, world.target.parked) == ({}, {})


def test_a_lost_gap_after_which_nothing_is_stored_any_more() -> None:
    world = World()
    world.put(0, 9)
    process = joined(world, C)
    after_gap = world.put(20, 29)
    for _ in range(30):
        process.later(LOST / 20)
    assert "[10,19]" in process.stopped[SOURCE]
    world.remove(after_gap)
    later(process, 3)
    assert (process.stopped, world.target.parked) == ({}, {})


def test_the_parked_record_of_an_outage_ends_with_it_under_any_owner() -> None:
    world = World()
    world.put(0, 9)
    first = joined(world, C)
    assert world.offsets(C) == numbers((0, 9))
    world.objects.away = {"list"}
    for _ in range(10):
        first.later(RELIST / 2)
    assert key() in world.target.parked
    first.stop()
    world.objects.away = set()
    second = joined(world, C)
    later(second, 3)
    assert second.ready
    assert world.target.parked == {}
    assert world.status().problems == []


def test_a_seed_counts_although_what_it_skips_waits_to_be_delivered() -> None:
    """The target refuses every round, so the partition has a parked record, and `checkpoints seed` is allowed."""
    world = World()
    world.put(0, 9)
    process = joined(world, C)
    world.target.refusing = "no WRITE on the transactional id"
    world.put(10, 19)
    for _ in range(4):
        process.later(30)
    assert key() in world.target.parked
    world.seed(20)
    for _ in range(4):
        process.later(30)
    world.target.refusing = ""
    for _ in range(6):
        process.later(60)
    assert world.target.conflicts == {}
    assert world.offsets(C) == numbers((0, 9))
    assert SOURCE not in process.stopped
    world.put(20, 21)
    for _ in range(2):
        process.later(6, turns=8)
    assert world.offsets(C) == numbers((0, 9), (20, 21))
    assert process.stopped == {}
