"""What an operator does to positions: seed them, skip a record that cannot be delivered, release a parked partition.

Each step is acknowledged before the next, in an order in which a crash between them leaves nothing unsaid.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from datetime import datetime

from formats.coverage import covered_count, end_of, joined
from formats.errors import CheckpointConflict, OtherGroup, TargetError
from formats.messages.delivery_checkpoint import SEED, Author, Checkpoint, CheckpointKey, Parked, Skipped, still_parked
from formats.messages.group_claim import standing
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
    claimed: bool  # nobody delivers there, and nobody must begin to while it is written
    archive_end: int  # next offset behind the last one stored or recorded as a gap; 0: nothing is
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
    after: Checkpoint | None  # None: the offsets lie where delivery does not come any more, and its position stays


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRepair:
    """One thread. Planning reads only; raises BrokerUnavailable, StoreUnavailable, and TargetError for what must not be
    done."""

    checkpoints: CheckpointStore
    open_editor: Callable[[], CheckpointEditor]  # called when something is written, and not before
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
        """Refused while ingress runs, unless the partition is parked: an owner would go on where it is, and its next
        checkpoint would contradict the seed.

        Refused beyond the archive's end, too: what is archived up to the seed later would be dropped, and nothing would
        show it. `may_lead`: the positions are another program's, which may be ahead of the archive, and right.
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
                    archive_end=end_of([*stored, *self.control.gap_ranges(source)]),
                    passed_over=_passed_over(before, next_offset, stored),
                )
            )
        if not may_lead and (ahead := [seed for seed in seeds if seed.after.next_offset > seed.archive_end]):
            raise TargetError("; ".join(_beyond(seed) for seed in ahead))
        going = [seed for seed in seeds if not seed.parked]
        if going and members:
            raise TargetError(
                f"group {self.group_id} has {members} member(s), and {going[0].key.source} is not parked: its owner "
                "would go on where it is. Stop ingress first, or use --force if you know that it does not hold it"
            )
        return seeds

    def seed(self, seeds: Iterable[Seed]) -> None:
        """After an exception, those before it are written; saying all again is harmless.

        Since they were planned ingress may have been started: it would have its position from before the seed and
        commit after it, which hides a seed that goes back, and contradicts one that goes on. So this takes the place
        of ingress meanwhile, and whoever comes later asks for positions after the seed. Of a parked partition whose
        owner runs, or with force, only the operator knows what the owner does.
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
        """Only where the partition is parked at the first of `offsets`, or where delivery has left all of them behind:
        what is given up is named exactly."""
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
        after = Checkpoint(offsets.next_offset, target.topic_id, now, Author.SEED, given_at=offsets.start)
        begun_at = offsets.start if before is None else before.begun_at
        return Skip(skipped=skipped, before=before, after=replace(after, begun_at=begun_at))

    def _waits(self, source: SourcePartition, before: Checkpoint | None) -> str:
        """For what it waits behind its position, and what to do; empty when nothing is missing there."""
        if before is None:
            return ""
        known = joined([*covered(self.store, source).runs, *self.control.gap_ranges(source)])
        missing = known.missing_at(before.next_offset)
        if missing is None:
            return ""
        return (
            f"it waits for offsets {missing}, which are in no segment. Find or restore the segment; if none will ever "
            f"have them, `replicator gaps accept {source} {missing.start}-{missing.end} --reason TEXT --yes`"
        )

    def skip(self, skip: Skip) -> Checkpoint | None:
        """The position that holds then: another one when its owner got past the record by itself, or goes on."""
        editor, key = self.open_editor(), skip.skipped.key
        # 1. The loss is written down, for ever. A crash behind it: recorded, and still parked; skipping again says
        #    the same under the same key.
        editor.skip(skip.skipped)
        if skip.after is None:
            return skip.before
        # 2. The position goes behind it. A crash behind this: the note is older than the checkpoint, which is beyond
        #    it, so nobody takes it for parked any more.
        editor.seed(key, skip.after)
        # 3. If the owner had got past it, that word is void, but compaction may leave it alone in the topic, where
        #    nothing tells: what holds is said again behind it.
        holds = self._said_last(editor, key, skip.after)
        # 4. The note goes last: as long as it is there and holds, an operator can say it all again.
        editor.park(key, None)
        return holds

    def _said_last(self, editor: CheckpointEditor, key: CheckpointKey, said: Checkpoint) -> Checkpoint:
        while (word := self.checkpoints.read().get(key)) != said:
            if not isinstance(word, Checkpoint):
                raise word or TargetError(f"{key.source} to {key.destination_topic}: its checkpoint is gone")
            said = replace(word, author=Author.SEED, given_at=word.next_offset)
            editor.seed(key, said)
        return said

    def plan_release(self, key: CheckpointKey, *, delivered: bool = True) -> Parked | None:
        """Its parked note; None when it is not parked. `delivered`: the configuration delivers the source there; a
        source that is no longer delivered has nothing but the note, which may go.

        Raises TargetError when only a seed lets it go on: a release would remove the note, without which the seed is
        refused, and the partition would stay stopped."""
        known = self._read()
        parked = self.checkpoints.parked().get(key)
        if delivered and (stands := _parked(parked, known.get(key))) is not None and stands.wants_seed:
            raise TargetError(
                f"{key.source} to {key.destination_topic} is parked without a position, and a release gives it none: "
                f"say where it goes on, `{SEED} {key.source} --offset N`. {stands.reason}"
            )
        return parked

    def release(self, key: CheckpointKey) -> None:
        """The owner tries again by itself; if it still cannot go on, it says so again."""
        self.open_editor().park(key, None)

    def _state(
        self, key: CheckpointKey, known: Mapping[CheckpointKey, Checkpoint | CheckpointConflict]
    ) -> tuple[Checkpoint | None, Parked | None]:
        word = known.get(key)
        if isinstance(word, CheckpointConflict):
            raise word  # it says what to do: nobody knows what would be skipped
        return word, _parked(self.checkpoints.parked().get(key), word)

    def _read(self) -> Mapping[CheckpointKey, Checkpoint | CheckpointConflict]:
        """Raises OtherGroup: what is written would be news to workers of a group that nobody asked here."""
        known = self.checkpoints.read()
        stands = standing(self.checkpoints.claims())
        if stands is not None and stands.group_id != self.group_id:
            raise OtherGroup(
                f"checkpoint topic {self.topic} belongs to group {stands.group_id}, and this file is of group "
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


def _parked(parked: Parked | None, word: Checkpoint | CheckpointConflict | None) -> Parked | None:
    """What still holds of it; a conflict is beyond nothing."""
    checkpoint = word if isinstance(word, Checkpoint) else None
    return parked if parked is not None and still_parked(parked, checkpoint) else None


def _passed_over(
    before: Checkpoint | CheckpointConflict | None, next_offset: int, stored: Collection[OffsetRange]
) -> int:
    """Archived offsets between the two positions; none without one before, or when the seed does not go forward."""
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
    """A seed within what was delivered changes nothing about where that began. Any other one is itself the beginning,
    chosen by an operator: what lies before it was left out on purpose."""
    if not isinstance(before, Checkpoint) or before.begun_at is None or after.next_offset < before.begun_at:
        return after
    same = before.destination_topic_id == after.destination_topic_id
    return replace(after, begun_at=before.begun_at) if same else after


def _is_left_behind(
    key: CheckpointKey, offsets: OffsetRange, known: Mapping[CheckpointKey, Checkpoint | CheckpointConflict]
) -> bool:
    """Whether delivery began behind `offsets`, or turned to the topic's next incarnation before them."""
    word = known.get(key)
    if not isinstance(word, Checkpoint):
        return False
    if word.begun_at is not None and offsets.end < word.begun_at:
        return True
    return offsets.start >= word.next_offset and bool(later_incarnations(key, word, known))
