"""Makes the destinations of this process like their sources: reads what is, plans, and applies.

    catalogues ─> desired ─┐
    cluster ────> actual ──┼─> plan_changes, plan_acls ─> admin calls, each on its own: one refusal stops no other
    ledger ─────> ours ────┘

Each topic is kept by the process that has its partition 0, so no two apply different generations for long. A process
that dies leaves nothing half done: what it did not reach is a difference still, and the next one finds it.

Destinations of a region that was failed over from stay as they are until the failback, and those of a region whose
newest catalogue cannot be read until it can.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from formats.control.catalog import Catalog
from formats.errors import ReplicatorError, TargetError
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.messages.ledger import OwnedTopic
from formats.policies.topic_configs import CREATED_WITH, KEEPS_TIMESTAMPS, RETENTION, ConfigValue
from infra.contracts.catalog import CatalogAdmin
from infra.contracts.cluster import ClusterAdmin, TopicFacts, describe_each
from infra.runtime.lifecycle import Clock
from infra.settings.current import InForce
from ingress.catalog.acl_applier import AclApplier
from ingress.catalog.acl_differ import AclPlan
from ingress.catalog.creator import TopicCreator
from ingress.catalog.data_age import OldestRecords
from ingress.catalog.desired import KeptTopic, desired_topics, guarded, lineage_of, not_created
from ingress.catalog.differ import (
    ActualTopic,
    CatalogPlan,
    Change,
    CreateTopic,
    DataAge,
    DeleteTopic,
    DesiredTopic,
    Drift,
    GrowTopic,
    plan_changes,
)
from ingress.catalog.first_copy import CopiedTopic, FirstCopies
from ingress.catalog.ownership import LedgerView, with_configs_here
from ingress.catalog.removals import RemovedSources
from ingress.catalog.settings import CatalogSettings
from ingress.catalog.topic_changes import TopicChanges

log = logging.getLogger(__name__)

ACLS = "ACLs"  # among the problems


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What is to change in this cluster, and what is left as it is."""

    topics: CatalogPlan = field(default_factory=CatalogPlan)
    acls: AclPlan = field(default_factory=AclPlan)
    problems: Mapping[str, str] = field(default_factory=dict)  # destination, or ACLS → what was refused, and why

    @property
    def changes(self) -> Sequence[str]:
        """In plain words, in the order in which they are made."""
        return [*map(str, self.topics.changes), *self.acls.texts]

    @property
    def reports(self) -> Sequence[str]:
        """Differences that are left as they are."""
        return [*map(str, self.topics.reports), *self.acls.unprotected]


@dataclass(slots=True, kw_only=True)
class CatalogApplier:
    """Use from one thread at a time. Raises BrokerUnavailable and StoreUnavailable, and TargetError when the ledger may
    not be read or written; what else the cluster refuses is among the plan's problems."""

    admin: ClusterAdmin
    catalog_admin: CatalogAdmin
    ledger: LedgerView
    creator: TopicCreator
    acls: AclApplier
    copies: FirstCopies
    records: OldestRecords
    removals: RemovedSources
    settings: InForce[CatalogSettings]
    clock: Clock
    _changes: TopicChanges = field(init=False)

    def __post_init__(self) -> None:
        self._changes = TopicChanges(self.admin, self.catalog_admin, self.ledger, self.acls)

    def plan(
        self,
        kept: Mapping[str, KeptTopic],
        catalogs: Mapping[str, Catalog],
        positions: Mapping[CheckpointKey, object],
        *,
        stale: Collection[str] = (),
    ) -> ClusterPlan:
        """`positions`: checkpoints of all processes. `stale`: regions with a newer catalogue, which cannot be read: it
        may have been applied, so the one before decides nothing. Changes nothing but the ledger, which gets entries
        about what was done before."""
        problems: dict[str, str] = {}
        kept = self._followed(kept, stale)
        destinations = {name: one.sources for name, one in kept.items()}
        desired = desired_topics(destinations, catalogs, self.settings.value)
        facts, refused = describe_each(self.admin, [one.name for one in desired])
        problems |= {name: str(error) for name, error in refused.items()}
        self.ledger.refresh({(one.name, one.topic_id) for one in facts.values()})
        configs = self._configs(desired, facts, problems)
        owned = self._with_configs(self._owned(kept, facts, configs, catalogs), desired, configs)
        keep = {
            name: self._not_compared(kept[name], owned.get(name), configs.get(name, {}), positions) for name in facts
        }
        ages = {name: self._age(kept[name], one) for name, one in owned.items() if configs.get(name)}
        actual = {
            name: ActualTopic(
                name=name, topic_id=one.topic_id, partitions=one.partition_count, configs=configs.get(name)
            )
            for name, one in facts.items()
        }
        topics = plan_changes(
            [guarded(one, ages.get(one.name), self.settings.value) for one in desired if one.name not in refused],
            actual,
            {name: one.topic_id for name, one in owned.items()},
            keep=keep,
            created_with=CREATED_WITH,
            set_by_us=None
            if self.settings.value.configs == "authoritative"
            else {name: one.configs or () for name, one in owned.items()},
            obstacles=self._obstacles(desired, kept, owned, catalogs, positions),
        )
        # also of those that were deleted with the last plan, until routing knows that they are gone
        deleted = {one.name for one in topics.changes if isinstance(one, DeleteTopic)}
        deleted |= {one.name for one in desired if one.is_removed and one.name not in {*facts, *refused}}
        destinations = {name: sources for name, sources in destinations.items() if name not in deleted}
        owned = {name: one for name, one in owned.items() if name not in deleted}
        try:
            deciding = {region: one for region, one in catalogs.items() if region not in stale}
            acls = self.acls.plan(destinations, deciding, owned.keys(), self.settings.value.regions)
        except TargetError as error:
            acls, problems[ACLS] = AclPlan(), str(error)
        return ClusterPlan(self._permitted(topics), acls, problems)

    def apply(self, plan: ClusterPlan) -> ClusterPlan:
        """The plan, with what was refused among its problems. Missing topics are left to `TopicCreator`: they exist
        before their first record."""
        problems = dict(plan.problems)
        for change in plan.topics.changes:
            if refused := self._changes.refused(change):
                problems[change.name] = refused
        try:
            refused = self.acls.apply(plan.acls)
        except TargetError as error:
            refused = str(error)
        if refused:
            problems[ACLS] = refused
        return replace(plan, problems=problems)

    def _followed(self, kept: Mapping[str, KeptTopic], stale: Collection[str]) -> Mapping[str, KeptTopic]:
        """What is used here since a failover is not made like a source that may have come back as anything, nor any
        like a source as it was once."""
        held = {*self.ledger.failed_over({source.region for one in kept.values() for source in one.sources}), *stale}
        return {name: one for name, one in kept.items() if not any(source.region in held for source in one.sources)}

    def _obstacles(
        self,
        desired: Iterable[DesiredTopic],
        kept: Mapping[str, KeptTopic],
        owned: Mapping[str, OwnedTopic],
        catalogs: Mapping[str, Catalog],
        positions: Mapping[CheckpointKey, object],
    ) -> Mapping[str, str]:
        if self.settings.value.removals != "mirror":
            return {}
        gone = [one.name for one in desired if one.is_removed]
        return self.removals.obstacles(gone, kept, owned, catalogs=catalogs, positions=positions, now=self.clock.now())

    def _configs(
        self, desired: Iterable[DesiredTopic], facts: Mapping[str, TopicFacts], problems: dict[str, str]
    ) -> Mapping[str, Mapping[str, ConfigValue]]:
        """Of the topics that are there and compared, or are ours only if they have what we create topics with."""
        names = [
            one.name
            for one in desired
            if (here := facts.get(one.name)) is not None
            and (
                one.configs is not None
                or self.ledger.table.is_unfinished(one.name, here.topic_id, None, self.clock.now())
            )
        ]
        if not names:
            return {}
        found: dict[str, Mapping[str, ConfigValue]] = {}
        for name, answer in self.catalog_admin.config_values(names).items():
            if isinstance(answer, ReplicatorError):
                problems[name] = str(answer)
            else:
                found[name] = answer
        return found

    def _owned(
        self,
        kept: Mapping[str, KeptTopic],
        facts: Mapping[str, TopicFacts],
        configs: Mapping[str, Mapping[str, ConfigValue]],
        catalogs: Mapping[str, Catalog],
    ) -> Mapping[str, OwnedTopic]:
        for name, one in facts.items():
            lineage = lineage_of(kept[name].sources, catalogs)
            found = self.ledger.table.topic(name, one.topic_id)
            if one.topic_id and self.ledger.table.is_unfinished(
                name, one.topic_id, configs.get(name, {}), self.clock.now()
            ):
                self.creator.own(name, one.topic_id, source=str(kept[name].sources[0]), lineage=lineage)
                self.ledger.read()
            elif found is not None and lineage and found.lineage != lineage:
                self.ledger.replaced(replace(found, lineage=lineage))  # it was not known when the topic was created
        owned = {name: self.ledger.table.topic(name, one.topic_id) for name, one in facts.items() if one.topic_id}
        return {name: one for name, one in owned.items() if one is not None}

    def _with_configs(
        self,
        owned: Mapping[str, OwnedTopic],
        desired: Iterable[DesiredTopic],
        configs: Mapping[str, Mapping[str, ConfigValue]],
    ) -> Mapping[str, OwnedTopic]:
        found = dict(owned)
        for topic in desired:
            if (one := owned.get(topic.name)) is None or topic.configs is None or topic.name not in configs:
                continue
            found[topic.name] = with_configs_here(one, configs[topic.name], topic.configs.keys())
            if found[topic.name] != one:
                self.ledger.replaced(found[topic.name])
        return found

    def _not_compared(
        self,
        kept: KeptTopic,
        owned: OwnedTopic | None,
        configs: Mapping[str, ConfigValue],
        positions: Mapping[CheckpointKey, object],
    ) -> Collection[str]:
        """Configs that this cluster's brokers are too old for, and the retention until the first copy is through."""
        unknown = KEEPS_TIMESTAMPS.keys() - configs.keys()
        if owned is None or owned.is_copied:
            return unknown
        copied = CopiedTopic(owned=owned, sources=kept.archived, delay=kept.first_segment_delay)
        if not self.copies.is_through(copied, positions, self.clock.now()):
            return {*unknown, *RETENTION, "cleanup.policy"}  # a backlog may have records that the new policy refuses
        now = self.clock.now()
        self.records.forget(owned)  # what arrived since then may be older
        oldest = self.records.oldest(owned, kept.archived, now)
        # before the retention changes: from now on it is the source's
        self.ledger.replaced(replace(owned, is_copied=True, copied_at=now, oldest_at=oldest))
        self.records.forget(owned)
        return unknown

    def _age(self, kept: KeptTopic, owned: OwnedTopic) -> DataAge | None:
        """None when nothing is archived, and for copies that an earlier version completed."""
        owned = self.ledger.table.topic(owned.name, owned.topic_id) or owned
        until = owned.copied_at if owned.is_copied else self.clock.now()
        oldest = owned.oldest_at if owned.is_copied else self.records.oldest(owned, kept.archived, self.clock.now())
        if until is None or oldest is None:
            return None
        return DataAge(oldest, max(0, (until - oldest) // timedelta(milliseconds=1)))

    def _permitted(self, plan: CatalogPlan) -> CatalogPlan:
        settings = self.settings.value
        changes: list[Change] = []
        reports: list[Drift] = []
        for change in plan.changes:
            match change:
                case CreateTopic() if not settings.create_topics:
                    reports.append(Drift(change.name, not_created(change.partitions)))
                case GrowTopic() if not settings.add_partitions:
                    text = f"has {change.before} of {change.partitions} partitions, and add_partitions = false"
                    reports.append(Drift(change.name, text))
                case _:
                    changes.append(change)
        return CatalogPlan(tuple(changes), (*plan.reports, *reports))
