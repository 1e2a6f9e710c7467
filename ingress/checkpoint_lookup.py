"""Partitions that do not know where to begin: asks for their checkpoints on a pool, and takes in the answers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime
from typing import assert_never

from formats.errors import CheckpointConflict, OtherGroup, ReplicatorError, TargetError
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey, seed_at_the_end_of
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import Placement
from infra.contracts.internal_topics import CheckpointStore
from infra.runtime import log_fields
from infra.runtime.failures import Attempt
from infra.runtime.lookups import Answer, Failed, Lookups
from ingress.assigned_partition import AssignedPartition
from ingress.assignment import Assignment
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
    _lookups: Lookups[AssignedPartition, Positions] = field(init=False)

    def __post_init__(self) -> None:
        self._lookups = Lookups(self.pool)

    def answers(self, partitions: Assignment, now: datetime) -> list[tuple[AssignedPartition, Positions]]:
        """Those that came, of partitions that are still assigned. Raises OtherGroup when the checkpoint topic is
        another group's by now."""
        found: list[tuple[AssignedPartition, Positions]] = []
        for asked, outcome in self._lookups.take_in():
            match outcome:
                case Failed(error=OtherGroup() as error):
                    raise error
                case Failed(error=error):
                    _unknown(asked, error, now)
                case Answer(value=positions):
                    for held in asked:
                        held.failures.worked(Attempt.POSITION)
                    found += [(held, positions) for held in asked]
                case _:
                    assert_never(outcome)
        return [(held, positions) for held, positions in found if held in partitions]

    def is_asked(self, held: AssignedPartition) -> bool:
        """A question about it is under way."""
        return held in self._lookups.keys

    def ask(self, partitions: Iterable[AssignedPartition], now: datetime) -> None:
        """For all that wait, at once."""
        asked = self._lookups.keys
        waiting = [h for h in partitions if h not in asked and h.is_due(now)]
        if waiting:
            targets = list(dict.fromkeys(h.assignment.target for h in waiting))  # several sources may share one
            self._lookups.ask(waiting, self._read, targets)

    def _read(self, targets: Sequence[TopicPartition]) -> Positions:
        """Asked after the partitions were assigned. First the end of whatever the owner before us had under way: after
        that it has checkpointed, or never will."""
        self.placement.settled(targets)
        positions = self.checkpoints.read()
        # a group that takes over writes its claim before it reads its positions, so one of both sees the other
        self.ownership.confirm()
        return positions


def _unknown(asked: Sequence[AssignedPartition], error: ReplicatorError, now: datetime) -> None:
    log.warning("checkpoints_unknown", extra={log_fields.ERROR: str(error), log_fields.COUNT: len(asked)})
    refused = isinstance(error, TargetError)
    for held in asked:
        before = held.failures.failed(Attempt.POSITION, str(error), now, is_refusal=refused)
        held.reposition(now + held.policy.pause(before, refused=refused and before > 0))


@dataclass(frozen=True, slots=True)
class Unusable:
    """No position, or not about the topic that is there now: an operator has to say where to go on."""

    reason: str
    is_forgotten: bool = False  # there was one, and it is gone


def usable(held: AssignedPartition, word: Checkpoint | CheckpointConflict | None) -> Checkpoint | Unusable | None:
    """The checkpoint to go on from; None: delivery begins anew."""
    match word:
        case None:
            return None if held.checkpointed is None else Unusable(_forgotten(held), is_forgotten=True)
        case CheckpointConflict():
            return Unusable(str(word))
        case Checkpoint():
            return Unusable(_recreated(held, word)) if is_of_another_topic(held, word) else word
        case _:
            assert_never(word)


def _forgotten(held: AssignedPartition) -> str:
    return (
        f"its checkpoint is gone, the last one known is {held.checkpointed}: the checkpoint topic was deleted, or "
        "created again, while this partition was being delivered. Say where to go on: "
        f"{seed_at_the_end_of(held.assignment.source)}"
    )


def _recreated(held: AssignedPartition, checkpoint: Checkpoint) -> str:
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
    return is_of_another_topic(held, word)


def is_of_another_topic(held: AssignedPartition, checkpoint: Checkpoint) -> bool:
    then, now = checkpoint.destination_topic_id, held.assignment.target_topic_id
    return bool(then) and bool(now) and then != now
