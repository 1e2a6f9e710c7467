"""Which topics of a cluster egress archives, also those that this principal may not see, and as which incarnations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from egress.settings import EgressSettings, EgressTopicSettings
from formats.control.claim import TopicClaim
from formats.errors import TargetError
from formats.incarnation import Incarnation, current, topics_of
from formats.topic_selection import select
from infra.archive.claims import ClaimStore
from infra.contracts.cluster import ClusterAdmin, TopicFacts, describe_each


def egress_topics(
    listed: Iterable[str], claimed: Iterable[str], settings: EgressSettings, own_topics: Collection[str]
) -> Mapping[str, EgressTopicSettings]:
    """The selected topics. A listing omits topics that the principal may not describe: topics that the configuration or
    the archive names are among them whether they are `listed` or not. `claimed`: the archive paths of the region."""
    by_name = {rule.pattern.text for rule in settings.topics if not rule.pattern.is_expression}
    return select({*listed, *by_name, *topics_of(claimed)}, settings.rules, own_topics)


def described(
    admin: ClusterAdmin, claimed: Iterable[str], settings: EgressSettings, own_topics: Collection[str]
) -> tuple[Mapping[str, TopicFacts], Mapping[str, TargetError]]:
    """`egress_topics` that exist, and those of which the cluster does not say whether they do. Raises
    BrokerUnavailable."""
    return describe_each(admin, list(egress_topics(admin.topics(), claimed, settings, own_topics)))


@dataclass(frozen=True, slots=True)
class ArchivedAs:
    """`claim`: of the topic's plain path; None: it has none."""

    incarnation: Incarnation
    claim: TopicClaim | None


def archived_as(
    claims: ClaimStore,
    region: str,
    topics: Collection[TopicFacts],
    *,
    cluster_id: str,
    claimed: Collection[str],
    pool: Executor,
) -> Mapping[str, ArchivedAs]:
    """The incarnations under which topics of the cluster `cluster_id` are archived, by their names. A request for each.
    Raises StoreUnavailable, MalformedEvent."""
    found = {}
    firsts = pool.map(lambda one: claims.of(region, one.name), topics)
    for one, claim in zip(topics, firsts, strict=True):
        first_id = None if claim is None else claim.topic_id
        incarnation = current(one.name, one.topic_id, cluster_id, first_id=first_id, claimed=claimed)
        found[one.name] = ArchivedAs(incarnation, claim)
    return found
