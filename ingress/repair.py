"""Repairs of checkpoints by operators: seed a position, skip undeliverable records, release a parked partition.

Each step is acknowledged before the next, in an order in which a crash between two steps loses no information.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from datetime import datetime

from formats.coverage import covered_count, end_of, joined
from formats.errors import CheckpointConflict, OtherGroup, TargetError
from formats.messages.delivery_checkpoint import SEED, Author, Checkpoint, CheckpointKey, Parked, Skipped, still_parked
from formats.messages.group_claim import current_claim
from formats.segment import OffsetRange, SourcePartition
from infra.archive.control import ControlStore
from infra.archive.forward_listing import covered
from infra.archive.segments import SegmentStore
from infra.contracts.cluster import ClusterAdmin, ConsumerGroups, TopicFacts, TopicPartition
from infra.contracts.internal_topics import CheckpointEditor, CheckpointStore
from ingress.undelivered import later_incarnations


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    key: CheckpointKey
    before: Checkpoint | CheckpointConflict | None  # a seed ends a conflict
    after: Checkpoint
    parked: bool
    claimed: bool  # no process delivers there, and none may begin while it is written
    archive_end: int  # next offset after the last one stored or recorded as a gap; 0: there is none
    passed_over: int  # archived offsets between the old position and the seed: they are not delivered

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.key.destination_topic, self.key.source.partition)


Claim = Callable[[Collection[TopicPartition]], AbstractContextManager[None]]
"""Holds partitions in ingress's group. Raises TargetError on entry when it cannot have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    skipped: Skipped
    before: Checkpoint | None
    after: Checkpoint | None  # None: delivery has left the offsets behind, and its position stays


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRepair:
    """Use from one thread. Planning only reads. Raises BrokerUnavailable, StoreUnavailable, and TargetError for a
    repair that is not allowed."""

    checkpoints: CheckpointStore
    open_editor: Callable[[], CheckpointEditor]  # called only when something is written
    topic: str  # of the checkpoints
    admin: ClusterAdmin
    groups: ConsumerGroups
    group_id: str  # of the workers
    claim: Claim
    store: SegmentStore
    control: ControlStore

    # --- seed ---

    def plan_seeds(
        self,
        next_offsets: Mapping[SourcePartition, int],
        destination: str,
        now: datetime,
        *,
        force: bool,
        may_lead: bool = False,
    ) -> list[Seed]:
        """Refused while ingress runs, unless the partition is parked: an owner would continue at its position, and its
        next checkpoint would contradict the seed.

        Also refused beyond the archive's end: offsets archived below the seed later would be dropped silently.
        `may_lead`: the positions are of another program, which may be ahead of the archive, and right.
        """
        target = self._target(destination, next_offsets)
        known = self._read()
        parked = self.checkpoints.parked()
        members = 0 if force else self.groups.facts(self.group_id).members
        seeds: list[Seed] = []
        for source, next_offset in sorted(next_offsets.items()):
            key = CheckpointKey(source, destination)
            before = known.get(key)
            stored = covered(self.store, source).runs
            seeds.append(
                Seed(
                    key=key,
                    before=before,
                    after=_seeded(before, Checkpoint(next_offset, target.topic_id, now, Author.SEED)),
                    parked=_parked(parked.get(key), before) is not None,
                    claimed=not force and not members,
                    archive_end=self._archive_end(source, stored),
                    passed_over=_passed_over(before, next_offset, stored),
                )
            )
        if not may_lead and (ahead := [seed for seed in seeds if seed.after.next_offset > seed.archive_end]):
            raise TargetError("; ".join(_beyond(seed) for seed in ahead))
        going = [seed for seed in seeds if not seed.parked]
        if going and members:
            raise TargetError(
                f"group {self.group_id} has {members} member(s), and {going[0].key.source} is not parked: its owner "
                "would continue where it is. Stop ingress first, or use --force if you know that it does not hold it"
            )
        return seeds

    def seed(self, seeds: Iterable[Seed]) -> None:
        """Write the seeds. After an exception the earlier ones are written; repeating all is harmless.

        Ingress may have been started since they were planned: it would have its position from before the seed and
        commit after it, which hides a seed that goes back, and contradicts one that goes forward. So this joins
        ingress's group meanwhile, and later members read positions after the seed. For a parked partition
        whose owner runs, or with force, only the operator knows what the owner does.
        """
        seeds = list(seeds)
        editor = self.open_editor()
        with ExitStack() as around:
            if claimed := {seed.target for seed in seeds if seed.claimed}:
                around.enter_context(self.claim(claimed))
            for seed in seeds:
                editor.seed(seed.key, seed.after)

    # --- skip and release ---

    def plan_skip(self, key: CheckpointKey, offsets: OffsetRange, reason: str, now: datetime) -> Skip:
        """Allowed only where the partition is parked at the first of `offsets`, or where delivery has left all of them
        behind, so that exactly these offsets are given up."""
        target = self._target(key.destination_topic, [key.source])
        known = self._read()
        before, parked = self._state(key, known)
        skipped = Skipped(key=key, offsets=offsets, reason=reason, at=now)
        if _is_left_behind(key, offsets, known):
            return Skip(skipped=skipped, before=before, after=None)
        if parked is None:
            waits = self._waits(key.source, before)
            raise TargetError(
                f"{key.source} to {key.destination_topic} is not parked: {waits or 'there is nothing to skip'}"
            )
        if parked.next_offset != offsets.start:
            where = "without a position" if parked.next_offset is None else f"at {parked.next_offset}"
            raise TargetError(
                f"{key.source} to {key.destination_topic} is parked {where}, not at {offsets.start}: {parked.reason}"
            )
        known_end = self._archive_end(key.source, covered(self.store, key.source).runs)
        if offsets.next_offset > known_end:
            raise TargetError(
                f"{key.source}: offset {offsets.end} lies beyond the end of its archive, {known_end}: records that are "
                f"archived up to it later would be left out. Skip up to {known_end - 1}, or wait for them"
            )
        after = Checkpoint(offsets.next_offset, target.topic_id, now, Author.SEED, given_at=offsets.start)
        begun_at, dropped = (offsets.start, 0) if before is None else (before.begun_at, before.dropped)
        kept = before is not None and before.keeps_offsets
        after = replace(after, begun_at=begun_at, dropped=dropped, keeps_offsets=kept)
        return Skip(skipped=skipped, before=before, after=after)

    def _archive_end(self, source: SourcePartition, stored: Iterable[OffsetRange]) -> int:
        """Next offset after all that is `stored`, or recorded as a gap."""
        return end_of([*stored, *self.control.gaps.ranges(source)])

    def _waits(self, source: SourcePartition, before: Checkpoint | None) -> str:
        """Which offsets are missing at its position, and what to do; empty when none are."""
        if before is None:
            return ""
        known = joined([*covered(self.store, source).runs, *self.control.gaps.ranges(source)])
        missing = known.missing_at(before.next_offset)
        if missing is None:
            return ""
        return (
            f"it waits for offsets {missing}, which are in no segment. Find or restore the segment; if none will ever "
            f"have them, `replicator gaps accept {source} {missing.start}-{missing.end} --reason TEXT --yes`"
        )

    def skip(self, skip: Skip) -> Checkpoint | None:
        """Returns the position that is valid then: not that of `skip` when the owner got past the record by itself, or
        continues."""
        editor, key = self.open_editor(), skip.skipped.key
        # 1. The loss is recorded, for ever. After a crash here it is recorded, and the partition still parked; skipping
        #    again writes the same record under the same key.
        editor.skip(skip.skipped)
        if skip.after is None:
            return skip.before
        # 2. The position moves past it. After a crash here the parked note is older than the checkpoint, which is
        #    beyond it, so the partition does not count as parked any more.
        editor.seed(key, skip.after)
        # 3. If the owner had got past it, that seed is void. But compaction may leave only the seed in the topic, where
        #    nothing shows that, so the valid position is written again after it.
        holds = self._write_last(editor, key, skip.after)
        # 4. The note is removed last: as long as it exists and is valid, an operator can repeat the skip.
        editor.park(key, None)
        return holds

    def _write_last(self, editor: CheckpointEditor, key: CheckpointKey, written: Checkpoint) -> Checkpoint:
        while (found := self.checkpoints.read().get(key)) != written:
            if not isinstance(found, Checkpoint):
                raise found or TargetError(f"{key.source} to {key.destination_topic}: its checkpoint is gone")
            written = replace(found, author=Author.SEED, given_at=found.next_offset)
            editor.seed(key, written)
        return written

    def plan_release(self, key: CheckpointKey, *, delivered: bool = True) -> Parked | None:
        """The parked note; None when it is not parked. `delivered`: the configuration delivers the source there; a
        source that is no longer delivered has nothing but the note, which may go.

        Raises TargetError when only a seed lets it continue: a release would remove the note, without which the seed is
        refused, and the partition would stay stopped."""
        known = self._read()
        parked = self.checkpoints.parked().get(key)
        if delivered and (current := _parked(parked, known.get(key))) is not None and current.needs_seed:
            raise TargetError(
                f"{key.source} to {key.destination_topic} is parked without a position, and a release gives it none: "
                f"seed its position, `{SEED} {key.source} --offset N`. {current.reason}"
            )
        return parked

    def release(self, key: CheckpointKey) -> None:
        """Remove the parked note. The owner retries by itself; if it still cannot continue, it writes it again."""
        self.open_editor().park(key, None)

    def _state(
        self, key: CheckpointKey, known: Mapping[CheckpointKey, Checkpoint | CheckpointConflict]
    ) -> tuple[Checkpoint | None, Parked | None]:
        found = known.get(key)
        if isinstance(found, CheckpointConflict):
            raise found  # its message has the remedy: which offsets would be skipped is unknown
        return found, _parked(self.checkpoints.parked().get(key), found)

    def _read(self) -> Mapping[CheckpointKey, Checkpoint | CheckpointConflict]:
        """Raises OtherGroup: what is written would affect the workers of another group than this file's."""
        known = self.checkpoints.read()
        claim = current_claim(self.checkpoints.claims())
        if claim is not None and claim.group_id != self.group_id:
            raise OtherGroup(
                f"checkpoint topic {self.topic} belongs to group {claim.group_id}, and this file is of group "
                f"{self.group_id}: use the file of that group's processes"
            )
        return known

    def _target(self, destination: str, sources: Iterable[SourcePartition]) -> TopicFacts:
        target = self.admin.describe([destination]).get(destination)
        if target is None:
            raise TargetError(
                f"there is no topic {destination}: start ingress once, or create it, so that it has an id"
            )
        for source in sources:
            if source.partition >= target.partition_count:
                raise TargetError(f"{destination} has {target.partition_count} partitions, none for {source}")
        return target


def _parked(parked: Parked | None, found: Checkpoint | CheckpointConflict | None) -> Parked | None:
    """The note if it is still valid; a conflict never invalidates it."""
    checkpoint = found if isinstance(found, Checkpoint) else None
    return parked if parked is not None and still_parked(parked, checkpoint) else None


def _passed_over(
    before: Checkpoint | CheckpointConflict | None, next_offset: int, stored: Collection[OffsetRange]
) -> int:
    """How many archived offsets lie between the two positions; 0 without an earlier one, or if the seed goes back."""
    if not isinstance(before, Checkpoint) or next_offset <= before.next_offset:
        return 0
    return covered_count(stored, OffsetRange(before.next_offset, next_offset - 1))


def _beyond(seed: Seed) -> str:
    """Why such a seed is refused, and what to do."""
    source, next_offset = seed.key.source, seed.after.next_offset
    if not seed.archive_end:
        return (
            f"{source}: nothing of it is archived yet, so records archived below {next_offset} later would be left "
            "out. Check region, topic and partition, or seed when the archive has reached that offset"
        )
    return (
        f"{source}: offset {next_offset} lies beyond the end of its archive, {seed.archive_end}: records that are "
        f"archived between the two later would be left out. Name an offset up to {seed.archive_end}, which delivers "
        "everything that is archived from now on"
    )


def _seeded(before: Checkpoint | CheckpointConflict | None, after: Checkpoint) -> Checkpoint:
    """A seed within the delivered range does not change where delivery began. Any other seed is itself the begin,
    chosen by an operator: offsets before it are left out on purpose."""
    if not isinstance(before, Checkpoint) or before.begun_at is None or after.next_offset < before.begun_at:
        return after
    same = before.destination_topic_id == after.destination_topic_id
    if not same:
        return after
    is_empty = before.next_offset == before.begun_at and before.author is not Author.SEED  # no record is at any offset
    return replace(after, begun_at=before.begun_at, keeps_offsets=before.keeps_offsets or is_empty)


def _is_left_behind(
    key: CheckpointKey, offsets: OffsetRange, known: Mapping[CheckpointKey, Checkpoint | CheckpointConflict]
) -> bool:
    """Whether delivery began after `offsets`, or switched to the topic's next incarnation before them."""
    found = known.get(key)
    if not isinstance(found, Checkpoint):
        return False
    if found.begun_at is not None and offsets.end < found.begun_at:
        return True
    return offsets.start >= found.next_offset and bool(later_incarnations(key, found, known))
