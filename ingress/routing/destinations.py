"""Which archived topics are delivered where, and the destination topics themselves.

Looks at the archive from time to time. A destination that is absent is created with the source's partition count, and
so that every timestamp of the source passes and nothing is thrown away for its age; one that exists is taken as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from formats.errors import DataError, StoreUnavailable, TargetError
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.segment import SourcePartition
from infra.archive.archive import Archive
from infra.contracts.cluster import ClusterAdmin, TopicFacts, describe_each
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable
from ingress.routing.archived import ArchivedTopic, ArchivedTopics, RefusedTopic
from ingress.routing.succession import ArchivedIncarnation, Succession
from ingress.settings import IngressSettings, IngressSource

log = logging.getLogger(__name__)

PARTITIONS_EVERY = 10  # looks; it costs a request per partition. Events name a new one at once, unless they are lost
FOREVER = str(2**63 - 1)
CREATED_WITH = {
    # old and future stamps pass as they are; and a stamp of last year must not make the broker delete the record
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": FOREVER,
    "message.timestamp.after.max.ms": FOREVER,
    "retention.ms": "-1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One source topic's way to a destination."""

    region: str
    lives: Sequence[ArchivedIncarnation]  # what is delivered, in this order; at least one, of one source topic
    settings: IngressSource

    def sources(self, partition: int) -> Sequence[SourcePartition]:
        """What goes to a partition there: of each life, in their order."""
        return [life.source(self.region, partition) for life in self.lives]

    def succession(self, partition: int) -> Succession:
        return Succession(region=self.region, partition=partition, lives=self.lives)


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A topic here. Several routes lead to it only when each of their sources allows that: partition i of each goes to
    partition i, with a checkpoint of its own."""

    routes: Sequence[Route]  # at least one
    facts: TopicFacts

    @property
    def topic(self) -> str:
        return self.facts.name

    @property
    def has_later_lives(self) -> bool:
        """Whether a partition may have to turn to another life. Seldom true, and asked in every turn of the loop."""
        return any(len(route.lives) > 1 for route in self.routes)

    def route_of(self, source: SourcePartition) -> Route | None:
        """None when nothing of it goes here."""
        return next((route for route in self.routes if source in route.sources(source.partition)), None)


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """The answer of one look."""

    destinations: Mapping[str, Destination]  # by the name of the topic here
    refused: Mapping[str, str]  # region/place (or a partition of it) -> why it is not delivered, and what to do
    unplaced: Mapping[CheckpointKey, str] = field(default_factory=dict)  # the same of what is wanted, by partition
    withheld: Mapping[CheckpointKey, str] = field(default_factory=dict)  # the same of what a process leaves no note of
    earlier: Collection[CheckpointKey] = ()  # earlier incarnations of what is refused: some of them may wait, too

    @property
    def stopped(self) -> Mapping[CheckpointKey, str]:
        """Every stored partition that is refused, with the reason. Each process finds the same ones."""
        return {**self.withheld, **self.unplaced}

    def route(self, source: SourcePartition, destination: str) -> Route:
        """Of what is held: once it has none, the look that says so drops it."""
        route = self.destinations[destination].route_of(source)
        if route is None:
            raise ValueError(f"nothing of {source} goes to {destination}")
        return route

    def delivers(self, source: SourcePartition, destination: str, topic_id: str) -> bool:
        """Whether that is what should go there, and the topic there is still the one with this id."""
        found = self.destinations.get(destination)
        if found is None or found.route_of(source) is None:
            return False
        return not topic_id or not found.facts.topic_id or topic_id == found.facts.topic_id

    def with_facts(self, facts: Mapping[str, TopicFacts]) -> RoutingTable:
        """The same with news of some topics here; what is not there any more is left for the next look."""
        newer = {n: replace(d, facts=facts[n]) for n, d in self.destinations.items() if n in facts}
        return replace(self, destinations={**self.destinations, **newer})


@dataclass(slots=True)
class DestinationFinder:
    """`look` blocks; one call at a time. `facts` may be called beside it.

    `cluster_id` was noted at start. Another one behind the same address stops everything while the process runs; a
    process that starts there has nothing to compare it with, since its checkpoints were left in the other cluster.
    """

    archive: Archive
    wishes: ArchivedTopics
    admin: ClusterAdmin
    settings: IngressSettings
    cluster_id: str = ""  # empty: not known
    _looks: int = 0
    _idle: frozenset[tuple[str, str]] = frozenset()  # region and pattern: told once
    _stored: dict[tuple[str, str], Sequence[int]] = field(default_factory=dict)  # partitions by region and place

    def look(self, grown: Collection[tuple[str, str]] = ()) -> RoutingTable:
        """`grown`: region and place of what is known to have more partitions than at the last look. Raises
        StoreUnavailable or BrokerUnavailable; then nothing changed that matters."""
        if reason := self._other_cluster():
            return self._elsewhere(reason)
        renew = self._looks % PARTITIONS_EVERY == 0
        self._stored = {where: numbers for where, numbers in self._stored.items() if not renew and where not in grown}
        plan = self.wishes.plan()
        self._tell_idle(plan.idle)
        refused = {r.wish.name: r.reason for r in [*plan.withheld, *plan.refused]}
        chosen = plan.chosen
        facts = self._facts(chosen, refused)
        for name, wishes in chosen.items():
            if name not in facts and not any(wish.name in refused for wish in wishes):
                try:
                    self._create(name, wishes)
                except (TargetError, DataError) as error:
                    refused |= dict.fromkeys((wish.name for wish in wishes), str(error))
        if len(facts) < len(chosen):
            facts = self._facts(chosen, refused)
        found = {
            n: Destination(
                routes=[Route(region=w.region, lives=w.lives, settings=w.settings) for w in wishes], facts=facts[n]
            )
            for n, wishes in chosen.items()
            if n in facts
        }
        wishes = [*(wish for some in chosen.values() for wish in some), *(r.wish for r in plan.refused)]
        refusals = [RefusedTopic(wish, refused[wish.name]) for wish in wishes if wish.name in refused]
        unplaced = self._by_partition(refusals)
        for name, destination in found.items():
            too_few = self._too_few_partitions(destination)
            refused |= {str(source): reason for source, reason in too_few.items()}
            unplaced |= {CheckpointKey(source, name): reason for source, reason in too_few.items()}
        self._looks += 1
        earlier = self._earlier([*refusals, *plan.withheld])
        return RoutingTable(found, refused, unplaced, self._by_partition(plan.withheld), earlier)

    def _elsewhere(self, reason: str) -> RoutingTable:
        """Nothing of all that is wanted is delivered to a cluster that is another one."""
        try:
            plan = self.wishes.plan()
            wishes = [wish for some in plan.chosen.values() for wish in some]
            refusals = [*plan.withheld, *plan.refused, *(RefusedTopic(wish, reason) for wish in wishes)]
            withheld, earlier = self._by_partition(refusals), self._earlier(refusals)
            return RoutingTable({}, {"cluster": reason}, {}, withheld, earlier)
        except StoreUnavailable:  # must not keep what was found in the cluster before
            return RoutingTable({}, {"cluster": reason})

    def _by_partition(self, refusals: Iterable[RefusedTopic]) -> dict[CheckpointKey, str]:
        """By what is stored of each, in the last incarnation that has the partition: which one is delivered is known
        once it has a place."""
        return {keys[-1]: refusal.reason for refusal in refusals for keys in self._keys(refusal.wish)}

    def _earlier(self, refusals: Iterable[RefusedTopic]) -> Collection[CheckpointKey]:
        return [key for refusal in refusals for keys in self._keys(refusal.wish) for key in keys[:-1]]

    def _keys(self, wish: ArchivedTopic) -> Iterable[Sequence[CheckpointKey]]:
        """Of each partition that is stored: the incarnations that have it, in order."""
        found: dict[int, list[CheckpointKey]] = {}
        for life in wish.lives:
            for number in self._partitions(wish.region, life):
                found.setdefault(number, []).append(CheckpointKey(life.source(wish.region, number), wish.destination))
        return found.values()

    def _tell_idle(self, idle: frozenset[tuple[str, str]]) -> None:
        """A source that matches nothing: perhaps a slip of the pen, perhaps an archive that is still to come."""
        for region, pattern in sorted(idle - self._idle):
            log.warning("source_matches_no_topic", extra={log_fields.REGION: region, log_fields.TOPIC: pattern})
        self._idle = idle

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

    def _facts(
        self, chosen: Mapping[str, Sequence[ArchivedTopic]], refused: dict[str, str]
    ) -> Mapping[str, TopicFacts]:
        """Of those that exist. One that we may not see is refused alone."""
        facts, errors = describe_each(self.admin, chosen)
        refused |= {wish.name: str(error) for name, error in errors.items() for wish in chosen[name]}
        return facts

    def _create(self, name: str, wishes: Sequence[ArchivedTopic]) -> None:
        """With as many partitions as the largest source has, or as is said for it."""
        count = max(self._partition_count(name, wish) for wish in wishes)
        with durable(Step.CREATE_TOPIC):
            created = self.admin.create_topic(
                name, partitions=count, replication_factor=self.settings.replication_factor, configs=CREATED_WITH
            )
        if created:
            log.info("destination_created", extra={log_fields.DESTINATION: name, log_fields.COUNT: count})

    def _partition_count(self, name: str, wish: ArchivedTopic) -> int:
        if wish.settings.partitions is not None:
            return wish.settings.partitions
        counts = [self._source_partition_count(wish.region, life) for life in wish.lives]
        count = max((c for c in counts if c is not None), default=None)
        if count is None:
            raise TargetError(
                f"destination topic {name} does not exist, and the segments of {wish.name} do not say how many "
                "partitions the source has (the ancestor wrote them): set `partitions` for this source, or create the "
                "topic"
            )
        return count

    def _source_partition_count(self, region: str, life: ArchivedIncarnation) -> int | None:
        """The largest count that the newest segment of any partition tells; a topic never loses partitions."""
        counts: list[int] = []
        partitions = self.archive.segments.partitions(region, life.path)
        for partition in partitions:
            segments = self.archive.segments.list(life.source(region, partition))
            for info in sorted(segments, key=lambda i: i.segment.offsets.end, reverse=True)[:1]:
                count = self.archive.footer(info.segment).origin.source_partition_count
                if count is not None:
                    counts.append(count)
        return max(*counts, max(partitions) + 1) if counts else None

    def _partitions(self, region: str, life: ArchivedIncarnation) -> Sequence[int]:
        where = (region, life.path)
        if where not in self._stored:
            self._stored[where] = self.archive.segments.partitions(region, life.path)
        return self._stored[where]

    def _too_few_partitions(self, destination: Destination) -> Mapping[SourcePartition, str]:
        """Each reason names what all of them need: partitions are added once."""
        count = destination.facts.partition_count
        wanted = max(
            (p + 1 for r in destination.routes for life in r.lives for p in self._partitions(r.region, life)), default=0
        )
        return {
            life.source(route.region, p): (
                f"destination topic {destination.topic} has {count} partitions, and partition i goes to partition i: "
                f"add partitions to it, at least {wanted}"
            )
            for route in destination.routes
            for life in route.lives
            for p in self._partitions(route.region, life)
            if p >= count
        }
