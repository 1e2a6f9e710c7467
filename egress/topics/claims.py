"""Where in the archive a life of a topic is filed.

    nobody claimed the plain place      claim it; but not over segments that lie there: an operator adopts them
    the plain place is ours             {topic}
    it is of an earlier life            {topic}@{topic id}, claimed as well
    it is of another cluster            hold: another cluster stands behind the bootstrap address; or `adopt`
    a fork of its log was adopted       {topic}@{topic id}-fork{n}, the last one: the same topic, and the same topic id

A place is claimed once, by a conditional put, before the first segment goes there; whoever comes second agrees.

Brokers without topic ids: a life is named `{cluster id}-{counter}`. Nothing there tells a topic that was created again
from the one before (only its end may: a log that is shorter than what was read stops), so `adopt` begins the next life;
and so does `adopt_fork`, whose claim says behind which place.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from formats.control.claim import TopicClaim, incarnations, newest_stand_in, stand_in
from formats.errors import DataError, TargetError
from formats.forks import fork_name, fork_number, newest_fork
from formats.segment import SourcePartition
from infra.archive.control import ControlStore
from infra.contracts.cluster import ClusterAdmin, TopicFacts
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Clock


@dataclass(frozen=True, slots=True)
class Blocked:
    """Reading would lose or mix records without anybody noticing: an operator decides."""

    reason: str


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """One life of a topic, from its creation to its deletion."""

    facts: TopicFacts  # its topic id is empty where brokers have none
    cluster_id: str
    name: str  # the topic id, or what stands for it, with the number of a fork; no two lives share it
    incarnation: str = ""  # of its source partitions; empty: the plain place
    before: Incarnation | None = None  # the place it goes on from, behind a fork

    @property
    def topic_id(self) -> str:
        """Or what stands for it."""
        return self.facts.topic_id or self.name

    @property
    def is_first(self) -> bool:
        return not self.incarnation

    def source(self, region: str, partition: int) -> SourcePartition:
        return SourcePartition(region, self.facts.name, partition, self.incarnation)


def behind_fork(life: Incarnation, number: int) -> Incarnation:
    """Where the archive of `life` goes on behind the `number`-th fork of its log; behind 0 of them: `life`."""
    if not number:
        return life
    name = fork_name(life.name, number)
    return replace(life, name=name, incarnation=name, before=replace(behind_fork(life, number - 1), before=None))


def is_last(life: Incarnation, claimed: Collection[str]) -> bool:
    """Whether no operator has let the archive of the topic go on in a later place."""
    later = incarnations(claimed, life.facts.name)
    if life.facts.topic_id:
        return newest_fork(later, life.facts.topic_id) <= fork_number(life.incarnation)
    return newest_stand_in(later, life.cluster_id) in ("", life.incarnation)


@dataclass(slots=True)
class TopicClaims:
    """Safe to call from several threads; raises what the store raises."""

    region: str
    control: ControlStore
    clock: Clock
    _known: dict[tuple[str, str, str], Incarnation] = field(default_factory=dict)  # a claim never changes

    def claimed(self) -> frozenset[str]:
        """Every place that is claimed now, for `life`; by one listing."""
        return frozenset(self.control.places(self.region))

    def life(self, facts: TopicFacts, cluster_id: str, claimed: Collection[str]) -> Incarnation | Blocked:
        """The life that the cluster shows now, its place claimed; or why an operator must say which one it is."""
        key = (facts.name, facts.topic_id, cluster_id)
        try:
            if not facts.topic_id:
                return self._without_id(facts, cluster_id, claimed)
            known = self._known.get(key)
            life = self._with_id(facts, cluster_id) if known is None else replace(known, facts=facts)
        except DataError as error:  # a claim that cannot be read says nothing: least of all that there is none
            return Blocked(f"{facts.name}: {error}. Restore that object, or remove it and run `{_adopt(facts.name)}`")
        if isinstance(life, Blocked):
            return life
        self._known[key] = life
        return behind_fork(life, newest_fork(incarnations(claimed, facts.name), life.name))

    def _with_id(self, facts: TopicFacts, cluster_id: str) -> Incarnation | Blocked:
        first = self._first(facts, facts.topic_id, cluster_id)
        if isinstance(first, Blocked):
            return first
        if first.topic_id == facts.topic_id:
            return Incarnation(facts=facts, cluster_id=cluster_id, name=facts.topic_id)
        own = self.control.place(self.region, f"{facts.name}@{facts.topic_id}")
        if own is None:
            if first.cluster_id != cluster_id:
                return _other_cluster(facts, first, cluster_id)
            if first.topic_id == stand_in(first.cluster_id, first.number):
                return Blocked(
                    f"{facts.name}: its archive was begun when the brokers had no topic ids, and now they say "
                    f"{facts.topic_id}: nothing tells whether it is the same topic. `{_adopt(facts.name)}` begins a "
                    "place of its own for it"
                )
            self._claim(facts, f"{facts.name}@{facts.topic_id}", facts.topic_id, cluster_id)
        return Incarnation(facts=facts, cluster_id=cluster_id, name=facts.topic_id, incarnation=facts.topic_id)

    def _without_id(self, facts: TopicFacts, cluster_id: str, claimed: Collection[str]) -> Incarnation | Blocked:
        first = self._first(facts, stand_in(cluster_id, 0), cluster_id)
        if isinstance(first, Blocked):
            return first
        newest = newest_stand_in(incarnations(claimed, facts.name), cluster_id)
        if newest:
            life = Incarnation(facts=facts, cluster_id=cluster_id, name=newest, incarnation=newest)
            claim = self.control.place(self.region, f"{facts.name}@{newest}")
            if claim is None or not claim.fork:
                return life
            before = claim.forked_from.partition("@")[2]
            there = replace(life, name=before or stand_in(cluster_id, 0), incarnation=before)
            return replace(life, before=there)
        if first.cluster_id != cluster_id:
            return _other_cluster(facts, first, cluster_id)
        if first.topic_id != stand_in(cluster_id, 0):
            return Blocked(
                f"{facts.name}: its archive was begun for topic id {first.topic_id}, and now the brokers tell none. "
                f"Is kafka.bootstrap.servers right? `{_adopt(facts.name)}` begins a place of its own for it"
            )
        return Incarnation(facts=facts, cluster_id=cluster_id, name=first.topic_id)

    def _first(self, facts: TopicFacts, name: str, cluster_id: str) -> TopicClaim | Blocked:
        """Whose the plain place is; ours from now on, if it was nobody's and nothing lies there."""
        claimed = self.control.place(self.region, facts.name)
        if claimed is None and self.control.occupied(self.region, facts.name):
            # looked at again: another process claims, and then stores, while we look
            claimed = self.control.place(self.region, facts.name)
            if claimed is None:
                return Blocked(
                    f"{facts.name}: segments lie in its place of the archive, and nothing says which life of the topic "
                    f"they are of. If they are of the topic that is there now (topic id {facts.topic_id or 'unknown'}),"
                    f" run `{_adopt(facts.name)}`; if not, move them away"
                )
        return claimed or self._claim(facts, facts.name, name, cluster_id)

    def _claim(self, facts: TopicFacts, place: str, name: str, cluster_id: str) -> TopicClaim:
        number = _lives(self.control, self.region, facts.name)
        claim = TopicClaim(topic_id=name, cluster_id=cluster_id, number=number, claimed_at=self.clock.now())
        # claimed, then stored: a place that holds segments says whose they are, wherever we stop
        with durable(Step.CLAIM_PLACE):
            stands = self.control.claim(self.region, place, claim)
        log.info(
            "place_claimed",
            extra={log_fields.TOPIC: facts.name, log_fields.KEY: place, log_fields.COUNT: stands.number},
        )
        return stands


def adopt(control: ControlStore, admin: ClusterAdmin, region: str, topic: str, clock: Clock) -> Incarnation:
    """Files the topic as it is now, by an operator's word: in the plain place with all that lies there, if nobody
    claimed it; else in a place of its own, whatever cluster or life the plain one is of.

    Said again it changes nothing, but where brokers have no topic ids: there it begins the next life. A running egress
    looks within minutes. Raises TargetError when there is no such topic, and what store and cluster raise.
    """
    facts, cluster_id = facts_of(admin, topic)
    later = control.later_lives(region, topic)
    plain = control.place(region, topic)
    number = len(later) + (plain is not None)
    name = facts.topic_id or stand_in(cluster_id, number)
    claim = TopicClaim(topic_id=name, cluster_id=cluster_id, number=number, claimed_at=clock.now())
    if plain is None:
        with durable(Step.CLAIM_PLACE):
            plain = control.claim(region, topic, claim)
    life = Incarnation(
        facts=facts, cluster_id=cluster_id, name=name, incarnation="" if plain.topic_id == name else name
    )
    if life.incarnation:
        with durable(Step.CLAIM_PLACE):
            control.claim(region, f"{topic}@{name}", claim)
    return behind_fork(life, newest_fork(later, name))


def facts_of(admin: ClusterAdmin, topic: str) -> tuple[TopicFacts, str]:
    """With the cluster's id."""
    facts = admin.describe([topic]).get(topic)
    if facts is None:
        raise TargetError(f"adopt {topic}: there is no such topic in this cluster")
    return facts, admin.cluster_id()


def another_cluster(found: str, wanted: str) -> str:
    """Why nothing is read: for a cluster that changed under a running process."""
    return (
        f"the cluster at kafka.bootstrap.servers is {found or 'unnamed'}, and was {wanted or 'unnamed'} when this "
        "process began: its offsets are of other logs. Point the address at the right cluster; or, if the new one is "
        "meant, restart, and `replicator adopt <topic>` gives each topic a place of its own"
    )


def _other_cluster(facts: TopicFacts, first: TopicClaim, cluster_id: str) -> Blocked:
    return Blocked(
        f"{facts.name}: its archive is of cluster {first.cluster_id}, topic id {first.topic_id}; the cluster at "
        f"kafka.bootstrap.servers is {cluster_id or 'unnamed'} with topic id {facts.topic_id or 'unknown'}. Point the "
        f"address at the right cluster, give this one a region or prefix of its own, or `{_adopt(facts.name)}` files "
        "its topic beside the other"
    )


def _adopt(topic: str) -> str:
    return f"replicator adopt {topic}"


def _lives(control: ControlStore, region: str, topic: str) -> int:
    """How many lives of that name were filed."""
    later = len(control.later_lives(region, topic))
    return later + (control.place(region, topic) is not None)
