"""Progress of the replication according to the brokers and the bucket, never to the services."""

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
class TopicPositions:
    """Next offsets by partition; a partition that does not exist yet is left out."""

    source: Mapping[int, int]
    archive: Mapping[int, int]
    target: Mapping[int, int]

    @property
    def complete(self) -> bool:
        """Whether the target has as many offsets as the source."""
        return all(self.target.get(partition, 0) >= end for partition, end in self.source.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicObserver:
    """Observes one topic and its copy. Each call costs two requests per cluster and a listing per partition."""

    region: str
    topic: str
    copy: str
    partitions: int
    source: ClusterAdmin
    target: ClusterAdmin
    archive: SegmentStore

    def observe(self) -> TopicPositions:
        """Raises BrokerUnavailable, StoreUnavailable."""
        # target first: the archive and the source already have the records that the target has
        target = _ends(self.target, self.copy, self.partitions)
        archive = {
            partition: covered_until((info.segment for info in self.archive.list(source)), 0)
            for partition in range(self.partitions)
            for source in (SourcePartition(self.region, self.topic, partition),)
        }
        return TopicPositions(source=_ends(self.source, self.topic, self.partitions), archive=archive, target=target)


def _ends(admin: ClusterAdmin, topic: str, partitions: int) -> Mapping[int, int]:
    if topic not in admin.describe([topic]):  # a request for the offsets of an unknown topic takes the client long
        return {}
    requested = [TopicPartition(topic, partition) for partition in range(partitions)]
    return {where.partition: marks.high for where, marks in admin.watermarks(requested).items()}
