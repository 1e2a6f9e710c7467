"""Checks, before a partition begins, whether its target partition holds records that no checkpoint accounts for.

    first offset chosen ──> read, on a pool ──> it has a position by now ─────────> that position counts
                                            ├─> no records ───────────────────────> the first checkpoint is written
                                            ├─> records, and a position of another
                                            │   source with the same target ──────> the first checkpoint is written
                                            └─> records, and no position ─────────> an operator has to decide

A partition's first checkpoint is written before its first record. So if it holds committed records, and no source has a
checkpoint for it, its delivery was not begun by a writer to this checkpoint topic, whatever was killed, and when.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import assert_never

from formats.errors import ReplicatorError
from formats.messages.delivery_checkpoint import seed_at_the_end_of
from infra.contracts.cluster import Occupancy, TargetRecords, TopicPartition
from infra.contracts.internal_topics import CheckpointStore
from infra.runtime.failures import Attempt
from infra.runtime.lookups import Answer, Failed, Lookups
from ingress import partition_log
from ingress.assigned_partition import AssignedPartition
from ingress.checkpoint_lookup import Positions, has_only_begun_elsewhere
from ingress.delivery.rounds import Delivery
from ingress.sequencer import Sequencer

EMPTY = Occupancy(holds_records=False)
GONE = Occupancy(None, "there is no such partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """A partition that waits for its first checkpoint."""

    assigned: AssignedPartition
    sequencer: Sequencer  # that requested it; void once the partition has another sequencer
    offset: int

    @property
    def is_current(self) -> bool:
        return self.assigned.sequencer is self.sequencer and self.sequencer.beginning


Obstacle = Occupancy | ReplicatorError | None
"""What the target holds, or why that is unknown; None: the partition has got a position meanwhile."""


@dataclass(frozen=True, slots=True)
class _Seen:
    occupancies: Mapping[TopicPartition, Occupancy]
    positions: Positions  # read after the occupancies


@dataclass(slots=True, kw_only=True)
class ForeignDataCheck:
    """Use from the controller's thread only; the requests run on `pool`."""

    records: TargetRecords
    checkpoints: CheckpointStore
    # whether one of the positions explains the records in its target
    explains: Callable[[AssignedPartition, Positions], bool]
    is_assigned: Callable[[AssignedPartition], bool]  # whether it is still assigned
    pool: Executor
    delivery: Delivery
    _wanted: list[Beginning] = field(default_factory=list)
    _asked: Lookups[Beginning, _Seen] = field(init=False)

    def __post_init__(self) -> None:
        self._asked = Lookups(self.pool)

    def begin(self, beginning: Beginning, *, appends: bool) -> None:
        """Handle `Begin` of a sequencer. `appends`: begin whatever the target partition holds."""
        if appends:
            self._write(beginning)
        else:
            self._wanted.append(beginning)

    def poll(self) -> list[tuple[Beginning, Obstacle]]:
        """Check all waiting partitions in one request, except those whose last request failed, which are checked
        separately: one partition without a leader fails the whole request. Returns the answers that forbid to begin."""
        alone = [one for one in self._wanted if one.assigned.failures.is_failing(Attempt.TARGET_CHECK)]
        together = [one for one in self._wanted if not one.assigned.failures.is_failing(Attempt.TARGET_CHECK)]
        for asking in [*([one] for one in alone), *([together] if together else [])]:
            targets = {one.assigned.delivery_target.target for one in asking}
            self._asked.ask(asking, self._read, targets)
        self._wanted = []
        refused: list[tuple[Beginning, Obstacle]] = []
        for asked, outcome in self._asked.collect():
            for one, answer in self._answers(asked, outcome):
                if not isinstance(answer, ReplicatorError):
                    one.assigned.failures.succeeded(Attempt.TARGET_CHECK)
                if answer == EMPTY:
                    self._write(one)
                else:
                    refused.append((one, answer))
        return refused

    def _read(self, targets: Collection[TopicPartition]) -> _Seen:
        """Read the records first: their checkpoints were written before them."""
        occupancies = self.records.occupancies(targets)
        return _Seen(occupancies, self.checkpoints.read())

    def _answers(
        self, asked: Sequence[Beginning], outcome: Answer[_Seen] | Failed
    ) -> Iterator[tuple[Beginning, Obstacle]]:
        """The answers for partitions that still wait to begin."""
        still = [one for one in asked if self.is_assigned(one.assigned) and one.is_current]
        match outcome:
            case Failed(error=error):
                yield from ((one, error) for one in still)
            case Answer(value=seen):
                yield from ((one, self._seen_of(one.assigned, seen)) for one in still)
            case _:
                assert_never(outcome)

    def _seen_of(self, assigned: AssignedPartition, seen: _Seen) -> Occupancy | None:
        own = seen.positions.get(assigned.delivery_target.key)
        if own is not None and not has_only_begun_elsewhere(assigned, own):
            return None  # an operator's, for example: a first checkpoint would hide it
        if self.explains(assigned, seen.positions):
            return EMPTY
        return seen.occupancies.get(assigned.delivery_target.target, GONE)

    def _write(self, beginning: Beginning) -> None:
        assigned = beginning.assigned
        assigned.begins(beginning.offset)
        partition_log.begins(assigned, beginning.offset)
        self.delivery.begin(assigned.delivery_target, ())


def foreign_data(assigned: AssignedPartition, checkpoint_topic: str, occupancy: Occupancy) -> str:
    """Why nothing is delivered to the target, and what to do."""
    source, target = assigned.delivery_target.source, assigned.delivery_target.target
    if occupancy.holds_records:
        what = f"{target} holds records"
    else:
        what = f"whether {target} holds records is not known ({occupancy.reason})"
    return (
        f"{what}, and checkpoint topic {checkpoint_topic} has no position of {source} there. If they were delivered "
        "from here, and the checkpoint topic was deleted or is another one than then, seed the position: "
        f"{seed_at_the_end_of(source)}. If they have another origin, name another "
        'destination_topic, or set on_foreign_data = "append" for this source, which adds everything archived after '
        "them"
    )
