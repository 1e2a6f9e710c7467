"""What the egress of a source region last reported of itself and of its cluster's logs, as far as it arrived here.

Two facts are kept apart: a heartbeat that arrives says that the region lives and that the way to this bucket is open;
watermarks say how much there is to deliver. Either may be there without the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from formats.control.heartbeat import WriterHeartbeat, decode_heartbeat
from formats.control.keys import heartbeat_prefix
from formats.control.watermarks import SourceWatermarks, TopicWatermarks
from formats.errors import KeyUnavailable, MalformedEvent, ObjectFrozen, SegmentNotFound
from infra.archive.generations import Generations
from infra.archive.last_good import LastGood, watermarks_in
from infra.contracts.storage import ObjectStore


@dataclass(frozen=True, slots=True)
class SourceReport:
    """Of one region."""

    heartbeat: WriterHeartbeat | None = None  # the newest; None: none has arrived
    watermarks: SourceWatermarks | None = None
    generation: int = 0  # of the watermarks

    @property
    def as_of(self) -> datetime | None:
        """When the watermarks were last known to be those of the source. An egress writes none while they do not
        change; its heartbeats say when it last observed the same. A heartbeat alone says nothing of the logs."""
        if self.watermarks is None:
            return None
        beat = self.heartbeat
        confirmed = None if beat is None or beat.watermarks != self.generation else beat.watermarks_at
        return max(self.watermarks.observed_at, confirmed or self.watermarks.observed_at)

    def topic_id(self, topic: str) -> str:
        """Empty when it is not known."""
        found = self._topic(topic)
        return "" if found is None else found.topic_id

    def lacks(self, topic: str) -> bool:
        """Whether its egress reports the ends of topics, and of this one none: not one whose ends are not known."""
        return self.watermarks is not None and topic not in self.watermarks.topics

    def stable_end(self, topic: str, partition: int) -> int | None:
        """Last stable offset of a partition; None: not known."""
        found = self._topic(topic)
        return None if found is None or partition >= found.partitions else found.stable[partition]

    def log_start(self, topic: str, partition: int) -> int | None:
        """First offset that is still in the log of a partition; None: not known."""
        found = self._topic(topic)
        return None if found is None or partition >= found.partitions else found.low[partition]

    def _topic(self, topic: str) -> TopicWatermarks | None:
        return None if self.watermarks is None else self.watermarks.topics.get(topic)


@dataclass(slots=True)
class SourceHeartbeats:
    """Use from one thread at a time."""

    objects: ObjectStore
    prefix: str
    _known: dict[str, tuple[int, WriterHeartbeat | None]] = field(default_factory=dict)  # number and content, by region

    def refresh(self, regions: Collection[str]) -> Mapping[str, WriterHeartbeat | None]:
        """The newest of each region; None: none has arrived. One LIST for each, and a GET when there is a new one.
        Raises StoreUnavailable."""
        return {region: self._newest(region) for region in regions}

    def _newest(self, region: str) -> WriterHeartbeat | None:
        generations = Generations(self.objects, heartbeat_prefix(self.prefix, region))
        known, beat = self._known.get(region, (0, None))
        newest = generations.newest(known)
        if newest != known:
            try:
                beat = decode_heartbeat(generations.read(newest)) if newest else None
            except SegmentNotFound:
                return beat  # thinned meanwhile
            except MalformedEvent:
                pass  # of a newer program: the last one that is understood stays
            except (KeyUnavailable, ObjectFrozen):
                return beat  # and is asked for again
            self._known[region] = (newest, beat)
        return beat


@dataclass(slots=True)
class SourceReports:
    """Use from one thread at a time, except `watermarks`."""

    objects: ObjectStore
    prefix: str
    _watermarks: LastGood[SourceWatermarks] = field(init=False)
    _heartbeats: SourceHeartbeats = field(init=False)

    def __post_init__(self) -> None:
        self._watermarks = watermarks_in(self.objects, self.prefix)
        self._heartbeats = SourceHeartbeats(self.objects, self.prefix)

    def watermarks(self, regions: Collection[str]) -> Mapping[str, SourceWatermarks]:
        """Of each region that has them, as of the last `refresh`, without a request. Safe to call from any thread."""
        return self._watermarks.in_force(regions)

    def refresh(self, regions: Collection[str]) -> Mapping[str, SourceReport]:
        """Two LISTs for each region, and a GET for each of the two that is new. Raises StoreUnavailable."""
        watermarks = self._watermarks.refresh(regions)
        return {
            region: SourceReport(beat, watermarks.get(region), self._watermarks.number(region))
            for region, beat in self._heartbeats.refresh(regions).items()
        }
