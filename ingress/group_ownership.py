"""Ownership of the checkpoint topic by this process's group: claimed before anything is delivered, and confirmed each
time positions are read. The rules are in `formats.messages.group_claim`; this module reads and writes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

from formats.errors import OtherGroup, TargetError
from formats.messages.group_claim import (
    Ask,
    CountMembers,
    GroupClaim,
    ReadClaims,
    Withdraw,
    WriteClaim,
    claim_steps,
    current_claim,
    is_copied,
    why_copied,
)
from formats.messages.group_claim import refusal as why_not
from infra.contracts.cluster import ConsumerGroups
from infra.contracts.internal_topics import CheckpointEditor, CheckpointStore
from infra.runtime import log_fields
from infra.runtime.lifecycle import Clock

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class GroupOwnership:
    """Every method blocks on the cluster. Use from one thread."""

    topic: str  # of checkpoints
    group_id: str
    take_over: str = ""  # the group that this one replaces
    checkpoints: CheckpointStore
    editor: CheckpointEditor
    groups: ConsumerGroups
    cluster_id: Callable[[], str]  # of the cluster that answers now; raises BrokerUnavailable
    clock: Clock
    make_id: Callable[[], str]
    _cluster_id: str = ""  # of the cluster in which the topic was claimed
    _own: set[str] = field(default_factory=set)  # ids of claims written by this process, acknowledged or not

    def claim(self) -> None:
        """Return once the topic belongs to this group. Raises OtherGroup, and BrokerUnavailable: call again."""
        self._cluster_id = self.cluster_id()
        asking = claim_steps(
            topic=self.topic,
            group_id=self.group_id,
            take_over=self.take_over,
            cluster_id=self._cluster_id,
            own=self._own,
            make=self._make,
            now=self.clock.now(),
        )
        ask = next(asking)
        while True:
            answer = self._execute(ask)
            try:
                ask = asking.send(answer)
            except StopIteration:
                self.take_over = ""  # done once: a topic that is created again has no owner
                return

    def confirm(self) -> None:
        """Check, by the last reading of the topic, that it still belongs to this group; claim it if it was created
        again and has no owner. Raises as `claim`, and TargetError when another cluster answers now, whose checkpoints
        are not ours: nothing is claimed there."""
        now = self.cluster_id()
        if now and self._cluster_id and now != self._cluster_id:
            raise TargetError(f"the cluster has the id {now}, this process claimed {self.topic} in {self._cluster_id}")
        claim = current_claim(self.checkpoints.claims())
        if claim is None:
            self.claim()
        elif is_copied(claim, now):
            raise OtherGroup(why_copied(self.topic, claim, now))
        elif claim.group_id != self.group_id:
            raise OtherGroup(why_not(self.topic, self.group_id, claim))

    def _make(self, number: int, over: str) -> GroupClaim:
        return GroupClaim(
            id=self.make_id(),
            number=number,
            group_id=self.group_id,
            cluster_id=self._cluster_id,
            over=over,
            at=self.clock.now(),
        )

    def _execute(self, ask: Ask) -> object:
        match ask:
            case ReadClaims():
                self.checkpoints.read()
                return self.checkpoints.claims()
            case CountMembers(group_id=group_id):
                return self.groups.facts(group_id).members
            case WriteClaim(claim=claim):
                self.editor.claim(claim)
                log.info("group_claimed", extra={log_fields.TOPIC: self.topic, log_fields.COUNT: claim.number})
                return None
            case Withdraw(claim=claim):
                self.editor.withdraw(claim)
                return None
            case _:
                assert_never(ask)
