"""Plans a restore from the archive and the target cluster. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from formats.errors import CheckpointConflict, DataError, TargetError
from formats.footer import SegmentFooter
from formats.int_range import IntRange
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey, Skipped
from formats.policies.topic_configs import CREATED_WITH
from formats.records.scope import RecordFilter
from formats.segment import OffsetRange, SegmentInfo, SourcePartition, format_key
from infra.archive.archive import Archive
from infra.contracts.cluster import ClusterAdmin, TopicFacts, TopicPartition
from infra.contracts.internal_topics import CheckpointStore
from infra.contracts.storage import ColdStore, Thaw
from infra.kafka.client.topic_configs import limits_ms
from infra.runtime.lifecycle import Clock
from ingress.routing.succession import ArchivedIncarnation
from replicator.restore.conflicts import (
    BATCH_OVERHEAD_BYTES,
    DEFAULT_LARGEST_BYTES,
    Conflict,
    ConflictKind,
    accepted,
    against_creation,
    against_fork,
    against_frozen,
    against_gaps,
    against_settings,
    against_topic,
)
from replicator.restore.partition_plan import PartitionPlan, plan_partition
from replicator.restore.plan import RestorePlan, TopicPlan
from replicator.restore.sources import selected_sources
from replicator.selection import Selection, checkpoint_topic, checkpoint_topics

FOOTERS = 200  # limit per topic: the newest object of each partition first, then the largest of all
MAX_TIME_FOOTERS = 2_000  # limit of footers read to find that no stored record lies in a time window
AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """What the checkpoint topic holds from earlier runs of the same restore."""

    positions: Mapping[CheckpointKey, Checkpoint | CheckpointConflict] = field(default_factory=dict)
    skipped: Sequence[Skipped] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """How target topics are created, and which conflicts are accepted."""

    accept: Collection[ConflictKind] = ()
    partition_count: int | None = None  # of topics that are created; None: as recorded in the archive
    replication_factor: int = -1  # −1: the cluster's default
    configs: Mapping[str, str] = field(default_factory=dict)  # of topics that are created


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlanner:
    archive: Archive
    admin: ClusterAdmin
    clock: Clock
    pool: Executor
    cold: ColdStore | None = None
    _footers: dict[SegmentInfo, SegmentFooter | None] = field(default_factory=dict)  # cache; None: gone or damaged

    def plan(
        self, selection: Selection, restore_id: str, target_options: TargetOptions, checkpoints: CheckpointStore | None
    ) -> RestorePlan:
        """Plan the restore. Lists each selected partition once.

        `checkpoints`: those of earlier runs of this restore; None: there was none. Raises ConfigError when nothing of
        the selection is stored, StoreUnavailable, BrokerUnavailable.
        """
        wanted = selected_sources(self.archive, selection)
        before = EarlierRuns() if checkpoints is None else EarlierRuns(checkpoints.read(), checkpoints.skipped())
        topics = [
            self._topic(selection, incarnation, sources, target_options, before)
            for incarnation, sources in wanted.items()
        ]
        topics.sort(key=lambda topic: sum(p.size_bytes for p in topic.partitions))
        names = [topic.destination for topic in topics]
        conflicts = [
            Conflict(kind=ConflictKind.CONFLICT, reason=f"several topics would be restored as {name}: use --rename")
            for name in sorted({name for name in names if names.count(name) > 1})
        ]
        topic_name = checkpoint_topic(selection, restore_id)
        other_topics = sorted(set(checkpoint_topics(restore_id, self.admin.topics())) - {topic_name})
        if other_topics:
            why = f"the restore {restore_id} was started with another selection ({', '.join(other_topics)}): give this "
            remedy = "one another --id, or repeat the selection it had"
            conflicts.append(Conflict(kind=ConflictKind.CONFLICT, reason=f"{why}{remedy}"))
        return RestorePlan(
            id=restore_id,
            checkpoint_topic=topic_name,
            topics=topics,
            conflicts=conflicts,
            is_empty=not before.positions and self._is_empty(selection, topics),
        )

    # --- what is stored ---

    def _is_empty(self, selection: Selection, topics: Sequence[TopicPlan]) -> bool:
        """Whether no stored record is selected. Also False when too many footers would have to be read."""
        infos = [info for topic in topics for partition in topic.partitions for info in partition.infos]
        if not selection.timestamps.is_bounded or not infos:
            return not infos
        if len(infos) > MAX_TIME_FOOTERS or any(info.is_frozen for info in infos):
            return False
        scope = RecordFilter(timestamps=selection.timestamps)
        infos.sort(key=lambda info: info not in self._footers)  # footers already read come first
        for some in (infos[n : n + AT_ONCE] for n in range(0, len(infos), AT_ONCE)):
            if any(footer is None or scope.may_match(footer) for footer in self.pool.map(self._footer, some)):
                return False
        return True

    def _partition(
        self, selection: Selection, source: SourcePartition, destination: str, before: EarlierRuns
    ) -> PartitionPlan:
        target, key = TopicPartition(destination, source.partition), CheckpointKey(source, destination)
        checkpoint = before.positions.get(key)
        if isinstance(checkpoint, CheckpointConflict):
            raise checkpoint
        return listed_plan(
            self.archive,
            source,
            target,
            wanted=selection.offsets,
            clock=self.clock,
            checkpoint=checkpoint,
            given_up=[one.offsets for one in before.skipped if one.key == key],
        )

    # --- the target ---

    def _topic(
        self,
        selection: Selection,
        incarnation: ArchivedIncarnation,
        sources: Sequence[SourcePartition],
        target_options: TargetOptions,
        before: EarlierRuns,
    ) -> TopicPlan:
        destination = selection.renaming(incarnation.topic)
        partitions = list(
            self.pool.map(lambda source: self._partition(selection, source, destination, before), sources)
        )
        cold = self._cold(partitions)
        frozen = [info for info, state in cold.items() if state is Thaw.FROZEN]
        forked = against_fork(incarnation, partitions) if selection.incarnation is None else ()
        conflicts = [*against_gaps(partitions), *forked, *against_frozen(frozen, len(cold) - len(frozen))]
        facts: TopicFacts | None = None
        configs: Mapping[str, str] = {}
        # the state of a frozen object was queried only if the restore reads it
        readable = {info for p in partitions for info in p.left} - set(cold)
        chosen = [info for info in _representative(partitions) if info in readable or not info.is_frozen]
        footers = [f for f in self.pool.map(self._footer, chosen) if f is not None]
        try:
            facts = self.admin.describe([destination]).get(destination)
            if facts is not None:
                conflicts += self._against(selection, facts, partitions, footers)
        except TargetError as error:
            conflicts.append(Conflict(kind=ConflictKind.NOT_ALLOWED, reason=str(error)))
        count = facts.partition_count if facts is not None else target_options.partition_count
        if count is None:
            known = [f.origin.source_partition_count for f in footers if f.origin.source_partition_count is not None]
            if not known and partitions:
                why = f"{destination} does not exist, and no segment says how many partitions {incarnation.topic} had"
                conflicts.append(
                    Conflict(kind=ConflictKind.PARTITION_COUNT, reason=f"{why}: set it with --partition-count")
                )
            count = max([*known, *(p.target.partition + 1 for p in partitions)], default=1)
        if facts is None:
            conflicts += against_creation(destination, count, partitions)
            configs = {**CREATED_WITH, **_room_for(footers), **target_options.configs}
            if not any(c.kind is ConflictKind.NOT_ALLOWED for c in conflicts):
                conflicts += self._against_creation(destination, count, target_options, configs)
            conflicts += against_settings(destination, configs, limits_ms(configs), footers, self.clock.now())
        if selection.transforms:  # transforms may set missing keys
            conflicts = [c for c in conflicts if c.kind is not ConflictKind.KEYLESS]
        return TopicPlan(
            incarnation=incarnation,
            destination=destination,
            facts=facts,
            partition_count=count,
            configs=configs,
            partitions=sorted(partitions, key=lambda p: p.size_bytes),
            conflicts=accepted(conflicts, target_options.accept),
            footers_read=len(footers),
            compression_ratio=_compression_ratio(chosen, footers),
            frozen=frozen,
            thawing=len(cold) - len(frozen),
        )

    def _against(
        self,
        selection: Selection,
        facts: TopicFacts,
        partitions: Sequence[PartitionPlan],
        footers: Sequence[SegmentFooter],
    ) -> Iterable[Conflict]:
        # if only some partitions are selected, the others may belong to another restore
        part = None if selection.is_whole else {p.target.partition for p in partitions}
        numbers = [n for n in range(facts.partition_count) if part is None or n in part]
        marks = self.admin.watermarks([TopicPartition(facts.name, n) for n in numbers])
        begun = [p.checkpoint for p in partitions if p.checkpoint is not None]
        is_ours = any(c.destination_topic_id in ("", facts.topic_id) or not facts.topic_id for c in begun)
        configs = self.admin.configs(facts.name)
        yield from against_topic(facts, marks, partitions, is_ours)
        yield from against_settings(facts.name, configs, limits_ms(configs), footers, self.clock.now())

    def _against_creation(
        self, name: str, count: int, target_options: TargetOptions, configs: Mapping[str, str]
    ) -> Iterable[Conflict]:
        try:
            self.admin.check_creation(
                name, partitions=count, replication_factor=target_options.replication_factor, configs=configs
            )
        except TargetError as error:
            yield Conflict(kind=ConflictKind.NOT_ALLOWED, reason=str(error))

    def _cold(self, partitions: Sequence[PartitionPlan]) -> Mapping[SegmentInfo, Thaw]:
        """Objects that cannot be read now, with their state."""
        store = self.cold
        if store is None:
            return {}
        infos = [info for partition in partitions for info in partition.left if info.is_frozen]
        states = self.pool.map(lambda i: store.state(format_key(self.archive.segments.prefix, i.segment)), infos)
        return {info: state for info, state in zip(infos, states, strict=True) if state is not Thaw.READABLE}

    def _footer(self, info: SegmentInfo) -> SegmentFooter | None:
        """None for a segment that is gone or damaged: the restore itself reports it if it needs the segment."""
        if info not in self._footers:
            try:
                self._footers[info] = self.archive.footer(info.segment)
            except DataError:
                self._footers[info] = None
        return self._footers[info]


def listed_plan(
    archive: Archive,
    source: SourcePartition,
    target: TopicPartition,
    *,
    wanted: IntRange,
    clock: Clock,
    checkpoint: Checkpoint | None = None,
    given_up: Sequence[OffsetRange] = (),
) -> PartitionPlan:
    """Plan from what is stored now, with one listing."""
    listed_at = clock.now()
    stored = archive.listing(source)
    # read after the listing: the start is written before the first segment, so it is visible if any segment is
    begin = archive.control.begin(source)
    return plan_partition(
        source=source,
        target=target,
        infos=stored.infos,
        recorded=stored.recorded,
        wanted=wanted,
        listed_at=listed_at,
        checkpoint=checkpoint,
        begin=None if begin is None else begin.offset,
        given_up=given_up,
    )


def _representative(partitions: Sequence[PartitionPlan]) -> Sequence[SegmentInfo]:
    """Segments whose footers describe the records best: the newest of each partition, then the largest of all."""
    newest = [p.newest for p in partitions if p.newest is not None]
    others = sorted((i for p in partitions for i in p.infos if i != p.newest), key=lambda i: -i.size_bytes)
    return [*newest, *others][:FOOTERS]


def _compression_ratio(chosen: Sequence[SegmentInfo], footers: Sequence[SegmentFooter]) -> float:
    """Bytes of records per stored byte, as far as is known."""
    known = {footer.segment for footer in footers}
    stored = sum(info.size_bytes for info in chosen if info.segment in known)
    return sum(footer.raw_bytes for footer in footers) / stored if stored else 1.0


def _room_for(footers: Collection[SegmentFooter]) -> Mapping[str, str]:
    largest = max((f.largest_record_bytes for f in footers), default=0) + BATCH_OVERHEAD_BYTES
    return {"max.message.bytes": str(largest)} if largest > DEFAULT_LARGEST_BYTES else {}
