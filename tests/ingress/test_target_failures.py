"""Ingress while the target fails, refuses records, or has its topic created again."""

from __future__ import annotations

from formats.messages.delivery_checkpoint import Author, Checkpoint
from infra.contracts.cluster import Occupancy
from tests.ingress.copied import LABELS, SOURCE, C, D
from tests.ingress.process import Process, joined
from tests.ingress.world import STAMP, World, key, numbers, source_settings


def test_transient_failure_is_tried_again_and_repeats_one_run_at_most(world: World) -> None:
    world.set_checkpoint(0)
    world.put(0, 9)
    process = Process(world, run_records=4)
    process.turn(2)
    world.target.exactly_once = False
    world.target.fail_next(C, keep=2)
    process.placement.assign(C)
    process.turn(4)
    assert world.offsets(C) == [0, 1]
    process.later(0.5, turns=8)
    assert world.offsets(C) == numbers((0, 1), (0, 9))
    assert process.stopped == {}


def test_refused_record_stops_that_partition_visibly_and_is_tried_again_later(world: World) -> None:
    world.put(0, 3)
    world.put(0, 3, partition=1)
    process = Process(world)
    process.turn(2)
    world.target.poison[C] = {2}
    process.placement.assign(C, D)
    process.turn(8)
    assert "offset 2 is refused: POISON" in process.stopped[str(SOURCE)]
    assert world.offsets(C) == [0, 1]
    assert world.offsets(D) == numbers((0, 3))
    process.later(31, turns=8)
    assert world.offsets(C) == [0, 1]
    assert list(process.stopped) == [str(SOURCE)], "reported all the time, also while it is retried"
    del world.target.poison[C]
    process.later(30)
    assert world.offsets(C) == [0, 1], "ever more seldom"
    process.later(31, turns=8)
    assert world.offsets(C) == numbers((0, 3))
    assert process.stopped == {}


def test_record_that_an_operator_skipped_is_passed_without_a_restart(world: World) -> None:
    world.put(0, 3)
    process = Process(world)
    process.turn(2)
    world.target.poison[C] = {2}
    process.placement.assign(C)
    process.turn(8)
    world.target.checkpoints[key()] = Checkpoint(3, "id-copy", world.clock.at, Author.SEED)
    process.later(31, turns=8)
    assert world.offsets(C) == [0, 1, 3]
    assert process.stopped == {}


def test_target_away_loses_nothing(world: World) -> None:
    world.put(0, 3)
    process = joined(world)
    world.target.away = True
    world.put(4, 9)
    for _ in range(5):
        process.later(10)
    assert world.offsets(C) == numbers((0, 3))
    world.target.away = False
    process.later(10)
    assert world.offsets(C) == numbers((0, 9))


def test_timestamps_that_the_target_refuses_stop(world: World) -> None:
    world.put(0, 3)
    world.put(4, 5, stamp=0)
    process = joined(world)
    process.turn(6)  # until it is alone
    assert world.offsets(C) == numbers((0, 3))
    assert "source offset 4" in process.stopped[str(SOURCE)]
    assert "on_timestamp" in process.stopped[str(SOURCE)]


def test_timestamps_are_clamped_by_policy() -> None:
    world = World(source_settings(on_timestamp="clamp"))
    world.put(0, 3, stamp=0)
    world.put(4, 5)
    process = joined(world)
    assert world.offsets(C) == numbers((0, 5))
    assert process.metrics.by_label("altered_timestamps", **LABELS) == 4
    stamps = [record.timestamp_ms for record in world.target.records(C)]
    assert 0 not in stamps
    assert stamps[4:] == [STAMP + 4, STAMP + 5]


def test_checkpoint_names_the_destination_and_its_topic_id(world: World) -> None:
    world.put(0, 3)
    joined(world)
    assert world.target.checkpoints[key()] == Checkpoint(4, "id-copy", world.clock.at, Author.EXACTLY_ONCE, begun_at=0)


def test_destination_that_was_created_again_is_not_continued_in_the_middle(world: World) -> None:
    world.put(0, 3)
    joined(world).stop()
    world.admin.ids["copy"] = "another"
    world.put(4, 5)
    process = joined(world)
    assert world.offsets(C) == numbers((0, 3))
    assert "created again" in process.stopped[str(SOURCE)]
    del world.target.checkpoints[key()]
    world.target.occupied[C] = Occupancy(holds_records=False)  # the other one is empty
    process.later(31, turns=8)
    assert world.offsets(C) == numbers((0, 3), (0, 5))
    assert process.stopped == {}


def test_destination_created_again_while_running_gets_nothing(world: World) -> None:
    world.put(0, 3)
    process = joined(world)
    world.admin.ids["copy"] = "another"
    process.later(30)
    world.put(4, 5)
    process.turn(5)
    assert world.offsets(C) == numbers((0, 3))
    assert "created again" in process.stopped[str(SOURCE)]
    assert process.metrics.value("stopped_partitions", held="true") == 1
    process.later(31)
    assert world.offsets(C) == numbers((0, 3))
    process.placement.revoke(C)
    process.turn()
    assert process.stopped == {}
    assert process.metrics.value("stopped_partitions", held="true") == 0


def test_destination_created_again_before_anything_was_delivered_is_just_used(world: World) -> None:
    world.put(0, 3)
    process = Process(world)
    process.reading.holding = True
    process.join(C)
    world.admin.ids["copy"] = "another"
    process.later(31)
    process.reading.holding = False
    process.reading.run_all()
    process.turn(4)
    assert world.offsets(C) == numbers((0, 3))
    assert world.target.checkpoints[key()].destination_topic_id == "another"


def test_destination_created_again_is_noticed_when_its_partitions_come_back(world: World) -> None:
    """Long before the next refresh: the group revokes the deleted topic's partitions, and assigns the new one's."""
    world.put(0, 3)
    process = joined(world)
    process.placement.revoke(C)
    process.turn()
    world.admin.ids["copy"] = "another"
    process.placement.assign(C)
    world.put(4, 5)
    process.turn(5)
    assert world.offsets(C) == numbers((0, 3))
    assert "created again" in process.stopped[str(SOURCE)]


def test_facts_from_before_a_partition_came_back_do_not_count_for_its_new_assignment(world: World) -> None:
    """The answer was on its way when the topic was created again, and the partition revoked and assigned again."""
    world.put(0, 3)
    process = joined(world)
    process.placement.revoke(C)
    process.turn()
    process.pool.holding = True
    process.placement.assign(C)
    process.control()
    process.pool.run_all()  # answered, and not collected yet
    world.admin.ids["copy"] = "another"
    world.put(4, 5)
    process.placement.revoke(C)
    process.placement.assign(C)
    process.control(2)
    while process.pool.waiting > 1:  # the question about the new assignment takes longer
        process.pool.run_last()
    process.turn(4)
    assert world.offsets(C) == numbers((0, 3)), "the new topic gets nothing from the middle on"
    process.pool.holding = False
    process.pool.run_all()
    process.turn(5)
    assert world.offsets(C) == numbers((0, 3))
    assert "created again" in process.stopped[str(SOURCE)]


def test_assignment_that_cannot_be_confirmed_is_asked_about_again(world: World) -> None:
    world.put(0, 3)
    process = Process(world)
    process.turn(2)
    world.admin.away = True
    process.placement.assign(C)
    process.turn(5)
    assert world.offsets(C) == []
    world.admin.away = False
    process.later(1, turns=8)
    assert world.offsets(C) == numbers((0, 3))


def test_another_cluster_stops_everything_until_it_is_the_first_again(world: World) -> None:
    world.put(0, 3)
    process = joined(world)
    world.admin.cluster = "another"
    process.later(30)
    world.put(4, 5)
    process.turn(5)
    assert world.offsets(C) == numbers((0, 3))
    assert "cluster with id another" in process.stopped["cluster"]
    assert process.metrics.value("assigned_partitions") == 0
    world.admin.cluster = "cluster"
    process.later(30, turns=8)
    assert world.offsets(C) == numbers((0, 5))
    assert process.stopped == {}
