"""What the source cluster has now: the selected topics with their configs, and the ACLs of topics and groups.

Needs DESCRIBE and DESCRIBE_CONFIGS on the topics, and DESCRIBE on the cluster for ACLs; to believe that there are none,
DESCRIBE_CONFIGS on the cluster, too. A right that is missing leaves
out what it is for, and the catalogue says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from egress.catalog.lineage import Configs, Lineages
from formats.control.catalog import LINEAGE_PROBLEM, Catalog, CatalogTopic, with_removals
from formats.errors import ReplicatorError, TargetError
from formats.policies.acls import AclBinding
from formats.policies.topic_configs import ConfigValue
from infra.contracts.catalog import CatalogAdmin, TopicShape
from infra.contracts.cluster import ClusterAdmin, describe_each
from infra.runtime.log_fields import REASON

NONE_LISTED = (
    "the cluster lists no ACL of a topic or a group, and whether it has none is not known: there is no authorizer, or "
    "this principal lacks DESCRIBE or DESCRIBE_CONFIGS on the cluster; nothing is revoked at the target"
)
ASK_AGAIN = timedelta(hours=1)  # whether all ACLs are seen

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SelectedTopics:
    """The topics of the source cluster that are replicated."""

    admin: ClusterAdmin
    catalog_admin: CatalogAdmin
    select: Callable[[Collection[str]], Collection[str]]  # of all topics those that are replicated

    def shapes(self) -> Mapping[str, TopicShape]:
        """By name. Raises BrokerUnavailable."""
        return self.shapes_of(self.names())

    def names(self) -> frozenset[str]:
        """Of all topics of the cluster. Raises BrokerUnavailable."""
        return frozenset(self.admin.topics())

    def shapes_of(self, names: Collection[str]) -> Mapping[str, TopicShape]:
        """Of those of `names` that are replicated. Raises BrokerUnavailable."""
        return self.catalog_admin.shapes(self.select(names))


@dataclass(slots=True)
class CatalogObserver:
    """Blocks: use from a thread of its own."""

    topics: SelectedTopics
    lineages: Lineages
    writer: str
    _sees_all: tuple[datetime, bool] | None = None  # the last answer, and when it was asked for

    def observe(self, before: Catalog | None, now: datetime) -> Catalog:
        """`before`: the generation that this one follows. Raises BrokerUnavailable, and TargetError when the topics may
        not be described."""
        cluster_id = self.topics.admin.cluster_id()
        names = self.topics.names()
        shapes = self.topics.shapes_of(names)
        configs = self.topics.catalog_admin.config_values(shapes.keys())
        known = {name: _known(configs.get(name, {})) for name in shapes}
        acls, no_acls = self._acls(before, now)
        earlier = before if before is not None and before.cluster_id == cluster_id else None
        wanted = {(name, shape.topic_id): known[name] for name, shape in shapes.items()}
        lineages, no_lineage = self._lineages(wanted, earlier, now)
        topics = {
            name: CatalogTopic(
                name=name,
                topic_id=shape.topic_id,
                partitions=shape.partitions,
                replication_factor=shape.replication_factor,
                configs=known[name],
                lineage=lineages[name, shape.topic_id],
            )
            for name, shape in shapes.items()
            if (name, shape.topic_id) in lineages
        }
        found = Catalog(
            cluster_id=cluster_id,
            writer=self.writer,
            observed_at=now,
            topics=topics,
            acls=acls,
            problems={**_problems(configs, no_acls), **no_lineage},
        )
        return with_removals(found, before, existing=self._existing(before, names, shapes))

    def _existing(
        self, before: Catalog | None, names: frozenset[str], shapes: Mapping[str, TopicShape]
    ) -> frozenset[str]:
        """Topics of `names`, and of `before` those that are not known to be gone: a cluster lists no topic that this
        principal may not describe, and refuses to say whether there is one. One that was deleted after it was listed
        is gone, and so is one of which another incarnation is there."""
        if before is None:
            return names
        unseen = before.topics.keys() - shapes.keys()
        asked = (unseen - names) | set(self.topics.select(unseen & names))
        found, refused = describe_each(self.topics.admin, sorted(asked)) if asked else ({}, {})
        if refused:
            log.warning("topics_not_listed", extra={REASON: first_of(refused, "topics")})
        ids = {name: one.topic_id for name, one in shapes.items()} | {name: one.topic_id for name, one in found.items()}
        others = {name for name, one in before.topics.items() if ids.get(name, one.topic_id) != one.topic_id}
        return ((names - asked) | found.keys() | refused.keys()) - others

    def _lineages(
        self, topics: Mapping[tuple[str, str], Configs], before: Catalog | None, now: datetime
    ) -> tuple[Mapping[tuple[str, str], tuple[str, ...]], Mapping[str, str]]:
        """The lineages, and why they are not known: a principal that may not read the ledger still mirrors topics. What
        `before` had of a topic stays: without it, a copy would count as an original, and be copied back."""
        try:
            return self.lineages.of(topics, now), {}
        except TargetError as error:
            why = f"{error}; copies of copies that are new since then are not recognised, and may go round"
            known = {} if before is None else {(one.name, one.topic_id): one.lineage for one in before.topics.values()}
            return {topic: known.get(topic, ()) for topic in topics}, {LINEAGE_PROBLEM: why}

    def _acls(self, before: Catalog | None, now: datetime) -> tuple[frozenset[AclBinding] | None, str]:
        """The bindings, or why they are not known. A principal that may not list them gets an empty list (librdkafka
        2.16 drops the error): taken for an answer, that would revoke all of them at the target. So an empty list is
        believed only between two of which the admin says that they are complete."""
        admin = self.topics.catalog_admin
        try:
            if found := admin.acls():
                return found, ""
            if not self._sees_all_acls(before, now):
                return None, NONE_LISTED
            return admin.acls(), ""  # the right may have come after the first answer
        except TargetError as error:
            return None, str(error)

    def _sees_all_acls(self, before: Catalog | None, now: datetime) -> bool:
        """Asked when a list has become empty, and every ASK_AGAIN: the question may end the process (see
        `CatalogAdmin.sees_all_acls`). A yes holds only while there is nothing left to revoke, since the right may go
        before the list is empty."""
        if self._sees_all is not None:
            asked_at, answer = self._sees_all
            has_none = before is not None and before.acls == frozenset()
            if now - asked_at < ASK_AGAIN and (has_none or not answer):
                return answer
        answer = self.topics.catalog_admin.sees_all_acls()
        self._sees_all = now, answer
        return answer


def _known(configs: Mapping[str, ConfigValue] | ReplicatorError) -> Configs:
    return None if isinstance(configs, ReplicatorError) else configs


def _problems(configs: Mapping[str, Mapping[str, ConfigValue] | ReplicatorError], no_acls: str) -> dict[str, str]:
    found = {"acls": no_acls} if no_acls else {}
    refused = {name: error for name, error in configs.items() if isinstance(error, ReplicatorError)}
    if refused:
        found["configs"] = first_of(refused, "topics")
    return found


def first_of(errors: Mapping[str, ReplicatorError], what: str) -> str:
    """Many errors of one kind as one text, which stays the same while they do."""
    first = min(errors)
    return f"of {len(errors)} {what}, first {first}: {errors[first]}"
