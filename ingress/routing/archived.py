"""Selects the archived topics that the configured sources deliver, with their incarnations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from types import MappingProxyType

from formats.control.catalog import Catalog
from formats.control.claim import TopicClaim
from formats.errors import OF_ONE_OBJECT, PluginFailed
from formats.incarnation import LEGAL_NAME, Incarnation
from formats.segment import SourcePartition
from formats.topic_selection import is_internal, select, unmatched
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from infra.contracts.internal_topics import CheckpointStore
from infra.runtime.lifecycle import Clock, SystemClock
from ingress.catalog.desired import KeptTopic, SourceTopic
from ingress.routing.copies import DeliveredWays, cycle_of, delivered_ways, repeated, ways_of
from ingress.routing.succession import ArchivedIncarnation, Succession, in_order
from ingress.settings import IngressSettings
from ingress.source_settings import IngressSource

LONGEST_NAME = 249  # Kafka's own rule
CLOCKS_DIFFER = timedelta(minutes=1)  # at most, between processes of one egress


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTopic:
    """An archived topic that is delivered to one topic of this cluster."""

    region: str
    incarnations: Sequence[ArchivedIncarnation]  # in the order of delivery; at least one
    settings: IngressSource

    @property
    def name(self) -> str:
        return f"{self.region}/{self.incarnations[0].path}"

    @property
    def source(self) -> SourceTopic:
        return SourceTopic(region=self.region, name=self.incarnations[0].topic, partitions=self.settings.partitions)

    @property
    def destination(self) -> str:
        return self.settings.destination(self.incarnations[0].topic, self.incarnations[0].id)

    def sources(self, partition: int) -> Sequence[SourcePartition]:
        """The source partitions delivered to a partition: one of each incarnation, in their order."""
        return [incarnation.source(self.region, partition) for incarnation in self.incarnations]

    def succession(self, partition: int) -> Succession:
        return Succession(region=self.region, partition=partition, incarnations=self.incarnations)


def kept_like_sources(chosen: Mapping[str, Sequence[ArchivedTopic]]) -> Mapping[str, KeptTopic]:
    """The destinations that `ingress.catalog` keeps like their sources, by name. It keeps none of which only records
    cross, by the replication policy of a source."""
    return {
        name: KeptTopic(
            sources=[one.source for one in topics],
            archived=[(one.region, each.incarnation) for one in topics for each in one.incarnations],
            first_segment_delay=max(one.settings.first_segment_delay for one in topics),
        )
        for name, topics in chosen.items()
        if not any(one.settings.syncs_nothing for one in topics)
    }


def keeping_offsets(chosen: Mapping[str, Sequence[ArchivedTopic]]) -> frozenset[str]:
    """The destinations whose records have the offsets of their source."""
    return frozenset(name for name, topics in chosen.items() if all(one.settings.preserves_offsets for one in topics))


def forked_from(chosen: Mapping[str, Sequence[ArchivedTopic]]) -> Mapping[tuple[str, str], Incarnation]:
    """By region and archive path of one that begins after a fork: the path that holds the log before it, where both are
    delivered to one topic. Adopting a fork claims the path after the current one: it is the one before it in order."""
    return {
        (topic.region, later.path): earlier.incarnation
        for topics in chosen.values()
        for topic in topics
        for earlier, later in pairwise(topic.incarnations)
        if later.is_after_fork
    }


@dataclass(frozen=True, slots=True)
class RefusedTopic:
    """An archived topic that is not delivered, with the reason and the remedy."""

    topic: ArchivedTopic
    reason: str


@dataclass(frozen=True, slots=True)
class RoutingPlan:
    """The configuration applied to what the archive holds."""

    # by destination; several go to one only when each of their sources allows it
    chosen: Mapping[str, Sequence[ArchivedTopic]]
    withheld: Sequence[RefusedTopic]  # incarnations held back by `on_recreate`, or by a missing claim
    refused: Sequence[RefusedTopic]  # topics that contradict each other or Kafka's rules
    kept_away: Sequence[RefusedTopic]  # copies of what is here, or arrives from elsewhere: no problem
    unnamed: Sequence[RefusedTopic]  # topics for which a user's replication policy failed: they have no destination
    idle: frozenset[tuple[str, str]]  # region and pattern of sources that match no topic of the archive

    @property
    def known(self) -> Collection[tuple[str, Incarnation]]:
        """Region and incarnation of all that is selected, delivered or not."""
        others = (one.topic for one in [*self.withheld, *self.refused, *self.kept_away, *self.unnamed])
        topics = [*(one for some in self.chosen.values() for one in some), *others]
        return frozenset((one.region, each.incarnation) for one in topics for each in one.incarnations)

    @property
    def reasons(self) -> Mapping[tuple[str, str], str]:
        """Why an incarnation is not delivered, by region and archive path."""
        refusals = [*self.withheld, *self.refused, *self.unnamed]
        return {(r.topic.region, incarnation.path): r.reason for r in refusals for incarnation in r.topic.incarnations}

    @property
    def kept_away_paths(self) -> Collection[tuple[str, str]]:
        """Region and archive path of each incarnation that is kept away."""
        return {
            (one.topic.region, incarnation.path) for one in self.kept_away for incarnation in one.topic.incarnations
        }

    @property
    def followed(self) -> Mapping[tuple[str, str], str]:
        """By region and archive path of a later incarnation: the path of the one delivered before it."""
        return {
            (archived_topic.region, later.path): earlier.path
            for archived_topics in self.chosen.values()
            for archived_topic in archived_topics
            for earlier, later in pairwise(archived_topic.incarnations)
        }


@dataclass(slots=True)
class ArchivedTopics:
    """One call at a time."""

    store: SegmentStore
    control: ControlStore
    checkpoints: CheckpointStore
    own_topics: Collection[str]
    region: str  # this one
    clock: Clock = field(default_factory=SystemClock)
    cluster_id: str = ""  # of this cluster; empty: not known, and no cycle is found by it
    _claims: dict[tuple[str, str], TopicClaim] = field(default_factory=dict)  # by region and path; claims never change

    def plan(self, settings: IngressSettings, catalogs: Mapping[str, Catalog] = MappingProxyType({})) -> RoutingPlan:
        """Reads only the archive, and the checkpoints where the same records arrive on several ways. `catalogs`: of the
        source regions that have one; their topics are planned before their first segment is stored. Raises
        StoreUnavailable, PluginFailed when a user's filter fails, and BrokerUnavailable or TargetError when the
        checkpoints cannot be read."""
        withheld: list[RefusedTopic] = []
        kept_away: list[RefusedTopic] = []
        unnamed: list[RefusedTopic] = []
        idle: set[tuple[str, str]] = set()
        wanted: dict[str, list[ArchivedTopic]] = {}
        for region in settings.regions:
            for archived_topic in self._of_region(
                settings, region, catalogs.get(region), withheld=withheld, kept_away=kept_away, idle=idle
            ):
                reason = cycle_of(archived_topic.source, catalogs, self.cluster_id)
                if reason and not archived_topic.settings.ignore_lineage:
                    kept_away.append(RefusedTopic(archived_topic, reason))
                elif reason := _without_name(archived_topic, self.region):
                    unnamed.append(RefusedTopic(archived_topic, reason))
                else:
                    wanted.setdefault(archived_topic.destination, []).append(archived_topic)
        known: DeliveredWays | None = None
        for destination, rivals in wanted.items():
            again: dict[SourceTopic, str] = {}
            for ways in ways_of([one.source for one in rivals if not one.settings.ignore_lineage], catalogs):
                # after the catalogues: a way that another process began by older ones is seen to have begun
                known = delivered_ways(self.checkpoints.read()) if known is None else known
                again |= repeated(ways, destination, known)
            kept_away += [RefusedTopic(one, again[one.source]) for one in rivals if one.source in again]
            wanted[destination] = [one for one in rivals if one.source not in again]
        named: list[RefusedTopic] = []
        for refusal in withheld:
            reason = _without_name(refusal.topic, self.region)
            (unnamed if reason else named).append(RefusedTopic(refusal.topic, reason) if reason else refusal)
        chosen, refused = _choose(wanted, self.own_topics)
        return RoutingPlan(chosen, named, refused, kept_away, unnamed, frozenset(idle))

    def cluster_of(self, topic: ArchivedTopic) -> tuple[str, ...]:
        """The id of the cluster that its archive was claimed for; empty when it is not known. Raises
        StoreUnavailable."""
        try:
            claim = self.control.claims.of(topic.region, topic.incarnations[0].path)
        except OF_ONE_OBJECT:
            return ()  # the delivery of its segments stops, with the reason
        return () if claim is None or not claim.cluster_id else (claim.cluster_id,)

    def _of_region(
        self,
        settings: IngressSettings,
        region: str,
        catalog: Catalog | None,
        *,
        withheld: list[RefusedTopic],
        kept_away: list[RefusedTopic],
        idle: set[tuple[str, str]],
    ) -> Iterator[ArchivedTopic]:
        """Adds to `withheld`, `kept_away` and `idle`."""
        topics: dict[str, list[Incarnation]] = {}
        for one in self.store.incarnations(region):
            topics.setdefault(one.topic, []).append(one)
        if catalog is not None:
            for name in sorted(catalog.topics.keys() - topics.keys()):
                topics[name] = [Incarnation(name)]  # nothing of it is stored yet
        idle.update(_idle(settings, region, topics))
        claimed: Sequence[Incarnation] | None = None
        for topic, source in select(topics, settings.rules(region), self.own_topics).items():
            stored = topics[topic]
            with suppress(PluginFailed):  # then the topic has no name here
                if reason := source.refusal(topic, self.region):
                    incarnations = tuple(ArchivedIncarnation(incarnation=one) for one in stored)
                    refused = ArchivedTopic(region=region, incarnations=incarnations, settings=source)
                    kept_away.append(RefusedTopic(refused, reason))
                    continue
            if catalog is not None and self._is_newer(region, topic, stored, catalog, source):
                continue  # the next catalogue says whether it is a copy of one of this cluster's topics
            if source.on_recreate == "follow" and any(one.id for one in stored):
                claimed = self.control.claims.incarnations(region) if claimed is None else claimed
                # an incarnation without stored segments has a number, too, and must not be skipped
                known = {*stored, *(one for one in claimed if one.topic == topic)}
                unreadable: dict[str, str] = {}  # by path
                ordered, unordered = in_order(self._with_claim(region, one, unreadable) for one in known)
                for incarnation, reason in unordered.items():
                    archived_topic = ArchivedTopic(region=region, incarnations=(incarnation,), settings=source)
                    withheld.append(RefusedTopic(archived_topic, unreadable.get(incarnation.path, reason)))
                if ordered:
                    yield ArchivedTopic(region=region, incarnations=ordered, settings=source)
                continue
            for incarnation in (ArchivedIncarnation(incarnation=one) for one in stored):
                archived_topic = ArchivedTopic(region=region, incarnations=(incarnation,), settings=source)
                if incarnation.id and source.on_recreate == "stop":
                    withheld.append(RefusedTopic(archived_topic, _stopped(incarnation)))
                else:
                    yield archived_topic

    def _is_newer(
        self, region: str, topic: str, stored: Sequence[Incarnation], catalog: Catalog, source: IngressSource
    ) -> bool:
        """Whether the topic was first archived after the catalogue was observed, which does not list it. Limited in
        time: a topic that is removed before it is observed is in no catalogue at all."""
        if topic in catalog.topics or topic in catalog.removed_names:
            return False
        claim = self._with_claim(region, stored[0], {}).claim
        return (
            claim is not None
            and claim.claimed_at > catalog.observed_at - CLOCKS_DIFFER
            and self.clock.now() < claim.claimed_at + source.first_segment_delay
        )

    def _with_claim(self, region: str, incarnation: Incarnation, unreadable: dict[str, str]) -> ArchivedIncarnation:
        path, archived = incarnation.path, ArchivedIncarnation(incarnation=incarnation)
        key = (region, path)
        if key not in self._claims:
            try:
                claim = self.control.claims.of(region, path)
            except OF_ONE_OBJECT as error:  # an unreadable claim must not be taken for an absent one
                unreadable[path] = f"{error}. Copy _control/v1/places/{path} again from the source's bucket"
                return replace(archived, is_readable=False)
            if claim is None:
                return archived
            self._claims[key] = claim
        return replace(archived, claim=self._claims[key])


def _idle(settings: IngressSettings, region: str, topics: Collection[str]) -> Iterator[tuple[str, str]]:
    for rule in unmatched(settings.rules(region), topics):
        yield region, str(rule.pattern)


def _stopped(incarnation: ArchivedIncarnation) -> str:
    what = (
        f"topic {incarnation.topic} was deleted and created again at the source: {incarnation.path} is a later "
        f"incarnation of it, with the topic id {incarnation.id}"
    )
    if incarnation.incarnation.fork:
        what = (
            f"the log of topic {incarnation.topic} forked at the source, and {incarnation.path} holds it from there "
            "on, with other records at offsets that may have been delivered already"
        )
    return (
        f"{what}, and on_recreate = 'stop': nothing of it is delivered. Set on_recreate for this source: 'follow' "
        "delivers it after everything of the previous incarnation, 'new-topic' to a separate topic"
    )


def _without_name(archived_topic: ArchivedTopic, here: str) -> str:
    """Why the topic has no destination; empty when it has one."""
    try:
        archived_topic.destination  # noqa: B018
        archived_topic.settings.refusal(archived_topic.incarnations[0].topic, here)
    except PluginFailed as error:
        return (
            f"the replication policy of its source gives it no name: {error}. Correct the policy and restart ingress, "
            f"or give {archived_topic.incarnations[0].topic} a source with a destination_topic"
        )
    return ""


def _choose(
    wanted: Mapping[str, Sequence[ArchivedTopic]], own_topics: Collection[str]
) -> tuple[Mapping[str, Sequence[ArchivedTopic]], Sequence[RefusedTopic]]:
    """Which topics are delivered to each destination, and which are refused."""
    chosen: dict[str, Sequence[ArchivedTopic]] = {}
    refused: list[RefusedTopic] = []
    for name, rivals in wanted.items():
        if len(name) > LONGEST_NAME:
            for archived_topic in rivals:
                reason = f"its destination {name} has {len(name)} characters, Kafka's limit is {LONGEST_NAME}"
                refused.append(RefusedTopic(archived_topic, reason))
        elif not LEGAL_NAME.fullmatch(name) or is_internal(name, own_topics):
            what = "is internal" if LEGAL_NAME.fullmatch(name) else "is no topic name"
            refused += [RefusedTopic(one, f"its destination {name!r} {what}: give it another one") for one in rivals]
        elif len(rivals) == 1 or all(archived_topic.settings.allow_merge for archived_topic in rivals):
            chosen[name] = rivals
        else:
            # none is preferred: that would depend on which came first, which processes may see differently
            names = ", ".join(archived_topic.name for archived_topic in rivals)
            reason = (
                f"{names} all have the destination {name}: give them different destination_topics, or merge them "
                "on purpose with allow_merge = true for the source of each"
            )
            refused += [RefusedTopic(archived_topic, reason) for archived_topic in rivals]
    return chosen, refused
