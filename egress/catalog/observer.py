"""What the source cluster has now: the selected topics with their configs, and the ACLs of topics and groups.

Needs DESCRIBE and DESCRIBE_CONFIGS on the topics, and DESCRIBE on the cluster for ACLs. A right that is missing leaves
out what it is for, and the catalogue says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from formats.control.catalog import Catalog, CatalogTopic, with_removals
from formats.errors import ReplicatorError, TargetError
from formats.policies.acls import AclBinding
from formats.policies.topic_configs import ConfigValue
from infra.contracts.catalog import CatalogAdmin, TopicShape
from infra.contracts.cluster import ClusterAdmin


@dataclass(frozen=True, slots=True)
class SelectedTopics:
    """The topics of the source cluster that are replicated."""

    admin: ClusterAdmin
    catalog_admin: CatalogAdmin
    select: Callable[[Collection[str]], Collection[str]]  # of all topics those that are replicated

    def shapes(self) -> Mapping[str, TopicShape]:
        """By name. Raises BrokerUnavailable."""
        return self.catalog_admin.shapes(self.select(frozenset(self.admin.topics())))


@dataclass(frozen=True, slots=True)
class CatalogObserver:
    """Blocks: use from a thread of its own."""

    topics: SelectedTopics
    writer: str

    def observe(self, before: Catalog | None, now: datetime) -> Catalog:
        """`before`: the generation that this one follows. Raises BrokerUnavailable, and TargetError when the topics may
        not be described."""
        cluster_id = self.topics.admin.cluster_id()
        shapes = self.topics.shapes()
        configs = self.topics.catalog_admin.config_values(shapes.keys())
        acls, no_acls = self._acls()
        topics = {
            name: CatalogTopic(
                name=name,
                topic_id=shape.topic_id,
                partitions=shape.partitions,
                replication_factor=shape.replication_factor,
                configs=None if isinstance(known := configs.get(name, {}), ReplicatorError) else known,
            )
            for name, shape in shapes.items()
        }
        found = Catalog(
            cluster_id=cluster_id,
            writer=self.writer,
            observed_at=now,
            topics=topics,
            acls=acls,
            problems=_problems(configs, no_acls),
        )
        return with_removals(found, before)

    def _acls(self) -> tuple[frozenset[AclBinding] | None, str]:
        """The bindings, or why there are none."""
        try:
            return self.topics.catalog_admin.acls(), ""
        except TargetError as error:
            return None, str(error)


def _problems(configs: Mapping[str, Mapping[str, ConfigValue] | ReplicatorError], no_acls: str) -> Mapping[str, str]:
    found = {"acls": no_acls} if no_acls else {}
    refused = {name: error for name, error in configs.items() if isinstance(error, ReplicatorError)}
    if refused:
        found["configs"] = first_of(refused, "topics")
    return found


def first_of(errors: Mapping[str, ReplicatorError], what: str) -> str:
    """Many errors of one kind as one text, which stays the same while they do."""
    first = min(errors)
    return f"of {len(errors)} {what}, first {first}: {errors[first]}"
