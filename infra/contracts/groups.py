"""What the control plane asks about the consumer groups of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from formats.errors import TargetError
from infra.contracts.cluster import Committed, ConsumerGroups, TopicPartition


@dataclass(frozen=True, slots=True)
class GroupListing:
    kinds: Mapping[str, str]  # "classic" or "consumer", by group id
    problem: str = ""  # why groups may be missing; empty: these are all that this principal may describe


class GroupReader(ConsumerGroups, Protocol):
    """`facts` of a group that this principal may not describe raises TargetError; ask it before `committed`, which may
    wait for long and then raise BrokerUnavailable instead."""

    def listing(self) -> GroupListing:
        """Groups that commit offsets, whether they have members or not; those that this principal may not describe are
        left out, unless it may describe the cluster."""

    def others(self) -> Mapping[str, str]:
        """The kind of each group that `listing` leaves out for its kind, by id; "other" where the cluster does not show
        it. Costs as much as describing every group of the cluster."""


class GroupIsActive(TargetError):
    """The group has members, which commit for themselves."""


class GroupWriter(Protocol):
    """Commits the offsets of one group after the other without joining it. Safe to call from several threads.
    Raises BrokerUnavailable, and TargetError when this principal may not read the group."""

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, Committed],
        *,
        before_again: Callable[[], None] = lambda: None,
    ) -> None:
        """Returns once the broker has stored all of them. Raises GroupIsActive, and nothing is changed, when the group
        has members by then; after any other error some may be stored. `before_again` is called before each further
        attempt, and raises to give up: the broker may have been away for long."""
