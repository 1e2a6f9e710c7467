"""What the group, the source and the archive answer about partitions that are to be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from egress.start.archive_lookup import ArchivedSegments
from egress.start.choice import is_of
from egress.start.commit_metadata import CommitMetadata, read_commit_metadata
from egress.topics.claims import ClaimedTopic
from formats.log_point import LogPoint
from formats.segment import SourcePartition
from infra.contracts.cluster import Committed, LogTruncated, TopicPartition, Watermarks


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """The answers of the group, the source and the archive, for all partitions whose watermarks were asked at once."""

    committed: Mapping[TopicPartition, Committed]
    archived: Mapping[SourcePartition, ArchivedSegments]
    marks: Mapping[TopicPartition, Watermarks]
    # points before accepted forks; only where nothing newer is archived
    agreed: Mapping[TopicPartition, LogPoint] = field(default_factory=dict)
    # how the log compares to those points now; absent: no answer
    checked: Mapping[TopicPartition, LogTruncated | None] = field(default_factory=dict)

    def with_(self, source: SourcePartition, archived: ArchivedSegments) -> KnownFacts:
        return replace(self, archived={**self.archived, source: archived})

    def commit(self, partition: TopicPartition, topic: ClaimedTopic) -> Committed | None:
        return commit_of(self.committed.get(partition), topic)

    def commits(self, topic: ClaimedTopic) -> list[CommitMetadata]:
        """The metadata of the commits of all partitions of the topic."""
        of_topic = (c for p, c in self.committed.items() if p.topic == topic.facts.name)
        return [n for c in of_topic if commit_of(c, topic) and (n := read_commit_metadata(c))]


def commit_of(committed: Committed | None, topic: ClaimedTopic) -> Committed | None:
    """`committed`, or None for the commit of an earlier incarnation, whose offset is of a log that is gone."""
    return committed if committed is not None and is_of(committed, topic.name, is_first=topic.is_first) else None
