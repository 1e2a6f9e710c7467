"""Partitions that do not know where to begin: asks for their checkpoints on a pool, and takes in the answers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import datetime

from formats.errors import CheckpointConflict, OtherGroup, ReplicatorError, TargetError
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import Placement
from infra.contracts.internal_topics import CheckpointStore
from infra.runtime import log_fields
from infra.runtime.failures import Attempt
from ingress.assigned_partition import AssignedPartition
from ingress.group_ownership import GroupOwnership

log = logging.getLogger(__name__)

Positions = Mapping[CheckpointKey, Checkpoint | CheckpointConflict]


@dataclass(slots=True)
class CheckpointLookup:
    """The controller's thread calls; the questions run on `pool`."""

    placement: Placement
    checkpoints: CheckpointStore
    ownership: GroupOwnership
    pool: Executor
    _asked: list[tuple[list[AssignedPartition], Future[Positions]]] = field(default_factory=list)

    def answers(self, now: datetime) -> list[tuple[AssignedPartition, Positions]]:
        """Those that came; of partitions that moved away since, too. Raises OtherGroup when the checkpoint topic is
        another group's by now."""
        found: list[tuple[AssignedPartition, Positions]] = []
        for asked in [a for a in self._asked if a[1].done()]:
            self._asked.remove(asked)
            found += self._answered(*asked, now)
        return found

    def ask(self, helds: Iterable[AssignedPartition], now: datetime) -> None:
        """For all that wait, at once."""
        waiting = [
            h for h in helds if h.sequencer is None and not h.resolving and (h.retry_at is None or now >= h.retry_at)
        ]
        if waiting:
            for held in waiting:
                held.resolving = True
            targets = list(dict.fromkeys(h.assignment.target for h in waiting))  # several sources may share one
            self._asked.append((waiting, self.pool.submit(self._read, targets)))

    def _answered(
        self, helds: list[AssignedPartition], future: Future[Positions], now: datetime
    ) -> list[tuple[AssignedPartition, Positions]]:
        for held in helds:
            held.resolving = False
        try:
            positions = future.result()
        except OtherGroup:
            raise
        except ReplicatorError as error:
            log.warning("checkpoints_unknown", extra={log_fields.ERROR: str(error), log_fields.COUNT: len(helds)})
            refused = isinstance(error, TargetError)
            for held in helds:
                before = held.failures.failed(Attempt.POSITION, str(error), now, is_refusal=refused)
                held.retry_at = now + held.policy.pause(before, refused=refused and before > 0)
            return []
        for held in helds:
            held.failures.worked(Attempt.POSITION)
        return [(held, positions) for held in helds]

    def _read(self, targets: Sequence[TopicPartition]) -> Positions:
        """Asked after the partitions were assigned. First the end of whatever the owner before us had under way: after
        that it has checkpointed, or never will."""
        self.placement.settled(targets)
        positions = self.checkpoints.read()
        # a group that takes over writes its claim before it reads its positions, so one of both sees the other
        self.ownership.confirm()
        return positions


def unusable(held: AssignedPartition, checkpoint: Checkpoint | CheckpointConflict) -> str:
    """Why it is no position, or is not about the topic that is there now; empty when it is."""
    if isinstance(checkpoint, CheckpointConflict):
        return str(checkpoint)
    if not _is_of_another_topic(held, checkpoint):
        return ""
    then, now = checkpoint.destination_topic_id, held.assignment.target_topic_id
    return (
        f"the checkpoint is of a topic {held.assignment.target.topic} with id {then}, the one there now has id {now}: "
        f"it was created again, and going on would leave out everything before offset {checkpoint.next_offset}. Say "
        f"where to begin in it: `replicator checkpoints seed {held.assignment.source} --offset N`, 0 for everything "
        "that is archived"
    )


def has_only_begun_elsewhere(held: AssignedPartition, word: Checkpoint | CheckpointConflict | None) -> bool:
    """Whether nothing but its first checkpoint was written, and of another topic than the one that is there now."""
    if not isinstance(word, Checkpoint) or word.next_offset != word.begun_at:
        return False
    return _is_of_another_topic(held, word)


def _is_of_another_topic(held: AssignedPartition, checkpoint: Checkpoint) -> bool:
    then, now = checkpoint.destination_topic_id, held.assignment.target_topic_id
    return bool(then) and bool(now) and then != now
