"""The state of the delivery of archived topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime, timedelta

from formats.control.catalog import Catalog
from formats.errors import CheckpointConflict, PluginFailed
from formats.incarnation import Incarnation
from formats.messages.delivery_checkpoint import (
    Checkpoint,
    CheckpointKey,
)
from formats.messages.group_claim import current_claim, is_copied, why_copied
from formats.segment import OffsetRange, SegmentInfo, SourcePartition
from formats.topic_selection import is_internal
from infra.archive.control import ControlStore
from infra.archive.proofs import ProofStore, read_each
from infra.archive.segments import SegmentStore
from infra.archive.source_reports import SourceReport, SourceReports
from infra.contracts.cluster import ClusterAdmin, ConsumerGroups, GroupFacts, describe_each
from infra.contracts.internal_topics import CheckpointStore
from infra.settings.field import dotted
from ingress.groups.topic_ids import ClaimedTopicIds, is_another
from ingress.heartbeat_flows import heartbeat_flows
from ingress.topics_not_arrived import destination_of
from ingress.undelivered import (
    delivery_path,
    later_incarnations,
)
from replicator.absent_topics import absent_from_source
from replicator.config import IngressSettings
from replicator.status.archive import ArchivedPartition, archived, stored_incarnations
from replicator.status.empty_sources import empty_sources
from replicator.status.ingress_partition import IngressPartition, partition_status
from replicator.status.members import missing_members
from replicator.status.not_arrived import NotArrived, not_arrived
from replicator.status.sources import SourceStatus, source_status


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The configuration applied to the archived topics, by region and archive path."""

    refused: Mapping[tuple[str, str], str]  # why it is not delivered, and what to do
    kept_away: Collection[tuple[str, str]] = ()  # copies of what is here, or arrives from elsewhere
    followed: Mapping[tuple[str, str], str]  # for a later incarnation: the archive path that is delivered before it


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressStatus:
    group_id: str
    group: GroupFacts
    checkpoint_topic: str
    has_topic: bool  # the checkpoint topic exists, as far as the cluster shows
    destinations: tuple[str, ...]  # existing destinations of archived topics
    owner: str  # the group that the checkpoint topic belongs to; empty: none yet
    copied: str  # why the checkpoint topic is a copy from another cluster; empty: its claim does not show one
    partitions: tuple[IngressPartition, ...]
    sources: tuple[SourceStatus, ...] = ()
    silent: tuple[str, ...] = ()  # of each source region without a heartbeat for long: what that means
    not_arrived: tuple[NotArrived, ...] = ()  # partitions of which nothing is stored here
    newest: tuple[SegmentInfo, ...] = ()  # the last stored segment of each partition
    matches_nothing: bool = False  # no stored topic matches a source
    empty_regions: tuple[str, ...] = ()  # regions of sources that live, and of which nothing is stored yet
    never_arrived: tuple[str, ...] = ()  # of each source region of which nothing has ever arrived: what to do
    absent: tuple[str, ...] = ()  # of each source with the name of a topic that its region does not have: what to do
    unnamed: tuple[str, ...] = ()  # archived topics without a destination, because a user's replication policy failed
    unproven: tuple[str, ...] = ()  # archived topics whose proofs cannot be decoded

    @property
    def problems(self) -> list[str]:
        found = [*self.never_arrived, *self.absent, *self.unnamed, *self.silent, *self.unproven]
        found += [one.problem for one in self.not_arrived if one.is_late]
        found += [f"{p.key.source} -> {p.key.destination_topic}: {w}" for p in self.partitions for w in p.problems]
        if self.misses_topic:
            found.append(self._without_topic())
        if self.copied:
            found.append(self.copied)
        if self.owner and self.owner != self.group_id:
            found.append(
                f"checkpoint topic {self.checkpoint_topic} belongs to group {self.owner}: processes of {self.group_id} "
                "are refused"
            )
        if missing := missing_members("ingress", self.group_id, self.group, sum(p.lag for p in self.partitions)):
            found.append(missing)
        return found

    @property
    def misses_topic(self) -> bool:
        """Whether the checkpoint topic does not exist although this is not a new installation."""
        return not self.has_topic and bool(self.group.members or self.destinations)

    def _without_topic(self) -> str:
        missing = f"checkpoint topic {self.checkpoint_topic} does not exist, although"
        if self.group.members:
            return (
                f"{missing} group {self.group_id} has members: it was deleted while they run. Create it again, "
                "compacted and with one partition: what is being delivered continues. Each partition that stops, which "
                "/readyz names, needs its position: `replicator checkpoints seed REGION/TOPIC/PARTITION --offset N`"
            )
        more = f" and {len(self.destinations) - 1} more" if len(self.destinations) > 1 else ""
        return (
            f"{missing} destination {self.destinations[0]}{more} does. If nothing was delivered from here yet, start "
            "ingress, which creates it. If it was deleted, the positions are gone: partitions whose destination holds "
            "records stop when ingress is started, until "
            "`replicator checkpoints seed REGION/TOPIC/PARTITION --offset N`"
        )

    @property
    def waiting(self) -> list[str]:
        """Incarnations that are delivered later, each with its waiting offsets. No action is needed."""
        found: dict[tuple[str, str], int] = {}
        for p in self.partitions:
            if p.waits_for and not p.problems and p.lag:
                where = (f"{p.key.source.region}/{p.key.source.path} -> {p.key.destination_topic}", p.waits_for)
                found[where] = found.get(where, 0) + p.lag
        return [f"{where}: {lag} offsets wait for {what}" for (where, what), lag in found.items()]

    @property
    def parked(self) -> list[IngressPartition]:
        return [p for p in self.partitions if p.parked is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressSources:
    """What the state is read from."""

    settings: IngressSettings
    region: str  # this one
    own_topics: Collection[str]
    plan: Planned
    catalogs: Mapping[str, Catalog]  # in force, by region
    admin: ClusterAdmin
    cluster_id: str  # of this cluster
    groups: ConsumerGroups
    checkpoints: CheckpointStore
    store: SegmentStore
    control: ControlStore
    proofs: ProofStore
    reports: SourceReports
    topic_ids: ClaimedTopicIds

    def read(self, now: datetime, pool: Executor) -> IngressStatus:
        """Read the state. Raises StoreUnavailable, BrokerUnavailable, TargetError."""
        group = pool.submit(self.groups.facts, self.settings.group_id)
        positions = pool.submit(self.checkpoints.read)
        reports = pool.submit(self.reports.refresh, self.settings.regions)
        flows, _ = heartbeat_flows(self.settings)
        beats = {flow.source_topic: flow.region for flow in flows}
        own = pool.submit(describe_each, self.admin, [self.settings.checkpoint_topic, *beats])
        regions = {s.region for s in self.settings.sources}
        plan = self.plan
        wanted: dict[tuple[str, str], str] = {}  # (region, place) -> destination
        unnamed: list[str] = []
        matches_nothing = True
        topics: dict[str, set[str]] = {}  # that are stored, by region
        for region, one in stored_incarnations(self.store, regions, pool):
            topics.setdefault(region, set()).add(one.topic)
            source = self.settings.source_of(region, one.topic)
            matches_nothing = matches_nothing and (source is None or is_internal(one.topic, self.own_topics))
            if (region, one.path) in plan.kept_away:
                continue
            if source is not None and not is_internal(one.topic, self.own_topics):
                try:
                    if source.refusal(one.topic, self.region):
                        continue
                    wanted[region, one.path] = source.destination(one.topic, one.id)
                except PluginFailed as error:
                    unnamed.append(f"{region}/{one.path}: its replication policy gives it no name here: {error}")
        known_proofs = read_each(self.proofs, wanted, pool)
        entries = positions.result()
        checkpoints = {key: entry for key, entry in entries.items() if isinstance(entry, Checkpoint)}
        incarnations: dict[tuple[str, str, int, str], dict[CheckpointKey, Checkpoint]] = {}
        for key, checkpoint in checkpoints.items():
            incarnations.setdefault(delivery_path(key), {})[key] = checkpoint
        reached: dict[SourcePartition, int] = {}
        for key, checkpoint in checkpoints.items():
            if wanted.get((key.source.region, key.source.path)) == key.destination_topic:
                reached[key.source] = checkpoint.next_offset
        stored = archived(self.store, wanted, reached, pool)
        conflicts = {key: str(entry) for key, entry in entries.items() if isinstance(entry, CheckpointConflict)}
        parked, skipped, waited = self.checkpoints.parked(), self.checkpoints.skipped(), self.checkpoints.waiting()
        configured = {CheckpointKey(source, wanted[source.region, source.path]): True for source in stored}
        for key in [*entries, *parked]:
            configured.setdefault(key, wanted.get((key.source.region, key.source.path)) == key.destination_topic)
        gaps = self._gaps({k.source for k, v in configured.items() if v}, pool)
        seen = reports.result()
        recreated = self._recreated([key.source for key in configured], seen, pool)
        facts, refused = describe_each(self.admin, {k.destination_topic for k, v in configured.items() if v})
        members = group.result().members
        partitions = [
            partition_status(
                key,
                configured=configured[key],
                checkpoint=checkpoints.get(key),
                conflict=conflicts.get(key, ""),
                archived=stored.get(key.source, ArchivedPartition()),
                gaps=gaps.get(key.source, ()),
                parked=parked.get(key),
                skipped=[s for s in skipped if s.key == key],
                waiting=waited.get(key),
                target=facts.get(key.destination_topic),
                refused=plan.refused.get((key.source.region, key.source.path), "")
                or str(refused.get(key.destination_topic, "")),
                behind="" if key in checkpoints else plan.followed.get((key.source.region, key.source.path), ""),
                is_over=bool(
                    key in checkpoints and later_incarnations(key, checkpoints[key], incarnations[delivery_path(key)])
                ),
                settles_within=self._settles_within(key.source),
                transform=self._transform(key.source),
                members=members,
                now=now,
                proof=known_proofs.proofs.get(key.source),
                has_ended=(key.source.region, key.source.path) in recreated
                or seen.get(key.source.region, SourceReport()).lacks(key.source.topic),
            )
            for key in sorted(configured)
        ]
        stored_here = sorted({key.source for key in configured})
        absent = tuple(not_arrived(self.control, seen, self._destination, stored_here, recreated=recreated, now=now))
        existing = {name for one in own.result() for name in one}  # one that may not be described may exist
        sources = source_status(
            seen,
            (p for p in partitions if p.configured and not p.is_over),
            {name: (region, name in existing) for name, region in beats.items()},
            absent,
        )
        never_arrived = empty_sources(self.store, regions - topics.keys(), self.region)
        topic = self.settings.checkpoint_topic
        owner = current_claim(self.checkpoints.claims())
        is_other = owner is not None and is_copied(owner, self.cluster_id)
        return IngressStatus(
            group_id=self.settings.group_id,
            group=group.result(),
            checkpoint_topic=topic,
            has_topic=topic in existing,
            destinations=tuple(sorted(facts)),
            owner=owner.group_id if owner is not None else "",
            copied=why_copied(topic, owner, self.cluster_id) if owner is not None and is_other else "",
            partitions=tuple(partitions),
            newest=tuple(found.newest for found in stored.values() if found.newest is not None),
            matches_nothing=matches_nothing,
            empty_regions=tuple(sorted(regions - topics.keys() - never_arrived.keys())),
            never_arrived=tuple(never_arrived.values()),
            absent=tuple(self._absent(topics)),
            unnamed=tuple(unnamed),
            unproven=known_proofs.problems,
            sources=sources,
            silent=tuple(problem for one in sources if (problem := one.problem(now))),
            not_arrived=absent,
        )

    def _recreated(
        self, sources: Iterable[SourcePartition], reports: Mapping[str, SourceReport], pool: Executor
    ) -> Collection[tuple[str, str]]:
        """Region and archive path of each incarnation whose topic was created again at the source."""
        reported = {
            (one.region, one.path): topic_id
            for one in sources
            if one.region in reports and (topic_id := reports[one.region].topic_id(one.topic))
        }
        claimed = pool.map(lambda path: self.topic_ids.of(*path), reported)
        return {path for path, id_ in zip(reported, claimed, strict=True) if is_another(id_, reported[path])}

    def _destination(self, region: str, incarnation: Incarnation) -> str:
        """Of an incarnation of which nothing has arrived; empty when it is not to be delivered here."""
        if (region, incarnation.topic) in self.plan.kept_away:
            return ""
        return destination_of(self.settings, self.own_topics, self.region, region, incarnation)

    def _absent(self, stored: Mapping[str, Collection[str]]) -> Iterator[str]:
        """The problem of each source with a name that its region does not have: most likely it is mistyped, and the
        topic that was meant is not delivered. Without a catalogue, a topic without records is not known."""
        for index, source in enumerate(self.settings.sources):
            catalog = self.catalogs.get(source.region)
            if catalog is None or source.topic.is_expression:
                continue
            existing = {*catalog.topics, *catalog.removed_names, *stored.get(source.region, ())}
            if not source.topic.matches_any(existing):
                what = absent_from_source(source.topic.text, source.region, existing)
                where = dotted(["ingress", "sources", index, "topic"])
                yield f"{where}: {what}: correct the name, or let egress there archive it"

    def _settles_within(self, source: SourcePartition) -> timedelta:
        """How long the first segment of a partition may wait for earlier ones."""
        settings = self.settings.source_of(source.region, source.topic)
        return settings.first_segment_delay if settings is not None else timedelta()

    def _transform(self, source: SourcePartition) -> str:
        settings = self.settings.source_of(source.region, source.topic)
        return settings.transform if settings is not None else ""

    def _gaps(
        self, sources: Collection[SourcePartition], pool: Executor
    ) -> Mapping[SourcePartition, Sequence[OffsetRange]]:
        with_gaps = [
            s for r in sorted({s.region for s in sources}) for s in self.control.gaps.sources(r) if s in sources
        ]
        return dict(zip(with_gaps, pool.map(self.control.gaps.ranges, with_gaps), strict=True))
