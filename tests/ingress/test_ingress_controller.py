"""The ingress loop on fakes: order, one repeated run at most, and whatever the store, the log or the target do."""

from __future__ import annotations

import threading

import pytest

from formats.segment import OffsetRange, Segment
from infra.contracts.producer import FailureKind
from infra.local.waiting import wait_until
from ingress.delivery.events import Progressed
from tests.fakes.kafka_target import Crashed
from tests.ingress.copied import LABELS, PATIENCE, RECORD_LABELS, SOURCE, C, D
from tests.ingress.process import Process, joined
from tests.ingress.world import DELAY, RELIST, World, key, numbers

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
    assert process.metrics.by_label("record_count", **RECORD_LABELS) == 8
    assert process.metrics.by_label("record_bytes", **RECORD_LABELS) == 8, "one byte of each key"
    assert process.ready


def test_every_turn_is_reported_to_the_health_check(world: World) -> None:
    process = Process(world)
    for _ in range(2):
        world.clock.advance(1)
        process.control()
        assert process.health.snapshot().turns["main"] == world.clock.at


@pytest.mark.parametrize("before", [None, 1], ids=["its first", "a later one"])
def test_the_position_is_requested_when_nothing_of_an_earlier_owner_is_pending(
    world: World, before: int | None
) -> None:
    """Its transaction ends as the next owner waits for it: what it delivered shows in the checkpoint from then on.
    `before`: the position before it. Without one, the check of the target would find the new position, too."""
    world.put(0, 4)
    if before is not None:
        world.set_checkpoint(before)
    process = Process(world)
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
    process = Process(world)
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
    process = Process(world)
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
    process = Process(world)
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
    process = Process(world, run_records=4)
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
    process = Process(world, run_records=4)
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
    process = Process(world, run_records=4)
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


def test_reset_of_the_log_lists_again_what_waits_for_its_position(world: World) -> None:
    world.put(0, 1)
    process = joined(world)
    world.target.stop_next()
    world.put(2, 3)
    process.turn(2)  # its outcome is unknown
    world.put(4, 5)
    world.log.lose()
    process.turn()
    process.later(2, turns=8)
    assert world.offsets(C) == numbers((0, 5))


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


# --- ownership --------------------------------------------------------------------------------------------------------


def test_nothing_is_produced_for_a_partition_after_it_was_revoked(world: World) -> None:
    world.set_checkpoint(0)
    world.put(0, 9)
    process = Process(world, run_records=2)
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
    process = Process(world, run_records=2)
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
    process = Process(world)
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
    process = Process(world, run_records=2)
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
    process = Process(world)
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
    process = Process(world)
    world.log.away = True
    process.stop_signal.set()
    with pytest.raises(Exception, match="away"):
        process.controller.run()
    assert process.placement.closed


def test_the_logs_ends_are_noted_before_the_first_listing(world: World) -> None:
    """What is stored during a listing is in the log then; the clock stands, so no timer lists again."""
    world.put(0, 4)

    def after_the_gaps() -> None:
        world.objects.after_listing["data/a/t/"] = stored

    def stored() -> None:
        world.put(5, 9)

    world.objects.after_listing["data/a/_control/v1/gaps/t/"] = after_the_gaps  # asked first
    process = Process(world, log_started=False)
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
    assert process.metrics.by_label("record_count", **RECORD_LABELS) == 30_000


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
