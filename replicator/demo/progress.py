"""How far the records are: asked of the brokers and the bucket, never of the services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats.coverage import covered_until
from formats.segment import SourcePartition
from infra.contracts.cluster import ClusterAdmin, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infra.archive.segments import SegmentStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Next offsets by partition; a partition that is not there yet is left out."""

    source: Mapping[int, int]
    archive: Mapping[int, int]
    target: Mapping[int, int]

    @property
    def complete(self) -> bool:
        """Whether the target has as many offsets as the source."""
        return all(self.target.get(partition, 0) >= end for partition, end in self.source.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Asks for one topic and its copy. Each look costs two questions per cluster and a listing per partition."""

    region: str
    topic: str
    copy: str
    partitions: int
    source: ClusterAdmin
    target: ClusterAdmin
    archive: SegmentStore

    def look(self) -> Standing:
        """Raises BrokerUnavailable, StoreUnavailable."""
        # target first: what it has, the places before it have too
        target = _ends(self.target, self.copy, self.partitions)
        archive = {
            partition: covered_until((info.segment for info in self.archive.list(source)), 0)
            for partition in range(self.partitions)
            for source in (SourcePartition(self.region, self.topic, partition),)
        }
        return Standing(source=_ends(self.source, self.topic, self.partitions), archive=archive, target=target)


def _ends(admin: ClusterAdmin, topic: str, partitions: int) -> Mapping[int, int]:
    if topic not in admin.describe([topic]):  # the client waits long for the offsets of a topic that does not exist
        return {}
    asked = [TopicPartition(topic, partition) for partition in range(partitions)]
    return {where.partition: marks.high for where, marks in admin.watermarks(asked).items()}
