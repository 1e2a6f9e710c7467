"""Ingress while the source's topic is created again, by each policy."""

from __future__ import annotations

import io

import pytest

from formats.control.keys import claim_key
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from tests.ingress.copied import LABELS, SOURCE, C, D
from tests.ingress.process import Process, joined
from tests.ingress.world import DELAY, World, numbers, source_settings


def reborn(policy: str) -> World:
    world = World(source_settings(on_recreate=policy))
    world.claim(0)
    world.put(0, 3)
    return world


def second_life(world: World, *ranges: tuple[int, int], partition: int = 0) -> None:
    world.claim(1, "second")
    for start, end in ranges:
        world.put(start, end, incarnation="second", partition=partition)


def test_later_incarnation_is_refused_by_default_and_the_first_continues() -> None:
    world = reborn("stop")
    process = joined(world)
    second_life(world, (0, 9))
    world.put(4, 5)
    process.later(30)
    assert world.offsets(C) == numbers((0, 5))
    assert list(process.stopped) == ["a/t@second/0"]


def test_later_incarnation_follows_after_everything_of_the_first() -> None:
    world = reborn("follow")
    process = joined(world)
    second_life(world, (0, 2))
    process.later(DELAY / 2)
    assert world.offsets(C) == numbers((0, 3)), "more of the first incarnation may be under way"
    world.put(4, 5, notify=False)
    process.later(DELAY / 2, turns=8)
    assert world.offsets(C) == numbers((0, 5), (0, 2))
    assert (world.checkpoint(), world.checkpoint(incarnation="second")) == (6, 3)
    world.put(3, 4, incarnation="second")
    process.turn(4)
    assert world.offsets(C) == numbers((0, 5), (0, 4))
    assert process.stopped == {}


def test_new_owner_continues_with_the_current_incarnation() -> None:
    world = reborn("follow")
    second_life(world, (0, 2))
    joined(world).later(DELAY, turns=8)
    assert world.offsets(C) == numbers((0, 3), (0, 2))
    world.put(3, 4, incarnation="second")
    joined(world)
    assert world.offsets(C) == numbers((0, 3), (0, 4))


def test_incarnation_does_not_follow_while_the_first_is_gapped_or_undelivered() -> None:
    world = reborn("follow")
    process = joined(world)
    world.put(8, 9)
    second_life(world, (0, 2))
    process.later(DELAY, turns=8)
    process.later(DELAY, turns=8)
    assert world.offsets(C) == numbers((0, 3))
    world.target.away = True
    world.put(4, 7)
    process.later(DELAY)
    assert world.offsets(C) == numbers((0, 3))
    world.target.away = False
    process.later(10, turns=8)
    process.later(10, turns=8)
    assert world.offsets(C) == numbers((0, 9), (0, 2))


def test_incarnation_does_not_follow_while_a_corrupt_segment_holds_what_others_have_in_part() -> None:
    world = reborn("follow")
    process = joined(world)
    second_life(world, (0, 2))
    corrupt = world.put(4, 9, level=1, notify=False)
    world.put(4, 5, notify=False)
    good = world.objects.memory.open(f"data/{corrupt}").read()
    world.damage(corrupt)
    for _ in range(4):
        process.later(DELAY, turns=8)
        assert world.offsets(C) == numbers((0, 5)), "6 to 9 are stored"
    assert str(SOURCE) in process.stopped
    world.damage(corrupt, good)
    for _ in range(12):
        process.later(DELAY, turns=8)
    assert world.offsets(C) == numbers((0, 9), (0, 2))
    assert process.stopped == {}


def test_incarnation_does_not_follow_what_a_removal_hides_until_it_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The notification of the segment that it was merged into is lost."""
    monkeypatch.setattr("ingress.sequencer.CHAIN_SLICES", 1)
    world = reborn("follow")
    process = joined(world)
    second_life(world, (0, 2))
    world.put(4, 5, notify=False)
    merged = world.put(6, 7, notify=False)
    process.reading.holding = True
    process.later(DELAY, turns=8)  # a full listing shows both, and the first is being read
    world.put(6, 7, level=1, notify=False)
    world.remove(merged)
    process.turn()
    process.reading.holding = False
    process.reading.run_all()
    process.turn(12)
    assert world.offsets(C) == numbers((0, 7), (0, 2))
    assert process.problems == {}


def test_no_incarnation_follows_after_a_failed_listing() -> None:
    world = reborn("follow")
    process = joined(world)
    second_life(world, (0, 2))
    process.later(30)
    world.put(4, 5, notify=False)
    world.objects.away = {"list"}
    for _ in range(20):
        process.later(DELAY)
    assert world.offsets(C) == numbers((0, 3))
    world.objects.away = set()
    for _ in range(4):
        process.later(30, turns=8)
    assert world.offsets(C) == numbers((0, 5), (0, 2))


def test_what_lies_after_a_fork_follows_from_where_the_logs_differ() -> None:
    world = reborn("follow")
    world.claim(1, "id-fork1")
    world.record_begin(2, incarnation="id-fork1")
    world.put(2, 6, incarnation="id-fork1")
    process = joined(world)
    process.later(DELAY, turns=8)
    assert world.offsets(C) == numbers((0, 3), (2, 6))
    world.put(7, 8, incarnation="id-fork1")
    process.turn(5)
    assert world.offsets(C) == numbers((0, 3), (2, 8))
    assert world.checkpoint(incarnation="id-fork1") == 9


def test_three_incarnations_of_different_partition_counts_follow_each_other() -> None:
    """Only the second incarnation has records in partition 1."""
    world = reborn("follow")
    second_life(world, (0, 2))
    world.put(0, 1, incarnation="second", partition=1)
    world.claim(2, "third")
    world.put(0, 0, incarnation="third")
    process = joined(world)
    for _ in range(3):
        process.later(DELAY, turns=8)
    assert world.offsets(C) == numbers((0, 3), (0, 2), (0, 0))
    assert world.offsets(D) == [0, 1]


def test_segment_that_arrives_after_the_next_incarnation_began_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    world = reborn("follow")
    second_life(world, (0, 2))
    joined(world).later(DELAY, turns=8)
    process = joined(world)
    world.put(0, 3, level=1)  # merged: nothing new
    process.turn(2)
    assert "segment_behind_its_incarnation" not in caplog.text
    world.put(4, 5)
    process.turn(2)
    assert "segment_behind_its_incarnation" in caplog.text
    assert world.offsets(C) == numbers((0, 3), (0, 2))
    problem = process.problems[f"{SOURCE} undelivered"]
    assert "[4,5]" in problem
    assert "next incarnation" in problem
    assert f"replicator skip {SOURCE} 4 --through 5" in problem
    assert process.metrics.value("undelivered_offsets", **LABELS) == 2
    assert not process.ready


def test_segments_that_arrived_after_the_next_incarnation_began_are_found_by_a_new_owner() -> None:
    world = reborn("follow")
    second_life(world, (0, 2))
    joined(world).later(DELAY, turns=8)
    world.put(4, 5, notify=False)
    process = joined(world)
    assert "[4,5]" in process.problems[f"{SOURCE} undelivered"]
    world.skip(4, 5)
    process.later(30)
    assert (process.problems, process.ready) == ({}, True)


def test_incarnation_of_unknown_order_is_refused_and_follows_once_it_is_known() -> None:
    world = reborn("follow")
    world.put(0, 2, incarnation="second")
    process = joined(world)
    process.later(DELAY, turns=8)
    assert list(process.stopped) == ["a/t@second/0"]
    assert world.offsets(C) == numbers((0, 3))
    world.claim(1, "second")
    process.later(30, turns=8)
    process.later(DELAY, turns=8)
    assert process.stopped == {}
    assert world.offsets(C) == numbers((0, 3), (0, 2))


def test_a_destination_created_again_after_a_switch_names_the_way_to_everything() -> None:
    """What is archived is of two incarnations, and a seed of the later one leaves out the first."""
    world = reborn("follow")
    second_life(world, (0, 2))
    process = joined(world)
    process.later(DELAY, turns=8)
    world.admin.ids["copy"] = "another"
    process.later(30, turns=8)
    second = SourcePartition("a", "t", 0, "second")
    reason = process.stopped[str(second)]
    assert f"`replicator checkpoints seed {SOURCE} --offset 0`" in reason
    assert "0 for everything that is archived of this incarnation" in reason
    process.stop()
    for source, ranges in ((SOURCE, [(0, 3)]), (second, [(0, 3), (0, 2)])):
        seed = Checkpoint(0, "another", world.clock.at, Author.SEED)
        world.target.put_checkpoint(CheckpointKey(source, "copy"), seed)
        process = joined(world)
        process.later(DELAY, turns=8)
        assert world.offsets(C) == numbers((0, 3), (0, 2), *ranges)
        process.stop()
    assert process.stopped == {}


@pytest.mark.parametrize("damage", ["unreadable", "missing"])
def test_nothing_of_an_earlier_incarnation_follows_a_later_one_whose_claim_is_not_known_any_more(damage: str) -> None:
    world = reborn("follow")
    second_life(world, (0, 2))
    joined(world).later(DELAY, turns=8)
    world.put(4, 5, notify=False)
    key = claim_key("data", "a", "t@second")
    world.objects.memory.delete_many([key])
    if damage == "unreadable":
        world.objects.memory.put_new(key, io.BytesIO(b"?"), 1)
    process = joined(world)
    assert world.offsets(C) == numbers((0, 3), (0, 2))
    assert "t@second" in process.stopped[str(SOURCE)]
    world.objects.memory.delete_many([key])
    world.claim(1, "second")
    world.put(3, 4, incarnation="second")
    process.later(31, turns=8)
    process.later(31, turns=8)
    assert world.offsets(C) == numbers((0, 3), (0, 4))
    assert process.stopped == {}


def test_later_incarnation_goes_to_a_separate_topic() -> None:
    world = reborn("new-topic")
    process = joined(world)
    second_life(world, (0, 2))
    process.later(30)
    assert process.placement.topics == {"copy", "copy.second"}
    own = TopicPartition("copy.second", 0)
    process.placement.assign(own)
    process.turn(5)
    world.put(4, 5)
    world.put(3, 4, incarnation="second")
    process.turn(5)
    assert world.offsets(C) == numbers((0, 5))
    assert world.offsets(own) == numbers((0, 4))
    assert world.checkpoint(destination="copy.second", incarnation="second") == 5


@pytest.mark.parametrize(("policy", "wanted"), [("stop", False), ("follow", True), ("new-topic", True)])
def test_events_of_later_incarnations_are_wanted_by_policy(policy: str, *, wanted: bool) -> None:
    controller = Process(reborn(policy)).controller
    assert controller.wants(SourcePartition("a", "t", 0, "second")) is wanted
    assert controller.wants(SOURCE)
