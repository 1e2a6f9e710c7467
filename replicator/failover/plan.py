"""What a failover would do, and what would be lost, in numbers. Pure.

    source's log     0 ─────────────────────────────────────────── 400     by its watermarks that arrived here
    bucket           0 ───────────────────────── 350                       50 missing: they will never be here
    delivered        0 ────────── 260                                      90 to deliver
    a group                  200 is exact, 300 once it is delivered, 370 is 20 beyond what arrived

1. A failover delivers first what has arrived, then commits the offsets of the groups: in this order, since an offset
   can be translated when its record is here.
2. Each step is recorded when it is done, so the next one follows from the record alone, in any process.
3. What was done is not done again. Groups that had members at the time are left for the next run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from formats.messages.ledger import Failover, FailoverPhase
from formats.segment import OffsetRange, SourcePartition
from infra.contracts.cluster import TopicPartition
from ingress.groups.positions import GroupPosition
from ingress.groups.sync_plan import SyncDecision, SyncOutcome
from ingress.groups.translation import Exactness
from replicator.failover.streams import StreamsApplication
from replicator.first_few import first_few


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivingPartition:
    """One partition on its way here. Offsets of the source, each the next one."""

    source: SourcePartition
    target: TopicPartition
    delivered: int | None  # None: nothing was
    begins: int | None = None  # of what is stored; None: nothing is
    arrived: int | None = None  # up to which it is stored in this bucket; None: nothing is
    source_end: int | None = None  # last stable offset of its log, by the newest watermarks; None: not known
    absent: Sequence[OffsetRange] = ()  # to be delivered, below `arrived`, and in no segment
    complete_as_of: datetime | None = None  # the bucket holds what the log held then, by the source's clock
    problem: str = ""  # why delivery does not go on
    never_here: OffsetRange | None = None  # in the source's log, below where delivery began

    @property
    def reach(self) -> int:
        """Up to which records are here, or can be."""
        return max(self.arrived or 0, self.delivered or 0)

    @property
    def to_deliver(self) -> int:
        begin = self.delivered if self.delivered is not None else self.begins or 0
        return max((self.arrived or 0) - begin - sum(one.count for one in self.absent), 0)

    @property
    def missing(self) -> int | None:
        """Offsets that the source had and that did not arrive; None: not known."""
        return None if self.source_end is None else sum(one.count for one in self.lost)

    @property
    def lost(self) -> Sequence[OffsetRange]:
        """`missing`, as far as it is known."""
        behind = () if (self.source_end or 0) <= self.reach else (OffsetRange(self.reach, (self.source_end or 0) - 1),)
        return (*self.absent, *behind)


class GroupVerdict(StrEnum):
    """Where a group continues in one partition."""

    EXACT = "exact"
    WAITING = "waiting"  # exact once what has arrived is delivered
    BEYOND = "beyond"  # it had read records that did not arrive; it continues after the last one that did
    PARTIAL = "partial"  # it had yet to read records before those with which delivery began
    TRIMMED = "trimmed"
    REPEATED = "repeated"
    UNKNOWN = "unknown"
    AHEAD = "ahead"  # further here than at the source, and not moved back
    HELD = "held"  # behind that place, where an operator put it, and not moved
    ACTIVE = "active"  # it has members here, or had some a moment ago, or that is not known: it commits for itself

    @property
    def is_exact(self) -> bool:
        return self in (GroupVerdict.EXACT, GroupVerdict.WAITING)


def verdict(decision: SyncDecision, state: ArrivingPartition | None) -> GroupVerdict:
    """`state`: of the partition that the position is in; None: not known."""
    position = decision.position
    # moved: it was used in the moment of its commit, since a failover rewinds nothing
    if decision.outcome in (SyncOutcome.ACTIVE, SyncOutcome.UNKNOWN_STATE, SyncOutcome.MOVED):
        return GroupVerdict.ACTIVE
    can_arrive = state is not None and state.to_deliver > 0
    if decision.outcome is SyncOutcome.HELD and _is_behind(decision):
        return GroupVerdict.HELD
    if position.downstream is None:
        return (
            GroupVerdict.WAITING
            if can_arrive and state is not None and state.delivered is None
            else GroupVerdict.UNKNOWN
        )
    if position.exactness is Exactness.CLAMPED:
        if state is not None and can_arrive and position.upstream <= state.reach:
            return GroupVerdict.WAITING
        return GroupVerdict.BEYOND
    if decision.outcome in (SyncOutcome.AHEAD, SyncOutcome.HELD):
        return GroupVerdict.AHEAD
    match position.exactness:
        case Exactness.TRIMMED:
            return GroupVerdict.TRIMMED
        case Exactness.REPEATED:
            return GroupVerdict.REPEATED
        case _:
            return GroupVerdict.PARTIAL if _unread(position, state) else GroupVerdict.EXACT


def _unread(position: GroupPosition, state: ArrivingPartition | None) -> int:
    """Offsets that the group had yet to read, and that are never delivered."""
    if state is None or state.never_here is None:
        return 0
    return max(state.never_here.next_offset - max(position.upstream, state.never_here.start), 0)


def _is_behind(decision: SyncDecision) -> bool:
    place = decision.position.downstream
    return place is not None and (decision.here is None or decision.here < place)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPosition:
    decision: SyncDecision
    verdict: GroupVerdict
    beyond: int = 0  # offsets that it had passed at the source, and that did not arrive
    unread: int = 0  # offsets that it had yet to read, from before where delivery began
    waits: bool = False  # records that have arrived are still to be delivered, or a broker did not answer

    begun_at: int | None = None  # of the source, with `unread`

    @property
    def reason(self) -> str:
        if self.unread:
            return (
                f"{self.unread} offsets that it had yet to read lie before {self.begun_at}, where delivery began, and "
                "are not here"
            )
        return self.decision.reason or self.decision.position.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverPlan:
    """`state`: how far an earlier run came; None: there was none, or it was failed back."""

    region: str
    now: datetime
    state: Failover | None
    heartbeat_at: datetime | None  # the last one of the source's egress; None: none has arrived
    watermarks_at: datetime | None  # when the ends of the source's logs were those that are counted
    snapshot_at: datetime | None  # when the groups stood where they are counted to stand
    snapshot: int = 0  # its generation
    partitions: Sequence[ArrivingPartition] = ()
    groups: Mapping[str, Sequence[PlannedPosition]] = field(default_factory=dict)
    not_known: Mapping[str, str] = field(default_factory=dict)  # groups whose offsets are not known, and why
    not_in_snapshot: Sequence[str] = ()  # why groups may be missing in it, or stand elsewhere by now
    writes_groups: bool = False  # the source's egress stores snapshots of its groups, as its heartbeats say
    refused: Mapping[str, str] = field(default_factory=dict)  # topics of the source that are not delivered, and why
    streams: Sequence[StreamsApplication] = ()
    members: int = 0  # ingress processes that run
    servers: str = ""  # bootstrap servers of this cluster
    topics: Mapping[str, Sequence[str]] = field(default_factory=dict)  # destinations, by name at the source
    released: Sequence[str] = ()  # destinations whose protection against writes ends

    @property
    def to_deliver(self) -> int:
        return sum(one.to_deliver for one in self.partitions)

    @property
    def missing(self) -> int | None:
        """Offsets that are known to be lost, of the partitions of which that is known; None: of none."""
        if self.watermarks_at is None or (self.partitions and self.unknown_ends == len(self.partitions)):
            return None
        return sum(one.missing or 0 for one in self.partitions)

    @property
    def unknown_ends(self) -> int:
        """Partitions of which it is not known how far the source was."""
        return sum(one.missing is None for one in self.partitions)

    @property
    def complete_as_of(self) -> datetime | None:
        """Everything that the source held then is here once it is delivered; None: not known of some partition."""
        found = [one.complete_as_of for one in self.partitions]
        known = [at for at in found if at is not None]
        return min(known) if known and len(known) == len(found) else None

    @property
    def problems(self) -> Sequence[str]:
        """Why not everything continues exactly."""
        return [*self._of_partitions(), *self._of_groups(), *self._of_streams()]

    @property
    def is_exact(self) -> bool:
        return not self.problems

    def _of_partitions(self) -> Iterator[str]:
        for name, why in self.refused.items():
            yield f"{self.region}/{name}: {why}"
        if self.watermarks_at is None:
            yield (
                f"how many offsets did not arrive is not known: no watermarks of {self.region} have arrived in this "
                "bucket. See that its egress writes them, and that its control objects are copied to this bucket"
            )
        for one in self.partitions:
            if one.problem:
                yield f"{one.source}: {one.problem}"
            if one.missing is None and self.watermarks_at is not None:
                yield f"{one.source}: how far the source was is not known: no watermarks of it arrived"
            elif one.missing:
                yield f"{one.source}: {one.missing} offsets did not arrive: {first_few([*map(str, one.lost)], 3)}"
        if self.to_deliver and not self.members:
            yield f"{self.to_deliver} offsets are to be delivered, and no ingress runs: start it, or give them up"

    def _of_groups(self) -> Iterator[str]:
        if self.snapshot_at is None and not self.not_in_snapshot:
            yield "no snapshot of the source's groups has arrived: no group can continue where it stood"
        yield from self.not_in_snapshot
        for group, why in self.not_known.items():
            yield f"group {group}: {why}"
        is_done = self.state is not None and self.state.phase is FailoverPhase.ACTIVE
        for group, positions in self.groups.items():
            for one in positions:
                if one.verdict.is_exact or (is_done and one.verdict in (GroupVerdict.AHEAD, GroupVerdict.ACTIVE)):
                    continue  # it is used here, as it should be
                where = f"group {group} in {one.decision.position.source}: {one.verdict.value}"
                if one.beyond:
                    yield f"{where}: it had passed {one.beyond} offsets that did not arrive"
                else:
                    yield f"{where}: {one.reason}" if one.reason else where

    def _of_streams(self) -> Iterator[str]:
        for one in self.streams:
            for what in one.missing:
                yield f"Kafka Streams application {one.group}: {what}"


def planned_groups(
    decisions: Mapping[str, Sequence[SyncDecision]], partitions: Sequence[ArrivingPartition]
) -> Mapping[str, Sequence[PlannedPosition]]:
    """By group, in order."""
    states = {(str(one.source), one.target): one for one in partitions}
    return {
        group: [_planned(one, states.get((one.position.source, one.position.target))) for one in some]
        for group, some in sorted(decisions.items())
    }


def _planned(decision: SyncDecision, state: ArrivingPartition | None) -> PlannedPosition:
    found = verdict(decision, state)
    beyond = decision.position.upstream - state.reach if found is GroupVerdict.BEYOND and state is not None else 0
    waits = (
        found is GroupVerdict.WAITING
        or decision.position.is_known_later
        or (found is GroupVerdict.BEYOND and state is not None and state.to_deliver > 0)
    )
    unread = _unread(decision.position, state) if found is GroupVerdict.PARTIAL else 0
    return PlannedPosition(
        decision=decision,
        verdict=found,
        beyond=max(beyond, 0),
        unread=unread,
        begun_at=state.never_here.next_offset if unread and state is not None and state.never_here else None,
        waits=waits,
    )


class NextStep(StrEnum):
    BEGIN = "begin"  # record it: from then on the source decides nothing here
    DRAIN = "drain"  # wait until what has arrived is delivered
    CHOOSE = "choose"  # record which snapshot of the groups counts
    COMMIT = "commit"  # the offsets of all groups, and record it
    RETRY = "retry"  # those that were left
    NOTHING = "nothing"


def next_step(state: Failover | None, *, to_deliver: int, give_up: bool, snapshot: int = 0) -> NextStep:
    """`give_up`: what is not delivered yet is not waited for. `snapshot`: generation of the one that would count; 0:
    none has arrived. Groups that could not continue for want of one do so in a later run."""
    if state is None or state.phase is FailoverPhase.FAILED_BACK:
        return NextStep.BEGIN
    match state.phase:
        case FailoverPhase.DRAINING:
            return NextStep.DRAIN if to_deliver and not give_up else NextStep.CHOOSE
        case FailoverPhase.GROUPS:
            return NextStep.COMMIT
        case _ if snapshot and not state.snapshot:
            return NextStep.CHOOSE
        case _:
            return NextStep.RETRY if state.left else NextStep.NOTHING


def left_over(groups: Mapping[str, Sequence[PlannedPosition]], asked: Collection[str] = ()) -> tuple[str, ...]:
    """Groups for which another run may do more: they had members, records of theirs were not delivered yet, or a broker
    did not answer. `asked`: those that an earlier run had left; one without a position now may have one later."""
    left = [
        group for group, some in groups.items() if any(one.verdict is GroupVerdict.ACTIVE or one.waits for one in some)
    ]
    return (*left, *(group for group in asked if group not in groups))
