"""What the start of a partition is asked with, and answered."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from egress.settings import EgressTopicSettings
from egress.start.choice import Start
from egress.topics.claims import Blocked, ClaimedTopic
from egress.topics.log_identity import ForkEvidence
from formats.segment import Segment, SourcePartition
from infra.contracts.cluster import TopicPartition


@dataclass(frozen=True, slots=True)
class StartQuery:
    """Asks where reading one partition begins, with what is known of its topic."""

    partition: TopicPartition
    settings: EgressTopicSettings
    appeared: bool  # its topic was created while this process ran: everything in it is new
    contested: Collection[Segment] = ()  # stored segments that differ from what was read
    are_damaged: bool = False  # one of them could not be decoded
    contest: str = ""  # how they differ
    forked: SourcePartition | None = None  # whose log `evidence` is about: the topic may be another one by now
    evidence: ForkEvidence | None = None  # that its log has forked, found just now


@dataclass(frozen=True, slots=True)
class StartAt:
    """Read this partition of this incarnation from `start`. The ranges that `start` lists as lost, and the begin of the
    archive, are recorded already."""

    topic: ClaimedTopic
    source: SourcePartition
    start: Start
    beyond: tuple[Segment, ...] = ()  # stored already, after `start`: what is read again has to agree with them


@dataclass(frozen=True, slots=True)
class Unknown:
    """The store, or a broker, does not answer for now: a leader is usually elected within seconds."""

    reason: str


StartAnswer = StartAt | Blocked | Unknown
Answered = Callable[[TopicPartition, StartAnswer], None]
