"""Decides where delivery begins: reads checkpoints on a pool, and positions partitions by them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime
from typing import assert_never

from formats.errors import CheckpointConflict, OtherGroup, ReplicatorError, TargetError
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey, seed_at_the_end_of
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import Placement
from infra.contracts.internal_topics import CheckpointStore, ParkedReporter
from infra.runtime import log_fields
from infra.runtime.failures import Attempt
from infra.runtime.lifecycle import Clock
from infra.runtime.lookups import Answer, Failed, Lookups
from ingress.assigned_partition import AssignedPartition
from ingress.assignment import Assignment
from ingress.group_ownership import GroupOwnership
from ingress.segment_lister import SegmentLister
from ingress.sequencer import Effect, Sequencer

log = logging.getLogger(__name__)

Positions = Mapping[CheckpointKey, Checkpoint | CheckpointConflict]


@dataclass(slots=True, kw_only=True)
class CheckpointLookup:
    """Use from the controller's thread only; the requests run on `pool`."""

    placement: Placement
    checkpoints: CheckpointStore
    ownership: GroupOwnership
    pool: Executor
    assignment: Assignment
    lister: SegmentLister
    notes: ParkedReporter
    clock: Clock
    may_still_write: Callable[[TopicPartition], bool]  # `Delivery.may_still_write`
    _lookups: Lookups[AssignedPartition, Positions] = field(init=False)

    def __post_init__(self) -> None:
        self._lookups = Lookups(self.pool)

    def answers(self, now: datetime) -> list[tuple[AssignedPartition, Positions]]:
        """The answers for partitions that are still assigned. Raises OtherGroup when the checkpoint topic belongs to
        another group by now."""
        found: list[tuple[AssignedPartition, Positions]] = []
        for asked, outcome in self._lookups.collect():
            match outcome:
                case Failed(error=OtherGroup() as error):
                    raise error
                case Failed(error=error):
                    _unknown(asked, error, now)
                case Answer(value=positions):
                    for assigned in asked:
                        assigned.failures.succeeded(Attempt.POSITION)
                    found += [(assigned, positions) for assigned in asked]
                case _:
                    assert_never(outcome)
        return [(assigned, positions) for assigned, positions in found if assigned in self.assignment]

    def is_asked(self, assigned: AssignedPartition) -> bool:
        """Whether a request for it is in flight."""
        return assigned in self._lookups.keys

    def ask(self, now: datetime) -> None:
        """Read the checkpoints of all waiting partitions, in one request. Those wait that a round of this process may
        still move: what it delivers would be delivered again."""
        asked = self._lookups.keys
        due = [h for h in self.assignment.busy() if h not in asked and h.is_due(now)]
        waiting = [h for h in due if not self.may_still_write(h.delivery_target.target)]
        if waiting:
            targets = list(dict.fromkeys(h.delivery_target.target for h in waiting))  # several sources may share one
            self._lookups.ask(waiting, self._read, targets)

    def position(
        self,
        assigned: AssignedPartition,
        positions: Positions,
        sources: Sequence[SourcePartition],
        *,
        overtaken: str = "",
    ) -> Sequence[Effect]:
        """Begin the partition, or begin it again, at its checkpoint; or stop it. `sources`: of all incarnations with
        the same target; `overtaken`: see IncarnationSwitch. Returns effects of its new sequencer, if it has one."""
        found = positions.get(assigned.delivery_target.key)
        checkpoint = usable(assigned, None if has_only_begun_elsewhere(assigned, found) else found, sources[0])
        if overtaken and not isinstance(checkpoint, Unusable):
            checkpoint = Unusable(overtaken)
        if isinstance(checkpoint, Unusable):
            self.assignment.stop(assigned, checkpoint.reason)
            ask_at = self.clock.now() + assigned.policy.pause(0, refused=True)
            assigned.refuse(ask_at, is_forgotten=checkpoint.is_forgotten)
            return []
        if is_operators(checkpoint, assigned.checkpoint) or _has_moved(checkpoint, assigned.checkpointed):
            assigned.refusals = 0  # the cause of the stop was decided, or delivered in a round with unknown outcome
            assigned.failures.succeeded(Attempt.DELIVERY)
        if checkpoint is not None:
            assigned.failures.succeeded(Attempt.TARGET_CHECK)  # only a partition without a position is checked
        assigned.positioned(checkpoint)
        if checkpoint is not None or not assigned.refusals:  # else an operator may still have to seed it
            for source in sources:
                self.notes.started(CheckpointKey(source, assigned.delivery_target.target.topic))
        if not assigned.refusals:
            self.assignment.resume(assigned)  # else it has to get past the cause of the stop first
        return self._begin(assigned, checkpoint)

    def _begin(self, assigned: AssignedPartition, checkpoint: Checkpoint | None) -> Sequence[Effect]:
        next_offset = None if checkpoint is None else checkpoint.next_offset
        is_known = assigned.is_listed and next_offset is not None and next_offset >= assigned.view.next_offset
        if not is_known:
            assigned.forget_view()
        sequencer = Sequencer(
            assigned.policy,
            assigned.view,
            next_offset,
            is_begun=checkpoint is not None,
            waited=self.checkpoints.waiting().get(assigned.delivery_target.key),
        )
        assigned.deliver(sequencer)
        log.info(
            "partition_begins",
            extra=assigned.fields | {log_fields.OFFSET: next_offset if next_offset is not None else "first segment"},
        )
        if is_known:  # positioned again: the view stays valid, and events keep it current
            return sequencer.changed(self.clock.now())
        self.lister.start(assigned, sequencer)
        return []

    def _read(self, targets: Sequence[TopicPartition]) -> Positions:
        """The positions, read after the partitions were assigned. First waits for the end of the previous owner's
        transactions: after that it has written its checkpoint, or never will."""
        self.placement.wait_until_settled(targets)
        positions = self.checkpoints.read()
        # a group that takes over writes its claim before it reads the positions, so one of the two sees the other
        self.ownership.confirm()
        return positions


def _unknown(asked: Sequence[AssignedPartition], error: ReplicatorError, now: datetime) -> None:
    log.warning("checkpoints_unknown", extra={log_fields.ERROR: str(error), log_fields.COUNT: len(asked)})
    refused = isinstance(error, TargetError)
    for assigned in asked:
        before = assigned.failures.failed(Attempt.POSITION, str(error), now, is_refusal=refused)
        assigned.reposition(now + assigned.policy.pause(before, refused=refused and before > 0))


@dataclass(frozen=True, slots=True)
class Unusable:
    """There is no position, or it is of another topic than the current one: an operator has to seed it."""

    reason: str
    is_forgotten: bool = False  # there was a position, and it is gone


def usable(
    assigned: AssignedPartition, found: Checkpoint | CheckpointConflict | None, first: SourcePartition
) -> Checkpoint | Unusable | None:
    """The checkpoint to continue from; None: there is none, and delivery begins from the start. `first`: the first
    incarnation with the same target."""
    match found:
        case None:
            return None if assigned.checkpointed is None else Unusable(_forgotten(assigned), is_forgotten=True)
        case CheckpointConflict():
            return Unusable(str(found))
        case Checkpoint():
            return Unusable(_recreated(assigned, found, first)) if is_of_another_topic(assigned, found) else found
        case _:
            assert_never(found)


def _forgotten(assigned: AssignedPartition) -> str:
    return (
        f"its checkpoint is gone, the last one known is {assigned.checkpointed}: the checkpoint topic was deleted, or "
        "created again, while this partition was being delivered. Seed the position: "
        f"{seed_at_the_end_of(assigned.delivery_target.source)}"
    )


def _recreated(assigned: AssignedPartition, checkpoint: Checkpoint, first: SourcePartition) -> str:
    target = assigned.delivery_target
    everything = "0 for everything that is archived"
    if first != target.source:
        everything = (
            "0 for everything that is archived of this incarnation. For everything of the earlier ones, too, stop "
            f"ingress, run `replicator checkpoints seed {first} --offset 0`, start ingress, and seed each later one "
            "once it stops here"
        )
    then, now = checkpoint.destination_topic_id, target.target_topic_id
    return (
        f"the checkpoint is of a topic {target.target.topic} with id {then}, the one there now has id "
        f"{now}: it was created again, and continuing would omit everything before offset {checkpoint.next_offset}. "
        f"Seed its position: `replicator checkpoints seed {target.source} --offset N`, {everything}"
    )


def has_only_begun_elsewhere(assigned: AssignedPartition, found: Checkpoint | CheckpointConflict | None) -> bool:
    """Whether only the first checkpoint was written, and for another topic than the current one."""
    if not isinstance(found, Checkpoint) or found.next_offset != found.begun_at:
        return False
    return is_of_another_topic(assigned, found)


def is_of_another_topic(assigned: AssignedPartition, checkpoint: Checkpoint) -> bool:
    then, now = checkpoint.destination_topic_id, assigned.delivery_target.target_topic_id
    return bool(then) and bool(now) and then != now


def is_of_this_topic(assigned: AssignedPartition, found: Checkpoint | CheckpointConflict | None) -> bool:
    """Whether the checkpoint is of the current topic."""
    return isinstance(found, Checkpoint) and not is_of_another_topic(assigned, found)


def _has_moved(found: Checkpoint | None, known: int | None) -> bool:
    """Whether records were delivered in a round with unknown outcome. `known`: the next offset known before."""
    if found is None:
        return False
    before = found.begun_at if known is None else known
    return before is not None and found.next_offset > before


def is_operators(found: Checkpoint | CheckpointConflict | None, known: Checkpoint | None) -> bool:
    """Whether the checkpoint is a new one by an operator."""
    return isinstance(found, Checkpoint) and found.author is Author.SEED and found != known
