"""Which topics of a cluster egress archives, those included that this principal may not see."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from egress.settings import EgressSettings, EgressTopicSettings
from formats.errors import TargetError
from formats.incarnation import topics_of
from formats.topic_selection import select
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
