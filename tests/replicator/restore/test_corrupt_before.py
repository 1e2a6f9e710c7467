"""Corrupt segments that an earlier run of a restore, or an earlier attempt of its Spark task, replaced by others."""

from __future__ import annotations

import pytest

from formats.records.scope import RecordFilter
from formats.segment import Segment
from replicator.config.load import from_mapping
from replicator.restore.progress import RestoreOutcome
from replicator.restore.spark_task import RestoreTask, outcome_of, plan_of
from replicator.restore.worker import PartitionTask, RestoreSettings
from tests.ingress.world import World
from tests.replicator.restore.restoring import TARGETS, Restoring, restorable

C = TARGETS[0]
TASK = RestoreTask(
    from_mapping({"region": "b", "s3": {"bucket": "archive"}}),
    RestoreSettings(checkpoint_topic="checkpoints", offset_map_topic="maps", scope=RecordFilter()),
)


def interrupted(records: int = 4) -> tuple[World, Segment, Restoring, str]:
    """A restore that has found a merged segment corrupt and is behind it, the segment, and the row of its task."""
    world = restorable()
    for n in range(5):
        world.put(10 * n, 10 * n + 9)
    merged = world.put(0, 19, level=1)
    world.damage(merged)
    first = Restoring(world, records=records)
    (planned,) = first.plan.partitions
    row = TASK.row(PartitionTask(plan=planned, topic_id="", clamp=False))
    while (world.checkpoint() or 0) < 20:
        first.turn(seconds=1)
    assert len(first.partitions[0].corrupt) == 1
    return world, merged, first, row


@pytest.mark.parametrize("on_worker", [False, True])
def test_what_one_attempt_found_corrupt_is_named_by_the_next_one(on_worker: bool) -> None:
    """It begins behind the segment, and does not read it."""
    world, merged, first, row = interrupted()
    again = Restoring(world, plans=[plan_of(row, world.archive, world.clock)] if on_worker else None)
    again.finish()
    outcome = outcome_of(row, again.partitions[0])
    assert list(outcome.corrupt) == first.partitions[0].corrupt
    assert outcome.corrupt[0].startswith(f"{merged}: ")
    assert (outcome.is_done, outcome.is_whole, outcome.failed) == (True, False, "")
    assert (outcome.given_up, outcome.missing, outcome.expired) == ((), (), ()), "others have its records"
    assert world.offsets(C) == list(range(50))
    (planned,) = Restoring(world).plan.partitions
    assert (planned.given_up, planned.expired, planned.came_back) == ([], [], [])


@pytest.mark.parametrize("repaired", [True, False])
def test_a_corrupt_segment_that_is_replaced_or_gone_is_none_any_more(repaired: bool) -> None:
    world, merged, _, _ = interrupted()
    world.clock.advance(1)
    world.remove(merged)
    if repaired:
        world.put(0, 19, level=1)
    again = Restoring(world)
    again.finish()
    assert RestoreOutcome.of(again.partitions[0]).is_whole
