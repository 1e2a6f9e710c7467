"""When the first copy of a topic is through: then its retention may be the source's, and not before.

    created ──first_segment_delay──> the archive's ends are noted ──every checkpoint is there──> through, for good

Until then the oldest records may still have to be delivered, and the target would delete them as they arrive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.coverage import end_of
from formats.incarnation import Incarnation
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.messages.ledger import OwnedTopic
from formats.segment import SourcePartition
from infra.archive.segments import SegmentStore

ASK_AGAIN = timedelta(minutes=5)  # whether something is stored now


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTopic:
    """A destination whose first copy may be under way."""

    owned: OwnedTopic
    sources: Sequence[tuple[str, Incarnation]]  # region and incarnation of each of its sources
    delay: timedelta  # after its creation, until everything that was stored before has arrived in this bucket


@dataclass(slots=True)
class FirstCopies:
    """Use from one thread at a time. Raises StoreUnavailable."""

    store: SegmentStore
    _goals: dict[tuple[str, str], Mapping[CheckpointKey, int]] = field(default_factory=dict)  # by name and topic id
    _ask_at: dict[tuple[str, str], datetime] = field(default_factory=dict)  # of those that nothing is stored of

    def is_through(self, topic: CopiedTopic, positions: Mapping[CheckpointKey, object], now: datetime) -> bool:
        """`positions`: the checkpoints of all processes. The archive is listed once."""
        if topic.owned.is_copied:
            return True
        if now < topic.owned.at + topic.delay:
            return False
        key = (topic.owned.name, topic.owned.topic_id)
        if now < self._ask_at.get(key, now):
            return False
        goals = self._goals.get(key) or self._ends(topic)
        if not goals:  # its retention may not begin before its first records
            self._ask_at[key] = now + ASK_AGAIN
            return False
        self._goals[key] = goals
        if any(_position(positions, where) < end for where, end in goals.items()):
            return False
        del self._goals[key]
        return True

    def _ends(self, topic: CopiedTopic) -> Mapping[CheckpointKey, int]:
        ends: dict[CheckpointKey, int] = {}
        for region, incarnation in topic.sources:
            for partition in self.store.partitions(region, incarnation.path):
                source = SourcePartition.of(region, incarnation, partition)
                end = end_of(info.segment.offsets for info in self.store.list(source))
                ends[CheckpointKey(source, topic.owned.name)] = end
        return ends


def _position(positions: Mapping[CheckpointKey, object], where: CheckpointKey) -> int:
    found = positions.get(where)
    return found.next_offset if isinstance(found, Checkpoint) else -1
