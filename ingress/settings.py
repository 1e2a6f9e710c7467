"""The `[ingress]` section: which archived topics are delivered to which topics here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from formats.incarnation import fork_id, fork_number
from formats.topic_selection import TopicPattern, TopicRule
from infra.settings.field import Problem, dotted, enforce, matching, not_blank, region_name, setting, topic_name
from ingress.catalog.settings import CatalogSettings

TOPIC = "{topic}"  # replaced by the source topic's name in a destination
TOPIC_ID_CHARS = 8  # characters of a topic id in the name of a destination for one incarnation
DEFAULT_DESTINATION = f"{TOPIC}.ingress"

_destination = matching(
    r"(?=.)[A-Za-z0-9._-]{0,249}(\{topic\}[A-Za-z0-9._-]{0,249})?", f'a topic name, which may contain "{TOPIC}" once'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressSource:
    """Topics of one region's archive, and how they arrive."""

    region: str = field(metadata=setting("region whose archive is read", check=region_name))
    topic: TopicPattern = field(metadata=setting("a topic name, or an expression that begins with ^"))
    destination_topic: str | None = field(
        default=None,
        metadata=setting(
            f'topic here; with an expression it must contain "{TOPIC}"; default: "{DEFAULT_DESTINATION}"',
            check=_destination,
        ),
    )
    partitions: int | None = field(
        default=None,
        metadata=setting("partitions of a destination topic that we create; default: as many as the source", minimum=1),
    )
    lost_segment_timeout: timedelta = field(
        default=timedelta(hours=24),
        metadata=setting("how long a missing segment is waited for before `on_lost` decides"),
    )
    late_segment_retries: int = field(
        default=16,
        metadata=setting(
            "listings made for a missing segment until lost_segment_timeout, ever further apart", minimum=0
        ),
    )
    first_segment_delay: timedelta = field(
        default=timedelta(minutes=30),
        metadata=setting(
            "how long a partition without a checkpoint waits for segments before the first known one",
            minimum=timedelta(0),
        ),
    )
    allow_merge: bool = field(
        default=False,
        metadata=setting(
            "whether its topics may share a destination with others that allow it, too: partition i of each goes to "
            "partition i, each in its own order, in no order among them"
        ),
    )
    on_lost: Literal["stop", "skip"] = field(
        default="stop",
        metadata=setting("what a lost segment does: stop = its partition waits for an operator; skip = omit it"),
    )
    on_recreate: Literal["stop", "follow", "new-topic"] = field(
        default="stop",
        metadata=setting(
            "what is done with a later incarnation of a topic that was deleted and created again, or whose log forked "
            "at the source: stop = nothing of it is delivered; follow = into the same topic, after everything of the "
            "previous incarnation, once first_segment_delay has passed; new-topic = into a separate topic, "
            "<destination>.<first 8 of the topic id>, after a fork with its number: <destination>.<first 8>-fork1"
        ),
    )
    on_foreign_data: Literal["stop", "append"] = field(
        default="stop",
        metadata=setting(
            "what a partition without a checkpoint does when its destination partition already holds records: stop = "
            "it waits for `replicator checkpoints seed`; append = everything archived is delivered after them"
        ),
    )
    on_timestamp: Literal["stop", "clamp"] = field(
        default="stop",
        metadata=setting("when the target refuses a record's timestamp: stop, or clamp it to the accepted range"),
    )

    def __post_init__(self) -> None:
        enforce(self, self._contradictions())

    def destination(self, topic: str, incarnation: str = "") -> str:
        """Destination name of the source topic `topic`, or of a later incarnation of it."""
        name = (self.destination_topic or DEFAULT_DESTINATION).replace(TOPIC, topic)
        if not incarnation or self.on_recreate != "new-topic":
            return name
        fork = fork_number(incarnation)
        return f"{name}.{fork_id(incarnation[:TOPIC_ID_CHARS], fork) if fork else incarnation[:TOPIC_ID_CHARS]}"

    def _contradictions(self) -> Iterator[Problem]:
        is_one = self.destination_topic is not None and TOPIC not in self.destination_topic
        if self.topic.is_expression and is_one and not self.allow_merge:
            yield (
                "destination_topic",
                f"{self.destination_topic!r} is one topic for every topic that {self.topic} matches: write it with "
                f'"{TOPIC}", such as "{TOPIC}.copy", or merge them on purpose with allow_merge = true',
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressSettings(CatalogSettings):
    """Delivery of archived topics to this region's cluster."""

    sources: tuple[IngressSource, ...] = field(
        metadata=setting(
            "what is delivered; of two sources that match a topic, a name wins, then the first in the file"
        )
    )
    group_id: str = field(
        default="replicator.ingress", metadata=setting("consumer group that assigns the work", check=not_blank)
    )
    segment_events_topic: str = field(
        default="replicator.segmentevents",
        metadata=setting("topic through which all processes learn of segments", check=topic_name),
    )
    segment_events_retention: timedelta = field(
        default=timedelta(hours=1),
        metadata=setting(
            "retention of that topic; a starting process lists the bucket, so little is needed",
            minimum=timedelta(minutes=1),
        ),
    )
    checkpoint_topic: str = field(
        default="replicator.checkpoint",
        metadata=setting("compacted topic of delivered positions: losing it means starting over", check=topic_name),
    )
    internal_replication_factor: int = field(
        default=-1,
        metadata=setting(
            "replicas of those two topics when we create them; -1 = the broker's default", minimum=-1, maximum=32767
        ),
    )
    replication_factor: int = field(
        default=2,
        metadata=setting(
            "replicas of destination topics that we create; -1 = the broker's default",
            minimum=-1,
            maximum=32767,
        ),
    )
    delivery: Literal["exactly-once", "at-least-once"] = field(
        default="exactly-once",
        metadata=setting(
            "guarantee: exactly-once, by transactions of the target, whose consumers read with read_committed; or "
            "at-least-once, where a crash repeats records. Processes may change over one by one"
        ),
    )
    transaction_timeout: timedelta = field(
        default=timedelta(seconds=30),
        metadata=setting(
            "when the target aborts the transaction of a process that died; until then its partitions wait, unless "
            'kafka.consumer."group.instance.id" lets its successor take over at once',
            minimum=timedelta(seconds=1),
        ),
    )
    batch_size: int = field(
        default=10_000,
        metadata=setting(
            "records in one run, which one checkpoint follows; fewer costs throughput", minimum=1, maximum=10_000_000
        ),
    )
    relist_interval: timedelta = field(
        default=timedelta(minutes=5),
        metadata=setting(
            "how often the archive is listed in case a notification was lost", minimum=timedelta(seconds=1)
        ),
    )
    topic_refresh_interval: timedelta = field(
        default=timedelta(seconds=30), metadata=setting("how often new topics and partitions are searched for")
    )
    shutdown_timeout: timedelta = field(
        default=timedelta(seconds=10),
        metadata=setting("how long a stop may wait for runs in flight", minimum=timedelta(0)),
    )

    def __post_init__(self) -> None:
        enforce(self, self._contradictions())

    @property
    def own_topics(self) -> frozenset[str]:
        return frozenset({self.segment_events_topic, self.checkpoint_topic, self.ledger_topic})

    @property
    def regions(self) -> Sequence[str]:
        """Source regions, in order."""
        return sorted({source.region for source in self.sources})

    def source_of(self, region: str, topic: str) -> IngressSource | None:
        """The source that delivers `topic` of `region`: a name beats expressions, then the first in the file."""
        matching_ = [s for s in self.sources if s.region == region and s.topic.matches(topic)]
        return next((s for s in matching_ if not s.topic.is_expression), matching_[0] if matching_ else None)

    def rules(self, region: str) -> Sequence[TopicRule[IngressSource]]:
        """The sources of one region as rules for `formats.topic_selection.select`."""
        return [TopicRule(source.topic, source) for source in self.sources if source.region == region]

    def _contradictions(self) -> Iterator[Problem]:
        if not self.sources:
            yield "sources", "missing: without a [[ingress.sources]] nothing is delivered"
        for name in ("internal_replication_factor", "replication_factor"):
            if getattr(self, name) == 0:
                yield name, "must be -1 (the broker's default) or at least 1"
        if self.segment_events_topic == self.checkpoint_topic:
            yield "checkpoint_topic", f"{self.checkpoint_topic!r} is the segment_events_topic too; they are two topics"
        if self.ledger_topic in (self.segment_events_topic, self.checkpoint_topic):
            yield "ledger_topic", f"{self.ledger_topic!r} is another of our topics too; the ledger needs its own"
        yield from self._merged()

    def _merged(self) -> Iterator[Problem]:
        """Destinations that two source topics would share without both allowing it. Conflicts of two expressions show
        only when both match."""
        taken: dict[str, IngressSource] = {}  # by destination
        templates: dict[tuple[str, str], IngressSource] = {}  # by expression and destination
        for n, source in enumerate(self.sources):
            if source.topic.is_expression:
                owner = templates.setdefault((source.topic.text, source.destination(TOPIC)), source)
                if owner.region != source.region and not _may_merge(owner, source):
                    yield dotted(("sources", n, "destination_topic")), _merges(source, owner)
                continue
            if self.source_of(source.region, source.topic.text) is not source:
                continue  # an earlier source of the same name wins: this one delivers nothing
            owner = taken.setdefault(source.destination(source.topic.text), source)
            if owner is not source and not _may_merge(owner, source):
                yield dotted(("sources", n, "destination_topic")), _merges(source, owner)
        for n, source in enumerate(self.sources):
            if source.topic.is_expression:
                for destination, owner in taken.items():
                    theirs = _inverse(source.destination(TOPIC), destination)
                    if theirs is None or (source.region, theirs) == (owner.region, owner.topic.text):
                        continue
                    if self.source_of(source.region, theirs) is source and not _may_merge(owner, source):
                        yield dotted(("sources", n, "destination_topic")), _merges(source, owner)


def _may_merge(*sources: IngressSource) -> bool:
    return all(source.allow_merge for source in sources)


def _inverse(template: str, destination: str) -> str | None:
    """The topic that `template` turns into `destination`, if there is one."""
    head, _, tail = template.partition(TOPIC)
    if not destination.startswith(head) or not destination.endswith(tail) or len(destination) <= len(head) + len(tail):
        return None
    return destination[len(head) : len(destination) - len(tail)]


def _merges(source: IngressSource, owner: IngressSource) -> str:
    return (
        f"{source.topic} of {source.region} would be delivered to the same destination as {owner.topic} of "
        f"{owner.region}: give one of them another destination_topic, or set allow_merge = true for both"
    )
