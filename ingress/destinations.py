"""Which archived topics are delivered where, and the destination topics themselves.

Looks at the archive from time to time. A destination that is absent is created with the source's partition count, and
so that every timestamp of the source passes and nothing is thrown away for its age; one that exists is taken as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from replicator import logkeys
from replicator.config import IngressSettings, IngressSource
from replicator.durable import Step, durable
from replicator.errors import DataError, TargetError
from replicator.protocols import ClusterAdmin, SegmentFormat, TopicFacts
from replicator.segment import SourcePartition
from replicator.store import SegmentStore
from replicator.topics import is_internal

log = logging.getLogger(__name__)

PARTITIONS_EVERY = 10  # looks; it costs a request per partition
FOREVER = str(2**63 - 1)
CREATED_WITH = {
    # old and future stamps pass as they are; and a stamp of last year must not make the broker delete the record
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": FOREVER,
    "message.timestamp.after.max.ms": FOREVER,
    "retention.ms": "-1",
}


@dataclass(frozen=True, slots=True)
class Destination:
    region: str
    source_topic: str
    settings: IngressSource
    facts: TopicFacts  # of the topic here

    @property
    def topic(self) -> str:
        return self.facts.name

    def source(self, partition: int) -> SourcePartition:
        return SourcePartition(self.region, self.source_topic, partition)


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of one look."""

    destinations: Mapping[str, Destination]  # by the name of the topic here
    refused: Mapping[str, str]  # region/topic (or a partition of it) -> why it is not delivered, and what to do


@dataclass(slots=True)
class DestinationFinder:
    """`look` blocks; one call at a time."""

    store: SegmentStore
    format: SegmentFormat
    admin: ClusterAdmin
    settings: IngressSettings
    own_topics: Collection[str]
    _looks: int = 0
    _too_few: dict[str, Mapping[str, str]] = field(default_factory=dict)  # by destination

    def look(self) -> Found:
        """Raises StoreUnavailable or BrokerUnavailable; then nothing changed that matters."""
        refused: dict[str, str] = {}
        wanted: dict[str, list[tuple[str, str, IngressSource]]] = {}
        for region in sorted({s.region for s in self.settings.sources}):
            for topic in self.store.topics(region):
                source = self.settings.source_of(region, topic)
                if source is None or "@" in topic or is_internal(topic, self.own_topics):
                    continue  # other incarnations are not this life's records
                wanted.setdefault(source.destination(topic), []).append((region, topic, source))
        chosen: dict[str, tuple[str, str, IngressSource]] = {}
        for name, rivals in wanted.items():
            if len(rivals) == 1:
                chosen[name] = rivals[0]
                continue
            # whom to prefer would depend on who came first, which each process sees in its own way
            names = ", ".join(f"{region}/{topic}" for region, topic, _ in rivals)
            for region, topic, _ in rivals:
                refused[f"{region}/{topic}"] = (
                    f"{names} all have the destination {name}; topics are never merged: give them different "
                    "destination_topics"
                )
        facts = self._facts(chosen, refused)
        for name, (region, topic, source) in chosen.items():
            if name not in facts and f"{region}/{topic}" not in refused:
                try:
                    self._create(name, region, topic, source)
                except (TargetError, DataError) as error:
                    refused[f"{region}/{topic}"] = str(error)
        if len(facts) < len(chosen):
            facts = self._facts(chosen, refused)
        found = {n: Destination(r, t, s, facts[n]) for n, (r, t, s) in chosen.items() if n in facts}
        for name, destination in found.items():
            if name not in self._too_few or self._looks % PARTITIONS_EVERY == 0:
                self._too_few[name] = self._too_few_partitions(destination)
            refused |= self._too_few[name]
        self._looks += 1
        return Found(found, refused)

    def _facts(
        self, chosen: Mapping[str, tuple[str, str, IngressSource]], refused: dict[str, str]
    ) -> Mapping[str, TopicFacts]:
        """Of those that exist. One that we may not see is refused alone."""
        try:
            return self.admin.describe(chosen)
        except TargetError:
            facts: dict[str, TopicFacts] = {}
            for name, (region, topic, _) in chosen.items():
                try:
                    facts |= self.admin.describe([name])
                except TargetError as error:
                    refused[f"{region}/{topic}"] = str(error)
            return facts

    def _create(self, name: str, region: str, topic: str, source: IngressSource) -> None:
        count = source.partitions or self._source_partition_count(region, topic)
        if count is None:
            raise TargetError(
                f"destination topic {name} does not exist, and the segments of {region}/{topic} do not say how many "
                "partitions the source has (the ancestor wrote them): set `partitions` for this source, or create the "
                "topic"
            )
        with durable(Step.CREATE_TOPIC):
            created = self.admin.create_topic(
                name, partitions=count, replication_factor=self.settings.replication_factor, configs=CREATED_WITH
            )
        if created:
            log.info("destination_created", extra={logkeys.DESTINATION: name, logkeys.COUNT: count})

    def _source_partition_count(self, region: str, topic: str) -> int | None:
        """The largest count that the newest segment of any partition tells; a topic never loses partitions."""
        counts: list[int] = []
        partitions = self.store.partitions(region, topic)
        for partition in partitions:
            segments = self.store.list(SourcePartition(region, topic, partition))
            for info in sorted(segments, key=lambda i: i.segment.offsets.end, reverse=True)[:1]:
                with closing(self.format.open(self.store.open(info.segment), info.segment)) as reader:
                    if reader.footer.origin.source_partition_count is not None:
                        counts.append(reader.footer.origin.source_partition_count)
        return max(*counts, max(partitions) + 1) if counts else None

    def _too_few_partitions(self, destination: Destination) -> Mapping[str, str]:
        count = destination.facts.partition_count
        return {
            str(destination.source(p)): (
                f"destination topic {destination.topic} has {count} partitions, and partition i goes to partition i: "
                f"add partitions to it, at least {p + 1}"
            )
            for p in self.store.partitions(destination.region, destination.source_topic)
            if p >= count
        }
