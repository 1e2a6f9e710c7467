"""What retention removes between the plan of a restore and its reading, here and on a worker of Spark."""

from __future__ import annotations

import pytest

from formats.int_range import IntRange
from formats.records.scope import RecordFilter
from replicator.config.load import from_mapping
from replicator.restore.progress import RestoreOutcome
from replicator.restore.spark_task import RestoreTask, plan_of
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
