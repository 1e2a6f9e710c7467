"""Offsets of consumer groups, and of records, in the offsets of this cluster and back: `replicator offsets translate`.

with Clients(load("eu.toml")) as clients:
    offsets = TranslatedOffsets.open(clients, "us")
    offsets.of_group("billing")                      where the group stands here, by the newest snapshot
    offsets.to_here("orders", 0, 1200)               one offset of the source
    offsets.to_source("us.orders", 0, 1100)          one offset of this cluster
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from formats.control.group_snapshot import GroupSnapshot
from formats.errors import ConfigError, TargetError
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.messages.ledger import GroupHold, WrittenOffset
from infra.archive.generation_history import group_history
from infra.archive.group_reports import GroupReports
from infra.contracts.cluster import Committed, LogEnds, TopicPartition
from infra.contracts.groups import GroupIsActive
from infra.contracts.internal_topics import Ledger
from infra.kafka.client.properties import for_bounded_reads
from infra.kafka.cluster.group_commits import KafkaGroupCommits
from infra.kafka.cluster.log_ends import KafkaLogEnds
from infra.kafka.internal_topics.offset_map_log import KafkaOffsetMapLog
from infra.settings.field import suggestion
from ingress.groups.lookup import MapLookup, MapReader
from ingress.groups.positions import (
    DeliveredTopics,
    GroupPosition,
    group_positions,
    of_other_incarnations,
    of_shared_destinations,
)
from ingress.groups.sync_plan import SyncDecision, SyncOutcome, sync_plan
from ingress.groups.target_groups import group_writes, refuse_if_used
from ingress.groups.topic_ids import ClaimedTopicIds
from ingress.groups.translation import END_OF_OFFSETS, Exactness, Translation
from ingress.routing.archived import ArchivedTopic, forked_from, keeping_offsets
from replicator.services.clients import Clients
from replicator.services.ledger import ledger_in
from replicator.services.routing import routed


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedOffset:
    """One offset on both sides."""

    source: str  # region/topic/partition
    target: TopicPartition
    source_offset: int | None
    target_offset: int | None
    exactness: Exactness
    group: str = ""
    metadata: str = ""
    reason: str = ""  # why it is not known
    lag: int | None = None  # offsets from there to the end of the partition here
    timestamp: datetime | None = None  # of the first record here at or after it

    @property
    def is_known(self) -> bool:
        return self.exactness is not Exactness.UNKNOWN


def release(ledger: Ledger, group: str) -> Sequence[str]:
    """The group follows its sources again. Returns the topics on which it was held. Raises BrokerUnavailable,
    TargetError."""
    topics = sorted(topic for name, topic in ledger.read().held if name == group)
    if topics:
        ledger.write([GroupHold(group=group, topic=topic, is_held=False, at=datetime.now(UTC)) for topic in topics])
    return topics


def timestamps_of(
    places: Collection[tuple[TopicPartition, int]],
    ask: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, datetime]],
) -> Mapping[tuple[TopicPartition, int], datetime]:
    """Of the first record at each offset or after it; those at the end of a log are left out. `ask`: for one offset of
    each partition; called as often as a partition has offsets."""
    found: dict[tuple[TopicPartition, int], datetime] = {}
    left = set(places)
    while left:
        asked = dict(sorted(left))
        found |= {(partition, asked[partition]): at for partition, at in ask(asked).items()}
        left -= asked.items()
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedOffsets:
    """Between one source region and this cluster, as of when it was opened. Use from one thread."""

    clients: Clients
    region: str
    routes: Mapping[str, Sequence[ArchivedTopic]]  # by destination
    lookup: MapLookup
    topic_ids: ClaimedTopicIds

    @classmethod
    def open(cls, clients: Clients, region: str) -> TranslatedOffsets:
        """Raises ConfigError, also when `region` is none of the sources, StoreUnavailable, BrokerUnavailable, and
        TargetError when there is no offset map."""
        config, topic = clients.config, clients.ingress.offset_map_topic
        if region not in clients.ingress.regions:
            near, known = suggestion(region, clients.ingress.regions), ", ".join(clients.ingress.regions)
            problem = f"nothing of {region} is delivered to {config.region}{near}; its sources are: {known}"
            raise ConfigError([problem], source=config.source)
        chosen = routed(clients).routing.chosen
        facts = clients.admin.describe([*chosen, topic])
        if topic not in facts:
            raise TargetError(
                f"there is no offset map yet: the topic {topic} does not exist; has ingress been started?"
            )
        positions = clients.checkpoints.read()
        offset_map = KafkaOffsetMapLog(for_bounded_reads(config.cluster.properties("consumer")), topic)
        clients.close_later(offset_map.close)
        reader = MapReader(offset_map=offset_map, ends=KafkaLogEnds(clients.admin.connection), admin=clients.admin)
        return cls(
            clients=clients,
            region=region,
            routes={name: some for name, some in chosen.items() if name in facts},
            lookup=reader.open(
                facts.keys() & chosen.keys(),
                positions,
                preserved=keeping_offsets(chosen),
                forked=forked_from(chosen),
            ),
            topic_ids=ClaimedTopicIds(clients.control),
        )

    def of_group(
        self, group: str, at: datetime | None = None, *, on_problem: Callable[[str], None] = lambda _: None
    ) -> Sequence[TranslatedOffset]:
        """Where the group stood at the source at that time; None: by the newest snapshot. `on_problem`: why it may have
        stood elsewhere. Raises TargetError when no snapshot has the group, StoreUnavailable."""
        snapshot = self._snapshot(at, on_problem)
        if group not in snapshot.groups:
            when = f"the snapshot of {snapshot.observed_at.isoformat(timespec='seconds')}"
            why = snapshot.unreadable.get(group) or snapshot.unsupported.get(group) or "it has no offset there"
            raise TargetError(f"group {group} is not in {when} of {self.region}: {why}")
        if group in snapshot.unreadable:
            as_of = snapshot.groups[group].as_of or snapshot.observed_at
            on_problem(f"its offsets are those of {as_of.isoformat(timespec='seconds')}: {snapshot.unreadable[group]}")
        one = replace(snapshot, groups={group: snapshot.groups[group]})
        found = [self._known(position) for position in self.positions(one)]
        if not found:
            topics = ", ".join(sorted(snapshot.groups[group].topics))
            raise TargetError(
                f"group {group} has offsets in {topics} of {self.region}, and none of these topics, as it was then, "
                "has a destination of its own here"
            )
        return found

    def positions(self, snapshot: GroupSnapshot) -> Sequence[GroupPosition]:
        """Where the groups of a snapshot of the source stand here, in each topic that is delivered. Raises
        StoreUnavailable."""
        return list(group_positions(snapshot, self._delivered, self.lookup.targets_of))

    def of_other_incarnations(self, snapshot: GroupSnapshot) -> Mapping[str, Sequence[str]]:
        """Topics of which a group's offsets have no position here, though they are delivered, by group. Raises
        StoreUnavailable."""
        return of_other_incarnations(snapshot, self._delivered)

    def of_shared_destinations(self, snapshot: GroupSnapshot) -> Mapping[str, Sequence[str]]:
        """Topics of which a group's offsets have no position here, since others are merged with them, by group."""
        return of_shared_destinations(snapshot, self._delivered)

    def to_here(self, topic: str, partition: int, offset: int) -> Sequence[TranslatedOffset]:
        """One offset of a topic of the source, in each destination. Raises TargetError when it has none."""
        found = []
        for destination, routes in self.routes.items():
            for route in routes:
                if route.region == self.region and route.incarnations[0].topic == topic:
                    key = self._delivered_key(route, destination, partition)
                    found.append(self._translated(key, self.lookup.target_of(key, offset), offset, None))
        if not found:
            raise TargetError(f"topic {topic} of {self.region} is not delivered here")
        return found

    def to_source(self, topic: str, partition: int, offset: int) -> TranslatedOffset:
        """One offset of a destination. Raises TargetError when nothing of the region is delivered to it, or of several
        topics."""
        routes = [one for one in self.routes.get(topic, ()) if one.region == self.region]
        if len(routes) != 1 or len(self.routes[topic]) != 1:
            what = "several topics are" if routes else f"nothing of {self.region} is"
            raise TargetError(f"{what} delivered to {topic}: its offsets are those of no source topic")
        key = self._delivered_key(routes[0], topic, partition)
        opened = self.lookup.partition(key)
        found = opened if isinstance(opened, str) else opened.source_of(offset)
        return self._translated(key, found, None, offset)

    def of_commit(self, partition: TopicPartition, offset: int) -> TranslatedOffset:
        """As `to_source`, for one of many: a topic without a translation is unknown, and says why."""
        try:
            return self.to_source(partition.topic, partition.partition, min(offset, END_OF_OFFSETS - 1))
        except TargetError as error:
            return TranslatedOffset(
                source="",
                target=partition,
                source_offset=None,
                target_offset=offset,
                exactness=Exactness.UNKNOWN,
                reason=f"{partition}: {error}",
            )

    def commit(
        self, group: str, some: Sequence[TranslatedOffset], *, rewind: bool = False, hold: bool = False
    ) -> Mapping[TopicPartition, str]:
        """Commit them for a group that is inactive here; what became of each, as `sync_plan` names it. `rewind`: also
        where it is further here. `hold`: the group is not synchronised on these topics, until `release`. Raises
        BrokerUnavailable, and TargetError when it has members by then, or has had some since it was read."""
        writer = KafkaGroupCommits(self.clients.config.cluster.properties("consumer"))
        here = self.clients.groups.committed(group, [one.target for one in some])
        found = {partition: one.next_offset for partition, one in here.items()}
        plan = sync_plan(
            [self._position(group, one) for one in some],
            facts=self.clients.groups.facts(group),
            committed=found,
            written={
                partition: WrittenOffset(offset, END_OF_OFFSETS) for partition, offset in found.items()
            },  # the operator decides
            allow_rewind=rewind,
        )
        due = {one.position.target: one for one in plan if one.outcome is SyncOutcome.WRITE}
        chosen = {one.position.target: one for one in plan if one.outcome in (SyncOutcome.WRITE, SyncOutcome.SAME)}
        held: Sequence[GroupHold] = ()
        if due or (chosen and hold):
            # before the commit: else a round in between would move the group again
            held = self._record(group, list(chosen.values() if hold else due.values()), hold=hold)
        if due:
            offsets = {target: Committed(one.offset, one.position.metadata) for target, one in due.items()}
            before = {target: one.here for target, one in due.items()}
            again = partial(refuse_if_used, self.clients.groups, group, offsets, before)
            try:
                again()  # the ledger was opened since the group was read
                writer.commit(group, offsets, before_again=again)
            except GroupIsActive:
                if held:  # it is where its consumers are, and not where it was put
                    ledger_in(self.clients, create=True).write([replace(one, is_held=False) for one in held])
                raise
        return {one.position.target: one.outcome.value for one in plan}

    def _record(self, group: str, chosen: Sequence[SyncDecision], *, hold: bool) -> Sequence[GroupHold]:
        """The holds that are new."""
        ledger = ledger_in(self.clients, create=True)
        offsets = {
            one.position.target: (one.position.downstream, one.position.upstream)
            for one in chosen
            if one.position.downstream is not None
        }
        now, owned = datetime.now(UTC), ledger.read()
        entries = group_writes(group, offsets, owned.groups, now)
        held = [GroupHold(group=group, topic=one.topic, is_held=True, at=now) for one in entries if hold]
        ledger.write([*held, *entries])
        return [one for one in held if (group, one.topic) not in owned.held]

    def with_times(self, some: Sequence[TranslatedOffset]) -> Sequence[TranslatedOffset]:
        """The same with the timestamps of their records here. Raises BrokerUnavailable, TargetError."""
        places = {(one.target, one.target_offset) for one in some if one.target_offset is not None}
        times = timestamps_of(places, self.clients.probe.timestamps)
        return [
            one if one.target_offset is None else replace(one, timestamp=times.get((one.target, one.target_offset)))
            for one in some
        ]

    @property
    def _delivered(self) -> DeliveredTopics:
        return DeliveredTopics.of(self.region, self.routes.values(), self.topic_ids.of)

    def _snapshot(self, at: datetime | None, on_problem: Callable[[str], None]) -> GroupSnapshot:
        objects, prefix = self.clients.objects, self.clients.config.s3.prefix
        if at is None:
            reports = GroupReports(objects, prefix)
            report = reports.refresh([self.region]).get(self.region)
            problem = reports.problems.get(self.region)
            if report is None and problem:
                raise TargetError(problem)
            if problem:
                on_problem(problem)
            if report is None:
                raise TargetError(
                    f"no snapshot of the consumer groups of {self.region} has arrived in this bucket: does egress "
                    "there have egress.groups, and a group_interval?"
                )
            return report.snapshot
        found = group_history(objects, prefix, self.region).at(at)
        if found.value is None:
            first = found.first_observed_at
            raise TargetError(
                f"no snapshot of the consumer groups of {self.region} is as old as {at.isoformat()}"
                + ("" if first is None else f"; the first one is of {first.isoformat(timespec='seconds')}")
            )
        for problem in found.problems:
            on_problem(f"another snapshot may have been the last one by then: {problem}")
        return found.value

    @staticmethod
    def _position(group: str, one: TranslatedOffset) -> GroupPosition:
        return GroupPosition(
            group=group,
            source=one.source,
            target=one.target,
            upstream=one.source_offset or 0,
            downstream=one.target_offset,
            exactness=one.exactness,
            metadata=one.metadata,
            reason=one.reason,
        )

    def _known(self, position: GroupPosition) -> TranslatedOffset:
        return TranslatedOffset(
            group=position.group,
            source=position.source,
            target=position.target,
            source_offset=position.upstream,
            target_offset=position.downstream,
            exactness=position.exactness,
            metadata=position.metadata,
            reason=position.reason,
            lag=self._lag(position.target, position.downstream),
        )

    def _delivered_key(self, route: ArchivedTopic, destination: str, partition: int) -> CheckpointKey:
        """Of the last incarnation that was begun there."""
        keys = [CheckpointKey(source, destination) for source in route.sources(partition)]
        return next((key for key in reversed(keys) if key in self.lookup.positions), keys[-1])

    def _translated(
        self, key: CheckpointKey, found: Translation | str, source: int | None, target: int | None
    ) -> TranslatedOffset:
        """`source` or `target` is given, the other one is found."""
        here = TopicPartition(key.destination_topic, key.source.partition)
        known = None if isinstance(found, str) else found.offset
        target_offset = known if target is None else target
        return TranslatedOffset(
            source=str(key.source),
            target=here,
            source_offset=known if source is None else source,
            target_offset=target_offset,
            exactness=Exactness.UNKNOWN if isinstance(found, str) else found.exactness,
            reason=found if isinstance(found, str) else "",
            lag=self._lag(here, target_offset),
        )

    def _lag(self, target: TopicPartition, offset: int | None) -> int | None:
        ends = self.lookup.ends.get(target)
        return None if offset is None or not isinstance(ends, LogEnds) else max(ends.high - offset, 0)
