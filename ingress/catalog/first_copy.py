"""When the first copy of a topic is through: then its retention may be the source's, and not before.

    a goal for each partition ──every checkpoint is there──> through, for good

    by watermarks       the source's last stable offsets, once they have arrived in this bucket
    by the archive      the ends of what is stored, once `delay` has passed since the topic was created: for archives
                        without watermarks, and for partitions that end with transaction markers

Until then the oldest records may still have to be delivered, and the target would delete them as they arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.control.watermarks import SourceWatermarks, TopicWatermarks
from formats.coverage import end_of
from formats.errors import OF_ONE_OBJECT
from formats.incarnation import Incarnation
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.messages.ledger import OwnedTopic
from formats.segment import SourcePartition
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore

ASK_AGAIN = timedelta(minutes=5)  # whether something is stored now
Goals = Mapping[CheckpointKey, int]
WatermarksOf = Callable[[Collection[str]], Mapping[str, SourceWatermarks]]  # of regions; without those that have none


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
    control: ControlStore
    watermarks: WatermarksOf
    _by_watermarks: dict[tuple[str, str], Goals] = field(default_factory=dict)  # by name and topic id
    _by_archive: dict[tuple[str, str], Goals] = field(default_factory=dict)
    _ask_at: dict[tuple[str, str], datetime] = field(default_factory=dict)  # of those that nothing is stored of
    _seen: Mapping[str, SourceWatermarks] = field(default_factory=dict)
    _seen_at: datetime | None = None

    def is_through(self, topic: CopiedTopic, positions: Mapping[CheckpointKey, object], now: datetime) -> bool:
        """`positions`: the checkpoints of all processes. Goals are set once, so a steady stream reaches them."""
        key = (topic.owned.name, topic.owned.topic_id)
        if key not in self._by_watermarks and (goals := self._stable_ends(topic, now)):
            self._by_watermarks[key] = goals
        if key not in self._by_archive and self._may_list(topic, now):
            if goals := self.stored_ends(topic):
                self._by_archive[key] = goals
            else:
                self._ask_at[key] = now + ASK_AGAIN
        goals_of_both = (self._by_watermarks.get(key), self._by_archive.get(key))
        if not any(goals and are_reached(goals, positions, topic.owned.topic_id) for goals in goals_of_both):
            return False
        for known in (self._by_watermarks, self._by_archive):
            known.pop(key, None)
        return True

    def _stable_ends(self, topic: CopiedTopic, now: datetime) -> Goals:
        """Empty when they are not known of each source."""
        ends: dict[CheckpointKey, int] = {}
        seen = self._watermarks({region for region, _ in topic.sources}, now)
        # of each source topic the incarnation that is delivered last
        latest = {(region, incarnation.topic): incarnation for region, incarnation in topic.sources}
        for (region, name), incarnation in latest.items():
            found = seen[region].topics.get(name) if region in seen else None
            if found is None or self._is_other(region, incarnation, found.topic_id):
                return {}
            if (of_source := _stable(found)) is None:
                return {}
            for partition, end in enumerate(of_source):
                if end:
                    ends[CheckpointKey(SourcePartition.of(region, incarnation, partition), topic.owned.name)] = end
        return ends

    def _is_other(self, region: str, incarnation: Incarnation, topic_id: str) -> bool:
        """Whether the watermarks are of another incarnation than the archive path: the topic was created again."""
        try:
            claim = self.control.claims.of(region, incarnation.path)
        except OF_ONE_OBJECT:
            return True
        return claim is not None and bool(claim.topic_id) and bool(topic_id) and claim.topic_id != topic_id

    def _watermarks(self, regions: set[str], now: datetime) -> Mapping[str, SourceWatermarks]:
        """Asked once for all topics of one turn."""
        if self._seen_at != now or not self._seen.keys() >= regions:
            self._seen, self._seen_at = {**self._seen, **self.watermarks(regions)}, now
        return self._seen

    def _may_list(self, topic: CopiedTopic, now: datetime) -> bool:
        ask_at = self._ask_at.get((topic.owned.name, topic.owned.topic_id), topic.owned.at + topic.delay)
        return now >= ask_at

    def stored_ends(self, topic: CopiedTopic) -> Goals:
        """Empty when nothing is stored: its retention may not begin before its first records."""
        ends: dict[CheckpointKey, int] = {}
        for region, incarnation in topic.sources:
            for source, infos in self.store.of_each_partition(region, incarnation.path):
                ends[CheckpointKey(source, topic.owned.name)] = end_of(info.segment.offsets for info in infos)
        return ends


def _stable(topic: TopicWatermarks) -> Sequence[int] | None:
    known = [end for end in topic.stable if end is not None]
    return known if len(known) == topic.partitions else None


def are_reached(goals: Goals, positions: Mapping[CheckpointKey, object], topic_id: str) -> bool:
    """Checkpoints of an earlier topic of that name do not count."""
    return all(
        isinstance(found := positions.get(where), Checkpoint)
        and found.next_offset >= end
        and found.destination_topic_id in ("", topic_id)
        for where, end in goals.items()
    )
