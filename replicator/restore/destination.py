"""Plans one destination of a restore: how it is created, or what is done to it as it is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from formats.errors import TargetError
from formats.footer import SegmentFooter
from formats.policies.topic_configs import ConfigFilter, ConfigValue
from infra.contracts.cluster import ClusterAdmin, TopicFacts, TopicPartition
from infra.kafka.client.topic_configs import limits_ms
from ingress.routing.succession import ArchivedIncarnation
from replicator.restore.acl_restore import AclRestore, RestoredAcls
from replicator.restore.choices import AclSource, ConfigMode
from replicator.restore.conflicts import (
    BATCH_OVERHEAD_BYTES,
    DEFAULT_LARGEST_BYTES,
    Conflict,
    ConflictKind,
    against_creation,
    against_defaults,
    against_purge,
    against_settings,
    against_topic,
)
from replicator.restore.creation import ROOM, TopicCreation, topic_creation
from replicator.restore.kept_offsets import against_taken, log_end
from replicator.restore.partition_plan import PartitionPlan
from replicator.restore.purge import Purge
from replicator.restore.source_catalog import NotDescribed, SourceCatalog, SourceDescription
from replicator.restore.target_options import TargetOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlArchive:
    """What is needed to create destinations as the archive's catalogues list their sources."""

    catalog: SourceCatalog
    acls: AclRestore
    config_filter: ConfigFilter = field(default_factory=ConfigFilter)


@dataclass(slots=True, kw_only=True)
class DestinationPlan:
    """Filled while it is made. The fields are those of a `TopicPlan`."""

    facts: TopicFacts | None = None
    partition_count: int = 1
    creation: TopicCreation = field(default_factory=TopicCreation)
    source: SourceDescription | None = None
    acls: RestoredAcls | None = None
    purge: Purge | None = None
    conflicts: list[Conflict] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationPlanner:
    """Changes nothing. Raises BrokerUnavailable, StoreUnavailable."""

    admin: ClusterAdmin
    options: TargetOptions
    now: datetime
    is_whole: bool  # every partition of the topic is restored; else others may belong to another restore
    control: ControlArchive | None  # set if `options` ask for anything of a catalogue
    preserves_offsets: bool = False

    def plan(
        self,
        name: str,
        incarnation: ArchivedIncarnation,
        topic_id: str,
        partitions: Sequence[PartitionPlan],
        footers: Sequence[SegmentFooter],
    ) -> DestinationPlan:
        """`topic_id`: of the source's topic; empty: not known. `footers` describe the records."""
        plan = DestinationPlan()
        try:
            plan.facts = self.admin.describe([name]).get(name)
            if plan.facts is not None:
                self._check_existing(plan, plan.facts, partitions, footers)
        except TargetError as error:
            plan.conflicts.append(Conflict(kind=ConflictKind.NOT_ALLOWED, reason=str(error)))
        self._describe(plan, name, incarnation.topic, topic_id)
        self._count(plan, name, incarnation, partitions, footers)
        if plan.facts is None:
            self._plan_creation(plan, name, partitions, footers)
        return plan

    def _check_existing(
        self,
        plan: DestinationPlan,
        facts: TopicFacts,
        partitions: Sequence[PartitionPlan],
        footers: Sequence[SegmentFooter],
    ) -> None:
        part = None if self.is_whole else {p.target.partition for p in partitions}
        numbers = [n for n in range(facts.partition_count) if part is None or n in part]
        marks = self.admin.watermarks([TopicPartition(facts.name, n) for n in numbers])
        begun = [p.checkpoint for p in partitions if p.checkpoint is not None]
        is_ours = any(c.destination_topic_id in ("", facts.topic_id) or not facts.topic_id for c in begun)
        configs = self.admin.configs(facts.name)
        if not begun:  # else it may be this restore that created it
            plan.warnings += self.options.not_applied(facts, configs)
        if self.options.purge and not begun and (purge := Purge(marks)).filled:
            plan.purge = purge
            plan.conflicts += against_purge(facts.name, configs)
        plan.conflicts += against_topic(facts, marks, self._needed(partitions), is_ours, plan.purge)
        if self.preserves_offsets:
            plan.conflicts += against_taken(marks, partitions)
        plan.conflicts += against_settings(facts.name, configs, limits_ms(configs), footers, self.now)

    def _needed(self, partitions: Sequence[PartitionPlan]) -> Sequence[PartitionPlan]:
        """Those that a destination has to have: of others there is nothing to restore."""
        return [
            p
            for p in partitions
            if p.offsets is not None or p.checkpoint is not None or (self.preserves_offsets and log_end(p))
        ]

    def _describe(self, plan: DestinationPlan, name: str, topic: str, topic_id: str) -> None:
        """Take what is asked for from the catalogue."""
        wants_configs = self.options.configs_from == ConfigMode.ARCHIVE and plan.facts is None
        wants_acls = self.options.acls == AclSource.ARCHIVE
        if self.control is None or not (wants_configs or wants_acls):
            return
        found = self.control.catalog.describe(topic, topic_id)
        if isinstance(found, NotDescribed):
            lacking = [*(["configs"] if wants_configs else []), *(["ACLs"] if wants_acls else [])]
            plan.warnings.append(f"{name} gets no {' and no '.join(lacking)} of its source: {found.why}")
            if wants_acls:
                plan.acls = RestoredAcls(why=found.why)
            return
        plan.source = found
        if wants_configs and found.topic.configs is None:
            why = found.problems.get("configs", "the egress of the source may not describe them")
            plan.warnings.append(f"{name} gets no configs of its source: {found} has none ({why})")
        if wants_acls:
            plan.acls = self._acls(plan, self.control.acls, name, found)

    def _acls(
        self, plan: DestinationPlan, restore: AclRestore, name: str, found: SourceDescription
    ) -> RestoredAcls | None:
        if found.acls is None:
            why = f"{found} has none ({found.problems.get('acls', 'the egress of the source may not describe them')})"
            plan.warnings.append(f"{name} gets no ACLs of its source: {why}")
            return RestoredAcls(why=why)
        try:
            return restore.plan(found.topic.name, name, found.acls)
        except TargetError as error:
            why = f"ACLs of {name}: {error}. Or restore without them: --acls none"
            plan.conflicts.append(Conflict(kind=ConflictKind.NOT_ALLOWED, reason=why))
            return None

    def _count(
        self,
        plan: DestinationPlan,
        name: str,
        incarnation: ArchivedIncarnation,
        partitions: Sequence[PartitionPlan],
        footers: Sequence[SegmentFooter],
    ) -> None:
        count = plan.facts.partition_count if plan.facts is not None else self.options.partition_count
        if count is not None:
            plan.partition_count = count
            return
        known = [f.origin.source_partition_count for f in footers if f.origin.source_partition_count is not None]
        if not known and plan.source is not None:
            known = [plan.source.topic.partitions]
        if not known and partitions:
            why = f"{name} does not exist, and no segment says how many partitions {incarnation.topic} had"
            plan.conflicts.append(
                Conflict(kind=ConflictKind.PARTITION_COUNT, reason=f"{why}: set it with --partition-count")
            )
        plan.partition_count = max([*known, *(p.target.partition + 1 for p in partitions)], default=1)

    def _plan_creation(
        self,
        plan: DestinationPlan,
        name: str,
        partitions: Sequence[PartitionPlan],
        footers: Sequence[SegmentFooter],
    ) -> None:
        plan.conflicts += against_creation(name, plan.partition_count, self._needed(partitions))
        source: Mapping[str, ConfigValue] | None = plan.source.topic.configs if plan.source is not None else None
        plan.creation = topic_creation(
            self.options.configs_from,
            room=_room_for(footers),
            given=self.options.configs,
            source=source,
            config_filter=ConfigFilter() if self.control is None else self.control.config_filter,
        )
        if not any(c.kind is ConflictKind.NOT_ALLOWED for c in plan.conflicts):
            plan.conflicts += self._check_creation(plan, name)
        configs = plan.creation.configs
        plan.conflicts += against_settings(name, configs, limits_ms(configs), footers, self.now)
        if self.options.configs_from == ConfigMode.NONE:
            plan.conflicts += against_defaults(name, configs, footers, self.now)

    def _check_creation(self, plan: DestinationPlan, name: str) -> Iterator[Conflict]:
        """Leave out configs of the source that the target refuses: each alone, so that the others stay."""
        why = self._refusal(name, plan.partition_count, plan.creation.configs)
        if why and plan.creation.source:
            base = {n: value for n, value in plan.creation.configs.items() if n not in plan.creation.source}
            if not self._refusal(name, plan.partition_count, base):
                alone = {
                    one: self._refusal(name, plan.partition_count, {**base, one: value})
                    for one, value in plan.creation.source.items()
                }
                plan.creation = plan.creation.without({one: refusal for one, refusal in alone.items() if refusal})
                why = self._refusal(name, plan.partition_count, plan.creation.configs)
        if why:
            yield Conflict(kind=ConflictKind.NOT_ALLOWED, reason=why)

    def _refusal(self, name: str, partition_count: int, configs: Mapping[str, str]) -> str:
        """Why the cluster would not create it; empty if it would."""
        try:
            self.admin.check_creation(
                name,
                partitions=partition_count,
                replication_factor=self.options.replication_factor,
                configs=configs,
            )
        except TargetError as error:
            return str(error)
        return ""


def _room_for(footers: Collection[SegmentFooter]) -> Mapping[str, str]:
    largest = max((f.largest_record_bytes for f in footers), default=0) + BATCH_OVERHEAD_BYTES
    return {ROOM: str(largest)} if largest > DEFAULT_LARGEST_BYTES else {}
