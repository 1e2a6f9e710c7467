"""Commits the offsets of inactive groups in this cluster, as their sources' positions say.

    describe ──> active, or not known: nothing
    committed offsets here ──> `sync_plan` ──> ledger: what is about to be written ──> commit
                                                                  └ Kafka refuses it once the group has members

Nothing is written for a source region after a failover from it, until the failback: its groups continue here, and a
source that comes back knows nothing of that.

The group is described once more right before the commit. A consumer that joins, commits and leaves within the few
milliseconds between is moved to where its group stands at the source; one that stays is safe, since Kafka refuses the
commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from formats.errors import BrokerUnavailable, TargetError
from formats.messages.ledger import GroupWrite, Ownership, WrittenOffset
from infra.contracts.cluster import Committed, ConsumerGroups, GroupFacts, TopicPartition
from infra.contracts.groups import GroupIsActive, GroupWriter
from infra.contracts.internal_topics import Ledger
from ingress.groups.positions import GroupPosition
from ingress.groups.sync_plan import SyncDecision, SyncOutcome, sync_plan

GroupWrites = Mapping[tuple[str, str], GroupWrite]
USED = "it was used here a moment ago"


@dataclass(frozen=True, slots=True)
class _Found:
    """A group in this cluster."""

    facts: GroupFacts | None  # None: not known, for the problem
    committed: Mapping[TopicPartition, Committed] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetGroups:
    """Use from one thread at a time; the requests run on `pool`, a group each."""

    groups: ConsumerGroups
    writer: GroupWriter
    ledger: Ledger
    pool: Executor
    allow_rewind: bool

    def sync(
        self,
        positions: Mapping[str, Sequence[GroupPosition]],
        now: datetime,
        *,
        dry_run: bool = False,
        region: str | None = None,
        is_newest: Callable[[], bool] = lambda: True,
    ) -> Mapping[str, Sequence[SyncDecision]]:
        """What was decided, by group. `dry_run`: nothing is written. `region`: of the source on whose behalf this is
        done; None: an operator decides, also after a failover. `is_newest`: False of positions by an older snapshot
        than there is, whose lower offsets are no resets; asked where groups may be moved back. Raises
        BrokerUnavailable, and TargetError when the ledger may not be read or written; a group that may not be read or
        written is decided as UNKNOWN_STATE."""
        owned = self.ledger.read()
        if held := _why_held(owned, region):
            return _failed_over(positions, held)
        asked = {group: self.pool.submit(self._current, group, some) for group, some in sorted(positions.items())}
        found = {group: future.result() for group, future in asked.items()}
        # last: no process has followed a newer one until then, and what one commits later is noticed before the commit
        allow_rewind = self.allow_rewind and is_newest()
        planned = self._planned(positions, found, owned, allow_rewind=allow_rewind)
        if not dry_run and any(map(_to_write, planned.values())):
            # read again after the offsets were: a hold or a failover is recorded before the offsets that it is about
            owned = self.ledger.read()
            if held := _why_held(owned, region):
                return _failed_over(positions, held)
            planned = self._planned(positions, found, owned, allow_rewind=allow_rewind)
            due = {group: some for group, some in planned.items() if _to_write(some)}
            # what is recorded and not written is taken for moved by somebody, and never moved back: the safe side
            self.ledger.write(
                [entry for group, some in due.items() for entry in _entries(group, some, owned.groups, now)]
            )
            done = {group: self.pool.submit(self._written, group, some) for group, some in due.items()}
            planned |= {group: future.result() for group, future in done.items()}
        return planned

    @staticmethod
    def _planned(
        positions: Mapping[str, Sequence[GroupPosition]],
        found: Mapping[str, _Found],
        owned: Ownership,
        *,
        allow_rewind: bool,
    ) -> dict[str, Sequence[SyncDecision]]:
        planned: dict[str, Sequence[SyncDecision]] = {}
        for group, one in found.items():
            plan = sync_plan(
                positions[group],
                facts=one.facts,
                committed={partition: each.next_offset for partition, each in one.committed.items()},
                written=_written_before(group, positions[group], owned.groups),
                held={topic for name, topic in owned.held if name == group},
                allow_rewind=allow_rewind,
            )
            planned[group] = [replace(each, reason=one.problem) for each in plan] if one.problem else plan
        return planned

    # --- on the pool ---

    def _current(self, group: str, positions: Sequence[GroupPosition]) -> _Found:
        try:
            facts = self.groups.facts(group)
            if facts.members:
                return _Found(facts)
            return _Found(facts, self.groups.committed(group, [one.target for one in positions]))
        except (BrokerUnavailable, TargetError) as error:
            return _Found(None, problem=str(error))

    def _written(self, group: str, decisions: Sequence[SyncDecision]) -> Sequence[SyncDecision]:
        try:
            decisions = self._still_as_planned(group, decisions)
            offsets = {
                one.position.target: Committed(one.offset, one.position.metadata)
                for one in decisions
                if one.outcome is SyncOutcome.WRITE
            }
            if offsets:
                before = {one.position.target: one.here for one in decisions}
                again = partial(refuse_if_used, self.groups, group, offsets, before)
                self.writer.commit(group, offsets, before_again=again)
        except GroupIsActive as error:
            return [_instead(one, SyncOutcome.ACTIVE, str(error)) for one in decisions]
        except (BrokerUnavailable, TargetError) as error:
            return [_instead(one, SyncOutcome.UNKNOWN_STATE, str(error)) for one in decisions]
        return decisions

    def _still_as_planned(self, group: str, decisions: Sequence[SyncDecision]) -> Sequence[SyncDecision]:
        """Other groups were described since, and the ledger was written: describe it again, right before the commit."""
        used = _used_since(self.groups, group, {one.position.target: {one.here} for one in decisions})
        return [_instead(one, SyncOutcome.MOVED, USED) if one.position.target in used else one for one in decisions]


def refuse_if_used(
    groups: ConsumerGroups,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    before: Mapping[TopicPartition, int | None],
) -> None:
    """Before another attempt to commit `offsets` in place of those `before`. Raises GroupIsActive when the group has
    members, or has had some, and BrokerUnavailable."""
    # an attempt without an answer may be through
    expected = {partition: {before.get(partition), wanted.next_offset} for partition, wanted in offsets.items()}
    if _used_since(groups, group, expected):
        raise GroupIsActive(USED)


def _used_since(
    groups: ConsumerGroups, group: str, expected: Mapping[TopicPartition, Collection[int | None]]
) -> Collection[TopicPartition]:
    """Partitions whose offset is none of `expected` any more. Raises GroupIsActive when the group has members, and
    BrokerUnavailable."""
    facts = groups.facts(group)
    if facts.members:
        raise GroupIsActive(f"it is {facts.state} here by now, with {facts.members} members")
    found = groups.committed(group, list(expected))
    return {
        partition
        for partition, offsets in expected.items()
        if (found[partition].next_offset if partition in found else None) not in offsets
    }


def _why_held(owned: Ownership, region: str | None) -> str:
    return "" if region is None else owned.why_held(region)


def _failed_over(positions: Mapping[str, Sequence[GroupPosition]], why: str) -> Mapping[str, Sequence[SyncDecision]]:
    return {
        group: [SyncDecision(position=one, outcome=SyncOutcome.FAILED_OVER, here=None, reason=why) for one in some]
        for group, some in sorted(positions.items())
    }


def _instead(decision: SyncDecision, outcome: SyncOutcome, reason: str) -> SyncDecision:
    return replace(decision, outcome=outcome, reason=reason) if decision.outcome is SyncOutcome.WRITE else decision


def _to_write(decisions: Sequence[SyncDecision]) -> bool:
    return any(one.outcome is SyncOutcome.WRITE for one in decisions)


def _written_before(
    group: str, positions: Sequence[GroupPosition], writes: GroupWrites
) -> Mapping[TopicPartition, WrittenOffset]:
    topics = {one.target.topic for one in positions}
    return {
        TopicPartition(topic, partition): offset
        for topic in topics
        if (found := writes.get((group, topic))) is not None
        for partition, offset in found.by_partition().items()
    }


def _entries(group: str, decisions: Sequence[SyncDecision], writes: GroupWrites, now: datetime) -> Sequence[GroupWrite]:
    due = [one for one in decisions if one.outcome is SyncOutcome.WRITE]
    return group_writes(group, {one.position.target: (one.offset, one.position.upstream) for one in due}, writes, now)


def group_writes(
    group: str, offsets: Mapping[TopicPartition, tuple[int, int | None]], writes: GroupWrites, now: datetime
) -> Sequence[GroupWrite]:
    """Entries of the ledger for offsets, here and at the source, that are about to be committed."""
    by_topic: dict[str, dict[int, WrittenOffset]] = {}
    for target, (offset, upstream) in offsets.items():
        by_topic.setdefault(target.topic, {})[target.partition] = WrittenOffset(offset, upstream)
    return [
        writes.get(
            (group, topic), GroupWrite(group=group, topic=topic, partitions=(), offsets=(), at=now)
        ).with_offsets(some, now)
        for topic, some in by_topic.items()
    ]
