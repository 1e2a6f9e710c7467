"""Segments that are merged, damaged, removed or replaced while ingress delivers them."""

from __future__ import annotations

from tests.ingress.copied import LABELS, SOURCE, C, D, lose_one
from tests.ingress.process import joined
from tests.ingress.world import RELIST, World, numbers


def test_merged_segment_covers_what_was_removed(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    gone = [world.put(2, 3, notify=False), world.put(4, 5, notify=False)]
    world.put(0, 5, level=1)
    world.remove(*gone)
    world.notify(*gone)  # late, and of nothing any more
    process.turn(5)
    assert world.offsets(C) == numbers((0, 5))


def test_segment_that_vanishes_before_it_is_read_is_planned_again(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    process.reading.holding = True
    gone = world.put(2, 5)
    process.turn(2)
    world.put(0, 7, level=1, notify=False)
    world.remove(gone, notify=False)
    process.reading.holding = False
    process.reading.run_all()
    process.turn(6)
    assert world.offsets(C) == numbers((0, 7))
    assert process.metrics.by_label("relists", reason="missing") == 1


def test_segment_that_vanishes_between_two_of_its_runs(world: World) -> None:
    """What is open stays readable; a new start finds the merged one."""
    world.put(0, 9)
    process = joined(world, run_records=3)
    gone = world.put(10, 19)
    process.control(2)
    process.delivery.run_round()
    process.control()
    world.put(0, 19, level=1, notify=False)
    world.remove(gone, notify=False)
    world.target.fail_next(C, keep=1)
    process.turn(3)
    process.later(1)
    process.turn(12)
    delivered = world.offsets(C)
    assert [o for i, o in enumerate(delivered) if o not in delivered[:i]] == numbers((0, 19))
    assert len(delivered) <= 20 + 3


def test_segment_whose_removal_is_known_is_not_requested(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    process.reading.holding = True
    world.put(2, 3)
    process.turn(2)
    world.remove(world.put(4, 5))
    process.turn(2)
    process.reading.holding = False
    process.reading.run_all()
    process.turn(3)
    assert process.metrics.by_label("relists", reason="missing") == 0
    world.put(0, 5, level=1)
    process.turn(3)
    assert world.offsets(C) == numbers((0, 5))


def test_listing_that_fails_forgets_nothing(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    world.target.away = True
    world.put(2, 3)
    process.turn(3)
    world.objects.away = {"list"}
    process.later(RELIST)
    process.later(15)
    world.target.away = False
    process.later(15)
    assert world.offsets(C) == numbers((0, 3))


def test_corrupt_segment_is_named_and_holds_up_its_partition_only(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    bad = world.put(2, 3)
    world.damage(bad)
    world.put(0, 3, partition=1)
    process.turn(5)
    assert world.offsets(C) == [0, 1]
    assert world.offsets(D) == numbers((0, 3))
    assert list(process.stopped) == [str(SOURCE)]
    assert str(bad) in process.stopped[str(SOURCE)]
    assert process.metrics.by_label("corrupt_segments", **LABELS) == 1
    assert process.metrics.value("stopped_partitions", held="true") == 1
    world.put(4, 5)
    process.later(30)
    assert world.offsets(C) == [0, 1], "it must not be passed over"
    world.peek.delete_many([bad])
    world.put(2, 3, notify=False)
    for _ in range(5):
        process.later(300)
    assert world.offsets(C) == numbers((0, 5))
    assert process.stopped == {}
    assert process.metrics.value("stopped_partitions", held="true") == 0


def test_corrupt_segment_is_passed_where_another_covers_it(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    world.damage(world.put(2, 5, level=1))
    world.put(2, 3)
    world.put(4, 5)
    process.turn(8)
    assert world.offsets(C) == numbers((0, 5))
    assert process.stopped == {}


def test_corrupt_segment_that_another_covers_in_part_is_reported_again_at_once(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    world.damage(world.put(2, 5, level=1))
    world.put(2, 3)
    process.turn(8)
    assert world.offsets(C) == numbers((0, 3))
    assert "corrupt segment" in process.stopped[str(SOURCE)], "4 and 5 are in no other segment"


def test_lost_segment_stops_its_partition_until_it_is_there(world: World) -> None:
    process = lose_one(world)
    assert world.offsets(C) == [0, 1]
    assert "[2,3]" in process.stopped[str(SOURCE)]
    assert process.metrics.by_label("lost_segments", **LABELS) == 1
    assert process.metrics.by_label("lost_offsets", **LABELS) == 2
    world.put(2, 3)
    process.turn(5)
    assert world.offsets(C) == numbers((0, 5))
    assert process.stopped == {}


def test_lost_segment_that_is_found_without_a_notification(world: World) -> None:
    process = lose_one(world)
    world.put(2, 3, notify=False)
    process.later(RELIST)
    assert world.offsets(C) == numbers((0, 5))
    assert process.stopped == {}
