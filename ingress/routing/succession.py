"""Incarnations of an archived topic: in which order they are delivered, and when the next one follows.

The claims of their paths number the incarnations of a topic from 0, without a gap. One follows another into the same
topic when nothing of the one before is left, by a complete listing that was begun some time after the later one was
claimed: what a replicated bucket receives keeps no order, so the last segments may come after the first ones of the
next incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from formats.control.claim import TopicClaim
from formats.errors import CheckpointConflict
from formats.incarnation import Incarnation
from formats.messages.delivery_checkpoint import Checkpoint
from formats.segment import SourcePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedIncarnation:
    """`claim` is None when its path is not claimed, or was not asked for."""

    incarnation: Incarnation
    claim: TopicClaim | None = None
    is_readable: bool = True  # the claim, if there is one

    @property
    def topic(self) -> str:
        return self.incarnation.topic

    @property
    def id(self) -> str:
        """Empty: it has the plain path."""
        return self.incarnation.id

    @property
    def path(self) -> str:
        return self.incarnation.path

    @property
    def number(self) -> int | None:
        """The plain path is the first where nothing says otherwise: an ancestor's archive has no claims."""
        if self.claim is not None:
            return self.claim.number
        return None if self.id or not self.is_readable else 0

    def source(self, region: str, partition: int) -> SourcePartition:
        return SourcePartition.of(region, self.incarnation, partition)

    def settled_at(self, delay: timedelta) -> datetime | None:
        """When what is stored of the lives before it can be taken as all of it. By the source's clock."""
        return None if self.claim is None else self.claim.claimed_at + delay


def in_order(
    lives: Iterable[ArchivedIncarnation],
) -> tuple[Sequence[ArchivedIncarnation], Mapping[ArchivedIncarnation, str]]:
    """The lives whose order is certain, and why it is not for each of the others."""
    ordered: list[ArchivedIncarnation] = []
    waiting = sorted(lives, key=lambda life: life.path)
    while next_ := [life for life in waiting if life.number == len(ordered)]:
        if len(next_) > 1:
            break
        ordered += next_
        waiting.remove(next_[0])
    return ordered, {life: _why_unordered(life, len(ordered), waiting) for life in waiting}


def _why_unordered(life: ArchivedIncarnation, missing: int, waiting: Sequence[ArchivedIncarnation]) -> str:
    if life.number is None:
        why = f"its claim _control/v1/places/{life.path} is missing, so nothing says when it was"
    elif life.number == missing:
        rivals = ", ".join(o.path for o in waiting if o.number == missing)
        why = f"the claims of {rivals} have the same number, so nothing says which comes first"
    else:
        why = f"which life has the number {missing}, before its {life.number}, is not known here"
    return (
        f"{life.path} is a later life of topic {life.topic} and should follow the one before (on_recreate = 'follow'),"
        f" but {why}. Copy what is missing below _control/v1/places/ of the source's bucket, or set on_recreate = "
        "'new-topic' to deliver each life to a topic of its own"
    )


def at_hand(
    held: SourcePartition,
    sources: Sequence[SourcePartition],
    checkpoints: Mapping[SourcePartition, Checkpoint | CheckpointConflict],
    topic_id: str,
) -> SourcePartition:
    """Which of the lives that go to one partition is delivered now: the last one that was begun, since whoever began
    it had delivered everything of those before. `held` and those behind it are asked for; checkpoints of another life
    of the destination (`topic_id` is of the one there now) count only when there are no others."""
    begun = [s for s in sources[sources.index(held) :] if s in checkpoints]
    here = [s for s in begun if _is_about(checkpoints[s], topic_id)]
    return (here or begun or [held])[-1]


def _is_about(checkpoint: Checkpoint | CheckpointConflict, topic_id: str) -> bool:
    return isinstance(checkpoint, CheckpointConflict) or checkpoint.destination_topic_id in ("", topic_id)


class Turn(Enum):
    WAIT = auto()
    LOOK = auto()  # a complete listing of the life at hand must say that nothing is left
    FOLLOW = auto()


def turn(now: datetime, *, exhausted: bool, listed_at: datetime | None, settled_at: datetime | None) -> Turn:
    """Whether the next life's turn has come. `exhausted`: nothing known is left of the one at hand; `listed_at`: when
    its last complete listing was begun; `settled_at`: the next one's."""
    if settled_at is None or now < settled_at or not exhausted:
        return Turn.WAIT
    return Turn.FOLLOW if listed_at is not None and listed_at >= settled_at else Turn.LOOK


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Deliver `source` instead of the incarnation that is delivered now."""

    source: SourcePartition
    finished: Mapping[SourcePartition, int]  # next offsets at which the delivery of those before it has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Succession:
    """The incarnations of one topic that go to one target partition, in the order of their delivery."""

    region: str
    partition: int
    lives: Sequence[ArchivedIncarnation]  # at least one

    @property
    def sources(self) -> Sequence[SourcePartition]:
        return [life.source(self.region, self.partition) for life in self.lives]

    def behind(self, source: SourcePartition) -> ArchivedIncarnation | None:
        later = self.sources.index(source) + 1
        return self.lives[later] if later < len(self.lives) else None

    def begun(
        self,
        source: SourcePartition,
        checkpoints: Mapping[SourcePartition, Checkpoint | CheckpointConflict],
        topic_id: str,
    ) -> Switch | None:
        """To the one that whoever delivered before had begun; None: `source` it is."""
        sources = self.sources
        wanted = at_hand(source, sources, checkpoints, topic_id)
        if wanted == source:
            return None
        before = sources[sources.index(source) : sources.index(wanted)]
        finished = {s: c.next_offset for s in before if isinstance(c := checkpoints.get(s), Checkpoint)}
        return Switch(source=wanted, finished=dict.fromkeys(before, 0) | finished)

    def followed(self, source: SourcePartition, life: ArchivedIncarnation, next_offset: int) -> Switch:
        """To `life`, behind all of `source`, which is delivered up to `next_offset`."""
        return Switch(source=life.source(self.region, self.partition), finished={source: next_offset})
