"""How the delivery of archived topics stands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from replicator.checkpoint import Checkpoint, CheckpointKey, Parked, Skipped, still_parked
from replicator.config import IngressSettings
from replicator.control_store import ControlStore
from replicator.coverage import Extent, joined
from replicator.describing import describe_each
from replicator.errors import CheckpointConflict
from replicator.protocols import CheckpointStore, ClusterAdmin, ConsumerGroups, GroupFacts, TopicFacts
from replicator.segment import OffsetRange, SourcePartition
from replicator.status.archive import extents, source_places
from replicator.store import SegmentStore
from replicator.topics import is_internal


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressPartition:
    key: CheckpointKey
    configured: bool  # a source of the file delivers it there
    checkpoint: Checkpoint | None
    archive_start: int | None
    archive_end: int | None
    parked: Parked | None
    skipped: int  # offsets given up, in all
    problems: tuple[str, ...]

    @property
    def lag(self) -> int:
        """Archived offsets that are not delivered."""
        if self.archive_end is None or not self.configured:
            return 0
        done = self.checkpoint.next_offset if self.checkpoint else self.archive_start
        return max(self.archive_end - (done or 0), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressStatus:
    group_id: str
    group: GroupFacts
    partitions: tuple[IngressPartition, ...]

    @property
    def problems(self) -> list[str]:
        found = [f"{p.key.source} -> {p.key.destination_topic}: {w}" for p in self.partitions for w in p.problems]
        waiting = sum(p.lag for p in self.partitions)
        if waiting and not self.group.members:
            found.append(f"no ingress process is in group {self.group_id}, and {waiting} offsets wait")
        return found

    @property
    def parked(self) -> list[IngressPartition]:
        return [p for p in self.partitions if p.parked is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressSources:
    """Where the answers come from."""

    settings: IngressSettings
    own_topics: Collection[str]
    admin: ClusterAdmin
    groups: ConsumerGroups
    checkpoints: CheckpointStore
    store: SegmentStore
    control: ControlStore

    def look(self, pool: Executor) -> IngressStatus:
        """Raises StoreUnavailable, BrokerUnavailable, TargetError."""
        group = pool.submit(self.groups.facts, self.settings.group_id)
        positions = pool.submit(self.checkpoints.read)
        regions = {s.region for s in self.settings.sources}
        wanted: dict[tuple[str, str], str] = {}  # (region, place) -> destination
        waiting: set[tuple[str, str]] = set()
        for region, place in source_places(self.store, regions, pool):
            topic, _, incarnation = place.partition("@")
            source = self.settings.source_of(region, topic)
            if source is not None and not is_internal(topic, self.own_topics):
                wanted[region, place] = source.destination(topic, incarnation)
                if incarnation and source.on_recreate != "new-topic":
                    waiting.add((region, place))
        archived = extents(self.store, wanted, pool)
        said = positions.result()
        checkpoints = {key: word for key, word in said.items() if isinstance(word, Checkpoint)}
        conflicts = {key: str(word) for key, word in said.items() if isinstance(word, CheckpointConflict)}
        parked, skipped = self.checkpoints.parked(), self.checkpoints.skipped()
        keys = {CheckpointKey(source, wanted[source.region, source.place]): True for source in archived}
        for key in [*said, *parked]:
            keys.setdefault(key, wanted.get((key.source.region, key.source.place)) == key.destination_topic)
        # a later life waits in the archive for a policy, or for the one before; until it is delivered, it is no lag
        configured = {
            k: v and ((k.source.region, k.source.place) not in waiting or k in checkpoints or k in parked)
            for k, v in keys.items()
        }
        gaps = self._gaps({k.source for k, v in configured.items() if v}, pool)
        facts, _ = describe_each(self.admin, {k.destination_topic for k, v in configured.items() if v})
        partitions = [
            judged(
                key,
                configured=configured[key],
                checkpoint=checkpoints.get(key),
                conflict=conflicts.get(key, ""),
                archived=archived.get(key.source, Extent()),
                gaps=gaps.get(key.source, ()),
                parked=parked.get(key),
                skipped=[s for s in skipped if s.key == key],
                target=facts.get(key.destination_topic),
            )
            for key in sorted(keys)
        ]
        return IngressStatus(group_id=self.settings.group_id, group=group.result(), partitions=tuple(partitions))

    def _gaps(
        self, sources: Collection[SourcePartition], pool: Executor
    ) -> Mapping[SourcePartition, Sequence[OffsetRange]]:
        with_gaps = [
            s for r in sorted({s.region for s in sources}) for s in self.control.gap_sources(r) if s in sources
        ]
        return dict(zip(with_gaps, pool.map(self.control.gap_ranges, with_gaps), strict=True))


def judged(
    key: CheckpointKey,
    *,
    configured: bool,
    checkpoint: Checkpoint | None,
    conflict: str = "",
    archived: Extent,
    gaps: Sequence[OffsetRange],
    parked: Parked | None,
    skipped: Sequence[Skipped],
    target: TopicFacts | None,
) -> IngressPartition:
    """With what is wrong, as far as it can be seen from outside. Pure."""
    stands = parked if parked is not None and still_parked(parked, checkpoint) else None
    problems = [conflict] if conflict else []
    if stands is not None:
        where = "without a position" if stands.next_offset is None else f"at {stands.next_offset}"
        problems.append(f"parked {where} since {stands.since.isoformat(timespec='seconds')}: {stands.reason}")
    if configured and stands is None:
        if checkpoint is not None:
            missing = joined([*archived.runs, *gaps]).missing_at(checkpoint.next_offset)
            if missing is not None:
                problems.append(f"offsets {missing} are in no segment, and no gap was recorded for them")
        if checkpoint and target and _is_other(checkpoint.destination_topic_id, target.topic_id):
            problems.append(
                f"{target.name} was created again: its id is {target.topic_id}, the checkpoint's is "
                f"{checkpoint.destination_topic_id}"
            )
        if target is not None and key.source.partition >= target.partition_count:
            problems.append(
                f"{target.name} has {target.partition_count} partitions; add partitions, at least "
                f"{key.source.partition + 1}"
            )
    return IngressPartition(
        key=key,
        configured=configured,
        checkpoint=checkpoint,
        archive_start=archived.start,
        archive_end=archived.next_offset,
        parked=stands,
        skipped=sum(s.offsets.next_offset - s.offsets.start for s in skipped),
        problems=tuple(problems),
    )


def _is_other(then: str, now: str) -> bool:
    return bool(then) and bool(now) and then != now
