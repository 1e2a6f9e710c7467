"""Where delivery begins in a bucket that replication fills in any order, with objects as old as their originals; what
arrives too late for it; and target partitions that hold records already."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta

import pytest

from formats.errors import BrokerUnavailable
from formats.messages.delivery_checkpoint import Author, Checkpoint, Parked, Waiting
from formats.segment import SourcePartition
from infra.contracts.cluster import Occupancy, TopicPartition
from infra.contracts.producer import FailureKind
from tests.fakes.kafka_target import Crashed, FakeTarget
from tests.ingress.process import Process, joined
from tests.ingress.world import DELAY, LOST, RELIST, World, key, numbers, source_settings

C, D = TopicPartition("copy", 0), TopicPartition("copy", 1)
SOURCE = SourcePartition("a", "t", 0)
LABELS = {"region": "a", "topic": "t", "partition": "0"}
HOUR = timedelta(hours=1).total_seconds()
REFRESH = 30.0


@pytest.fixture
def world() -> World:
    """Every object in its bucket is three days old as it arrives."""
    world = World()
    world.objects.older = timedelta(days=3)
    return world


def undelivered(process: Process) -> float | None:
    return process.metrics.value("undelivered_offsets", **LABELS)


# --- the archive says where it begins ---------------------------------------------------------------------------------


def test_the_last_segment_arrives_first_and_everything_is_waited_for(world: World) -> None:
    world.record_begin(0)
    world.put(200, 299)
    process = joined(world, C)
    process.later(DELAY * 2, turns=8)
    assert world.offsets(C) == []
    assert process.metrics.by_label("late_segments", **LABELS) == 1
    world.put(100, 199)
    world.put(0, 99)
    process.turn(8)
    assert world.offsets(C) == numbers((0, 299))
    assert world.target.checkpoints[key()].begun_at == 0
    assert process.ready
    assert undelivered(process) in (None, 0)


def test_an_archive_that_begins_in_the_middle_is_not_waited_for(world: World) -> None:
    world.record_begin(200)
    world.put(200, 299)
    joined(world, C)
    assert world.offsets(C) == numbers((200, 299))
    assert world.target.checkpoints[key()].begun_at == 200


def test_segments_removed_by_retention_are_not_waited_for(world: World) -> None:
    world.record_begin(0)
    world.record_gap(0, 199)
    world.put(200, 299)
    process = joined(world, C)
    assert world.offsets(C) == numbers((200, 299))
    assert process.metrics.by_label("passed_offsets", **LABELS) == 200


def test_the_record_of_the_begin_may_arrive_after_segments(world: World) -> None:
    world.put(200, 299)
    process = joined(world, C)
    assert world.offsets(C) == []
    world.record_begin(100)
    world.put(100, 199)
    process.later(DELAY / 2)
    assert world.offsets(C) == [], "listed again when the delay is over, or by the timer"
    process.later(DELAY)
    assert world.offsets(C) == numbers((100, 299))


def test_a_begin_that_cannot_be_read_is_not_absent(world: World) -> None:
    world.record_begin(0)
    world.put(200, 299)
    process = Process(world)
    process.turn(2)
    world.objects.away = {"open"}
    process.placement.assign(C)
    for _ in range(5):
        process.later(DELAY)
    assert (world.offsets(C), world.target.checkpoints) == ([], {})
    world.objects.away = set()
    process.later(RELIST, turns=8)
    assert (world.offsets(C), process.metrics.by_label("late_segments", **LABELS)) == ([], 1)


def test_a_missing_beginning_stops_and_an_operator_may_give_it_up(world: World) -> None:
    world.record_begin(0)
    world.put(200, 299)
    process = joined(world, C)
    for _ in range(30):
        process.later(LOST / 20)
    assert "[0,199]" in process.stopped[str(SOURCE)]
    assert f"replicator skip {SOURCE} 0 --through 199" in process.stopped[str(SOURCE)]
    assert world.target.parked[key()].next_offset == 0
    world.skip(0, 199)
    after = Checkpoint(200, "id-copy", world.clock.at, Author.SEED, given_at=0, begun_at=0)
    world.target.editor().seed(key(), after)
    process.later(REFRESH, turns=8)
    assert world.offsets(C) == numbers((200, 299))
    assert (process.stopped, world.target.checkpoints[key()].begun_at) == ({}, 0)
    assert process.ready


# --- nothing says where it begins -------------------------------------------------------------------------------------


def test_the_delay_counts_from_the_first_sight_here(world: World) -> None:
    world.put(200, 299)
    process = joined(world, C)
    process.later(DELAY - 1)
    assert world.offsets(C) == []
    assert world.target.waiting[key()].is_beginning
    world.put(0, 199)
    process.turn(6)
    assert world.offsets(C) == numbers((0, 299))
    process.later(1)
    assert world.target.waiting == {}


def test_the_delay_continues_when_the_partition_moves(world: World) -> None:
    world.put(200, 299)
    first = joined(world, C)
    first.later(DELAY * 0.6)
    first.placement.revoke(C)
    first.turn(2)
    second = joined(world, C)
    second.later(DELAY * 0.3)
    assert world.offsets(C) == []
    second.later(DELAY * 0.2)
    assert world.offsets(C) == numbers((200, 299))


def test_segments_that_arrive_later_are_reported_until_an_operator_decides(world: World) -> None:
    world.put(200, 299)
    process = joined(world, C)
    process.later(DELAY, turns=8)
    assert world.offsets(C) == numbers((200, 299))
    world.put(100, 199)
    process.turn(4)
    assert undelivered(process) == 100
    problem = process.problems[f"{SOURCE} undelivered"]
    for what in ("[100,199]", "before 200", f"replicator skip {SOURCE} 100 --through 199", "replicator restore t "):
        assert what in problem
    assert f"replicator checkpoints seed {SOURCE} --offset 100" in problem
    assert not process.ready
    world.put(0, 99, notify=False)
    process.later(RELIST)
    assert undelivered(process) == 200
    assert "[0,199]" in process.problems[f"{SOURCE} undelivered"]

    other = joined(world, C)  # another owner knows it from the checkpoint, and from its own listing
    assert undelivered(other) == 200
    process.placement.lose(C)
    process.turn(2)
    assert (undelivered(process), process.problems) == (None, {})

    world.skip(0, 149)
    other.later(REFRESH)
    assert undelivered(other) == 50
    world.skip(150, 199)
    other.later(REFRESH)
    assert (undelivered(other), other.problems) == (0, {})
    assert joined(world, C).problems == {}, "given up for ever"
    assert world.offsets(C) == numbers((200, 299))


def test_offsets_that_a_merge_brings_in_from_before_are_reported(world: World) -> None:
    world.put(200, 299)
    process = joined(world, C)
    process.later(DELAY, turns=8)
    world.put(150, 299, level=1)
    process.turn(4)
    assert undelivered(process) == 50
    assert "[150,199]" in process.problems[f"{SOURCE} undelivered"]


def test_segments_removed_again_are_no_problem(world: World) -> None:
    world.put(200, 299)
    process = joined(world, C)
    process.later(DELAY, turns=8)
    late = world.put(0, 199)
    process.turn(2)
    assert process.problems
    world.remove(late)
    process.later(RELIST)
    assert process.problems == {}


def test_delivering_everything_again_from_there_is_another_way_out(world: World) -> None:
    world.put(200, 299)
    process = joined(world, C)
    process.later(DELAY, turns=8)
    world.put(0, 199)
    process.turn(2)
    process.stop()
    world.seed(0)
    process = joined(world, C)
    assert world.offsets(C) == numbers((200, 299), (0, 299))
    assert (process.problems, process.stopped) == ({}, {})


def test_offsets_left_out_by_an_operator_are_no_problem(world: World) -> None:
    world.put(0, 299)
    world.seed(200)
    process = joined(world, C)
    assert world.offsets(C) == numbers((200, 299))
    world.put(0, 99, level=1)
    process.later(RELIST)
    assert (process.problems, process.ready) == ({}, True)


# --- late and lost ----------------------------------------------------------------------------------------------------


def test_a_backlog_of_replication_is_not_skipped_at_sight() -> None:
    """It was away for longer than lost_segment_timeout, and brings the later segment first."""
    world = World(source_settings(on_lost="skip"))
    world.put(0, 1)
    process = joined(world, C)
    world.clock.advance(25 * HOUR)
    world.objects.older = timedelta(hours=25)
    world.put(4, 5, notify=False)
    process.later(RELIST)
    process.later(LOST / 2)
    assert world.offsets(C) == [0, 1]
    assert process.metrics.counts["lost_segments"] == 0
    world.put(2, 3)
    process.turn(6)
    assert world.offsets(C) == numbers((0, 5))


@pytest.mark.parametrize("restarts", [False, True])
def test_a_gap_is_given_up_in_time_however_often_the_partition_moves(restarts: bool) -> None:
    world = World(source_settings(on_lost="skip"))
    world.put(0, 1)
    process = joined(world, C)
    world.put(4, 5)
    process.turn(2)
    noticed_at = world.clock.at
    assert world.target.waiting == {key(): Waiting(2, noticed_at)}
    for _ in range(9):
        process.later(LOST / 10)
        if restarts:
            process.stop()
            process = joined(world, C)
        else:
            process.placement.revoke(C)
            process.turn(2)
            process = joined(world, C)
    assert world.offsets(C) == [0, 1]
    process.later(LOST / 10 + 1, turns=8)
    assert world.offsets(C) == [0, 1, 4, 5]
    assert world.target.waiting == {}


def test_a_gap_that_a_listing_fills_is_not_recorded() -> None:
    world = World()
    world.put(0, 1)
    process = joined(world, C)
    world.put(2, 3, notify=False)
    world.put(4, 5)
    process.turn(4)
    assert world.offsets(C) == numbers((0, 5))
    assert world.target.edits == []


# --- target partitions that hold records already ----------------------------------------------------------------------


def test_a_first_checkpoint_comes_before_the_first_record(world: World) -> None:
    world.put(0, 3)
    process = Process(world)
    process.join(C)
    assert world.target.rounds == [0, 4]
    process.stop()


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize("crash", [1, 2])
def test_a_crash_around_the_first_record_is_no_false_alarm(world: World, exactly_once: bool, crash: int) -> None:
    """The first call writes the first checkpoint, the second the first records."""
    world.target.exactly_once = exactly_once
    world.put(0, 3)
    process = Process(world)
    process.turn(2)
    process.placement.assign(C)
    while len(world.target.rounds) < crash - 1:
        process.turn()
    world.target.crash_next()
    with pytest.raises(Crashed):
        process.turn(10)
    again = joined(world, C)
    assert again.stopped == {}
    assert set(world.offsets(C)) == set(range(4))
    assert len(world.offsets(C)) == (8 if crash == 2 and not exactly_once else 4)


def test_no_checkpoint_but_records_there_stops_that_partition_only(world: World) -> None:
    world.put(0, 3)
    world.put(0, 3, partition=1)
    world.target.occupied[C] = Occupancy(holds_records=True)
    process = joined(world)
    assert (world.offsets(C), world.offsets(D)) == ([], numbers((0, 3)))
    reason = process.stopped[str(SOURCE)]
    assert "N is the archive's offset at which the destination ends, as `replicator verify t --target FILE`" in reason
    for what in ("copy/0 holds records", "replicator.checkpoint", f"checkpoints seed {SOURCE} --offset N", "append"):
        assert what in reason
    assert world.target.parked == {key(): Parked(None, reason, world.clock.at)}
    assert key() not in world.target.checkpoints
    for _ in range(3):
        process.later(400, turns=8)
    assert world.offsets(C) == []
    assert world.target.edits == ["park"], "written once, however often it is tried"

    world.put(4, 5)
    world.seed(4)
    process.later(REFRESH, turns=8)
    assert world.offsets(C) == [4, 5]
    assert process.ready
    assert world.target.parked == {}


def test_a_seed_at_the_end_is_enough_to_continue(world: World) -> None:
    world.put(0, 3)
    world.target.occupied[C] = Occupancy(holds_records=True)
    process = joined(world, C)
    assert process.stopped
    world.seed(4)
    process.later(REFRESH, turns=8)
    assert (process.stopped, world.offsets(C)) == ({}, [])


def test_checkpoints_that_are_gone_deliver_nothing_twice(world: World) -> None:
    world.put(0, 3)
    joined(world, C).stop()
    world.target.checkpoints.clear()
    process = joined(world, C)
    process.later(60, turns=8)
    assert world.offsets(C) == numbers((0, 3))
    assert "holds records" in process.stopped[str(SOURCE)]


def test_records_may_be_added_to_by_choice(world: World) -> None:
    world = World(source_settings(on_foreign_data="append"))
    world.put(0, 3)
    world.target.occupied[C] = Occupancy(holds_records=True)
    assert joined(world, C).ready
    assert world.offsets(C) == numbers((0, 3))


def test_a_partition_that_cannot_be_checked_stops_and_reports_why(world: World) -> None:
    world.put(0, 3)
    world.target.occupied[C] = Occupancy(None, "no READ on it")
    process = joined(world, C)
    assert "whether copy/0 holds records is not known (no READ on it)" in process.stopped[str(SOURCE)]
    del world.target.occupied[C]
    process.later(31, turns=8)
    assert (process.stopped, world.offsets(C)) == ({}, numbers((0, 3)))


def test_a_check_that_fails_is_repeated(world: World) -> None:
    world.put(0, 3)
    process = Process(world)
    process.turn(2)
    process.placement.assign(C)
    process.turn(1)
    world.target.away = True
    process.turn(3)
    world.target.away = False
    process.later(2, turns=8)
    assert (process.stopped, world.offsets(C)) == ({}, numbers((0, 3)))
    process.later(120)
    assert process.stopped == {}, "it does not fail any more"


def test_nothing_is_asked_of_partitions_without_a_segment(world: World) -> None:
    """A destination may have more partitions than the source, for others."""
    world.put(0, 3)
    world.target.occupied[D] = Occupancy(holds_records=True)
    process = joined(world)
    assert (process.stopped, world.offsets(C)) == ({}, numbers((0, 3)))


def test_a_first_checkpoint_that_is_refused_names_no_record(world: World) -> None:
    world.put(0, 3)
    process = Process(world)
    process.turn(2)
    world.target.fail_next(C, code="TOPIC_AUTHORIZATION_FAILED", kind=FailureKind.REJECTED)
    process.placement.assign(C)
    process.turn(6)
    reason = process.stopped[str(SOURCE)]
    assert "TOPIC_AUTHORIZATION_FAILED" in reason
    assert "record at offset" not in reason
    process.later(40, turns=8)
    assert (process.stopped, world.offsets(C)) == ({}, numbers((0, 3)))


def test_a_destination_created_again_after_the_first_checkpoint_is_just_used(world: World) -> None:
    """Nothing was delivered to the one before."""
    world.put(0, 3)
    process = Process(world)
    process.turn(2)
    process.placement.assign(C)
    while len(world.target.rounds) < 1:
        process.turn()
    assert world.target.checkpoints[key()].next_offset == 0
    world.admin.ids["copy"] = "another"
    again = joined(world, C)
    again.turn(4)
    assert (again.stopped, world.offsets(C)) == ({}, numbers((0, 3)))
    assert world.target.checkpoints[key()].destination_topic_id == "another"


def test_a_destination_created_again_before_the_next_incarnation_delivered_anything() -> None:
    """Its first checkpoint is of the topic before: the new one begins with the first incarnation."""
    world = World(source_settings(on_recreate="follow"))
    world.claim(0)
    world.put(0, 9)
    process = joined(world, C)
    process.later(DELAY, turns=8)
    assert world.offsets(C) == numbers((0, 9))
    world.claim(1, "life2")
    world.target.poison[C] = {0}  # its first record
    world.put(0, 9, incarnation="life2")
    for _ in range(20):
        process.later(DELAY / 2, turns=8)
    assert world.checkpoint(incarnation="life2") == 0
    assert process.stopped
    process.stop()
    world.target.poison.clear()
    world.target._logs.clear()
    world.broker.delete("copy")
    world.broker.create("copy", partitions=2)
    process = joined(world, C)
    for _ in range(20):
        process.later(DELAY / 2, turns=8)
    assert process.stopped or world.offsets(C) == numbers((0, 9), (0, 9))


# --- while the target is checked ----------------------------------------------------------------------------------


def checking(process: Process) -> None:
    """Until the question is under way; it has its answer when the pool continues."""
    process.pool.holding = True
    for _ in range(20):
        process.turn()
        if process.controller._foreign_data_check._asked:
            return
        process.pool.run_all()
    pytest.fail("nothing is checked")


def go_on(process: Process) -> None:
    process.pool.run_all()
    process.pool.holding = False
    process.turn(4)


def test_a_partition_that_leaves_meanwhile_is_not_stopped_here(world: World) -> None:
    world.target.occupied[C] = Occupancy(holds_records=True)
    world.put(0, 3)
    process = Process(world)
    process.turn(2)
    process.placement.assign(C)
    checking(process)
    process.placement.revoke(C)
    process.turn()
    go_on(process)
    assert process.stopped == {}


def test_a_destination_that_goes_meanwhile_ends_nothing(world: World) -> None:
    world.put(0, 3)
    process = Process(world)
    process.turn(2)
    process.placement.assign(C)
    checking(process)
    asked = list(process.pool._jobs)
    process.pool._jobs.clear()
    process.pool.holding = False
    world.admin.hides["copy"] = "no DESCRIBE"
    process.later(40, turns=4)
    process.pool._jobs.extend(asked)
    go_on(process)
    assert "no DESCRIBE" in process.stopped[str(SOURCE)]


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_seed_that_is_written_meanwhile_counts(world: World, exactly_once: bool) -> None:
    world.target.exactly_once = exactly_once
    world.target.occupied[C] = Occupancy(holds_records=True)
    world.put(0, 9)
    process = joined(world, C)
    assert "holds records" in process.stopped[str(SOURCE)]
    world.clock.advance(40)
    checking(process)
    world.seed(10)  # all of it is there already: `checkpoints seed`, allowed since it is parked
    go_on(process)
    process.later(1, turns=8)
    assert (world.offsets(C), world.target.conflicts) == ([], {})
    assert process.stopped == {}


TargetCheck = Callable[[FakeTarget, Collection[TopicPartition]], Mapping[TopicPartition, Occupancy]]


def without_leader(leaderless: TopicPartition) -> TargetCheck:
    """`FakeTarget.occupancies`, where this partition has no leader."""
    original = FakeTarget.occupancies

    def found(target: FakeTarget, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Occupancy]:
        if leaderless in partitions:
            raise BrokerUnavailable(f"offsets of {leaderless}: LEADER_NOT_AVAILABLE")
        return original(target, partitions)

    return found


def test_one_that_fails_for_a_minute_makes_the_process_unready(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(FakeTarget, "occupancies", without_leader(C))
        world.put(0, 9)
        process = joined(world, C)
        for _ in range(10):
            process.later(10)
        assert world.offsets(C) == []
        assert "every attempt to check the target partition for records has failed" in process.stopped[str(SOURCE)]
    process.later(20, turns=8)
    assert (process.stopped, world.offsets(C)) == ({}, numbers((0, 9)))


def test_a_seed_while_the_target_cannot_be_checked_ends_that_failure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a position is known, nothing is checked any more: that it failed would be reported for ever."""
    monkeypatch.setattr(FakeTarget, "occupancies", without_leader(C))
    world.put(0, 9)
    process = joined(world, C)
    for _ in range(10):
        process.later(10)
    assert "check the target partition" in process.stopped[str(SOURCE)]
    world.seed(5)
    process.later(REFRESH, turns=8)
    for _ in range(20):
        process.later(6)
        assert process.stopped == {}
    assert (world.offsets(C), world.target.parked) == (numbers((5, 9)), {})


def test_one_that_fails_for_a_partition_holds_up_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeTarget, "occupancies", without_leader(D))
    world.put(0, 9)
    world.put(0, 9, partition=1)
    process = joined(world, C, D)
    for _ in range(5):
        process.later(10)
    assert (world.offsets(C), world.offsets(D)) == (numbers((0, 9)), [])


@pytest.mark.parametrize("is_seen", [True, False], ids=["before the query", "after it"])
def test_what_an_owner_before_begins_while_the_target_is_queried_counts(
    world: World, monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    """Its position was written before its first record. So whichever of the two the query shows, it is no foreign data,
    and nothing is begun a second time."""
    original, begun = FakeTarget.occupancies, list[str]()

    def queried(target: FakeTarget, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Occupancy]:
        if is_seen:
            target.occupied[C] = Occupancy(holds_records=True)
        found = original(target, partitions)
        if not begun:
            begun.append("by another process")
            world.set_checkpoint(3)
        return found

    monkeypatch.setattr(FakeTarget, "occupancies", queried)
    world.put(0, 4)
    process = joined(world, C)
    assert begun
    assert (process.stopped, world.offsets(C)) == ({}, [3, 4])
