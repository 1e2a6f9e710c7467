"""What retention removes between the plan of a restore and its reading, here and on a worker of Spark."""

from __future__ import annotations

import pytest

from formats.int_range import IntRange
from formats.records.scope import RecordFilter
from formats.segment import OffsetRange
from replicator.config.load import from_mapping
from replicator.restore.passed_over import note_runs
from replicator.restore.progress import RestoreOutcome
from replicator.restore.spark_task import RestoreTask, outcome_of, plan_of
from replicator.restore.worker import PartitionTask, RestoreSettings
from tests.replicator.restore.restoring import TARGETS, Restoring, restorable

C = TARGETS[0]
TASK = RestoreTask(
    from_mapping({"region": "b", "s3": {"bucket": "archive"}}),
    RestoreSettings(checkpoint_topic="checkpoints", offset_map_topic="maps", scope=RecordFilter()),
)


@pytest.mark.parametrize("on_worker", [False, True])
@pytest.mark.parametrize("gone", [1, 2, 3])
def test_what_retention_removes_after_the_plan_is_named_and_is_no_success(on_worker: bool, gone: int) -> None:
    """A worker of Spark lists again, and finds it gone."""
    world = restorable()
    stored = [world.put(10 * n, 10 * n + 9) for n in range(5)]
    world.record_gap(0, 9)
    world.remove(stored[0])  # before the plan, which says so
    driver = Restoring(world, offsets=IntRange(0, 39))
    (planned,) = driver.plan.partitions
    row = TASK.row(PartitionTask(plan=planned, topic_id="", clamp=False))
    world.record_gap(10, 10 * gone + 9)
    world.remove(*stored[1 : gone + 1])
    restoring = Restoring(world, plans=[plan_of(row, world.archive, world.clock)]) if on_worker else driver
    restoring.finish()
    outcome = RestoreOutcome.of(restoring.partitions[0])
    assert outcome.failed == ""
    assert (outcome.is_done, outcome.is_whole, outcome.expired) == (True, False, ((10, 10 * gone + 9),))
    assert world.offsets(C) == list(range(10 * gone + 10, 40))


def test_what_a_task_has_restored_before_it_expires_is_not_missed_by_its_next_attempt() -> None:
    world = restorable()
    stored = [world.put(10 * n, 10 * n + 9) for n in range(3)]
    driver = Restoring(world, offsets=IntRange(0, 19))
    (planned,) = driver.plan.partitions
    row = TASK.row(PartitionTask(plan=planned, topic_id="", clamp=False))
    while driver.partitions[0].next_offset < 10:
        driver.turn()
    world.record_gap(0, 9)
    world.remove(stored[0])
    again = Restoring(world, plans=[plan_of(row, world.archive, world.clock)])
    again.finish()
    assert RestoreOutcome.of(again.partitions[0]).is_whole
    assert world.offsets(C) == list(range(20))


@pytest.mark.parametrize("on_worker", [False, True])
def test_what_one_attempt_passes_over_is_named_by_the_next_one(on_worker: bool) -> None:
    """It begins behind the gap: on a worker of Spark with the plan of the driver, else with a plan of its own."""
    world = restorable()
    stored = [world.put(10 * n, 10 * n + 9) for n in range(5)]
    driver = Restoring(world)
    (planned,) = driver.plan.partitions
    row = TASK.row(PartitionTask(plan=planned, topic_id="", clamp=False))
    world.record_gap(0, 19)
    world.remove(*stored[:2])
    while driver.partitions[0].next_offset < 30:
        driver.turn(seconds=1)
    resumed_at = world.checkpoint() or 0
    again = Restoring(world, plans=[plan_of(row, world.archive, world.clock)] if on_worker else None)
    again.finish()
    outcome = outcome_of(row, again.partitions[0])
    assert (outcome.is_done, outcome.is_whole, outcome.expired) == (True, False, ((0, 19),))
    assert (outcome.is_partial, outcome.records) == (True, 50 - resumed_at), "the first one's records are not counted"
    assert not outcome_of(row, driver.partitions[0]).is_partial
    assert outcome.given_up == (), "no operator accepted it"
    assert world.offsets(C) == list(range(20, 50))


def test_what_expired_and_is_stored_again_came_back() -> None:
    world = restorable()
    stored = [world.put(10 * n, 10 * n + 9) for n in range(3)]
    driver = Restoring(world)
    world.record_gap(10, 19)
    world.remove(stored[1])
    driver.finish()
    (after,) = Restoring(world).plan.partitions
    assert (after.expired, after.came_back, after.given_up) == ([OffsetRange(10, 19)], [], [])
    world.put(10, 19)
    (after,) = Restoring(world).plan.partitions
    assert after.came_back == [OffsetRange(10, 19)]


@pytest.mark.parametrize("recorded", [True, False])
def test_what_is_passed_over_behind_the_last_record_is_noted_without_records(recorded: bool) -> None:
    """Offsets 10-19 expire, or are lost and accepted as missing."""
    world = restorable()
    stored = [world.put(10 * n, 10 * n + 9) for n in range(2)]
    first = Restoring(world, skip_missing=True)
    if recorded:
        world.record_gap(10, 19)
    world.remove(stored[1])
    first.finish()
    runs = note_runs(first.partitions.values(), world.target.checkpoint_store().read(), world.clock.now())
    assert not world.target.writer().deliver(runs, should_stop=lambda: False)
    assert world.checkpoint() == 10, "a note moves no position"
    again = Restoring(world)
    again.finish()
    outcome = RestoreOutcome.of(again.partitions[0])
    assert (outcome.expired, outcome.given_up) == (((10, 19),), ()) if recorded else ((), ((10, 19),))
    assert not outcome.is_whole
    assert again.plan.partitions[0].came_back == []
    assert note_runs(again.partitions.values(), world.target.checkpoint_store().read(), world.clock.now()) == []
