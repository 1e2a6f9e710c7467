"""One log of a partition, read from one start."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from egress.partition import EgressPartition, SealPolicy
from egress.settings import EgressTopicSettings
from egress.start.commit_metadata import CommitMetadata
from egress.start.query import StartAt
from egress.topics.claims import ClaimedTopic
from egress.topics.log_identity import LogPoints
from formats.log_point import LogPoint
from formats.segment import OffsetRange, Segment
from infra.contracts.cluster import Committed


@dataclass(slots=True, eq=False, kw_only=True)
class ReadSession:
    """Lasts until the start offset is looked up again. Compared by identity."""

    topic: ClaimedTopic  # the incarnation of the topic when reading began
    metadata: CommitMetadata  # for every commit
    core: EgressPartition
    began_at: LogPoint | None = None  # the point of the log that reading began with
    # stored before reading began but not committed, ordered by start: what is read must agree with them
    beyond: tuple[Segment, ...] = ()
    points: LogPoints = field(default_factory=LogPoints)  # known points of the log that is read

    def position(self, next_offset: int) -> Committed:
        """The commit for `next_offset`: everything below it is in the archive."""
        passed = 0
        while passed < len(self.beyond) and self.beyond[passed].offsets.end < next_offset:
            passed += 1
        self.beyond = self.beyond[passed:] if passed else self.beyond
        return Committed(next_offset, str(self.metadata), self.points.committed(next_offset))

    def overlapping(self, offsets: OffsetRange) -> tuple[Segment, ...]:
        """Earlier stored segments that overlap `offsets`, which a new segment must agree with."""
        near = bisect_right(self.beyond, offsets.end, key=lambda s: s.offsets.start)
        return tuple(s for s in self.beyond[:near] if s.offsets.end >= offsets.start)


def seal_policy(settings: EgressTopicSettings) -> SealPolicy:
    return SealPolicy(
        max_messages=settings.max_segment_messages,
        max_bytes=settings.max_segment_size,
        max_age=settings.max_segment_age,
    )


def session_at(answer: StartAt, settings: EgressTopicSettings) -> ReadSession:
    session = ReadSession(
        topic=answer.topic,
        metadata=answer.start.metadata,
        core=EgressPartition(seal_policy(settings), answer.start.next_offset),
        began_at=answer.start.point,
        beyond=tuple(sorted(answer.beyond, key=lambda s: s.offsets)),
    )
    session.points.read(answer.start.point, 0)
    return session
