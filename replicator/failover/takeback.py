"""The second half of a failback, in the region that the groups go back to: their offsets are committed here again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from formats.control.group_snapshot import GroupSnapshot
from formats.errors import TargetError
from formats.messages.ledger import TakenBack
from infra.contracts.cluster import LogEnds, TopicFacts, TopicPartition
from infra.contracts.internal_topics import Ledger
from infra.runtime.lifecycle import Clock, Deadline, Stop
from ingress.catalog.ownership import DryLedger
from ingress.groups.positions import GroupPosition
from ingress.groups.translation import Exactness
from replicator.failover.drain import NotDelivered, wait_until_delivered
from replicator.failover.facts import FailoverFacts, FailoverSources
from replicator.failover.failback import newest_handover
from replicator.failover.plan import FailoverPlan, GroupVerdict, PlannedPosition, left_over, planned_groups
from replicator.group_sync import target_groups
from replicator.services.clients import Clients


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBackPlan:
    region: str  # that the groups had moved to
    now: datetime
    handover: int  # generation; 0: none has arrived
    handed_over_at: datetime | None
    state: TakenBack | None
    groups: Mapping[str, Sequence[PlannedPosition]] = field(default_factory=dict)
    # groups, and partitions of groups, that were not handed over, and why
    left_there: Mapping[str, str] = field(default_factory=dict)
    arriving: FailoverPlan | None = None  # what was produced there; None: nothing of the region is delivered here
    committed_without: Sequence[str] = ()  # `not_known` of the run that has just taken them back

    @property
    def is_done(self) -> bool:
        return self.is_begun and self.state is not None and not self.state.left

    @property
    def is_begun(self) -> bool:
        """Whether the last groups that were taken back are those of this handover. Generations count from 1 again in
        another bucket or prefix, so the number alone does not say."""
        state = self.state
        return (
            state is not None and state.handover == self.handover > 0 and state.made_at in (None, self.handed_over_at)
        )

    @property
    def waits_for(self) -> str:
        """Why the groups cannot be taken back whole yet; empty when they can."""
        if not self.handover:
            return f"no handover of {self.region} has arrived: `replicator failback execute` there, and copy its bucket"
        if self.arriving is None or self.handed_over_at is None or self.is_done:
            return ""
        if self.arriving.to_deliver:
            return f"{self.arriving.to_deliver} offsets of {self.region} are to be delivered here"
        if self.arriving.snapshot_at is None and self.arriving.writes_groups:
            return f"no snapshot of the groups of {self.region} has arrived here, and its egress stores them"
        if self.arriving.snapshot_at is not None and self.arriving.snapshot_at < self.handed_over_at:
            return f"the newest snapshot of the groups of {self.region} that arrived is older than the handover"
        if beyond := sum(one.beyond for some in self.groups.values() for one in some):
            return f"groups have read {beyond} offsets of {self.region} that have not arrived here: copy its bucket"
        return ""

    @property
    def not_known(self) -> Sequence[str]:
        """Why groups may stand elsewhere in what was produced there than is known here."""
        found = self.arriving
        if found is None or not self.handover:
            return []
        if found.snapshot_at is None and any(one.reach for one in found.partitions) and not found.not_in_snapshot:
            return [
                f"where the groups stand in what was produced in {self.region} is not known: no snapshot of them has "
                "arrived. Does egress there have egress.groups?"
            ]
        return found.not_in_snapshot

    @property
    def problems(self) -> Sequence[str]:
        return list(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.waits_for:
            yield self.waits_for
        yield from self.committed_without if self.is_done else self.not_known
        for group, why in self.left_there.items():
            yield f"group {group} was not handed over: {why}"
        for group, some in self.groups.items():
            for one in some:
                if not one.verdict.is_exact and not (
                    self.is_done and one.verdict in (GroupVerdict.AHEAD, GroupVerdict.ACTIVE)
                ):
                    where = f"group {group} in {one.decision.position.target}: {one.verdict.value}"
                    yield f"{where}: {one.reason}" if one.reason else where


@dataclass(slots=True, kw_only=True)
class TakeBack:
    """Use from one thread."""

    clients: Clients
    region: str
    ledger: Ledger
    clock: Clock

    def plan(self) -> TakeBackPlan:
        """Raises StoreUnavailable, BrokerUnavailable, TargetError."""
        now = self.clock.now()
        number, snapshot = newest_handover(self.clients, self.region)
        state = self.ledger.read().taken_back.get(self.region)
        facts = self._arriving(now)
        positions = {} if snapshot is None else self._positions(snapshot, facts)
        decisions = target_groups(self.clients, DryLedger(self.ledger)).sync(positions, now, dry_run=True)
        return TakeBackPlan(
            region=self.region,
            now=now,
            handover=number,
            handed_over_at=None if snapshot is None else snapshot.observed_at,
            state=state,
            groups=planned_groups(decisions, [] if facts is None else facts.plan.partitions),
            left_there={} if snapshot is None else {**snapshot.unreadable, **snapshot.problems},
            arriving=None if facts is None else facts.plan,
        )

    def execute(self, stop: Stop, *, wait: timedelta, give_up: bool) -> TakeBackPlan:
        """Commit the groups that were handed over, once; those that are active are left for the next run. Raises
        NotDelivered, and what `plan` raises."""
        deadline = Deadline(wait)
        plan = self.plan()
        if plan.is_done:
            return plan
        if not plan.handover:
            raise NotDelivered(plan.waits_for)
        while plan.waits_for and not give_up:
            if plan.arriving is not None and plan.arriving.to_deliver:
                wait_until_delivered(plan.arriving, self.clients.checkpoints, deadline, stop)
            elif deadline.expired or stop.wait(min(timedelta(seconds=1), deadline.left)):
                raise NotDelivered(f"{plan.waits_for}; the same command goes on waiting, --give-up goes on without")
            plan = self.plan()
        _, snapshot = newest_handover(self.clients, self.region)
        if snapshot is None:
            raise TargetError(f"the handover {plan.handover} of {self.region} cannot be read any more")
        now = self.clock.now()
        facts = self._arriving(now)
        positions = self._positions(snapshot, facts)
        if plan.is_begun and plan.state is not None:  # only these are left
            positions = {group: some for group, some in positions.items() if group in plan.state.left}
        done = target_groups(self.clients, self.ledger).sync(positions, now)
        left = left_over(planned_groups(done, [] if facts is None else facts.plan.partitions))
        taken = TakenBack(region=self.region, handover=plan.handover, at=now, left=left, made_at=plan.handed_over_at)
        self.ledger.write([taken])
        return replace(self.plan(), committed_without=plan.not_known)

    def _arriving(self, now: datetime) -> FailoverFacts | None:
        """What ingress here delivers of that region; None: it delivers nothing."""
        ingress = self.clients.config.ingress
        if ingress is None or self.region not in ingress.regions:
            return None
        return FailoverSources(clients=self.clients, region=self.region, ledger=DryLedger(self.ledger)).read(
            now, of_groups=False
        )

    def _positions(self, snapshot: GroupSnapshot, facts: FailoverFacts | None) -> Mapping[str, Sequence[GroupPosition]]:
        """By group: in the topics of this region, and in those of the other one."""
        names = {topic for group in snapshot.groups.values() for topic in group.topics}
        topics = self.clients.admin.describe(names)
        wanted = [partition for one in topics.values() for partition in one.partitions]
        ends = self.clients.admin.ends(wanted)
        return {
            group: [
                *_own(self.clients.config.region, group, snapshot, topics, ends),
                *(() if facts is None else facts.positions.get(group, ())),
            ]
            for group in snapshot.groups
        }


def _own(
    here: str,
    group: str,
    snapshot: GroupSnapshot,
    topics: Mapping[str, TopicFacts],
    ends: Mapping[TopicPartition, LogEnds],
) -> Iterator[GroupPosition]:
    for topic, commits in snapshot.groups[group].topics.items():
        facts = topics.get(topic)
        for number, commit in commits.items():
            target = TopicPartition(topic, number)
            end = ends.get(target)
            reason, offset, exactness = "", None, Exactness.UNKNOWN
            if facts is None or end is None:
                reason = "it does not exist here"
            elif commits.topic_id and facts.topic_id and commits.topic_id != facts.topic_id:
                reason = "the topic was created again, and its offsets are others"
            else:
                offset, exactness = _within(commit.next_offset, end)
            yield GroupPosition(
                group=group,
                source=f"{here}/{topic}/{number}",
                target=target,
                upstream=commit.next_offset,
                downstream=offset,
                exactness=exactness,
                metadata=commit.metadata,
                reason=reason,
            )


def _within(offset: int, end: LogEnds) -> tuple[int, Exactness]:
    if offset > end.high:  # the log lost its tail
        return end.high, Exactness.CLAMPED
    if offset < end.low:
        return end.low, Exactness.TRIMMED
    return offset, Exactness.EXACT
