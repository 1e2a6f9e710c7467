"""Incarnations of an archived topic: the order of their delivery, and when the next one follows.

The claims of their paths number the incarnations of a topic from 0, without a gap. An incarnation follows into the same
topic when nothing is left of the previous one, according to a complete listing that began some time after the later one
was claimed: replication between buckets keeps no order, so the last segments of an incarnation may arrive after the
first ones of the next.
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
    """`claim` is None when the path is not claimed, or the claim was not read."""

    incarnation: Incarnation
    claim: TopicClaim | None = None
    is_readable: bool = True  # the claim, if there is one

    @property
    def topic(self) -> str:
        return self.incarnation.topic

    @property
    def id(self) -> str:
        """Empty for the plain path."""
        return self.incarnation.id

    @property
    def path(self) -> str:
        return self.incarnation.path

    @property
    def number(self) -> int | None:
        """The number in the order of delivery, None if unknown. The plain path without a claim is the first: an
        ancestor's archive has no claims."""
        if self.claim is not None:
            return self.claim.number
        return None if self.id or not self.is_readable else 0

    @property
    def is_after_fork(self) -> bool:
        """Whether it is the same topic as the one before it, from a fork of its log on."""
        return self.incarnation.fork > 0 or (self.claim is not None and self.claim.fork > 0)

    def source(self, region: str, partition: int) -> SourcePartition:
        return SourcePartition.of(region, self.incarnation, partition)

    def settled_at(self, delay: timedelta) -> datetime | None:
        """When the stored segments of the earlier incarnations can be assumed complete, by the source's clock."""
        return None if self.claim is None else self.claim.claimed_at + delay


def in_order(
    incarnations: Iterable[ArchivedIncarnation],
) -> tuple[Sequence[ArchivedIncarnation], Mapping[ArchivedIncarnation, str]]:
    """The incarnations whose order is certain, and for each of the others the reason why it is not."""
    ordered: list[ArchivedIncarnation] = []
    waiting = sorted(incarnations, key=lambda incarnation: incarnation.path)
    while next_ := [incarnation for incarnation in waiting if incarnation.number == len(ordered)]:
        if len(next_) > 1:
            break
        ordered += next_
        waiting.remove(next_[0])
    return ordered, {incarnation: _why_unordered(incarnation, len(ordered), waiting) for incarnation in waiting}


def _why_unordered(incarnation: ArchivedIncarnation, missing: int, waiting: Sequence[ArchivedIncarnation]) -> str:
    if incarnation.number is None:
        why = f"its claim _control/v1/places/{incarnation.path} is missing, so its order is unknown"
    elif incarnation.number == missing:
        rivals = ", ".join(o.path for o in waiting if o.number == missing)
        why = f"the claims of {rivals} have the same number, so their order is unknown"
    else:
        why = f"the incarnation with the number {missing}, before its {incarnation.number}, is not known here"
    return (
        f"{incarnation.path} is a later incarnation of topic {incarnation.topic} and should follow the previous "
        f"one (on_recreate = 'follow'), but {why}. Copy the missing objects below _control/v1/places/ from the "
        "source's bucket, or set on_recreate = 'new-topic' to deliver each incarnation to a separate topic"
    )


def current_source(
    source: SourcePartition,
    sources: Sequence[SourcePartition],
    checkpoints: Mapping[SourcePartition, Checkpoint | CheckpointConflict],
    topic_id: str,
) -> SourcePartition:
    """The incarnation that is delivered to one partition now: the last one that was begun, since an incarnation is
    begun only after everything of the earlier ones was delivered. Only `source` and later incarnations are considered.
    Checkpoints of another incarnation of the destination, whose current id is `topic_id`, count only if there are no
    others."""
    begun = [s for s in sources[sources.index(source) :] if s in checkpoints]
    here = [s for s in begun if _is_about(checkpoints[s], topic_id)]
    return (here or begun or [source])[-1]


def _is_about(checkpoint: Checkpoint | CheckpointConflict, topic_id: str) -> bool:
    return isinstance(checkpoint, CheckpointConflict) or checkpoint.destination_topic_id in ("", topic_id)


class SuccessionStep(Enum):
    WAIT = auto()
    LIST = auto()  # a complete listing of the current incarnation must show that nothing is left
    FOLLOW = auto()


def succession_step(
    now: datetime, *, exhausted: bool, listed_at: datetime | None, settled_at: datetime | None
) -> SuccessionStep:
    """Whether the next incarnation follows now. `exhausted`: no known segment is left of the current one; `listed_at`:
    when its last complete listing began; `settled_at`: of the next one."""
    if settled_at is None or now < settled_at or not exhausted:
        return SuccessionStep.WAIT
    return SuccessionStep.FOLLOW if listed_at is not None and listed_at >= settled_at else SuccessionStep.LIST


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Deliver `source` instead of the incarnation that is delivered now."""

    source: SourcePartition
    finished: Mapping[SourcePartition, int]  # next offsets at which delivery of the earlier ones ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Succession:
    """The incarnations of one topic that go to one target partition, in the order of their delivery."""

    region: str
    partition: int
    incarnations: Sequence[ArchivedIncarnation]  # at least one

    @property
    def sources(self) -> Sequence[SourcePartition]:
        return [incarnation.source(self.region, self.partition) for incarnation in self.incarnations]

    def successor_of(self, source: SourcePartition) -> ArchivedIncarnation | None:
        later = self.sources.index(source) + 1
        return self.incarnations[later] if later < len(self.incarnations) else None

    def switch_to_begun(
        self,
        source: SourcePartition,
        checkpoints: Mapping[SourcePartition, Checkpoint | CheckpointConflict],
        topic_id: str,
    ) -> Switch | None:
        """Switch to the incarnation that an earlier owner had begun; None when that is `source`."""
        sources = self.sources
        wanted = current_source(source, sources, checkpoints, topic_id)
        if wanted == source:
            return None
        before = sources[sources.index(source) : sources.index(wanted)]
        finished = {s: c.next_offset for s in before if isinstance(c := checkpoints.get(s), Checkpoint)}
        return Switch(source=wanted, finished=dict.fromkeys(before, 0) | finished)

    def switch_to_successor(self, source: SourcePartition, successor: ArchivedIncarnation, next_offset: int) -> Switch:
        """Switch to `successor`, after all of `source` was delivered, up to `next_offset`."""
        return Switch(source=successor.source(self.region, self.partition), finished={source: next_offset})
