"""The `[ingress]` section: which archived topics are delivered to which topics here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from formats.errors import PluginFailed
from formats.holes import HOLES_PER_SECOND
from formats.topic_selection import TopicRule, select_names
from infra.settings.field import Invalid, Problem, dotted, enforce, not_blank, setting, topic_name
from ingress.catalog.settings import CatalogSettings
from ingress.source_settings import DEFAULT_DESTINATION, DEFAULT_SEPARATOR, TOPIC, IngressSource, policy_separator

REFRESH = timedelta(seconds=30)
DEFAULT_OFFSET_MAP = "replicator.offsetmap"

HOLE_LIMIT = 50_000_000  # offsets in a row, filled within minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressSettings(CatalogSettings):
    """Delivery of archived topics to this region's cluster."""

    sources: tuple[IngressSource, ...] = field(
        metadata=setting(
            "what is delivered; of two sources that match a topic, a name wins, then the first in the file",
            reloads=True,
        )
    )
    replication_policy: str | None = field(
        default=None,
        metadata=setting(
            "replication_policy of sources that have none; default: none, and a source without a destination_topic "
            f'delivers to "{DEFAULT_DESTINATION}"',
            check=not_blank,
            reloads=True,
        ),
    )
    replication_policy_separator: str = field(
        default=DEFAULT_SEPARATOR,
        metadata=setting(
            "replication_policy_separator of sources that have none", check=policy_separator, reloads=True
        ),
    )
    processes: int = field(
        default=1,
        metadata=setting(
            "processes of this service on this machine, under one parent: each is a member of the group, with what the "
            "other settings limit for one; group.instance.id gets their number appended",
            minimum=1,
            maximum=64,
        ),
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
    offset_map_topic: str = field(
        default=DEFAULT_OFFSET_MAP,
        metadata=setting(
            "compacted topic that says which offset each record has here: consumer groups are moved by it",
            check=topic_name,
        ),
    )
    internal_replication_factor: int = field(
        default=-1,
        metadata=setting(
            "replicas of our own topics when we create them; -1 = the broker's default", minimum=-1, maximum=32767
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
    preserve_wait: timedelta = field(
        default=timedelta(seconds=10),
        metadata=setting(
            "with offsets = 'preserve': how long the end of a partition has to stand still before a new owner writes "
            "to it, and after which time a record that is not acknowledged expires. Longer than replicas lag behind, "
            'and shorter than kafka.consumer."session.timeout.ms"',
            minimum=timedelta(seconds=1),
        ),
    )
    preserve_hole_limit: int = field(
        default=HOLE_LIMIT,
        metadata=setting(
            "with offsets = 'preserve': offsets without a record, in a row, that are filled without asking; a "
            "partition with more of them, such as before the begin of the source's log, stops and says how long it "
            "would take",
            minimum=1,
        ),
    )
    preserve_holes_per_second: int = field(
        default=HOLES_PER_SECOND,
        metadata=setting(
            "with offsets = 'preserve': holes, such as markers of transactions, that one partition can fill in a "
            "second here; a source that makes more of them all the time would fall behind for ever, so its partition "
            "stops",
            minimum=1,
        ),
    )
    transaction_timeout: timedelta = field(
        default=timedelta(seconds=30),
        metadata=setting(
            "when the target aborts the transaction of a process that died; its partitions wait for that, and for the "
            "end of its session (session.timeout.ms), unless "
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
        default=REFRESH,
        metadata=setting(
            "how often new topics and partitions are searched for; 0 = an expression selects no topic that appears "
            "after the start, or after the last reload, and everything else is checked every 30 s",
            minimum=timedelta(0),
        ),
    )
    heartbeat_interval: timedelta = field(
        default=timedelta(seconds=5),
        metadata=setting(
            "how often heartbeats are written to topics of this cluster, and those of the sources listed: one LIST "
            "each time, and one GET when one has arrived; see `heartbeats` of a source",
            minimum=timedelta(seconds=1),
        ),
    )
    shutdown_timeout: timedelta = field(
        default=timedelta(seconds=10),
        metadata=setting("how long a stop may wait for runs in flight", minimum=timedelta(0)),
    )

    def __post_init__(self) -> None:
        problems = tuple(self._complete())
        enforce(self, problems or self._contradictions())

    @property
    def own_topics(self) -> frozenset[str]:
        return frozenset(self._own_topics.values())

    @property
    def _own_topics(self) -> Mapping[str, str]:
        """By setting."""
        names = ("segment_events_topic", "checkpoint_topic", "offset_map_topic", "ledger_topic")
        return {name: getattr(self, name) for name in names}

    @property
    def regions(self) -> Sequence[str]:
        """Source regions, in order."""
        return sorted({source.region for source in self.sources})

    @property
    def preserves_offsets(self) -> bool:
        """Whether any source keeps its offsets."""
        return any(source.preserves_offsets for source in self.sources)

    @property
    def refresh_interval(self) -> timedelta:
        """Between two checks of what may change. They go on where no new topics are searched for."""
        return self.topic_refresh_interval or REFRESH

    @property
    def finds_new_topics(self) -> bool:
        """Whether expressions select topics that appear while the process runs."""
        return bool(self.topic_refresh_interval)

    def source_of(self, region: str, topic: str) -> IngressSource | None:
        """The source that delivers `topic` of `region`, if it is not internal: a name beats expressions, then the
        first in the file. Raises PluginFailed."""
        matching = [source.rule for source in self.sources if source.region == region and source.topic.matches(topic)]
        return select_names([topic], matching, lambda _: "").get(topic)

    def rules(self, region: str) -> Sequence[TopicRule[IngressSource]]:
        """The sources of one region as rules for `formats.topic_selection.select`."""
        return [source.rule for source in self.sources if source.region == region]

    def _contradictions(self) -> Iterator[Problem]:
        if not self.sources:
            yield "sources", "missing: without a [[ingress.sources]] nothing is delivered"
        for name in ("internal_replication_factor", "replication_factor"):
            if getattr(self, name) == 0:
                yield name, "must be -1 (the broker's default) or at least 1"
        first: dict[str, str] = {}  # setting by topic
        for name, topic in self._own_topics.items():
            if (earlier := first.setdefault(topic, name)) != name:
                yield name, f"{topic!r} is the {earlier} too; each of our topics needs its own name"
        if self.protect and self.acls == "off":
            yield (
                "protect",
                "has no effect with acls = 'off': choose another acls, such as 'strict-read', or leave it out",
            )
        yield from self._repeated()
        yield from self._merged()

    def _delivers(self, source: IngressSource, topic: str) -> bool:
        try:
            return self.source_of(source.region, topic) is source
        except PluginFailed:  # a name made up from an expression: the filter need not know it
            return False

    def _complete(self) -> Iterator[Problem]:
        """Give each source the policy of [ingress] where it has none, so that a source knows its destinations."""
        sources = []
        for n, source in enumerate(self.sources):
            try:
                sources.append(source.completed(self.replication_policy, self.replication_policy_separator))
            except Invalid as invalid:
                yield from ((dotted(("sources", n, where)), what) for where, what in invalid.problems)
        if len(sources) == len(self.sources):
            object.__setattr__(self, "sources", tuple(sources))

    def _repeated(self) -> Iterator[Problem]:
        """A source that would never deliver anything, since the first one that selects a topic counts."""
        first: dict[tuple[str, str], int] = {}
        for n, source in enumerate(self.sources):
            earlier = first.setdefault((source.region, source.topic.text), n)
            if earlier != n:
                yield (
                    dotted(("sources", n, "topic")),
                    f"{source.topic.text!r} of {source.region} is the topic of sources[{earlier}], too, which counts "
                    "alone: to deliver it to a second destination, use another file, with its own group_id, "
                    "checkpoint_topic, segment_events_topic and queue",
                )

    def _merged(self) -> Iterator[Problem]:
        """Destinations that two source topics would share without both allowing it. Conflicts of two expressions show
        only when both match."""
        taken: dict[str, IngressSource] = {}  # by destination
        templates: dict[tuple[str, str], IngressSource] = {}  # by expression and destination
        for n, source in enumerate(self.sources):
            where = dotted(("sources", n, "destination_topic"))
            if source.topic.is_expression:
                owner = templates.setdefault((source.topic.text, source.template), source)
                if owner.region != source.region and not _may_merge(owner, source):
                    yield where, _merges(source, owner)
                continue
            try:
                if self.source_of(source.region, source.topic.text) is not source:
                    continue  # an earlier source of the same name wins: this one delivers nothing
                owner = taken.setdefault(source.destination(source.topic.text), source)
            except PluginFailed as error:
                yield dotted(("sources", n)), str(error)
                continue
            if owner is not source and not _may_merge(owner, source):
                yield where, _merges(source, owner)
        for n, source in enumerate(self.sources):
            if source.topic.is_expression:
                for destination, owner in taken.items():
                    theirs = _inverse(source.template, destination)
                    if theirs is None or (source.region, theirs) == (owner.region, owner.topic.text):
                        continue
                    if self._delivers(source, theirs) and not _may_merge(owner, source):
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
