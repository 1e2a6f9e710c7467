"""A partition assigned to this process, and what is known of it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import datetime

from egress.partition import EgressPartition, SealPolicy, Seek
from egress.settings import EgressTopicSettings
from egress.start.commit_metadata import CommitMetadata
from egress.start.resolver import StartAt
from egress.topics.claims import ClaimedTopic
from egress.topics.log_identity import ForkEvidence, LogPoints
from formats.log_point import LogPoint
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.contracts.cluster import Committed, TopicPartition
from infra.runtime import log_fields
from infra.runtime.failures import Failures


@dataclass(slots=True, eq=False)
class AssignedPartition:
    """Compared by identity: the same partition assigned again is another holding."""

    partition: TopicPartition
    source: SourcePartition  # the plain place's until the life is known
    life: ClaimedTopic | None = None  # of the topic, as reading began
    core: EgressPartition | None = None  # None until it is known where to begin
    note: CommitMetadata | None = None
    stopped: str = ""  # why it waits for an operator
    ended: bool = False  # what was read is still to be stored; then it is asked anew where to begin
    given_up: bool = False  # ended, and what was read and not stored is dropped: it may be of another log
    uploading: bool = False  # given up, and what was being stored then is not done yet
    contested: tuple[Segment, ...] = ()  # stored, and not what we read: the reason it stopped
    began_at: LogPoint | None = None  # the point of the log that reading began with
    evidence: ForkEvidence | None = None  # that the log is not the one that is archived
    doubted: bool = False  # what was read contradicted the archive, and is read once more
    failures: int = 0  # in a row, that time mends
    failing: Failures = field(default_factory=Failures)  # what is asked of the cluster for it
    alarm: str = ""  # of those, as it was told
    refusals: int = 0  # in a row, for the same reason
    seek: Seek | None = None  # to be done at `retry_at`
    retry_at: datetime | None = None
    resolving: bool = False
    points: LogPoints = field(default_factory=LogPoints)  # what is known of the log as it is read
    beyond: tuple[Segment, ...] = ()  # stored before reading began, not committed, by start: what is read must agree

    @property
    def going(self) -> EgressPartition | None:
        """The core, while the partition is being archived."""
        return None if self.stopped or self.ended else self.core

    @property
    def storing(self) -> bool:
        """Segments are under way, also those read before the broker refused the partition."""
        if self.given_up:
            return self.uploading
        return self.core is not None and not self.contested and self.core.in_flight > 0

    def position(self, next_offset: int) -> Committed:
        """What the group is told: everything below `next_offset` is in the archive."""
        passed = 0
        while passed < len(self.beyond) and self.beyond[passed].offsets.end < next_offset:
            passed += 1
        self.beyond = self.beyond[passed:] if passed else self.beyond
        return Committed(next_offset, str(self.note), self.points.committed(next_offset))

    def beside(self, offsets: OffsetRange) -> tuple[Segment, ...]:
        """Segments stored before, which a new one of these offsets must agree with."""
        near = bisect_right(self.beyond, offsets.end, key=lambda s: s.offsets.start)
        return tuple(s for s in self.beyond[:near] if s.offsets.end >= offsets.start)

    def begin(self, answer: StartAt, settings: EgressTopicSettings) -> None:
        """Anew, where and as `answer` says."""
        self.reset()
        self.life, self.source, self.note = answer.life, answer.source, answer.start.note
        policy = SealPolicy(
            max_messages=settings.max_segment_messages,
            max_bytes=settings.max_segment_size,
            max_age=settings.max_segment_age,
        )
        self.core = EgressPartition(policy, answer.start.next_offset)
        self.began_at, self.beyond = answer.start.point, tuple(sorted(answer.beyond, key=lambda s: s.offsets))
        self.points.read(answer.start.point, 0)
        self.stopped = ""

    def end(self, ask_at: datetime) -> None:
        """No more is read; what was read is still to be stored; after that, at `ask_at`, it is asked where to begin."""
        self.ended, self.seek, self.retry_at = True, None, ask_at

    def give_up(self, ask_at: datetime) -> None:
        """No more is read, and of what was read only what is being stored already; after that it is asked where to
        begin."""
        self.end(ask_at)
        self.given_up = self.uploading = True

    def reset(self) -> None:
        """Nothing is known of where to begin, and it may be asked at once."""
        self.life = self.core = self.note = self.seek = self.retry_at = self.began_at = self.evidence = None
        self.ended = self.given_up = self.uploading = False
        self.points, self.contested, self.beyond = LogPoints(), (), ()

    @property
    def attempts(self) -> str:
        """Subject of the problem that what is asked of the cluster for it fails again and again."""
        return f"{self.source.region}/{self.partition} attempts"

    @property
    def rereading(self) -> str:
        """Subject of the problem that it is read again and again."""
        return f"{self.source.region}/{self.partition} read again"

    @property
    def labels(self) -> dict[str, str]:
        return {"topic": self.partition.topic, "partition": str(self.partition.partition)}

    @property
    def fields(self) -> dict[str, object]:
        return {
            log_fields.REGION: self.source.region,
            log_fields.TOPIC: self.source.path,
            log_fields.PARTITION: self.partition.partition,
        }
