"""Rehearses a failover beside the real topics and groups, which stay as they are.

    us.orders ── records from where the groups stand ──> replicator.rehearsal.us.orders
    shop.billing ── its offset, by the offset map ──> replicator.rehearsal.shop.billing, at the copy of that record
    the record there = the record of the archive at its offset at the source ?

Names that begin with `replicator.` are never archived or delivered, so a rehearsal does not leave this cluster.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from formats.coverage import Gap, steps
from formats.errors import TargetError
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.segment import SegmentInfo, SourcePartition
from infra.contracts.cluster import Committed, LogEnds, TopicPartition
from infra.contracts.internal_topics import Ledger
from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
from infra.kafka.cluster.group_commits import KafkaGroupCommits
from infra.kafka.consumer.partition_reader import read_partition
from infra.kafka.producer.copying import PartitionCopier
from infra.runtime.lifecycle import Clock, Stop
from ingress.catalog.creator import TopicCreator
from ingress.groups.lookup import MapLookup
from ingress.groups.positions import GroupPosition
from replicator.failover import REHEARSAL
from replicator.failover.drain import FailoverStopped
from replicator.failover.execute import Tell
from replicator.failover.facts import FailoverSources
from replicator.failover.plan import ArrivingPartition, FailoverPlan
from replicator.services.clients import Clients
from replicator.services.ledger import BROKERS_DEFAULT

if TYPE_CHECKING:
    from pyarrow import RecordBatch

RECORD = ("key", "value", "headers", "timestamp")
REHEARSAL_OF = "rehearsal of "  # in the ledger, with the topic: the source of a copy; a destination has region/topic


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedPosition:
    """Where a group continues in one partition, by its rehearsal."""

    group: str  # of the rehearsal
    target: TopicPartition  # of the rehearsal
    offset: int | None  # None: it is not in what was copied
    source_offset: int
    is_next: bool | None  # it reads the record that it would have read at the source; None: there is none to compare
    reason: str = ""

    @property
    def is_good(self) -> bool:
        return self.offset is not None and self.is_next is not False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    plan: FailoverPlan
    positions: Sequence[RehearsedPosition]
    records: int  # copied
    seconds: float
    kept: bool

    @property
    def is_good(self) -> bool:
        return all(one.is_good for one in self.positions) and not self.problem

    @property
    def compared(self) -> int:
        """Positions of which the next record is the source's own."""
        return sum(one.is_next is True for one in self.positions)

    @property
    def problem(self) -> str:
        """Why the rehearsal proves nothing; empty: it proves something."""
        if self.positions:
            return ""
        return (
            f"nothing was compared: no group of {self.plan.region} has a position here. `replicator failover plan` "
            "says of each group why"
        )


@dataclass(slots=True, kw_only=True)
class Rehearsal:
    """Use from one thread."""

    sources: FailoverSources
    ledger: Ledger
    clock: Clock
    stop: Stop
    prefix: str = REHEARSAL
    most: int = 1_000_000  # records of a partition
    keep: bool = False  # topics and groups stay, to start applications on
    tell: Tell = lambda _: None
    _segments: dict[SourcePartition, Sequence[SegmentInfo]] = field(default_factory=dict, init=False)
    _same: dict[tuple[TopicPartition, int, int], bool] = field(default_factory=dict, init=False)  # of many groups

    def run(self) -> Rehearsed:
        """Raises TargetError when a topic of that name is not a rehearsal's; FailoverStopped; and what the sources
        raise. Topics that an earlier rehearsal left are made anew."""
        began = self.clock.now()
        facts = self.sources.read(began)
        positions = [one for some in facts.positions.values() for one in some if one.downstream is not None]
        states = {(str(one.source), one.target): one for one in facts.plan.partitions}
        topics = self._counts({one.target.topic for one in positions})
        self._removed(topics)
        copies = self._copies(topics, positions)
        lookup = facts.translated.lookup
        rehearsed = [self._rehearsed(one, states.get((one.source, one.target)), copies, lookup) for one in positions]
        self._commit(rehearsed)
        seconds = (self.clock.now() - began).total_seconds()
        if not self.keep:
            self._removed(topics)
        return Rehearsed(
            plan=facts.plan,
            positions=rehearsed,
            records=sum(map(len, copies.values())),
            seconds=seconds,
            kept=self.keep,
        )

    @property
    def _clients(self) -> Clients:
        return self.sources.clients

    def _counts(self, names: set[str]) -> Mapping[str, int]:
        """Partitions, by name of the real topic."""
        return {name: one.partition_count for name, one in self._clients.admin.describe(names).items()}

    def _removed(self, topics: Mapping[str, int]) -> None:
        """Remove the topics of a rehearsal; the offsets of its groups go with them."""
        table = self.ledger.read()
        found = self._clients.admin.describe([self.prefix + name for name in topics])
        for name, facts in found.items():
            owned = table.topic(name, facts.topic_id)
            is_copy = owned.source.startswith(REHEARSAL_OF) if owned else table.open_intent(name) is not None
            if not is_copy:
                raise TargetError(f"{name} exists and was not made by a rehearsal: choose another --prefix")
        admin = KafkaCatalogAdmin(self._clients.admin.connection)
        for name in found:
            admin.delete_topic(name)

    def _copies(
        self, topics: Mapping[str, int], positions: Sequence[GroupPosition]
    ) -> Mapping[TopicPartition, array[int]]:
        """The offsets that were copied of each partition that a group reads."""
        creator = TopicCreator(self._clients.admin, self.ledger, self.clock, BROKERS_DEFAULT)
        for name, count in sorted(topics.items()):
            creator.create(self.prefix + name, count, {}, source=f"{REHEARSAL_OF}{name}", lineage=())
        starts: dict[TopicPartition, int] = {}
        for one in positions:
            starts[one.target] = min(one.downstream or 0, starts.get(one.target, one.downstream or 0))
        ends = self._clients.admin.ends(list(starts))
        cluster = self._clients.config.cluster
        with closing(PartitionCopier(cluster.properties("consumer"), cluster.properties("producer"))) as copier:
            return {
                partition: self._copied(copier, partition, start, ends[partition])
                for partition, start in sorted(starts.items())
                if partition in ends
            }

    def _copied(self, copier: PartitionCopier, partition: TopicPartition, start: int, end: LogEnds) -> array[int]:
        self.tell(f"copying {partition} from {max(start, end.low)}")
        return copier.copy(
            partition,
            self._copy_of(partition),
            start=max(start, end.low),
            next_offset=end.stable,
            most=self.most,
            check=self._check,
        )

    def _copy_of(self, partition: TopicPartition) -> TopicPartition:
        return TopicPartition(self.prefix + partition.topic, partition.partition)

    def _check(self) -> None:
        if self.stop.is_set():
            raise FailoverStopped("stopped: the same command begins the rehearsal anew")

    def _rehearsed(
        self,
        position: GroupPosition,
        state: ArrivingPartition | None,
        copies: Mapping[TopicPartition, array[int]],
        lookup: MapLookup,
    ) -> RehearsedPosition:
        copied = copies.get(position.target, array("q"))
        offset: int | None = bisect_left(copied, position.downstream or 0)
        target, reason, is_next = self._copy_of(position.target), "", None
        if offset == len(copied) == self.most:
            offset, reason = None, f"only {self.most} records of the partition were copied: see --records"
        elif offset is not None and offset < len(copied) and state is not None:
            path = lookup.path_of(CheckpointKey(state.source, position.target.topic), position.upstream)
            is_next = self._is_same(target, offset, path.source, position.upstream)
            reason = "" if is_next else "the record there is not the one of the source"
        return RehearsedPosition(
            group=self.prefix + position.group,
            target=target,
            offset=offset,
            source_offset=position.upstream,
            is_next=is_next,
            reason=reason,
        )

    def _is_same(self, target: TopicPartition, offset: int, source: SourcePartition, upstream: int) -> bool:
        """Whether the record of the rehearsal is the one of the archive."""
        key = (target, offset, upstream)
        if key not in self._same:
            here = read_partition(self._clients.config.cluster.properties("consumer"), target, offset, offset + 1)
            self._same[key] = _contents(next(here, None)) == self._archived(source, upstream)
        return self._same[key]

    def _archived(self, source: SourcePartition, offset: int) -> Mapping[str, object] | None:
        """The first record at this offset or after it."""
        archive = self._clients.archive
        if source not in self._segments:
            self._segments[source] = archive.segments.list(source)
        segments = [info.segment for info in self._segments[source] if info.segment.offsets.end >= offset]
        for step in steps(segments, offset):
            if isinstance(step, Gap):
                return None
            for batch in archive.batches(step):
                if batch.num_rows:
                    return _contents(batch)
        return None

    def _commit(self, rehearsed: Sequence[RehearsedPosition]) -> None:
        by_group: dict[str, dict[TopicPartition, Committed]] = {}
        for one in rehearsed:
            if one.offset is not None:
                by_group.setdefault(one.group, {})[one.target] = Committed(one.offset, "rehearsal")
        writer = KafkaGroupCommits(self._clients.config.cluster.properties("consumer"))
        for group, offsets in by_group.items():
            writer.commit(group, offsets)


def _contents(batch: RecordBatch | None) -> Mapping[str, object] | None:
    """Of the first record."""
    if batch is None:
        return None
    row = batch.slice(0, 1).to_pylist()[0]
    return {name: row[name] for name in RECORD}
