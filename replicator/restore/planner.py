"""Plans a restore from the archive and the target cluster. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from formats.errors import CheckpointConflict, DataError, SegmentNotFound
from formats.footer import SegmentFooter
from formats.int_range import INT64_MAX, IntRange
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey, Skipped
from formats.records.scope import RecordFilter
from formats.segment import OffsetRange, SegmentInfo, SourcePartition, format_key
from infra.archive.archive import Archive
from infra.contracts.cluster import ClusterAdmin, TopicPartition
from infra.contracts.internal_topics import CheckpointStore
from infra.contracts.storage import ColdStore, Thaw
from infra.runtime.lifecycle import Clock
from ingress.routing.succession import ArchivedIncarnation
from replicator.restore.conflicts import (
    Conflict,
    ConflictKind,
    accepted,
    against_absent,
    against_cut,
    against_fork,
    against_frozen,
    against_gaps,
    schema_warnings,
)
from replicator.restore.cut_lookup import ArchivedCut
from replicator.restore.destination import ControlArchive, DestinationPlanner
from replicator.restore.incarnations_at import IncarnationsAt
from replicator.restore.kept_offsets import against_holes, fill_warnings
from replicator.restore.partition_plan import PartitionCut, PartitionPlan, plan_partition
from replicator.restore.passed_over import PassedOver
from replicator.restore.plan import RestorePlan, TopicPlan
from replicator.restore.sources import selected_sources
from replicator.restore.target_options import TargetOptions
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
class RestorePlanner:
    archive: Archive
    admin: ClusterAdmin
    clock: Clock
    pool: Executor
    cold: ColdStore | None = None
    control: ControlArchive | None = None
    cut: ArchivedCut | None = None  # None: all that is stored is restored
    hole_limit: int = INT64_MAX  # offsets without a record, in a row, that are filled without asking
    _footers: dict[SegmentInfo, SegmentFooter | None] = field(default_factory=dict)  # cache; None: gone or damaged

    def plan(
        self, selection: Selection, restore_id: str, target_options: TargetOptions, checkpoints: CheckpointStore | None
    ) -> RestorePlan:
        """Plan the restore. Lists each selected partition once.

        `checkpoints`: those of earlier runs of this restore; None: there was none. Raises ConfigError when nothing of
        the selection is stored, StoreUnavailable, BrokerUnavailable.
        """
        at = None if self.cut is None else IncarnationsAt(self.cut.cut)
        wanted = selected_sources(self.archive, selection, at)
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
        if at is not None:
            planned = {incarnation.topic for incarnation in wanted}
            conflicts += accepted(against_absent(at.cut, planned, selection.wants), target_options.accept)
        lacks = any(
            one.kind is ConflictKind.NOT_ARCHIVED and not one.accepted
            for one in (*conflicts, *(conflict for topic in topics for conflict in topic.conflicts))
        )
        problems = [] if self.control is None else list(self.control.catalog.problems)
        problems += [] if self.cut is None else self.cut.problems
        return RestorePlan(
            id=restore_id,
            checkpoint_topic=topic_name,
            topics=topics,
            conflicts=conflicts,
            warnings=[
                *problems,
                *([] if at is None else at.left_out),
                *(warning for topic in topics for warning in topic.warnings),
            ],
            cut=None if self.cut is None else self.cut.cut,
            preserves_offsets=selection.preserves_offsets,
            is_empty=not (before.positions or lacks) and self._is_empty(selection, topics),
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
        passed = PassedOver.of(key, before.skipped)
        if isinstance(checkpoint, CheckpointConflict):
            raise checkpoint
        return listed_plan(
            self.archive,
            source,
            target,
            wanted=selection.offsets,
            clock=self.clock,
            checkpoint=checkpoint,
            given_up=passed.given_up,
            expired=passed.expired,
            cut=self._cut(source),
        )

    def _cut(self, source: SourcePartition) -> PartitionCut | None:
        if self.cut is None:
            return None
        return PartitionCut(self.cut.cut.end(source.topic, source.partition))

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
        forked = list(against_fork(incarnation, partitions)) if selection.incarnation is None else []
        if self.cut is not None:
            forked = [*forked, *against_cut(partitions, self.cut.cut.generation)]
            then = self.cut.cut.topics.get(incarnation.topic)
            if then is not None and target_options.partition_count is None:
                target_options = replace(target_options, partition_count=len(then.ends))
        conflicts = [*against_gaps(partitions), *forked, *against_frozen(frozen, len(cold) - len(frozen))]
        # the state of a frozen object was queried only if the restore reads it
        readable = {info for p in partitions for info in p.left} - set(cold)
        chosen = [info for info in _representative(partitions) if info in readable or not info.is_frozen]
        footers = [f for f in self.pool.map(self._footer, chosen) if f is not None]
        planned = DestinationPlanner(
            admin=self.admin,
            options=target_options,
            now=self.clock.now(),
            is_whole=selection.is_whole,
            control=self.control,
            preserves_offsets=selection.preserves_offsets,
        ).plan(destination, incarnation, self._topic_id(selection, incarnation, target_options), partitions, footers)
        conflicts += planned.conflicts
        filling: Sequence[str] = ()
        if selection.preserves_offsets:
            conflicts += against_holes(partitions, self.hole_limit)
            filling = list(fill_warnings(partitions, footers))
        if selection.transforms:  # transforms may set missing keys
            conflicts = [c for c in conflicts if c.kind is not ConflictKind.KEYLESS]
        return TopicPlan(
            incarnation=incarnation,
            destination=destination,
            facts=planned.facts,
            partition_count=planned.partition_count,
            creation=planned.creation,
            source=planned.source,
            acls=planned.acls,
            purge=planned.purge,
            warnings=[*planned.warnings, *filling, *schema_warnings(incarnation.topic, selection.region, footers)],
            partitions=sorted(partitions, key=lambda p: p.size_bytes),
            conflicts=accepted(conflicts, target_options.accept),
            clamps=ConflictKind.TIMESTAMPS in target_options.accept,
            footers_read=len(footers),
            compression_ratio=_compression_ratio(chosen, footers),
            frozen=frozen,
            thawing=len(cold) - len(frozen),
        )

    def _topic_id(self, selection: Selection, incarnation: ArchivedIncarnation, target_options: TargetOptions) -> str:
        """Id of the source's topic, if catalogues are asked for it; empty: not known."""
        if not target_options.needs_catalog:
            return ""
        try:
            claim = incarnation.claim or self.archive.control.claims.of(selection.region, incarnation.path)
        except DataError:  # damaged, or of a newer program
            claim = None
        if claim is not None:
            return claim.topic_id
        return "" if incarnation.incarnation.fork else incarnation.id

    def _cold(self, partitions: Sequence[PartitionPlan]) -> Mapping[SegmentInfo, Thaw]:
        """Objects that cannot be read now, with their state."""
        store = self.cold
        if store is None:
            return {}
        infos = [info for partition in partitions for info in partition.left if info.is_frozen]

        def state_of(info: SegmentInfo) -> Thaw:
            try:
                return store.state(format_key(self.archive.segments.prefix, info.segment))
            except SegmentNotFound:  # removed since it was listed, as by a merge: nothing to wait for
                return Thaw.READABLE

        states = self.pool.map(state_of, infos)
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
    expired: Sequence[OffsetRange] = (),
    cut: PartitionCut | None = None,
    planned: OffsetRange | None = None,
    gaps_before: Sequence[OffsetRange] | None = None,
) -> PartitionPlan:
    """Plan from what is stored now, with one listing; see `plan_partition`."""
    listed_at = clock.now()
    stored = archive.listing(source)
    # read after the listing: the start is written before the first segment, so it is visible if any segment is
    begin = archive.control.begins.of(source)
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
        expired=expired,
        cut=cut,
        planned=planned,
        gaps_before=gaps_before,
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
