"""Which archived topics are delivered where, and the destination topics themselves.

Looks at the archive from time to time. A destination that is absent is created with the source's partition count, and
so that every timestamp of the source passes and nothing is thrown away for its age; one that exists is taken as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from ingress.lives import Life
from ingress.wishes import Wish, WishFinder
from replicator import logkeys
from replicator.checkpoint import CheckpointKey
from replicator.config import IngressSettings, IngressSource
from replicator.describing import describe_each
from replicator.durable import Step, durable
from replicator.errors import DataError, TargetError
from replicator.protocols import ClusterAdmin, SegmentFormat, TopicFacts
from replicator.segment import SourcePartition
from replicator.store import SegmentStore

log = logging.getLogger(__name__)

PARTITIONS_EVERY = 10  # looks; it costs a request per partition
LONGEST_NAME = 249  # Kafka's own rule
FOREVER = str(2**63 - 1)
CREATED_WITH = {
    # old and future stamps pass as they are; and a stamp of last year must not make the broker delete the record
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": FOREVER,
    "message.timestamp.after.max.ms": FOREVER,
    "retention.ms": "-1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    region: str
    lives: Sequence[Life]  # what is delivered there, in this order; at least one, of one source topic
    settings: IngressSource
    facts: TopicFacts  # of the topic here

    @property
    def topic(self) -> str:
        return self.facts.name

    @property
    def source_topic(self) -> str:
        return self.lives[0].topic

    def sources(self, partition: int) -> Sequence[SourcePartition]:
        """What goes to a partition here: of each life, in their order."""
        return [life.source(self.region, partition) for life in self.lives]

    def next_life(self, source: SourcePartition) -> Life | None:
        """The one behind that of `source`."""
        if len(self.lives) == 1:  # nearly always, and asked in every turn of the loop
            return None
        later = self.sources(source.partition).index(source) + 1
        return self.lives[later] if later < len(self.lives) else None


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of one look."""

    destinations: Mapping[str, Destination]  # by the name of the topic here
    refused: Mapping[str, str]  # region/place (or a partition of it) -> why it is not delivered, and what to do
    unplaced: Mapping[CheckpointKey, str] = field(default_factory=dict)  # the same of what is wanted, by partition

    def delivers(self, source: SourcePartition, destination: str, topic_id: str) -> bool:
        """Whether that is what should go there, and the topic there is still the one with this id."""
        found = self.destinations.get(destination)
        if found is None or source not in found.sources(source.partition):
            return False
        return not topic_id or not found.facts.topic_id or topic_id == found.facts.topic_id

    def with_facts(self, facts: Mapping[str, TopicFacts]) -> Found:
        """The same with news of some topics here; what is not there any more is left for the next look."""
        newer = {n: replace(d, facts=facts[n]) for n, d in self.destinations.items() if n in facts}
        return replace(self, destinations={**self.destinations, **newer})


@dataclass(slots=True)
class DestinationFinder:
    """`look` blocks; one call at a time. `facts` may be called beside it.

    `cluster_id` was noted at start. Another one behind the same address stops everything while the process runs; a
    process that starts there has nothing to compare it with, since its checkpoints were left in the other cluster.
    """

    store: SegmentStore
    wishes: WishFinder
    format: SegmentFormat
    admin: ClusterAdmin
    settings: IngressSettings
    cluster_id: str = ""  # empty: not known
    _looks: int = 0
    _too_few: dict[str, Mapping[SourcePartition, str]] = field(default_factory=dict)  # by destination
    _stored: dict[str, Sequence[SourcePartition]] = field(default_factory=dict)  # by name, of wishes that are refused

    def look(self) -> Found:
        """Raises StoreUnavailable or BrokerUnavailable; then nothing changed that matters."""
        if reason := self._other_cluster():
            return Found({}, {"cluster": reason})
        refused: dict[str, str] = {}
        wanted: dict[str, list[Wish]] = {}
        for region in sorted({s.region for s in self.settings.sources}):
            for wish in self.wishes.look(region, refused):
                wanted.setdefault(wish.destination, []).append(wish)
        chosen: dict[str, Wish] = {}
        for name, rivals in wanted.items():
            if len(name) > LONGEST_NAME:
                for wish in rivals:
                    refused[wish.name] = f"its destination {name} has {len(name)} characters, Kafka's limit is 249"
                continue
            if len(rivals) == 1:
                chosen[name] = rivals[0]
                continue
            # whom to prefer would depend on who came first, which each process sees in its own way
            names = ", ".join(wish.name for wish in rivals)
            for wish in rivals:
                refused[wish.name] = (
                    f"{names} all have the destination {name}; topics are never merged: give them different "
                    "destination_topics"
                )
        facts = self._facts(chosen, refused)
        for name, wish in chosen.items():
            if name not in facts and wish.name not in refused:
                try:
                    self._create(name, wish)
                except (TargetError, DataError) as error:
                    refused[wish.name] = str(error)
        if len(facts) < len(chosen):
            facts = self._facts(chosen, refused)
        found = {
            n: Destination(region=w.region, lives=w.lives, settings=w.settings, facts=facts[n])
            for n, w in chosen.items()
            if n in facts
        }
        for name, destination in found.items():
            if name not in self._too_few or self._looks % PARTITIONS_EVERY == 0:
                self._too_few[name] = self._too_few_partitions(destination)
            refused |= {str(source): reason for source, reason in self._too_few[name].items()}
        unplaced = {
            CheckpointKey(source, wish.destination): refused[wish.name]
            for rivals in wanted.values()
            for wish in rivals
            if wish.name in refused
            for source in self._partitions(wish)
        }
        unplaced |= {
            CheckpointKey(source, name): reason for name in found for source, reason in self._too_few[name].items()
        }
        self._looks += 1
        return Found(found, refused, unplaced)

    def facts(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
        """Of the topics here that exist, as of now. Raises BrokerUnavailable or TargetError."""
        if reason := self._other_cluster():
            raise TargetError(reason)
        return self.admin.describe(names)

    def _other_cluster(self) -> str:
        """Why this is not the cluster that this process began with; empty when it is. Ending the process would not
        help: one that starts here finds no checkpoints, and delivers everything to the wrong cluster."""
        now = self.admin.cluster_id()
        self.cluster_id = self.cluster_id or now
        if not now or now == self.cluster_id:
            return ""
        return (
            f"kafka.bootstrap.servers now leads to a cluster with id {now}; this process began with {self.cluster_id}. "
            "Nothing is delivered. Mend the address or the name resolution; if the cluster was replaced on purpose, "
            "restart: a cluster without this one's checkpoint topic gets everything from the archive's beginning"
        )

    def _facts(self, chosen: Mapping[str, Wish], refused: dict[str, str]) -> Mapping[str, TopicFacts]:
        """Of those that exist. One that we may not see is refused alone."""
        facts, errors = describe_each(self.admin, chosen)
        refused |= {chosen[name].name: str(error) for name, error in errors.items()}
        return facts

    def _create(self, name: str, wish: Wish) -> None:
        count = wish.settings.partitions
        if count is None:
            counts = [self._source_partition_count(wish.region, life) for life in wish.lives]
            count = max((c for c in counts if c is not None), default=None)
        if count is None:
            raise TargetError(
                f"destination topic {name} does not exist, and the segments of {wish.name} do not say how many "
                "partitions the source has (the ancestor wrote them): set `partitions` for this source, or create the "
                "topic"
            )
        with durable(Step.CREATE_TOPIC):
            created = self.admin.create_topic(
                name, partitions=count, replication_factor=self.settings.replication_factor, configs=CREATED_WITH
            )
        if created:
            log.info("destination_created", extra={logkeys.DESTINATION: name, logkeys.COUNT: count})

    def _source_partition_count(self, region: str, life: Life) -> int | None:
        """The largest count that the newest segment of any partition tells; a topic never loses partitions."""
        counts: list[int] = []
        partitions = self.store.partitions(region, life.place)
        for partition in partitions:
            segments = self.store.list(life.source(region, partition))
            for info in sorted(segments, key=lambda i: i.segment.offsets.end, reverse=True)[:1]:
                with closing(self.format.open(self.store.open(info.segment), info.segment)) as reader:
                    if reader.footer.origin.source_partition_count is not None:
                        counts.append(reader.footer.origin.source_partition_count)
        return max(*counts, max(partitions) + 1) if counts else None

    def _partitions(self, wish: Wish) -> Sequence[SourcePartition]:
        """Of its first life: which of several is at hand is known once it has a place."""
        if wish.name not in self._stored or self._looks % PARTITIONS_EVERY == 0:
            life = wish.lives[0]
            numbers = self.store.partitions(wish.region, life.place)
            self._stored[wish.name] = [life.source(wish.region, number) for number in numbers]
        return self._stored[wish.name]

    def _too_few_partitions(self, destination: Destination) -> Mapping[SourcePartition, str]:
        count = destination.facts.partition_count
        return {
            life.source(destination.region, p): (
                f"destination topic {destination.topic} has {count} partitions, and partition i goes to partition i: "
                f"add partitions to it, at least {p + 1}"
            )
            for life in destination.lives
            for p in self.store.partitions(destination.region, life.place)
            if p >= count
        }
