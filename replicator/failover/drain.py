"""Waits until what has arrived in the bucket is delivered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from formats.errors import CheckpointConflict, ReplicatorError
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from infra.contracts.internal_topics import CheckpointStore
from infra.runtime.lifecycle import Deadline, Stop
from replicator.failover.plan import ArrivingPartition, FailoverPlan

ASK_AGAIN = timedelta(seconds=1)


class FailoverStopped(ReplicatorError):
    pass


class NotDelivered(ReplicatorError):
    """What has arrived was not delivered within the time given."""


def wait_until_delivered(plan: FailoverPlan, checkpoints: CheckpointStore, deadline: Deadline, stop: Stop) -> None:
    """Until delivery has reached what was stored when `plan` was made. Raises NotDelivered at the deadline,
    FailoverStopped, BrokerUnavailable."""
    behind = [one for one in plan.partitions if one.to_deliver]
    while behind:
        if deadline.expired:
            raise NotDelivered(_not_delivered(plan, behind, deadline.budget))
        if stop.wait(min(ASK_AGAIN, deadline.left)):
            raise FailoverStopped("stopped while delivery was waited for; the same command goes on")
        found = checkpoints.read()
        behind = [one for one in behind if not _is_reached(found.get(CheckpointKey(one.source, one.target.topic)), one)]


def _is_reached(found: Checkpoint | CheckpointConflict | None, state: ArrivingPartition) -> bool:
    return isinstance(found, Checkpoint) and found.next_offset >= state.reach


def _not_delivered(plan: FailoverPlan, behind: Sequence[ArrivingPartition], waited: timedelta) -> str:
    first = behind[0]
    why = f"it was waited for {waited.total_seconds():.0f} s"
    why = why if plan.members else f"{why}, and no ingress ran at the beginning"
    why = f"{why}; {first.problem}" if first.problem else why
    return (
        f"{sum(one.to_deliver for one in behind)} offsets of {len(behind)} partitions are stored here and not "
        f"delivered, the first of {first.source}: {why}. The same command goes on waiting; with --give-up it goes on "
        "without them"
    )
