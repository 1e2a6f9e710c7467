"""Decides where delivery begins: reads checkpoints on a pool, and positions partitions by them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
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
    holdings: Assignment
    listings: SegmentLister
    notes: ParkedReporter
    clock: Clock
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
                    for held in asked:
                        held.failures.succeeded(Attempt.POSITION)
                    found += [(held, positions) for held in asked]
                case _:
                    assert_never(outcome)
        return [(held, positions) for held, positions in found if held in self.holdings]

    def is_asked(self, held: AssignedPartition) -> bool:
        """Whether a request for it is in flight."""
        return held in self._lookups.keys

    def ask(self, now: datetime) -> None:
        """Read the checkpoints of all waiting partitions, in one request."""
        asked = self._lookups.keys
        waiting = [h for h in self.holdings if h not in asked and h.is_due(now)]
        if waiting:
            targets = list(dict.fromkeys(h.assignment.target for h in waiting))  # several sources may share one
            self._lookups.ask(waiting, self._read, targets)

    def position(
        self, held: AssignedPartition, positions: Positions, lives: Sequence[SourcePartition]
    ) -> Sequence[Effect]:
        """Begin the partition, or begin it again, at its checkpoint; or stop it. `lives`: all incarnations with the
        same target. Returns effects of its new sequencer, if it has one."""
        word = positions.get(held.assignment.key)
        checkpoint = usable(held, None if has_only_begun_elsewhere(held, word) else word)
        if isinstance(checkpoint, Unusable):
            self.holdings.stop(held, checkpoint.reason)
            ask_at = self.clock.now() + held.policy.pause(0, refused=True)
            held.refuse(ask_at, is_forgotten=checkpoint.is_forgotten)
            return []
        if is_operators(checkpoint, held.checkpoint) or _has_moved(checkpoint, held.checkpointed):
            held.refusals = 0  # the cause of the stop was decided, or delivered in a round with unknown outcome
        held.positioned(checkpoint)
        if checkpoint is not None or not held.refusals:  # else an operator may still have to seed it
            for life in lives:
                self.notes.started(CheckpointKey(life, held.assignment.target.topic))
        if not held.refusals:
            self.holdings.resume(held)  # else it has to get past the cause of the stop first
        return self._begin(held, checkpoint)

    def _begin(self, held: AssignedPartition, checkpoint: Checkpoint | None) -> Sequence[Effect]:
        next_offset = None if checkpoint is None else checkpoint.next_offset
        is_known = held.is_listed and next_offset is not None and next_offset >= held.view.next_offset
        if not is_known:
            held.forget_view()
        sequencer = Sequencer(
            held.policy,
            held.view,
            next_offset,
            is_begun=checkpoint is not None,
            waited=self.checkpoints.waiting().get(held.assignment.key),
        )
        held.deliver(sequencer)
        log.info(
            "partition_begins",
            extra=held.fields | {log_fields.OFFSET: next_offset if next_offset is not None else "first segment"},
        )
        if is_known:  # positioned again: the view stays valid, and events keep it current
            return sequencer.changed(self.clock.now())
        self.listings.begin(held, sequencer, full=False, reason="start")
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
    for held in asked:
        before = held.failures.failed(Attempt.POSITION, str(error), now, is_refusal=refused)
        held.reposition(now + held.policy.pause(before, refused=refused and before > 0))


@dataclass(frozen=True, slots=True)
class Unusable:
    """There is no position, or it is of another topic than the current one: an operator has to seed it."""

    reason: str
    is_forgotten: bool = False  # there was a position, and it is gone


def usable(held: AssignedPartition, word: Checkpoint | CheckpointConflict | None) -> Checkpoint | Unusable | None:
    """The checkpoint to continue from; None: there is none, and delivery begins from the start."""
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
        "created again, while this partition was being delivered. Seed the position: "
        f"{seed_at_the_end_of(held.assignment.source)}"
    )


def _recreated(held: AssignedPartition, checkpoint: Checkpoint) -> str:
    then, now = checkpoint.destination_topic_id, held.assignment.target_topic_id
    return (
        f"the checkpoint is of a topic {held.assignment.target.topic} with id {then}, the one there now has id {now}: "
        f"it was created again, and going on would leave out everything before offset {checkpoint.next_offset}. Seed "
        f"its position: `replicator checkpoints seed {held.assignment.source} --offset N`, 0 for everything "
        "that is archived"
    )


def has_only_begun_elsewhere(held: AssignedPartition, word: Checkpoint | CheckpointConflict | None) -> bool:
    """Whether only the first checkpoint was written, and for another topic than the current one."""
    if not isinstance(word, Checkpoint) or word.next_offset != word.begun_at:
        return False
    return is_of_another_topic(held, word)


def is_of_another_topic(held: AssignedPartition, checkpoint: Checkpoint) -> bool:
    then, now = checkpoint.destination_topic_id, held.assignment.target_topic_id
    return bool(then) and bool(now) and then != now


def is_of_this_topic(held: AssignedPartition, word: Checkpoint | CheckpointConflict | None) -> bool:
    """Whether the checkpoint is of the current topic."""
    return isinstance(word, Checkpoint) and not is_of_another_topic(held, word)


def _has_moved(word: Checkpoint | None, known: int | None) -> bool:
    """Whether records were delivered in a round with unknown outcome. `known`: the next offset known before."""
    if word is None:
        return False
    before = word.begun_at if known is None else known
    return before is not None and word.next_offset > before


def is_operators(word: Checkpoint | CheckpointConflict | None, known: Checkpoint | None) -> bool:
    """Whether the checkpoint is a new one by an operator."""
    return isinstance(word, Checkpoint) and word.author is Author.SEED and word != known
