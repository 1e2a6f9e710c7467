"""What an operator does to positions: seed them, skip a record that cannot be delivered, release a parked partition.

Each step is acknowledged before the next, in an order in which a crash between them leaves nothing unsaid.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from datetime import datetime

from replicator.checkpoint import Author, Checkpoint, CheckpointKey, Parked, Skipped, still_parked
from replicator.errors import CheckpointConflict, TargetError
from replicator.protocols import (
    CheckpointEditor,
    CheckpointStore,
    ClusterAdmin,
    ConsumerGroups,
    TopicFacts,
    TopicPartition,
)
from replicator.segment import OffsetRange, SourcePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    key: CheckpointKey
    before: Checkpoint | CheckpointConflict | None  # a seed ends a conflict
    after: Checkpoint
    parked: bool
    claimed: bool  # nobody delivers there, and nobody must begin to while it is written

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.key.destination_topic, self.key.source.partition)


Claim = Callable[[Collection[TopicPartition]], AbstractContextManager[None]]
"""Holds partitions in ingress's group. Raises TargetError on entry when it cannot have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    skipped: Skipped
    before: Checkpoint | None
    after: Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One thread. Planning reads only; raises BrokerUnavailable, and TargetError for what must not be done."""

    checkpoints: CheckpointStore
    open_editor: Callable[[], CheckpointEditor]  # called when something is written, and not before
    admin: ClusterAdmin
    groups: ConsumerGroups
    group_id: str
    claim: Claim

    # --- seed ---

    def plan_seeds(
        self, next_offsets: Mapping[SourcePartition, int], destination: str, now: datetime, *, force: bool
    ) -> list[Seed]:
        """Refused while ingress runs, unless the partition is parked: an owner would go on where it is, and its next
        checkpoint would contradict the seed."""
        target = self._target(destination, next_offsets)
        known = self.checkpoints.read()
        parked = self.checkpoints.parked()
        members = 0 if force else self.groups.facts(self.group_id).members
        seeds = [
            Seed(
                key=key,
                before=known.get(key),
                after=Checkpoint(next_offset, target.topic_id, now, Author.SEED),
                parked=_parked(parked.get(key), known.get(key)) is not None,
                claimed=not force and not members,
            )
            for key, next_offset in ((CheckpointKey(s, destination), n) for s, n in sorted(next_offsets.items()))
        ]
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
        """Only where the partition is parked at the first of `offsets`: what is given up is named exactly."""
        target = self._target(key.destination_topic, [key.source])
        before, parked = self._state(key)
        if parked is None:
            raise TargetError(f"{key.source} to {key.destination_topic} is not parked: there is nothing to skip")
        if parked.next_offset != offsets.start:
            where = "without a position" if parked.next_offset is None else f"at {parked.next_offset}"
            raise TargetError(
                f"{key.source} to {key.destination_topic} is parked {where}, not at {offsets.start}: {parked.reason}"
            )
        return Skip(
            skipped=Skipped(key=key, offsets=offsets, reason=reason, at=now),
            before=before,
            after=Checkpoint(offsets.next_offset, target.topic_id, now, Author.SEED, given_at=offsets.start),
        )

    def skip(self, skip: Skip) -> Checkpoint:
        """The position that holds then: another one when its owner got past the record by itself, or goes on."""
        editor, key = self.open_editor(), skip.skipped.key
        # 1. The loss is written down, for ever. A crash behind it: recorded, and still parked; skipping again says
        #    the same under the same key.
        editor.skip(skip.skipped)
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

    def plan_release(self, key: CheckpointKey) -> Parked | None:
        """What is said of it now; None when it is not parked."""
        self.checkpoints.read()
        return self.checkpoints.parked().get(key)

    def release(self, key: CheckpointKey) -> None:
        """The owner tries again by itself; if it still cannot go on, it says so again."""
        self.open_editor().park(key, None)

    def _state(self, key: CheckpointKey) -> tuple[Checkpoint | None, Parked | None]:
        word = self.checkpoints.read().get(key)
        if isinstance(word, CheckpointConflict):
            raise word  # it says what to do: nobody knows what would be skipped
        return word, _parked(self.checkpoints.parked().get(key), word)

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
