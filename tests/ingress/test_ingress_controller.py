"""The ingress loop on fakes: order, one repeated run at most, and whatever the store, the log or the target do."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from formats.messages.delivery_checkpoint import Author, Checkpoint
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.contracts.cluster import Occupancy, TopicPartition
from infra.contracts.producer import FailureKind
from infra.local.waiting import wait_until
from ingress.delivery.events import Progressed
from tests.fakes.kafka_target import Crashed
from tests.ingress.world import (
    DELAY,
    LOST,
    RELIST,
    STAMP,
    Process,
    World,
    joined,
    key,
    numbers,
    source_settings,
)

C, D = TopicPartition("copy", 0), TopicPartition("copy", 1)
LABELS = {"region": "a", "topic": "t", "partition": "0"}
SOURCE = SourcePartition("a", "t", 0)
PATIENCE = timedelta(seconds=20)


@pytest.fixture
def world() -> World:
    return World()


# --- where it begins --------------------------------------------------------------------------------------------------


def test_everything_stored_is_delivered(world: World) -> None:
    world.put(0, 4)
    world.put(5, 9, holes=(6, 9))
    world.put(0, 2, partition=1)
    process = joined(world)
    assert world.offsets(C) == [*range(6), 7, 8]
    assert world.offsets(D) == [0, 1, 2]
    assert world.checkpoint() == 10
    assert process.metrics.by_label("ingress_segments", **LABELS) == 2
    assert process.metrics.by_label("record_count", **LABELS) == 8
    assert process.metrics.by_label("record_bytes", **LABELS) > 0
    assert process.ready


def test_every_turn_is_reported_to_the_health_check(world: World) -> None:
    process = world.process()
    for _ in range(2):
        world.clock.advance(1)
        process.control()
        assert process.health.snapshot().turns["main"] == world.clock.at


def test_the_position_is_requested_when_nothing_of_an_earlier_owner_is_pending(world: World) -> None:
    """Its transaction ends as the next owner waits for it: what it delivered shows in the checkpoint from then on."""
    world.put(0, 4)
    process = world.process()
    process.placement.pending.append(lambda: world.set_checkpoint(3))
    process.join(C)
    assert world.offsets(C) == [3, 4]


def test_continues_from_the_checkpoint_in_the_middle_of_a_segment(world: World) -> None:
    world.set_checkpoint(3)
    world.put(0, 4)
    world.put(5, 6)
    process = joined(world)
    assert world.offsets(C) == [3, 4, 5, 6]
    assert process.metrics.by_label("skipped_records", **LABELS) == 3


def test_without_a_checkpoint_the_first_segment_is_waited_for(world: World) -> None:
    world.put(10, 14)
    process = joined(world)
    process.later(DELAY / 2)
    assert world.offsets(C) == []
    world.put(5, 9)
    process.later(DELAY / 2 + 1)
    assert world.offsets(C) == [], "the settle time counts from the earliest one's appearance"
    process.later(DELAY)
    assert world.offsets(C) == numbers((5, 14))


def test_offset_zero_needs_no_settle_time(world: World) -> None:
    world.put(0, 1)
    joined(world)
    assert world.offsets(C) == [0, 1]


def test_a_predecessor_whose_notification_was_lost_is_seen_before_the_choice(world: World) -> None:
    world.put(10, 14)
    process = joined(world)
    world.put(5, 9, notify=False)
    process.later(DELAY)
    process.later(DELAY)
    assert world.offsets(C) == numbers((5, 14))


def test_checkpoints_that_cannot_be_read_are_requested_again(world: World) -> None:
    world.set_checkpoint(3)
    world.put(0, 4)
    process = world.process()
    process.turn(2)
    world.target.away = True
    process.placement.assign(C)
    process.turn(3)
    world.log.lose()  # in between: the log says "list again" of a partition that has no position yet
    process.turn(3)
    world.target.away = False
    process.later(1)
    assert world.offsets(C) == [3, 4]


def test_partition_assigned_before_it_is_known_what_for(world: World) -> None:
    process = world.process()
    process.pool.holding = True
    process.placement._listener = process.controller
    process.placement.assign(C)
    process.control(2)
    world.put(0, 3)
    process.pool.holding = False
    process.pool.run_all()
    process.turn(5)
    assert world.offsets(C) == numbers((0, 3))


def test_archive_that_cannot_be_listed_is_listed_again(world: World) -> None:
    world.put(0, 3)
    world.objects.away = {"list"}
    process = world.process()
    process.turn(2)
    assert not process.ready
    assert process.placement.topics == frozenset()
    world.objects.away = set()
    process.later(30)
    process.placement.assign(C)
    process.turn(5)
    assert world.offsets(C) == numbers((0, 3))


# --- crashes ----------------------------------------------------------------------------------------------------------


def test_crash_before_the_commit_repeats_nothing(world: World) -> None:
    world.put(0, 9)
    process = world.process(run_records=4)
    process.turn(2)
    process.placement.assign(C, D)
    process.control(2)
    process.delivery.run_round()
    process.control()
    world.target.crash_next()
    with pytest.raises(Crashed):
        process.delivery.run_round()
    joined(world, run_records=4).turn(3)
    assert world.offsets(C) == numbers((0, 9))


@pytest.mark.parametrize("committed", [True, False])
def test_transaction_of_unknown_outcome_is_looked_up(world: World, committed: bool) -> None:
    world.set_checkpoint(0)
    world.put(0, 9)
    process = world.process(run_records=4)
    process.turn(2)
    world.target.stop_next(keep=int(committed))
    process.placement.assign(C)
    process.turn(3)
    assert world.offsets(C) == (numbers((0, 3)) if committed else [])
    process.later(2, turns=10)
    assert world.offsets(C) == numbers((0, 9))
    assert process.stopped == {}


def test_crash_between_records_and_checkpoint_repeats_one_run_of_each_partition(world: World) -> None:
    world.target.exactly_once = False
    for partition in (0, 1):
        world.set_checkpoint(0, partition)
    world.put(0, 9)
    world.put(0, 5, partition=1)
    process = world.process(run_records=4)
    process.turn(2)
    process.placement.assign(C, D)
    process.control(2)
    process.delivery.run_round()
    process.control()
    world.target.crash_next()
    with pytest.raises(Crashed):
        process.delivery.run_round()
    assert (world.offsets(C), world.checkpoint()) == (numbers((0, 7)), 4)
    assert (world.offsets(D), world.checkpoint(1)) == (numbers((0, 5)), 4)
    joined(world, run_records=4).turn(3)
    assert world.offsets(C) == numbers((0, 7), (4, 9))
    assert world.offsets(D) == numbers((0, 5), (4, 5))


def test_restart_repeats_nothing(world: World) -> None:
    for at in range(0, 12, 3):
        world.put(at, at + 2)
        joined(world).stop()
    assert world.offsets(C) == numbers((0, 11))


# --- notifications ----------------------------------------------------------------------------------------------------


def test_notifications_doubled_and_out_of_order(world: World) -> None:
    process = joined(world) if world.put(0, 1) else None
    assert process is not None
    segments = [world.put(at, at + 1, notify=False) for at in range(2, 12, 2)]
    for segment in [*reversed(segments), *segments, segments[2], segments[2]]:
        world.notify(segment)
        process.turn()
    process.turn(12)
    assert world.offsets(C) == numbers((0, 11))


def test_lost_notification_of_the_last_segment_is_made_up_for_by_the_timer(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    world.put(2, 3, notify=False)
    process.later(RELIST / 2)
    assert world.offsets(C) == [0, 1]
    process.later(RELIST / 2)
    assert world.offsets(C) == [0, 1, 2, 3]
    assert process.metrics.by_label("relists", reason="timer") >= 1


def test_lost_notification_before_a_later_one_is_made_up_for_at_once(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    world.put(2, 3, notify=False)
    world.put(4, 5)
    process.turn(3)
    assert world.offsets(C) == numbers((0, 5))
    assert process.metrics.by_label("relists", reason="gap") == 1
    assert process.metrics.by_label("late_segments", **LABELS) == 0


def test_segment_stored_after_a_later_one_is_late_and_listed_soon(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    world.put(4, 5)
    process.turn(2)
    assert world.offsets(C) == [0, 1]
    assert process.metrics.by_label("late_segments", **LABELS) == 1
    world.put(2, 3, notify=False)
    process.later(1)
    assert world.offsets(C) == numbers((0, 5))
    assert process.metrics.by_label("late_segments", **LABELS) == 1


def test_reset_of_the_log_lists_again(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    world.put(2, 3)
    world.log.lose()
    process.turn(5)
    assert world.offsets(C) == [0, 1, 2, 3]
    assert process.metrics.by_label("relists", reason="reset") == 2


def test_log_that_is_away_is_made_up_for(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    world.log.away = True
    world.put(2, 3)
    process.turn(3)
    assert world.offsets(C) == [0, 1]
    world.log.away = False
    process.turn(3)
    assert world.offsets(C) == [0, 1, 2, 3]


def test_event_that_comes_during_a_listing_is_kept(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    process.pool.holding = True
    process.later(RELIST, turns=1)
    process.pool.run_next()  # answered, not yet taken in
    world.put(2, 3)
    process.pool.holding = False
    process.turn(5)
    assert world.offsets(C) == [0, 1, 2, 3]


# --- segments that change ---------------------------------------------------------------------------------------------


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


def lose_one(world: World) -> Process:
    world.put(0, 1)
    process = joined(world)
    world.put(4, 5)
    process.turn(2)
    for _ in range(30):
        process.later(LOST / 20)
    return process


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
    process = world.process()
    process.turn(2)
    world.objects.away = {"list"}
    process.placement.assign(C)
    process.turn(3)
    world.objects.away = set()
    process.later(2)
    process.later(2)
    assert world.offsets(C) == numbers((0, 3))


# --- ownership --------------------------------------------------------------------------------------------------------


def test_nothing_is_produced_for_a_partition_after_it_was_revoked(world: World) -> None:
    world.set_checkpoint(0)
    world.put(0, 9)
    process = world.process(run_records=2)
    process.turn(2)
    process.placement.assign(C)
    process.control(2)
    process.delivery.run_round()
    process.placement.revoke(C)
    process.control()
    before = world.offsets(C)
    assert before == [0, 1]
    process.turn(5)
    assert world.offsets(C) == before
    process.placement.assign(C)
    process.turn(10)
    assert world.offsets(C) == numbers((0, 9))


def test_partition_moves_between_processes(world: World) -> None:
    world.put(0, 1)
    first, second = joined(world, C, run_records=3), joined(world, D, run_records=3)
    at = 2
    for _ in range(3):
        for giver, taker in ((first, second), (second, first)):
            world.put(at, at + 9)
            at += 10
            giver.turn(2)
            giver.placement.revoke(C)
            giver.turn()
            taker.placement.assign(C)
            taker.turn(10)
    assert world.offsets(C) == numbers((0, at - 1))


def test_reports_of_an_earlier_ownership_are_ignored(world: World) -> None:
    world.put(0, 9)
    process = world.process(run_records=2)
    process.turn(2)
    process.placement.assign(C)
    process.control(2)
    process.delivery.run_round()  # its report waits
    process.placement.revoke(C)
    process.placement.assign(C)
    process.control()
    process.turn(10)
    assert world.offsets(C) == numbers((0, 9))


def test_report_of_a_round_that_outlived_its_ownership_moves_nothing(world: World) -> None:
    world.put(0, 9)
    process = joined(world)
    assigned = process.controller._assignment.of(SOURCE)
    assert assigned is not None
    earlier = assigned.delivery_target
    process.placement.revoke(C)
    process.placement.assign(C)
    process.turn(5)
    process.delivery.reports.put(Progressed(earlier, 4, done=False))
    process.turn()
    world.put(10, 11)
    process.turn(3)
    assert world.offsets(C) == numbers((0, 11))


def test_failure_reported_for_an_earlier_ownership_stops_nothing(world: World) -> None:
    world.put(0, 3)
    process = world.process()
    process.turn(2)
    process.placement.assign(C)
    process.control(2)
    world.target.fail_next(C, kind=FailureKind.REJECTED)
    process.delivery.run_round()
    process.placement.revoke(C)
    process.placement.assign(C)
    process.turn(5)
    assert process.stopped == {}
    assert world.offsets(C) == numbers((0, 3))


def test_lost_partition_is_given_up_at_once(world: World) -> None:
    world.put(0, 9)
    process = world.process(run_records=2)
    process.turn(2)
    process.placement.assign(C, D)
    process.control(2)
    process.placement.lose(C)
    process.turn(3)
    assert world.offsets(C) == []
    assert process.metrics.value("assigned_partitions") == 1
    assert process.metrics.value("ingress_lag_records", **LABELS) is None


def test_checkpoints_are_read_after_the_assignment(world: World) -> None:
    """A checkpoint that the previous owner writes during the assignment must count."""
    world.put(0, 9)
    process = world.process()
    process.turn(2)
    process.checkpoint_pool.holding = True
    process.placement.assign(C)
    process.turn()
    process.placement.revoke(C)
    process.turn()
    world.set_checkpoint(6)
    process.placement.assign(C)
    process.turn()
    process.checkpoint_pool.holding = False
    process.checkpoint_pool.run_all()
    process.turn(4)
    assert world.offsets(C) == [6, 7, 8, 9]


def test_disturbed_placement_is_survived(world: World) -> None:
    world.put(0, 3)
    process = joined(world)
    process.placement.disturb()
    world.put(4, 5)
    process.turn(3)
    assert world.offsets(C) == numbers((0, 5))


def test_stop_leaves_the_group_and_ends_both_loops(world: World) -> None:
    world.put(0, 9)
    process = joined(world, run_records=2)
    process.stop()
    assert process.placement.closed
    assert process.abandon.is_set()
    assert process.metrics.value("assigned_partitions") == 0


def test_log_that_is_away_at_the_start_leaves_the_group_in_order(world: World) -> None:
    process = world.process()
    world.log.away = True
    process.stop_signal.set()
    with pytest.raises(Exception, match="away"):
        process.controller.run()
    assert process.placement.closed


def test_the_logs_ends_are_noted_before_the_first_listing(world: World) -> None:
    """What is stored during a listing is in the log then; the clock stands, so no timer lists again."""
    world.put(0, 4)

    def after_the_gaps() -> None:
        world.objects.after_listing["data/a/t/0/"] = stored

    def stored() -> None:
        world.put(5, 9)

    world.objects.after_listing["data/a/_control/v1/gaps/t/0/"] = after_the_gaps  # asked first
    process = world.process(log_started=False)
    process.placement.assign(C)
    running = threading.Thread(target=process.controller.run)
    running.start()
    try:

        def delivered() -> bool:
            process.delivery.run_round()
            return world.offsets(C) == numbers((0, 9))

        assert wait_until(delivered, PATIENCE), world.offsets(C)
    finally:
        process.stop_signal.set()
        running.join(PATIENCE.total_seconds())
    assert world.objects.after_listing == {}


# --- the target -------------------------------------------------------------------------------------------------------


def test_transient_failure_is_tried_again_and_repeats_one_run_at_most(world: World) -> None:
    world.set_checkpoint(0)
    world.put(0, 9)
    process = world.process(run_records=4)
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
    process = world.process()
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
    process = world.process()
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


def test_destination_created_again_before_anything_was_delivered_is_just_used(world: World) -> None:
    world.put(0, 3)
    process = world.process()
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


def test_assignment_that_cannot_be_confirmed_is_asked_about_again(world: World) -> None:
    world.put(0, 3)
    process = world.process()
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


# --- incarnations of a topic ------------------------------------------------------------------------------------------


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
    assert "segment_behind_its_life" not in caplog.text
    world.put(4, 5)
    process.turn(2)
    assert "segment_behind_its_life" in caplog.text
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
    controller = reborn(policy).process().controller
    assert controller.wants(SourcePartition("a", "t", 0, "second")) is wanted
    assert controller.wants(SOURCE)


# --- lag, and what is found -------------------------------------------------------------------------------------------


def test_lag_is_measured_in_offsets_and_seconds(world: World) -> None:
    world.put(0, 3)
    process = joined(world)
    world.target.away = True
    world.put(4, 13)
    process.later(7)
    process.later(5)
    assert process.metrics.value("ingress_lag_records", **LABELS) == 10
    assert process.metrics.value("ingress_lag_seconds", **LABELS) == 12
    world.target.away = False
    process.later(10)
    process.later(5)
    assert process.metrics.value("ingress_lag_records", **LABELS) == 0
    assert process.metrics.value("ingress_lag_seconds", **LABELS) == 0


def test_range_without_a_record_moves_the_position(world: World) -> None:
    world.put(0, 1)
    world.put(2, 9, holes=range(2, 10))
    process = joined(world)
    assert world.checkpoint() == 10
    world.put(10, 10)
    process.turn(2)
    assert world.offsets(C) == [0, 1, 10]


def test_new_topic_of_the_archive_is_found(world: World) -> None:
    world = World(source_settings("^.*", None))
    process = world.process()
    process.turn(2)
    assert process.placement.topics == frozenset()
    world.put(0, 3, topic="new", partitions=1)
    process.later(30)
    assert process.placement.topics == {"new.ingress"}
    new = TopicPartition("new.ingress", 0)
    process.placement.assign(new)
    process.turn(5)
    assert world.offsets(new) == numbers((0, 3))


def test_wants_only_what_a_source_delivers(world: World) -> None:
    controller = world.process().controller
    assert controller.wants(SOURCE)
    assert not controller.wants(SourcePartition("b", "t", 0))
    assert not controller.wants(SourcePartition("a", "u", 0))
    assert not controller.wants(SourcePartition("a", "t", 0, "other-life"))


def test_refused_source_is_reported_and_forgotten_when_repaired(world: World) -> None:
    world.put(0, 3, partitions=None)
    process = world.process()
    process.turn(2)
    assert "partitions" in process.stopped["a/t/0"]
    world.broker.create("copy", partitions=1)
    process.later(30)
    assert process.stopped == {}
    assert process.placement.topics == {"copy"}


def test_segments_are_covered_once_whatever_overlaps(world: World) -> None:
    for start, end, level in ((0, 4, 0), (3, 8, 0), (3, 6, 0), (0, 8, 1), (9, 12, 0), (7, 15, 0)):
        world.put(start, end, level=level)
    joined(world)
    assert world.offsets(C) == numbers((0, 15))
    assert OffsetRange(0, 15).next_offset == world.checkpoint()


def test_late_retries_of_another_source_do_not_matter() -> None:
    world = World(source_settings(late_segment_retries=0, lost_segment_timeout=timedelta(seconds=5), on_lost="skip"))
    world.put(0, 1)
    process = joined(world)
    world.put(4, 5)
    process.turn(2)
    process.later(4)
    assert world.offsets(C) == [0, 1]
    process.later(1)
    assert world.offsets(C) == [0, 1, 4, 5]


# --- small segments ---------------------------------------------------------------------------------------------------


def test_a_backlog_of_small_segments_makes_large_transactions(world: World) -> None:
    """One segment in each would cost a commit for every 500 records."""
    for start in range(0, 30_000, 500):
        world.put(start, start + 499)
    process = joined(world)
    assert world.offsets(C) == numbers((0, 29_999))
    assert world.target.rounds[0] == 0, "the first checkpoint"
    assert world.target.rounds[1] >= 10_000
    assert len(world.target.rounds) == 4
    assert process.metrics.by_label("ingress_segments", **LABELS) == 60
    assert process.metrics.by_label("record_count", **LABELS) == 30_000


def test_segments_delivered_together_are_each_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for start in range(0, 12, 4):
        world.put(start, start + 3)
    world.set_checkpoint(2)
    process = joined(world)
    delivered = [vars(r) for r in caplog.records if r.message == "segment_delivered"]
    assert [(one["start"], one["end"]) for one in delivered] == [(2, 3), (4, 7), (8, 11)]
    assert process.metrics.by_label("skipped_records", **LABELS) == 2
    assert world.target.rounds == [10]


def test_damage_in_the_middle_stops_after_what_comes_before_it(world: World) -> None:
    for start in range(0, 20, 4):
        world.put(start, start + 3)
    world.damage(Segment(SOURCE, 0, OffsetRange(8, 11)))
    process = joined(world)
    assert world.offsets(C) == numbers((0, 7))
    assert list(process.stopped) == [str(SOURCE)]
    assert world.target.parked[key()].next_offset == 8


def test_poison_in_the_middle_stops_after_what_comes_before_it(world: World) -> None:
    for start in range(0, 20, 4):
        world.put(start, start + 3)
    world.target.poison[C] = {10}
    process = joined(world)
    process.turn(10)
    assert world.offsets(C) == numbers((0, 9))
    assert world.target.parked[key()].next_offset == 10
    del world.target.poison[C]
    process.later(60, turns=8)
    assert world.offsets(C) == numbers((0, 19))
