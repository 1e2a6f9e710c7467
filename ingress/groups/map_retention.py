"""Keeps the offset map as long as the records that it is about: removes its pages of records that are gone here.

every `interval`: destinations of the map, as the cluster has them now ──> where their logs begin ──> trimmed
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from infra.archive.offset_maps import OffsetMapCopier
from infra.contracts.cluster import ClusterAdmin, LogEnds, TopicPartition, describe_each
from ingress.groups.lookup import MapReader
from ingress.groups.map_trimmer import OffsetMapTrimmer


@dataclass(slots=True, kw_only=True)
class MapRetention:
    """Use from the thread that reads the map."""

    maps: MapReader
    admin: ClusterAdmin
    trimmer: OffsetMapTrimmer
    copier: OffsetMapCopier
    interval: timedelta = timedelta(minutes=10)
    _due_at: datetime | None = field(default=None, init=False)

    def turn(self, regions: Collection[str], now: datetime) -> int:
        """How many pages were removed. `regions`: sources whose maps this process copies. Raises BrokerUnavailable,
        StoreUnavailable, TargetError: the next turn does the rest."""
        if self._due_at is not None and now < self._due_at:
            return 0
        deliveries = [key.delivery for key in self.maps.offset_map.read()]
        facts, refused = describe_each(self.admin, sorted({one.destination_topic for one in deliveries}))
        partitions = {TopicPartition(one.destination_topic, one.source.partition) for one in deliveries}
        ids = {
            name: facts[name].topic_id if name in facts else None
            for name in {one.topic for one in partitions}
            if name not in refused  # an error is no absence
        }
        ends = self.maps.ends.log_ends(sorted(one for one in partitions if one.topic in facts))
        starts = {partition: one.low for partition, one in ends.items() if isinstance(one, LogEnds)}
        removed = self.trimmer.trim(starts, ids)
        maps = self.maps.offset_map.read()
        self.copier.copy({key: one for key, one in maps.items() if key.delivery.source.region in regions})
        self._due_at = now + self.interval
        return removed
