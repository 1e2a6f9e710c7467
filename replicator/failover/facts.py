"""What a failover is planned from: this bucket and this cluster. The source region is not asked, it may be gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from formats.control.group_snapshot import OTHER_KIND, GroupSnapshot, decode_group_snapshot
from formats.control.keys import groups_prefix
from formats.errors import MalformedEvent, SegmentNotFound, TargetError
from formats.incarnation import Incarnation
from formats.messages.ledger import Failover, FailoverPhase, Ownership
from formats.policies.acls import DENY, TOPIC
from formats.segment import OffsetRange, SourcePartition
from infra.archive.generations import Generations
from infra.archive.group_reports import GroupReport, GroupReports
from infra.archive.source_reports import SourceReport, SourceReports
from infra.archive.watermark_history import WatermarkHistory
from infra.contracts.cluster import TopicPartition
from infra.contracts.internal_topics import Ledger
from ingress.catalog.ownership import DryLedger
from ingress.groups.positions import GroupPosition
from ingress.groups.round import by_group
from ingress.groups.topic_ids import is_another
from ingress.groups.translation import Exactness
from ingress.routing.archived import forked_from
from ingress.topics_not_arrived import destination_of
from replicator.failover.plan import ArrivingPartition, FailoverPlan, planned_groups
from replicator.failover.streams import ArrivingTopic, streams_applications
from replicator.group_sync import target_groups
from replicator.offsets import TranslatedOffsets
from replicator.services.clients import Clients
from replicator.services.ingress_status import ingress_sources
from replicator.services.routing import Routed, routed
from replicator.status.ingress_partition import IngressPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverFacts:
    """Of one source region, as of when they were read."""

    plan: FailoverPlan
    positions: Mapping[str, Sequence[GroupPosition]]  # by group
    translated: TranslatedOffsets


@dataclass(slots=True, kw_only=True)
class FailoverSources:
    """Use from one thread."""

    clients: Clients
    region: str
    ledger: Ledger
    _reports: GroupReports | None = field(default=None, init=False)

    def read(self, now: datetime, *, of_groups: bool = True) -> FailoverFacts:
        """Raises ConfigError, also when the region is none of the sources, StoreUnavailable, BrokerUnavailable, and
        TargetError when there is no offset map. Without `of_groups` no decisions about groups are made."""
        clients, region, config = self.clients, self.region, self.clients.config
        translated = TranslatedOffsets.open(clients, region)
        found = routed(clients)
        owned = self.ledger.read()
        state = owned.failover_of(region)
        status = ingress_sources(clients, found).read(now, clients.pool)
        report = SourceReports(clients.objects, config.s3.prefix).refresh([region])[region]
        delivered = [p for p in status.partitions if p.key.source.region == region and p.configured and not p.is_over]
        partitions = self._partitions(delivered, report, found, translated.topic_ids.of)
        groups = self._snapshot(state)
        positions = {} if groups is None else by_group(self._positions(groups.snapshot, translated, partitions))
        decisions = (
            target_groups(clients, DryLedger(self.ledger)).sync(positions, now, dry_run=True) if of_groups else {}
        )
        snapshot = None if groups is None else groups.snapshot
        arriving, names = list(_arriving(region, found)), _names(region, report, found)
        return FailoverFacts(
            plan=FailoverPlan(
                region=region,
                now=now,
                state=state,
                heartbeat_at=None if report.heartbeat is None else report.heartbeat.written_at,
                watermarks_at=report.as_of,
                snapshot_at=None if groups is None else groups.as_of,
                snapshot=0 if groups is None else groups.generation,
                partitions=partitions,
                groups=planned_groups(decisions, partitions),
                not_known={} if snapshot is None else _not_known(snapshot, translated),
                not_in_snapshot=self._not_in(groups),
                writes_groups=report.heartbeat is not None and report.heartbeat.groups > 0,
                refused=_refused(region, found),
                streams=[] if snapshot is None else streams_applications(snapshot, names, arriving),
                members=status.group.members,
                servers=str(config.cluster.properties("admin").get("bootstrap.servers", "")),
                topics=_destinations(arriving),
                released=released(arriving, owned),
            ),
            positions=positions,
            translated=translated,
        )

    def _partitions(
        self,
        delivered: Sequence[IngressPartition],
        report: SourceReport,
        found: Routed,
        topic_id: Callable[[str, str], str | None],
    ) -> Sequence[ArrivingPartition]:
        """Those that are stored or delivered, and those that the source has besides: also of a topic that was created
        again there, of which nothing has arrived. `topic_id`: of a region's archive path, as its claim says."""
        history = WatermarkHistory(self.clients.objects, self.clients.config.s3.prefix, self.region)
        paths = {p.key.source.path: p.key.source.topic for p in delivered}
        earlier = {
            path for path, topic in paths.items() if is_another(topic_id(self.region, path), report.topic_id(topic))
        }
        reached = {
            (p.key.source.topic, p.key.source.partition): (
                p.absent[0].start if p.absent else max(p.archive_end or 0, p.next_offset or 0)
            )
            for p in delivered
            if p.key.source.path not in earlier
        }
        unseen = [one for one in _known_here(self.clients, self.region, report, found) if one[0] not in reached]
        complete = history.complete_as_of(report, reached | dict.fromkeys((one for one, _ in unseen), 0))
        again = {p.key.source.topic for p in delivered if p.key.source.path in earlier}

        after_fork = forked_from(found.routing.chosen)

        def never_here(p: IngressPartition) -> OffsetRange | None:
            """Not of a path after a fork: the one before it has what lies below its begin."""
            source, begun_at = p.key.source, None if p.checkpoint is None else p.checkpoint.begun_at
            start = report.log_start(source.topic, source.partition)
            if begun_at is None or start is None or source.path in earlier or (self.region, source.path) in after_fork:
                return None
            return OffsetRange(start, begun_at - 1) if start < begun_at else None

        def of_source(p: IngressPartition) -> tuple[int | None, datetime | None]:
            """The end of its log, and as of when it is complete; neither is known of an earlier incarnation."""
            source = p.key.source
            if source.path in earlier:
                return None, None
            return report.stable_end(source.topic, source.partition), complete.get((source.topic, source.partition))

        states = [
            ArrivingPartition(
                source=p.key.source,
                target=TopicPartition(p.key.destination_topic, p.key.source.partition),
                delivered=p.next_offset,
                begins=p.archive_start,
                arrived=p.archive_end,
                absent=p.absent,
                source_end=source_end,
                complete_as_of=complete_as_of,
                problem="; ".join(p.problems),
                never_here=never_here(p),
            )
            for p in delivered
            for source_end, complete_as_of in (of_source(p),)
        ]
        states += [
            ArrivingPartition(
                source=SourcePartition(self.region, topic, partition, report.topic_id(topic) if topic in again else ""),
                target=TopicPartition(destination, partition),
                delivered=None,
                source_end=report.stable_end(topic, partition),
                complete_as_of=complete.get((topic, partition)),
            )
            for (topic, partition), destination in unseen
        ]
        return sorted(states, key=lambda one: (str(one.source.path), one.source.partition, one.target))

    def _snapshot(self, state: Failover | None) -> GroupReport | None:
        """The one that a failover in force has chosen, else the newest. None: none has arrived. Raises TargetError
        when the chosen one is gone, and groups are still to be committed by it."""
        self._reports = None
        objects, prefix = self.clients.objects, self.clients.config.s3.prefix
        if state is None or not (state.snapshot and state.phase.holds):
            return self._newest()
        generations = Generations(objects, groups_prefix(prefix, self.region))
        try:
            snapshot = decode_group_snapshot(generations.read(state.snapshot))
        except (SegmentNotFound, MalformedEvent) as error:
            if state.phase is FailoverPhase.ACTIVE and not state.left:
                return self._newest()
            raise TargetError(
                f"the failover from {self.region} began with the group snapshot {state.snapshot}, which cannot be read "
                f"any more ({error}): use `replicator offsets translate --apply` for each group that is left: "
                + ", ".join(state.left)
            ) from error
        return GroupReport(snapshot, state.snapshot, snapshot.observed_at)

    def _newest(self) -> GroupReport | None:
        self._reports = GroupReports(self.clients.objects, self.clients.config.s3.prefix)
        return self._reports.refresh([self.region]).get(self.region)

    def _not_in(self, report: GroupReport | None) -> Sequence[str]:
        """Why groups may be missing in what `_snapshot` returned, or stand elsewhere than it says."""
        problem = "" if self._reports is None else self._reports.problems.get(self.region, "")
        if report is None:
            return [f"{problem}: no group can continue where it stood"] if problem else []
        snapshot = report.snapshot
        named = [
            f"groups of {self.region} are not known whole, {what}: {why}"
            for what, why in sorted(snapshot.problems.items())
            if what != "groups"  # each of them by its name
        ]
        stale = [
            f"group {group}: its offsets are those of {report.as_of_group(group).isoformat(timespec='seconds')}, and "
            f"could not be read since: {why}"
            for group, why in sorted(snapshot.unreadable.items())
            if group in snapshot.groups
        ]
        return [*filter(None, [problem]), *named, *stale]

    def _positions(
        self, snapshot: GroupSnapshot, translated: TranslatedOffsets, partitions: Sequence[ArrivingPartition]
    ) -> Sequence[GroupPosition]:
        """As translated; where no record ever arrived, and none is here, a group begins at 0."""
        states = {(str(one.source), one.target): one for one in partitions}
        ends = self.clients.admin.ends([one.target for one in partitions if not one.reach])
        found = []
        for one in translated.positions(snapshot):
            state, end = states.get((one.source, one.target)), ends.get(one.target)
            if one.downstream is None and state is not None and not state.reach and end is not None and not end.high:
                exactness = Exactness.CLAMPED if one.upstream else Exactness.EXACT
                found.append(replace(one, downstream=0, exactness=exactness, reason=""))
            else:
                found.append(one)
        return found


def released(arriving: Sequence[ArrivingTopic], owned: Ownership) -> Sequence[str]:
    """Destinations with the source's own name that only ingress may write to: after a failover their producers do."""
    protected = {one.resource_name for one in owned.acls if one.permission == DENY and one.resource_type == TOPIC}
    return sorted({one.destination for one in arriving if one.keeps_name and one.destination in protected})


def _arriving(region: str, found: Routed) -> Iterator[ArrivingTopic]:
    for destination, routes in found.routing.chosen.items():
        for route in routes:
            if route.region == region:
                name = route.incarnations[0].topic
                yield ArrivingTopic(name=name, destination=destination, keeps_offsets=route.settings.preserves_offsets)


def _destinations(arriving: Sequence[ArrivingTopic]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for one in sorted(arriving, key=lambda one: (one.name, one.destination)):
        found.setdefault(one.name, []).append(one.destination)
    return found


def _refused(region: str, found: Routed) -> Mapping[str, str]:
    some = [*found.routing.withheld, *found.routing.refused, *found.routing.unnamed]
    return {each.path: one.reason for one in some if one.topic.region == region for each in one.topic.incarnations}


def _names(region: str, report: SourceReport, found: Routed) -> set[str]:
    """Topics of the source that are known here."""
    catalog = found.catalogs.get(region)
    return {
        *(() if report.watermarks is None else report.watermarks.topics),
        *(() if catalog is None else catalog.topics),
    }


def _known_here(
    clients: Clients, region: str, report: SourceReport, found: Routed
) -> Iterator[tuple[tuple[str, int], str]]:
    """Partitions that the source has, of topics that are to be delivered here, with their destinations."""
    if report.watermarks is None:
        return
    routes = {
        route.incarnations[0].topic: name
        for name, some in found.routing.chosen.items()
        for route in some
        if route.region == region
    }
    for topic, marks in sorted(report.watermarks.topics.items()):
        config = clients.config
        destination = routes.get(topic) or destination_of(
            clients.ingress, config.own_topics, config.region, region, Incarnation(topic)
        )
        if destination:
            yield from (((topic, partition), destination) for partition in range(marks.partitions))


def _not_known(snapshot: GroupSnapshot, translated: TranslatedOffsets) -> Mapping[str, str]:
    found = {
        group: f"its offsets in {', '.join(topics)} are of another incarnation of the topic than those that are "
        "delivered here: the topic was created again, and the group stays where it is"
        for group, topics in sorted(translated.of_other_incarnations(snapshot).items())
    }
    found |= {
        group: f"its offsets in {', '.join(topics)} have no place here: the topic shares its destination with others "
        "(allow_merge), and no offset there is right for the records of all"
        for group, topics in sorted(translated.of_shared_destinations(snapshot).items())
    }
    found |= {
        group: f"its offsets could not be read at the source: {why}"
        for group, why in sorted(snapshot.unreadable.items())
        if group not in snapshot.groups
    }
    found |= {
        group: "it is a share group or one of the streams protocol, which are not moved"
        for group, kind in sorted(snapshot.unsupported.items())
        if kind == OTHER_KIND
    }
    return found
