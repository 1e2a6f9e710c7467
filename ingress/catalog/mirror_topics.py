"""MirrorMaker 2's topics in this cluster, of one kind: heartbeats, checkpoints of groups, or offset syncs. They are
created like destinations, with the ledger, and never by the broker.

A topic that the ledger does not have is used only if it may be one of that kind: MirrorMaker 2's own, for example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from formats.errors import ReplicatorError, TargetError
from formats.policies.heartbeats import HEARTBEAT_CONFIGS, why_not_heartbeats
from infra.contracts.catalog import CatalogAdmin
from infra.contracts.cluster import ClusterAdmin, TopicFacts
from infra.contracts.internal_topics import Ledger
from infra.runtime.lifecycle import Clock
from infra.settings.current import InForce
from ingress.catalog.creator import TopicCreator
from ingress.catalog.settings import CatalogSettings


@dataclass(slots=True, kw_only=True)
class MirrorTopics:
    """Use from one thread."""

    admin: ClusterAdmin
    catalog_admin: CatalogAdmin
    ledger: Ledger
    creator: TopicCreator
    settings: InForce[CatalogSettings]
    clock: Clock
    configs: Mapping[str, str] = field(default_factory=lambda: HEARTBEAT_CONFIGS)  # of a topic, which has one partition
    why_not: Callable[[str, int, Mapping[str, str]], str] = why_not_heartbeats  # why one is not to be written to
    _checked: set[str] = field(default_factory=set)

    def ensure(self, topic: str, *, source: str, lineage: tuple[str, ...]) -> None:
        """Create it, or check the one that exists, once. `source`: region/topic that its records are of. `lineage`:
        as of a destination. Raises BrokerUnavailable, and TargetError when it must not be written to."""
        if topic in self._checked:
            return
        found = self.admin.describe([topic]).get(topic)
        if found is not None:
            self._check(found, source=source, lineage=lineage)
        elif self.settings.value.create_topics:
            self.creator.create(topic, 1, self.configs, source=source, lineage=lineage)
        else:
            raise TargetError(
                f"topic {topic} does not exist, and create_topics = false: create it with one partition and "
                f"{' '.join(f'{name} = {value}' for name, value in self.configs.items())}"
            )
        self._checked.add(topic)

    def forget(self, topic: str) -> None:
        """It may have been deleted: check it again."""
        self._checked.discard(topic)

    def _check(self, found: TopicFacts, *, source: str, lineage: tuple[str, ...]) -> None:
        if self.settings.value.create_topics:  # else there may be no ledger
            ours = self.ledger.read()
            if ours.topic(found.name, found.topic_id) is not None:
                return
            values = self.catalog_admin.config_values([found.name]).get(found.name, {})
            configs = {} if isinstance(values, ReplicatorError) else values
            is_ours = ours.is_unfinished(found.name, found.topic_id, configs, self.clock.now())
            if found.topic_id and is_ours:  # without an id nothing tells it from others
                self.creator.own(found.name, found.topic_id, source=source, lineage=lineage)
                return
        if problem := self.why_not(found.name, found.partition_count, self.admin.configs(found.name)):
            raise TargetError(problem)
