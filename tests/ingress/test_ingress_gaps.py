"""Offsets in no segment: gaps that egress recorded, and what is given up as lost by policy."""

from __future__ import annotations

from datetime import timedelta

from tests.ingress.copied import LABELS, C, lose_one
from tests.ingress.process import Process, joined
from tests.ingress.world import LOST, RELIST, World, numbers, source_settings

# --- recorded gaps ----------------------------------------------------------------------------------------------------


def test_recorded_gap_is_passed_over_at_once(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    world.record_gap(2, 3)
    world.put(4, 5)
    process.turn(3)
    assert world.offsets(C) == [0, 1, 4, 5]
    assert process.metrics.by_label("passed_gaps", **LABELS) == 1
    assert process.metrics.by_label("passed_offsets", **LABELS) == 2
    assert process.metrics.by_label("late_segments", **LABELS) == 0
    assert world.checkpoint() == 6


def test_recorded_gap_is_passed_over_again_by_a_process_that_starts_before_it(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    world.record_gap(2, 3)
    world.target.away = True
    world.put(4, 5)
    process.turn(4)
    assert world.checkpoint() == 2
    world.target.away = False
    joined(world)
    assert world.offsets(C) == [0, 1, 4, 5]
    assert world.checkpoint() == 6


def test_gap_of_another_partition_explains_nothing(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    world.record_gap(2, 3, partition=1)
    world.put(4, 5)
    process.turn(3)
    assert world.offsets(C) == [0, 1]


def test_segment_wins_over_a_recorded_gap(world: World) -> None:
    world.record_gap(0, 9)
    world.put(0, 1)
    world.put(4, 5)
    joined(world)
    assert world.offsets(C) == [0, 1, 4, 5]


def test_gap_recorded_after_it_stopped_the_partition_lets_it_continue(world: World) -> None:
    process = lose_one(world)
    assert process.stopped
    world.record_gap(2, 3)
    process.later(RELIST)
    assert world.offsets(C) == [0, 1, 4, 5]
    assert process.stopped == {}


def test_recorded_gaps_that_cannot_be_looked_up_are_not_absent() -> None:
    world = World(source_settings(on_lost="skip", lost_segment_timeout=timedelta(seconds=5)))
    world.put(0, 1)
    process = joined(world)
    world.objects.away = {"list"}
    world.record_gap(2, 3)
    world.put(4, 5)
    for _ in range(10):
        process.later(3)
    assert process.metrics.counts["lost_segments"] == 0
    world.objects.away = set()
    process.later(10)
    assert world.offsets(C) == [0, 1, 4, 5]
    assert process.metrics.counts["lost_segments"] == 0
    assert process.metrics.by_label("passed_gaps", **LABELS) == 1


# --- lost by policy ---------------------------------------------------------------------------------------------------


def test_lost_segment_is_skipped_by_policy() -> None:
    world = World(source_settings(on_lost="skip"))
    process = lose_one(world)
    assert world.offsets(C) == [0, 1, 4, 5]
    assert process.stopped == {}
    assert process.metrics.by_label("lost_offsets", **LABELS) == 2


def test_store_errors_are_no_absences() -> None:
    world = World(source_settings(on_lost="skip"))
    world.put(0, 1)
    process = joined(world)
    world.put(2, 3, notify=False)
    world.put(4, 5)
    world.objects.away = {"list", "open"}
    for _ in range(40):
        process.later(LOST / 20)
    assert world.offsets(C) == [0, 1]
    assert process.metrics.counts["lost_segments"] == 0
    world.objects.away = set()
    for _ in range(5):
        process.later(10)
    assert world.offsets(C) == numbers((0, 5))


def test_listing_begun_before_the_timeout_proves_no_loss() -> None:
    world = World(source_settings(on_lost="skip"))
    world.put(0, 1)
    process = joined(world)
    world.put(4, 5)
    process.turn()
    process.later(LOST - 200)
    process.later(100)
    process.pool.holding = True
    process.later(99, turns=1)
    process.pool.run_all()  # a listing that does not show it, answered after the timeout
    world.put(2, 3, notify=False)
    process.later(5, turns=1)
    process.pool.run_all()
    process.pool.holding = False
    process.turn(6)
    process.later(2)
    assert world.offsets(C) == numbers((0, 5))


def test_first_listing_that_fails_is_made_again_soon(world: World) -> None:
    world.put(0, 3, notify=False)
    process = Process(world)
    process.turn(2)
    world.objects.away = {"list"}
    process.placement.assign(C)
    process.turn(3)
    world.objects.away = set()
    process.later(2)
    process.later(2)
    assert world.offsets(C) == numbers((0, 3))
