"""Selects the archived topics that the configured sources deliver, with their incarnations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise

from formats.control.claim import TopicClaim
from formats.errors import DataError, PluginFailed
from formats.incarnation import LEGAL_NAME, Incarnation
from formats.topic_selection import is_internal, select
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from ingress.routing.succession import ArchivedIncarnation, in_order
from ingress.settings import IngressSettings
from ingress.source_settings import IngressSource

LONGEST_NAME = 249  # Kafka's own rule


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
    def destination(self) -> str:
        return self.settings.destination(self.incarnations[0].topic, self.incarnations[0].id)


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
    kept_away: Sequence[RefusedTopic]  # topics that their replication policy keeps away, which is no problem
    unnamed: Sequence[RefusedTopic]  # topics for which a user's replication policy failed: they have no destination
    idle: frozenset[tuple[str, str]]  # region and pattern of sources that match no topic of the archive

    @property
    def reasons(self) -> Mapping[tuple[str, str], str]:
        """Why an incarnation is not delivered, by region and archive path."""
        refusals = [*self.withheld, *self.refused, *self.unnamed]
        return {(r.topic.region, incarnation.path): r.reason for r in refusals for incarnation in r.topic.incarnations}

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
    settings: IngressSettings
    own_topics: Collection[str]
    region: str  # this one
    _claims: dict[tuple[str, str], TopicClaim] = field(default_factory=dict)  # by region and path; claims never change

    def plan(self) -> RoutingPlan:
        """Reads only the archive. Raises StoreUnavailable, and PluginFailed when a user's filter fails."""
        withheld: list[RefusedTopic] = []
        kept_away: list[RefusedTopic] = []
        unnamed: list[RefusedTopic] = []
        idle: set[tuple[str, str]] = set()
        wanted: dict[str, list[ArchivedTopic]] = {}
        for region in sorted({s.region for s in self.settings.sources}):
            for archived_topic in self._of_region(region, withheld, kept_away, idle):
                if reason := _without_name(archived_topic, self.region):
                    unnamed.append(RefusedTopic(archived_topic, reason))
                else:
                    wanted.setdefault(archived_topic.destination, []).append(archived_topic)
        named: list[RefusedTopic] = []
        for refusal in withheld:
            reason = _without_name(refusal.topic, self.region)
            (unnamed if reason else named).append(RefusedTopic(refusal.topic, reason) if reason else refusal)
        chosen, refused = _choose(wanted, self.own_topics)
        return RoutingPlan(chosen, named, refused, kept_away, unnamed, frozenset(idle))

    def _of_region(
        self, region: str, withheld: list[RefusedTopic], kept_away: list[RefusedTopic], idle: set[tuple[str, str]]
    ) -> Iterator[ArchivedTopic]:
        """Adds to `withheld`, `kept_away` and `idle`."""
        topics: dict[str, list[Incarnation]] = {}
        for one in self.store.incarnations(region):
            topics.setdefault(one.topic, []).append(one)
        idle.update(self._idle(region, topics))
        claimed: Sequence[Incarnation] | None = None
        for topic, source in select(topics, self.settings.rules(region), self.own_topics).items():
            stored = topics[topic]
            with suppress(PluginFailed):  # then the topic has no name here
                if reason := source.refusal(topic, self.region):
                    incarnations = tuple(ArchivedIncarnation(incarnation=one) for one in stored)
                    refused = ArchivedTopic(region=region, incarnations=incarnations, settings=source)
                    kept_away.append(RefusedTopic(refused, reason))
                    continue
            if source.on_recreate == "follow" and any(one.id for one in stored):
                claimed = self.control.claimed(region) if claimed is None else claimed
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

    def _idle(self, region: str, topics: Collection[str]) -> Iterator[tuple[str, str]]:
        for source in self.settings.sources:
            if source.region == region and not source.topic.matches_any(topics):
                yield region, str(source.topic)

    def _with_claim(self, region: str, incarnation: Incarnation, unreadable: dict[str, str]) -> ArchivedIncarnation:
        path, archived = incarnation.path, ArchivedIncarnation(incarnation=incarnation)
        key = (region, path)
        if key not in self._claims:
            try:
                claim = self.control.claim_of(region, path)
            except DataError as error:  # an unreadable claim must not be taken for an absent one
                unreadable[path] = f"{error}. Copy _control/v1/places/{path} again from the source's bucket"
                return replace(archived, is_readable=False)
            if claim is None:
                return archived
            self._claims[key] = claim
        return replace(archived, claim=self._claims[key])


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
