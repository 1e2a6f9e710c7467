"""Carries a failover out, step by step; each is recorded in the ledger when it is done, and repeating one is harmless.

    begin ──> drain ──> choose the snapshot ──> commit the groups ──> active ──> the groups that were left
      │                        └───────────── when it arrives later ─────┘
      └ from here on ingress writes no group of the source, and changes none of its topics and ACLs here

A process that ends anywhere leaves the next one to go on from the record. Delivery goes on all the time: what arrives
later is not lost, and lies behind the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from formats.messages.ledger import Failover, FailoverPhase
from formats.policies.acls import DENY, TOPIC
from infra.contracts.catalog import CatalogAdmin
from infra.contracts.internal_topics import Ledger
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Clock, Deadline, Stop
from ingress.groups.sync_plan import SyncDecision
from replicator.failover.drain import wait_until_delivered
from replicator.failover.facts import FailoverFacts, FailoverSources
from replicator.failover.plan import (
    FailoverPlan,
    NextStep,
    PlannedPosition,
    left_over,
    next_step,
    planned_groups,
)
from replicator.group_sync import target_groups

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """`plan`: as of the last step. `committed`: what this run decided, by group; empty when there was nothing to do."""

    plan: FailoverPlan
    state: Failover
    committed: Mapping[str, Sequence[PlannedPosition]]

    @property
    def is_whole(self) -> bool:
        """Also by what was committed: `plan` was read again, and may know better than the step did."""
        decided = all(one.verdict.is_exact for some in self.committed.values() for one in some)
        return decided and not self.state.left and self.plan.is_exact


@dataclass(slots=True, kw_only=True)
class FailoverExecution:
    """Use from one thread."""

    sources: FailoverSources
    ledger: Ledger
    catalog_admin: CatalogAdmin
    clock: Clock
    stop: Stop
    wait: timedelta  # for what is not delivered yet
    give_up: bool = False  # do not wait for it
    tell: Tell = lambda _: None

    def run(self) -> Executed:
        """Raises NotDelivered and FailoverStopped: the next run goes on; and what the sources raise."""
        deadline = Deadline(self.wait)
        committed: Mapping[str, Sequence[PlannedPosition]] = {}
        while True:
            facts = self.sources.read(self.clock.now(), of_groups=False)
            state = facts.plan.state
            plan = facts.plan
            match next_step(state, to_deliver=plan.to_deliver, give_up=self.give_up, snapshot=plan.snapshot):
                case NextStep.BEGIN:
                    self._begin(state)
                case NextStep.DRAIN:
                    runs = "" if facts.plan.members else "; no ingress runs: start it"
                    self.tell(f"{facts.plan.to_deliver} offsets to deliver{runs}")
                    wait_until_delivered(facts.plan, self.sources.clients.checkpoints, deadline, self.stop)
                case NextStep.CHOOSE:
                    self._record(_known(state), phase=FailoverPhase.GROUPS, snapshot=facts.plan.snapshot)
                case NextStep.COMMIT:
                    committed = self._commit(facts, facts.positions)
                    self._release(facts.plan)
                    self._record(_known(state), phase=FailoverPhase.ACTIVE, left=left_over(committed))
                    return self._executed(committed)
                case NextStep.RETRY:
                    left = {group: facts.positions[group] for group in _known(state).left if group in facts.positions}
                    # of others without a position the plan says why they are not moved
                    asked = [group for group in _known(state).left if group in left or group not in plan.not_known]
                    committed = self._commit(facts, left)
                    self._record(_known(state), left=left_over(committed, asked))
                    return self._executed(committed)
                case NextStep.NOTHING:
                    return self._executed({})

    def _begin(self, before: Failover | None) -> None:
        epoch = 1 if before is None else before.epoch + 1
        begun = Failover(region=self.sources.region, epoch=epoch, phase=FailoverPhase.DRAINING, at=self.clock.now())
        self.ledger.write([begun])
        self.tell(f"failover {epoch} from {begun.region} has begun: its groups are not moved by it any more")

    def _commit(
        self, facts: FailoverFacts, positions: Mapping[str, Sequence[object]]
    ) -> Mapping[str, Sequence[PlannedPosition]]:
        groups = target_groups(self.sources.clients, self.ledger)
        decisions: Mapping[str, Sequence[SyncDecision]] = groups.sync(
            {group: facts.positions[group] for group in positions}, self.clock.now()
        )
        return planned_groups(decisions, facts.plan.partitions)

    def _release(self, plan: FailoverPlan) -> None:
        """Revoke the ACLs of ours by which only ingress may write to the topics that are written to from now on."""
        ours = [
            one
            for one in self.ledger.read().acls
            if one.permission == DENY and one.resource_type == TOPIC and one.resource_name in plan.released
        ]
        if ours:
            with durable(Step.DELETE_ACLS):
                self.catalog_admin.delete_acls(sorted(ours))
            self.ledger.remove_acls(sorted(ours))
            self.tell(f"{', '.join(plan.released)}: released for writing")

    def _record(self, state: Failover, **changes: object) -> None:
        self.ledger.write([replace(state, **changes)])  # type: ignore[arg-type]

    def _executed(self, committed: Mapping[str, Sequence[PlannedPosition]]) -> Executed:
        plan = self.sources.read(self.clock.now()).plan
        return Executed(plan=plan, state=_known(plan.state), committed=committed)


def _known(state: Failover | None) -> Failover:
    assert state is not None  # after BEGIN
    return state
