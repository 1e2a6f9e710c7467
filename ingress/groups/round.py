"""One round for the consumer groups of the source regions that this process keeps.

    newest snapshot of each region ──> translated by the offset map ──┬──> group checkpoints, offset syncs
                                                                      └──> offsets of inactive groups, where asked for

A region that fails does not keep the others from being done; what failed is done by the next round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache, partial

from formats.errors import ReplicatorError, TargetError
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.messages.mirrormaker import OffsetSync
from infra.archive.group_reports import GroupReport, GroupReports
from infra.contracts.cluster import TopicPartition
from infra.contracts.internal_topics import MirrorRecordLog
from ingress.catalog.mirror_topics import MirrorTopics
from ingress.groups.emission import due_checkpoints, due_offset_syncs
from ingress.groups.flows import GroupFlow
from ingress.groups.lookup import DeliveryPositions, MapLookup, MapReader
from ingress.groups.map_retention import MapRetention
from ingress.groups.mirror_records import MirrorTables
from ingress.groups.positions import DeliveredTopics, GroupPosition, group_positions
from ingress.groups.sync_plan import SyncDecision
from ingress.groups.target_groups import TargetGroups
from ingress.groups.topic_ids import ClaimedTopicIds
from ingress.routing.archived import forked_from, keeping_offsets
from ingress.routing.destinations import RoutingTable


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionReport:
    """What a round did for one region."""

    age: timedelta  # of what is known of the groups; at least so much where nothing has arrived
    has_arrived: bool = True  # a snapshot that can be read
    positions: Sequence[GroupPosition] = ()
    checkpoints: int = 0  # written
    decisions: Mapping[str, Sequence[SyncDecision]] = field(default_factory=dict)  # by group, where groups are synced
    problem: str = ""  # why it is not complete


@dataclass(slots=True, kw_only=True)
class GroupRound:
    """Blocks. Use from one thread at a time."""

    reports: GroupReports  # of the sources
    maps: MapReader
    topic_ids: ClaimedTopicIds  # of the sources
    topics: MirrorTopics
    records: MirrorRecordLog
    target: TargetGroups | None  # None: groups are not synced
    retention: MapRetention | None = None  # None: the map is not trimmed
    now: Callable[[], datetime]
    _tables: dict[GroupFlow, MirrorTables] = field(default_factory=dict)
    _since: dict[str, datetime] = field(default_factory=dict)  # when a region was first seen without a snapshot

    def run(
        self, flows: Sequence[GroupFlow], found: RoutingTable, positions: DeliveryPositions
    ) -> Mapping[str, RegionReport]:
        """By region; without a snapshot, those of which anything is to be written or committed. `flows`: of the regions
        that this process keeps. `positions`: checkpoints of all processes. Raises StoreUnavailable, BrokerUnavailable,
        TargetError: then nothing was done."""
        for gone in self._tables.keys() - set(flows):
            del self._tables[gone]  # another process may write there now
        upkeep = self._kept_up(flows)
        arrived = self.reports.refresh([flow.region for flow in flows])
        reports = {
            flow.region: self._not_arrived(flow.region)
            for flow in flows
            if flow.region not in arrived and (self.target is not None or flow.checkpoints)
        }
        if not arrived:
            return reports
        routes = {name: one.routes for name, one in found.destinations.items()}
        lookup = self.maps.open(routes.keys(), positions, preserved=keeping_offsets(routes), forked=forked_from(routes))
        for flow in flows:
            if flow.region in arrived:
                report = self._region(flow, arrived[flow.region], found, lookup)
                problems = (report.problem, self.reports.problems.get(flow.region, ""), upkeep)
                reports[flow.region] = replace(report, problem="; ".join(filter(None, problems)))
        return reports

    def _not_arrived(self, region: str) -> RegionReport:
        """A gauge that is absent raises no alert, so the age counts from the first round."""
        now = self.now()
        age = now - self._since.setdefault(region, now)
        return RegionReport(age=age, has_arrived=False, problem=self.reports.problems.get(region, ""))

    def _kept_up(self, flows: Sequence[GroupFlow]) -> str:
        """Why the map could not be trimmed or copied: groups are translated all the same."""
        if not flows or self.retention is None:
            return ""
        try:
            self.retention.turn({flow.region for flow in flows}, self.now())
        except ReplicatorError as error:
            return f"the offset map is not trimmed or copied: {error}"
        return ""

    def _region(self, flow: GroupFlow, arrived: GroupReport, found: RoutingTable, lookup: MapLookup) -> RegionReport:
        routes = [one.routes for one in found.destinations.values()]
        delivered = DeliveredTopics.of(flow.region, routes, self.topic_ids.of)
        positions = list(group_positions(arrived.snapshot, delivered, lookup.targets_of))
        written, problems, decisions = 0, list[str](), dict[str, Sequence[SyncDecision]]()
        try:
            if flow.checkpoints:
                written = self._emit(flow, arrived, positions, lookup)
        except ReplicatorError as error:
            problems.append(str(error))
            if isinstance(error, TargetError):  # one of the topics may have been deleted
                self._forget(flow)
        try:
            if self.target is not None:
                some, is_newest = by_group(positions), partial(self.reports.is_still_newest, flow.region, arrived)
                decisions = dict(self.target.sync(some, self.now(), region=flow.region, is_newest=is_newest))
        except ReplicatorError as error:
            problems.append(str(error))
        return RegionReport(
            age=self.now() - arrived.as_of,
            positions=positions,
            checkpoints=written,
            decisions=decisions,
            problem="; ".join(problems),
        )

    def _forget(self, flow: GroupFlow) -> None:
        self._tables.pop(flow, None)
        for topic in (flow.checkpoints, flow.offset_syncs):
            self.topics.forget(topic)

    def _emit(
        self, flow: GroupFlow, arrived: GroupReport, positions: Sequence[GroupPosition], lookup: MapLookup
    ) -> int:
        for topic in (flow.checkpoints, flow.offset_syncs):
            self.topics.ensure(topic, source=f"{flow.region}/{topic}", lineage=(arrived.snapshot.cluster_id,))
        if flow not in self._tables:
            self._tables[flow] = MirrorTables.of(flow, self.records)
        tables = self._tables[flow]
        # what was written about another incarnation of a destination is no news of this one, however far it went
        targets = {
            (key.source.topic, key.source.partition): TopicPartition(key.destination_topic, key.source.partition)
            for key in lookup.positions
            if key.source.region == flow.region
        }
        synced = {
            where: one
            for where, one in tables.offset_syncs.read().items()
            if where not in targets or not lookup.ends_before(targets[where], one.downstream_offset + 1)
        }
        tables.offset_syncs.write(due_offset_syncs(_last_records(flow.region, lookup), synced))
        written = {
            key: one
            for key, one in tables.checkpoints.read().items()
            if not lookup.ends_before(TopicPartition(one.topic, one.partition), one.downstream_offset)
        }
        is_newest = cache(partial(self.reports.is_still_newest, flow.region, arrived))  # asked after the topic was read
        return tables.checkpoints.write(due_checkpoints(positions, written, is_newest=is_newest))


def by_group(positions: Sequence[GroupPosition]) -> Mapping[str, Sequence[GroupPosition]]:
    found: dict[str, list[GroupPosition]] = defaultdict(list)
    for position in positions:
        found[position.group].append(position)
    return found


def _last_records(region: str, lookup: MapLookup) -> Sequence[OffsetSync]:
    """Of each partition of the region, the last record that is here."""
    found = []
    for key, checkpoint in lookup.positions.items():
        if key.source.region == region and isinstance(checkpoint, Checkpoint):
            last = lookup.last_record(key)
            if last is not None:
                found.append(_sync(key, *last))
    return found


def _sync(key: CheckpointKey, source: int, target: int) -> OffsetSync:
    return OffsetSync(
        topic=key.source.topic, partition=key.source.partition, upstream_offset=source, downstream_offset=target
    )
