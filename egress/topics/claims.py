"""Archive paths of topics, claimed. Which incarnation is current is decided in `formats.incarnation`; here, whether its
path may be claimed, and by which claim.

    the plain path is not claimed       claim it; but not over segments that lie there: an operator adopts them
    the plain path is this topic's      continue there
    it is of an earlier incarnation     claim a separate path for this topic
    its claim is gone, and this topic   continue in that one: the plain path is of an earlier incarnation all the same
      has a separate path
    it is of another cluster            blocked: the bootstrap address leads to another cluster; or `adopt`
    a fork of its log was adopted       continue in the path of the last fork: the same topic, the same topic id

A path is claimed once, by a conditional put, before the first segment is stored there; a second process takes the
existing claim.

Brokers without topic ids do not distinguish a topic that was created again from the one before, except by its end: a
partition whose log is shorter than what was read stops. So `adopt` begins the next incarnation; so does `adopt_fork`,
whose claim names the path before.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from formats.control.claim import TopicClaim
from formats.errors import DataError, TargetError
from formats.incarnation import (
    Incarnation,
    before_forks,
    current,
    fork_id,
    generated_id,
    is_current,
    later_ids,
    newest_fork,
    parse_incarnation,
)
from formats.segment import SourcePartition
from infra.archive.control import ControlStore
from infra.contracts.cluster import ClusterAdmin, TopicFacts
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Clock


@dataclass(frozen=True, slots=True)
class Blocked:
    """Reading would lose or mix records silently: an operator has to decide."""

    reason: str


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTopic:
    """One incarnation of a topic, from its creation to its deletion, with its archive path."""

    facts: TopicFacts  # the topic id is empty when brokers have none
    cluster_id: str
    name: str  # the topic id, or the generated one, with the number of a fork; no two incarnations share it
    incarnation: Incarnation
    before: ClaimedTopic | None = None  # after a fork: the topic with the path before it
    # claimed just now, when nothing was stored there: no owner of its partitions before this one can have read them
    is_new: bool = False

    @property
    def topic_id(self) -> str:
        """The topic id, or the generated one when brokers have none."""
        return self.facts.topic_id or self.name

    @property
    def is_first(self) -> bool:
        return not self.incarnation.id

    def source(self, region: str, partition: int) -> SourcePartition:
        return SourcePartition.of(region, self.incarnation, partition)

    def under(self, id_: str) -> ClaimedTopic:
        """The same topic in the path of `id_`."""
        return replace(self, name=id_, incarnation=Incarnation(self.facts.name, id_), is_new=False)


def after_fork(topic: ClaimedTopic, number: int) -> ClaimedTopic:
    """The topic with the path where its archive continues after the `number`-th fork of its log; 0: `topic` itself."""
    if not number:
        return topic
    before = replace(after_fork(topic, number - 1), before=None)
    return replace(topic.under(fork_id(topic.name, number)), before=before)


def is_last(topic: ClaimedTopic, claimed: Collection[str]) -> bool:
    """Whether the archive of the topic does not continue in a later path, by an operator's decision."""
    return is_current(topic.incarnation, topic.facts.topic_id, topic.cluster_id, claimed)


@dataclass(slots=True)
class TopicClaims:
    """Thread safe. Raises what the store raises."""

    region: str
    control: ControlStore
    clock: Clock
    _known: dict[tuple[str, str, str], ClaimedTopic] = field(default_factory=dict)  # a claim never changes

    def claimed(self) -> frozenset[str]:
        """Every claimed path, by one listing; an argument of `resolve`."""
        return frozenset(self.control.claims.paths(self.region))

    def resolve(self, facts: TopicFacts, cluster_id: str, claimed: Collection[str]) -> ClaimedTopic | Blocked:
        """The current incarnation of the topic, with its path claimed; or why an operator has to identify it."""
        key = (facts.name, facts.topic_id, cluster_id)
        try:
            if not facts.topic_id:
                return self._without_id(facts, cluster_id, claimed)
            known = self._known.get(key)
            topic = self._with_id(facts, cluster_id, claimed) if known is None else replace(known, facts=facts)
        except DataError as error:  # an unreadable claim must not be taken for an absent one
            return Blocked(f"{facts.name}: {error}. Restore that object, or remove it and run `{_adopt(facts.name)}`")
        if isinstance(topic, Blocked):
            return topic
        self._known[key] = replace(topic, is_new=False)
        return after_fork(topic, newest_fork(later_ids(claimed, facts.name), topic.name))

    def _with_id(self, facts: TopicFacts, cluster_id: str, claimed: Collection[str]) -> ClaimedTopic | Blocked:
        own = Incarnation(facts.name, facts.topic_id)
        if own.path in claimed and self.control.claims.of(self.region, facts.name) is None:
            return ClaimedTopic(facts=facts, cluster_id=cluster_id, name=own.id, incarnation=own)
        first, is_new = self._first(facts, facts.topic_id, cluster_id, claimed)
        if isinstance(first, Blocked):
            return first
        here = before_forks(facts.name, facts.topic_id, first.topic_id)
        if here.id and self.control.claims.of(self.region, here.path) is None:
            if first.cluster_id != cluster_id:
                return _other_cluster(facts, first, cluster_id)
            if first.topic_id == generated_id(first.cluster_id, first.number):
                return Blocked(
                    f"{facts.name}: its archive was begun when the brokers had no topic ids, and now they report "
                    f"{facts.topic_id}: whether it is the same topic is unknown. `{_adopt(facts.name)}` begins a "
                    "separate path for it"
                )
            self._claim(facts, here.path, facts.topic_id, cluster_id, claimed)
        return ClaimedTopic(
            facts=facts, cluster_id=cluster_id, name=facts.topic_id, incarnation=here, is_new=is_new and not here.id
        )

    def _without_id(self, facts: TopicFacts, cluster_id: str, claimed: Collection[str]) -> ClaimedTopic | Blocked:
        generated = generated_id(cluster_id, 0)
        first, is_new = self._first(facts, generated, cluster_id, claimed)
        if isinstance(first, Blocked):
            return first
        here = current(facts.name, "", cluster_id, first_id=first.topic_id, claimed=claimed)
        name = here.id or first.topic_id
        is_new = is_new and not here.id
        topic = ClaimedTopic(facts=facts, cluster_id=cluster_id, name=name, incarnation=here, is_new=is_new)
        if here.id:
            claim = self.control.claims.of(self.region, here.path)
            if claim is None or not claim.fork:
                return topic
            before = parse_incarnation(claim.forked_from)
            return replace(topic, before=replace(topic, name=before.id or generated, incarnation=before))
        if first.cluster_id != cluster_id:
            return _other_cluster(facts, first, cluster_id)
        if first.topic_id != generated:
            return Blocked(
                f"{facts.name}: its archive was begun for topic id {first.topic_id}, and now the brokers report none. "
                f"Is kafka.bootstrap.servers right? `{_adopt(facts.name)}` begins a separate path for it"
            )
        return topic

    def _first(
        self, facts: TopicFacts, name: str, cluster_id: str, claimed: Collection[str]
    ) -> tuple[TopicClaim | Blocked, bool]:
        """The claim of the plain path; claims it if it has none and nothing is stored there. Also whether this call
        claimed it."""
        found = self.control.claims.of(self.region, facts.name)
        if found is None and self.control.claims.has_objects(self.region, facts.name):
            # read again: another process may have claimed it, and then stored, in between
            found = self.control.claims.of(self.region, facts.name)
            if found is None:
                return Blocked(f"{facts.name}: {unclaimed_segments(facts)}"), False
        return (found, False) if found else self._claim(facts, facts.name, name, cluster_id, claimed)

    def _claim(
        self, facts: TopicFacts, path: str, name: str, cluster_id: str, claimed: Collection[str]
    ) -> tuple[TopicClaim, bool]:
        """The claim that holds, and whether it is the one of this call."""
        # how many paths the topic name has: a later one is claimed only after the plain one
        number = len(later_ids(claimed, facts.name)) + (path != facts.name)
        claim = TopicClaim(topic_id=name, cluster_id=cluster_id, number=number, claimed_at=self.clock.now())
        # claimed before anything is stored: wherever a process stops, a path with segments has its claim
        with durable(Step.CLAIM_PATH):
            stored = self.control.claims.record(self.region, path, claim)
        log.info(
            "place_claimed",
            extra={log_fields.TOPIC: facts.name, log_fields.KEY: path, log_fields.COUNT: stored.number},
        )
        return stored, stored is claim


def adopt(control: ControlStore, admin: ClusterAdmin, region: str, topic: str, clock: Clock) -> ClaimedTopic:
    """Claim an archive path for the topic as it is now, by an operator's decision: the plain path, with everything
    stored there, if it is not claimed; else a separate path, whichever cluster or incarnation the plain one is of. A
    separate path that the topic has already is kept: then the plain one is of an earlier incarnation.

    Repeating it changes nothing, except when brokers have no topic ids: there it begins the next incarnation. A running
    egress follows within minutes. Raises TargetError when the topic does not exist, and what store and cluster raise.
    """
    facts, cluster_id = facts_of(admin, topic)
    later = control.claims.later_ids(region, topic)
    plain = control.claims.of(region, topic)
    number = len(later) + (plain is not None)
    name = facts.topic_id or generated_id(cluster_id, number)
    claim = TopicClaim(topic_id=name, cluster_id=cluster_id, number=number, claimed_at=clock.now())
    has_own = bool(facts.topic_id) and name in later
    if plain is None and not has_own:
        with durable(Step.CLAIM_PATH):
            plain = control.claims.record(region, topic, claim)
    here = Incarnation(topic, name) if plain is None else before_forks(topic, name, plain.topic_id)
    if here.id:
        with durable(Step.CLAIM_PATH):
            control.claims.record(region, here.path, claim)
    adopted = ClaimedTopic(facts=facts, cluster_id=cluster_id, name=name, incarnation=here)
    return after_fork(adopted, newest_fork(later, name))


def facts_of(admin: ClusterAdmin, topic: str) -> tuple[TopicFacts, str]:
    """Facts of the topic, and the id of its cluster. Raises TargetError when the topic does not exist."""
    facts = admin.describe([topic]).get(topic)
    if facts is None:
        raise TargetError(f"adopt {topic}: there is no such topic in this cluster")
    return facts, admin.cluster_id()


def unclaimed_segments(topic: TopicFacts) -> str:
    """Why a topic is not archived while segments without a claim lie in its archive path."""
    return (
        "its archive path holds segments and has no claim that identifies their topic. If they are of the topic that "
        f"exists now (topic id {topic.topic_id or 'unknown'}), run `{_adopt(topic.name)}`; if not, move them away"
    )


def another_cluster(found: str, wanted: str) -> str:
    """Why nothing is read when the cluster has changed while the process runs."""
    return (
        f"the cluster at kafka.bootstrap.servers is {found or 'unnamed'}, and was {wanted or 'unnamed'} when this "
        "process began: its offsets are of other logs. Point the address at the right cluster; or, if the new one is "
        "intended, restart, and `replicator adopt <topic>` gives each topic a separate archive path"
    )


def _other_cluster(facts: TopicFacts, first: TopicClaim, cluster_id: str) -> Blocked:
    return Blocked(
        f"{facts.name}: its archive is of cluster {first.cluster_id}, topic id {first.topic_id}; the cluster at "
        f"kafka.bootstrap.servers is {cluster_id or 'unnamed'} with topic id {facts.topic_id or 'unknown'}. Point the "
        f"address at the right cluster, give this one a separate region or prefix, or run `{_adopt(facts.name)}` to "
        "archive its topic in a separate path"
    )


def _adopt(topic: str) -> str:
    return f"replicator adopt {topic}"
