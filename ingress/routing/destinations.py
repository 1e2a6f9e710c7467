"""Which archived topics are delivered to which destination topics.

The archive is listed at an interval. A missing destination is created as the source's catalogue says, and configured to
accept every timestamp of the source and to delete nothing; an existing one is used as it is: `ingress.catalog` keeps
those that we created like their sources.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from formats.control.catalog import Catalog
from formats.errors import OF_ONE_OBJECT, BrokerUnavailable, StoreUnavailable, TargetError
from formats.incarnation import Incarnation
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.segment import SourcePartition
from infra.archive.archive import Archive
from infra.archive.last_good import Catalogs
from infra.contracts.cluster import ClusterAdmin, TopicFacts, describe_each
from infra.runtime import log_fields
from infra.runtime.lifecycle import Deadline
from infra.settings.current import InForce
from ingress.catalog.creator import TopicCreator
from ingress.catalog.desired import SourceTopic, desired_topics, is_left_gone, lineage_of, not_created
from ingress.routing.archived import ArchivedTopic, ArchivedTopics, RefusedTopic, RoutingPlan, keeping_offsets
from ingress.routing.preserved_topic import contradiction, risks
from ingress.routing.succession import ArchivedIncarnation
from ingress.settings import IngressSettings

log = logging.getLogger(__name__)

# calls of `find` between listings of partitions, a request for each topic; events name new ones, unless they are lost
PARTITIONS_EVERY = 10
CREATED_WITHIN = timedelta(seconds=10)  # then what exists is delivered, and the next call creates the others


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A topic of this cluster. Several routes lead to it only when each of their sources allows that: partition i of
    each goes to partition i, with a separate checkpoint."""

    routes: Sequence[ArchivedTopic]  # at least one
    facts: TopicFacts

    @property
    def topic(self) -> str:
        return self.facts.name

    @property
    def has_later_incarnations(self) -> bool:
        """Whether a partition may have to switch to another incarnation."""
        return any(len(route.incarnations) > 1 for route in self.routes)

    def route_of(self, source: SourcePartition) -> ArchivedTopic | None:
        """None when no route delivers it here."""
        return next((route for route in self.routes if source in route.sources(source.partition)), None)


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """The result of `find`."""

    destinations: Mapping[str, Destination]  # by the name of the destination topic
    refused: Mapping[str, str]  # region/path, or a partition of it -> why it is not delivered, and the remedy
    # refused partitions of configured topics
    refused_partitions: Mapping[CheckpointKey, str] = field(default_factory=dict)
    withheld: Mapping[CheckpointKey, str] = field(default_factory=dict)  # refused, and not reported by parked notes
    earlier: Collection[CheckpointKey] = ()  # earlier incarnations of refused ones: some of them may wait, too
    catalogs: Mapping[str, Catalog] = field(default_factory=dict)  # in force, by region
    is_unfinished: bool = False  # topics are left to create
    # region and incarnation of all that is archived or in a catalogue, delivered or not; None: not read
    known: Collection[tuple[str, Incarnation]] | None = None
    problems: Mapping[str, str] = field(default_factory=dict)  # catalogues whose newest generation does not count
    stale: Collection[str] = ()  # their regions

    @property
    def stopped(self) -> Mapping[CheckpointKey, str]:
        """Every stored partition that is refused, with the reason. All processes find the same ones."""
        return {**self.withheld, **self.refused_partitions}

    def route(self, source: SourcePartition, destination: str) -> ArchivedTopic:
        """The route of an assigned partition, which has one: a `find` without one drops the partition."""
        route = self.destinations[destination].route_of(source)
        if route is None:
            raise ValueError(f"nothing of {source} goes to {destination}")
        return route

    def delivers(self, source: SourcePartition, destination: str, topic_id: str) -> bool:
        """Whether `source` is delivered to `destination`, and that topic still has the id `topic_id`."""
        found = self.destinations.get(destination)
        if found is None or found.route_of(source) is None:
            return False
        return not topic_id or not found.facts.topic_id or topic_id == found.facts.topic_id

    def with_facts(self, facts: Mapping[str, TopicFacts]) -> RoutingTable:
        """The same with newer facts of some destinations. Deleted destinations are left to the next `find`."""
        newer = {n: replace(d, facts=facts[n]) for n, d in self.destinations.items() if n in facts}
        return replace(self, destinations={**self.destinations, **newer})


@dataclass(slots=True)
class DestinationFinder:
    """`find` blocks and must not run twice at a time. `facts` may be called concurrently with it.

    `cluster_id` is that at the start. Another cluster at the same address stops all delivery while the process
    runs. A process that starts there has nothing to compare it with: its checkpoints are in the other cluster.
    """

    archive: Archive
    archived_topics: ArchivedTopics
    admin: ClusterAdmin
    settings: InForce[IngressSettings]
    creator: TopicCreator
    catalogs: Catalogs
    cluster_id: str = ""  # empty: not known
    _calls: int = 0
    _idle: frozenset[tuple[str, str]] = frozenset()  # region and pattern, logged once
    _kept_away: frozenset[str] = frozenset()  # region/path, logged once
    _at_risk: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by destination, logged once
    # the topics that expressions may select, and the settings with which they were found
    _searched: Collection[SourceTopic] = frozenset()
    _searched_by: IngressSettings | None = None
    _stored: dict[tuple[str, str], Sequence[int]] = field(default_factory=dict)  # partitions by region and path

    def find(self, grown: Collection[tuple[str, str]] = ()) -> RoutingTable:
        """`grown`: region and archive path of topics that have more partitions than at the last call. Raises
        StoreUnavailable, BrokerUnavailable or TargetError, and may be repeated then."""
        settings = self.settings.value
        if reason := self._other_cluster():
            return self._elsewhere(reason)
        renew = self._calls % PARTITIONS_EVERY == 0
        self._stored = {where: numbers for where, numbers in self._stored.items() if not renew and where not in grown}
        catalogs = self.catalogs.refresh(settings.regions)
        plan = self.archived_topics.plan(settings, catalogs)
        self._log_idle(plan.idle)
        self._log_kept_away(plan.kept_away)
        refused = {r.topic.name: r.reason for r in [*plan.withheld, *plan.refused, *plan.unnamed]}
        chosen = self._searched_for(settings, plan)
        facts = self._facts(chosen, refused)
        chosen = {
            name: some
            for name, some in chosen.items()
            if name in facts or not is_left_gone([one.source for one in some], catalogs, settings)
        }
        creating, is_unfinished = Deadline(CREATED_WITHIN), False
        for name, archived_topics in chosen.items():
            if name not in facts and not any(archived_topic.name in refused for archived_topic in archived_topics):
                if creating.expired:
                    is_unfinished = True
                    continue
                try:
                    self._create(settings, name, archived_topics, catalogs)
                except (*OF_ONE_OBJECT, TargetError, BrokerUnavailable) as error:  # the others are delivered meanwhile
                    refused |= dict.fromkeys((archived_topic.name for archived_topic in archived_topics), str(error))
        if len(facts) < len(chosen):
            facts = self._facts(chosen, refused)
        contradicting = self._contradicting(chosen, facts, catalogs)
        refused |= contradicting
        found = {
            name: Destination(routes=archived_topics, facts=facts[name])
            for name, archived_topics in chosen.items()
            if name in facts and not any(one.name in contradicting for one in archived_topics)
        }
        archived_topics = [
            *(archived_topic for some in chosen.values() for archived_topic in some),
            *(r.topic for r in plan.refused),
        ]
        refusals = [
            RefusedTopic(archived_topic, refused[archived_topic.name])
            for archived_topic in archived_topics
            if archived_topic.name in refused
        ]
        refused_partitions = self._by_partition(refusals)
        for name, destination in found.items():
            too_few = self._too_few_partitions(destination)
            refused |= {str(source): reason for source, reason in too_few.items()}
            refused_partitions |= {CheckpointKey(source, name): reason for source, reason in too_few.items()}
        self._calls += 1
        earlier = self._earlier([*refusals, *plan.withheld])
        return RoutingTable(
            found,
            refused,
            refused_partitions,
            self._by_partition(plan.withheld),
            earlier,
            catalogs,
            is_unfinished=is_unfinished,
            known=plan.known,
            problems={f"catalogue of {region}": why for region, why in self.catalogs.problems.items()},
            stale=frozenset(self.catalogs.problems),
        )

    def _searched_for(self, settings: IngressSettings, plan: RoutingPlan) -> Mapping[str, Sequence[ArchivedTopic]]:
        """What is chosen, without the topics that appeared since the settings are in force, where they are not to be
        searched for. One that was not delivered then, for whatever reason, was there all the same."""
        chosen = plan.chosen
        if settings.finds_new_topics or settings is not self._searched_by:
            others = (one.topic for one in [*plan.withheld, *plan.refused, *plan.kept_away, *plan.unnamed])
            found = [*(one for some in chosen.values() for one in some), *others]
            self._searched, self._searched_by = {one.source for one in found}, settings
            return chosen
        known = {
            name: [one for one in some if one.source in self._searched or not one.settings.topic.is_expression]
            for name, some in chosen.items()
        }
        return {name: some for name, some in known.items() if some}

    def _elsewhere(self, reason: str) -> RoutingTable:
        """The routing table for another cluster: everything is refused for `reason`."""
        try:
            plan = self.archived_topics.plan(self.settings.value)
            archived_topics = [archived_topic for some in plan.chosen.values() for archived_topic in some]
            refusals = [
                *plan.withheld,
                *plan.refused,
                *(RefusedTopic(archived_topic, reason) for archived_topic in archived_topics),
            ]
            withheld, earlier = self._by_partition(refusals), self._earlier(refusals)
            return RoutingTable({}, {"cluster": reason}, {}, withheld, earlier)
        except StoreUnavailable:  # must not keep what was found in the cluster before
            return RoutingTable({}, {"cluster": reason})

    def _by_partition(self, refusals: Iterable[RefusedTopic]) -> dict[CheckpointKey, str]:
        """Refusals by stored partition, each in the last incarnation that has it: which incarnation is delivered is
        known only once the partition has a destination."""
        return {keys[-1]: refusal.reason for refusal in refusals for keys in self._keys(refusal.topic)}

    def _earlier(self, refusals: Iterable[RefusedTopic]) -> Collection[CheckpointKey]:
        return [key for refusal in refusals for keys in self._keys(refusal.topic) for key in keys[:-1]]

    def _keys(self, archived_topic: ArchivedTopic) -> Iterable[Sequence[CheckpointKey]]:
        """For each stored partition the incarnations that have it, in order."""
        found: dict[int, list[CheckpointKey]] = {}
        for incarnation in archived_topic.incarnations:
            for number in self._partitions(archived_topic.region, incarnation):
                found.setdefault(number, []).append(
                    CheckpointKey(incarnation.source(archived_topic.region, number), archived_topic.destination)
                )
        return found.values()

    def _log_idle(self, idle: frozenset[tuple[str, str]]) -> None:
        """Log each source that matches nothing once: it may be a typing error, or its archive does not exist yet."""
        for region, pattern in sorted(idle - self._idle):
            log.warning("source_matches_no_topic", extra={log_fields.REGION: region, log_fields.TOPIC: pattern})
        self._idle = idle

    def _log_kept_away(self, kept_away: Sequence[RefusedTopic]) -> None:
        """Log each topic once that its replication policy keeps away: as it should be, but worth one line."""
        found = {one.topic.name: one.reason for one in kept_away}
        for name in found.keys() - self._kept_away:
            log.info("topic_not_replicated", extra={log_fields.TOPIC: name, log_fields.REASON: found[name]})
        self._kept_away = frozenset(found)

    def facts(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
        """Current facts of the destinations that exist. Raises BrokerUnavailable or TargetError."""
        if reason := self._other_cluster():
            raise TargetError(reason)
        return self.admin.describe(names)

    def _other_cluster(self) -> str:
        """Why this is not the cluster of the start of this process; empty when it is. Ending the process would not
        help: one that starts here finds no checkpoints, and delivers everything to the wrong cluster."""
        now = self.admin.cluster_id()
        self.cluster_id = self.cluster_id or now
        if not now or now == self.cluster_id:
            return ""
        return (
            f"kafka.bootstrap.servers now leads to a cluster with id {now}; this process began with {self.cluster_id}. "
            "Nothing is delivered. Correct the address or the name resolution; if the cluster was replaced on purpose, "
            "restart: a cluster without this one's checkpoint topic gets everything from the archive's beginning"
        )

    def _facts(
        self, chosen: Mapping[str, Sequence[ArchivedTopic]], refused: dict[str, str]
    ) -> Mapping[str, TopicFacts]:
        """Facts of the destinations that exist. A destination that may not be described is refused alone."""
        facts, errors = describe_each(self.admin, chosen)
        refused |= {
            archived_topic.name: str(error) for name, error in errors.items() for archived_topic in chosen[name]
        }
        return facts

    def _contradicting(
        self,
        chosen: Mapping[str, Sequence[ArchivedTopic]],
        facts: Mapping[str, TopicFacts],
        catalogs: Mapping[str, Catalog],
    ) -> Mapping[str, str]:
        """Sources whose offsets cannot be kept in the topics that they go to, with the reason. Others that are at risk
        are logged, once and when that changes."""
        refused: dict[str, str] = {}
        at_risk: dict[str, tuple[str, ...]] = {}
        names = sorted(keeping_offsets(chosen) & facts.keys())
        for name, configs in (self.admin.configs_of(names) if names else {}).items():
            if isinstance(configs, TargetError):
                refused |= {one.name: str(configs) for one in chosen[name]}
                continue
            for one in chosen[name]:
                topic = one.source.found_in(catalogs)
                source = None if topic is None else topic.configs
                if reason := contradiction(configs, source):
                    refused[one.name] = f"destination topic {name}: {reason}"
                elif found := tuple(risks(configs, source)):
                    at_risk[name] = found
        for name, reasons in at_risk.items():
            if self._at_risk.get(name) != reasons:
                log.warning(
                    "preserve_at_risk", extra={log_fields.DESTINATION: name, log_fields.REASON: "; ".join(reasons)}
                )
        self._at_risk = at_risk
        return refused

    def _create(
        self,
        settings: IngressSettings,
        name: str,
        archived_topics: Sequence[ArchivedTopic],
        catalogs: Mapping[str, Catalog],
    ) -> None:
        """Create it as the source's catalogue says; without one, with the partition count of the largest source."""
        desired = desired_topics({name: [one.source for one in archived_topics]}, catalogs, settings)
        known = [one for one in desired if not one.is_removed]
        count = (
            max(known[0].partitions, self._stored_count(archived_topics))
            if known
            else max(self._partition_count(name, archived_topic) for archived_topic in archived_topics)
        )
        if not settings.create_topics:
            raise TargetError(f"destination topic {name} {not_created(count)}")
        first = archived_topics[0]
        only_records = any(one.settings.syncs_nothing for one in archived_topics)
        self.creator.create(
            name,
            count,
            (known[0].configs or {}) if known and not only_records else {},
            source=str(first.source),
            lineage=lineage_of([one.source for one in archived_topics], catalogs)
            or self.archived_topics.cluster_of(first),
        )

    def _stored_count(self, archived_topics: Sequence[ArchivedTopic]) -> int:
        """Partitions that a destination needs for what is stored."""
        stored = (
            number
            for one in archived_topics
            if one.settings.partitions is None
            for incarnation in one.incarnations
            for number in self._partitions(one.region, incarnation)
        )
        return max(stored, default=-1) + 1

    def _partition_count(self, name: str, archived_topic: ArchivedTopic) -> int:
        if archived_topic.settings.partitions is not None:
            return archived_topic.settings.partitions
        counts = [
            self._source_partition_count(archived_topic.region, incarnation)
            for incarnation in archived_topic.incarnations
        ]
        if count := max((c for c in counts if c is not None), default=0):
            return count
        if None in counts:
            raise TargetError(
                f"destination topic {name} does not exist, and the segments of {archived_topic.name} do not say how "
                "many partitions the source has (the ancestor wrote them): set `partitions` for this source, or create "
                "the topic"
            )
        raise TargetError(
            f"destination topic {name} does not exist, and no segment of {archived_topic.name} is stored any more: "
            "it is created once there is one; to create it now, set `partitions` for this source"
        )

    def _source_partition_count(self, region: str, incarnation: ArchivedIncarnation) -> int | None:
        """The largest count in the footers of the partitions' newest segments; a topic never loses partitions. None: no
        footer has one. 0: nothing is stored."""
        newest = [
            max((info.segment for info in infos), key=lambda segment: (segment.offsets.end, segment.level))
            for _, infos in self.archive.segments.of_each_partition(region, incarnation.path)
        ]
        if not newest:
            return 0
        counts = [self.archive.footer(segment).origin.source_partition_count for segment in newest]
        known = [count for count in counts if count is not None]
        return max(*known, *(segment.source.partition + 1 for segment in newest)) if known else None

    def _partitions(self, region: str, incarnation: ArchivedIncarnation) -> Sequence[int]:
        where = (region, incarnation.path)
        if where not in self._stored:
            self._stored[where] = self.archive.segments.partitions(region, incarnation.path)
        return self._stored[where]

    def _too_few_partitions(self, destination: Destination) -> Mapping[SourcePartition, str]:
        """Partitions that the destination lacks. Each reason names the count for all, so partitions are added once."""
        count = destination.facts.partition_count
        wanted = max(
            (
                p + 1
                for r in destination.routes
                for incarnation in r.incarnations
                for p in self._partitions(r.region, incarnation)
            ),
            default=0,
        )
        return {
            incarnation.source(route.region, p): (
                f"destination topic {destination.topic} has {count} partitions, and partition i goes to partition i: "
                f"add partitions to it, at least {wanted}"
            )
            for route in destination.routes
            for incarnation in route.incarnations
            for p in self._partitions(route.region, incarnation)
            if p >= count
        }
