"""A partition assigned to this process, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from egress.partition import EgressPartition, SealPolicy, Seek
from egress.places import Life
from egress.resolver import Begin
from replicator import logkeys
from replicator.commit_note import Note
from replicator.config import EgressTopicSettings
from replicator.protocols import Committed, TopicPartition
from replicator.segment import Segment, SourcePartition


@dataclass(slots=True, eq=False)
class Held:
    """Compared by identity: the same partition assigned again is another holding."""

    partition: TopicPartition
    source: SourcePartition  # the plain place's until the life is known
    life: Life | None = None  # of the topic, as reading began
    core: EgressPartition | None = None  # None until it is known where to begin
    note: Note | None = None
    stopped: str = ""  # why it waits for an operator
    ended: bool = False  # what was read is still to be stored; then it is asked anew where to begin
    contested: Segment | None = None  # stored, and not what we read: the reason it stopped
    failures: int = 0  # in a row, that time mends
    refusals: int = 0  # in a row, for the same reason
    seek: Seek | None = None  # to be done at `retry_at`
    retry_at: datetime | None = None
    resolving: bool = False
    epochs: dict[int, int | None] = field(default_factory=dict)  # next offset of a stored segment -> leader epoch

    @property
    def going(self) -> EgressPartition | None:
        """The core, while the partition is being archived."""
        return None if self.stopped or self.ended else self.core

    @property
    def storing(self) -> bool:
        """Segments are under way, also those read before the broker refused the partition."""
        return self.core is not None and self.contested is None and self.core.in_flight > 0

    def position(self, next_offset: int) -> Committed:
        """What the group is told: everything below `next_offset` is in the archive."""
        epoch = self.epochs.get(next_offset)
        self.epochs = {
            o: e for o, e in self.epochs.items() if o >= next_offset
        }  # itself too: a commit may be said again
        return Committed(next_offset, str(self.note), epoch)

    def begin(self, answer: Begin, settings: EgressTopicSettings) -> None:
        """Anew, where and as `answer` says."""
        self.reset()
        self.life, self.source, self.note = answer.life, answer.source, answer.start.note
        policy = SealPolicy(
            max_messages=settings.max_segment_messages,
            max_bytes=settings.max_segment_size,
            max_age=settings.max_segment_age,
        )
        self.core = EgressPartition(policy, answer.start.next_offset)
        self.stopped = ""

    def end(self, ask_at: datetime) -> None:
        """No more is read; what was read is still to be stored; after that, at `ask_at`, it is asked where to begin."""
        self.ended, self.seek, self.retry_at = True, None, ask_at

    def reset(self) -> None:
        """Nothing is known of where to begin, and it may be asked at once."""
        self.life = self.core = self.note = self.contested = self.seek = self.retry_at = None
        self.ended, self.epochs = False, {}

    @property
    def labels(self) -> dict[str, str]:
        return {"topic": self.partition.topic, "partition": str(self.partition.partition)}

    @property
    def fields(self) -> dict[str, object]:
        return {
            logkeys.REGION: self.source.region,
            logkeys.TOPIC: self.source.place,
            logkeys.PARTITION: self.partition.partition,
        }
