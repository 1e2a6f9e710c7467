"""The consumer groups of a cluster, as the test sets them.

groups.found["g"] = FakeGroup(offsets={p: Committed(5, "")})     a group without members
groups.refuses["g"] = "why"                                      it may not be described
groups.lost.add("g")                                             its coordinator does not answer
groups.hides.add("g")                                            with `refuses`: it is not listed, either
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from formats.control.group_snapshot import CLASSIC, CONSUMER
from formats.errors import BrokerUnavailable, TargetError
from infra.contracts.cluster import Committed, GroupFacts, TopicPartition
from infra.contracts.groups import GroupListing


@dataclass(slots=True)
class FakeGroup:
    kind: str = CLASSIC
    members: int = 0
    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)


@dataclass(slots=True)
class FakeGroupReader:
    found: dict[str, FakeGroup] = field(default_factory=dict)
    refuses: dict[str, str] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    hides: set[str] = field(default_factory=set)
    incomplete: str = ""  # why a listing lacks `hides`
    away: bool = False
    no_others: str = ""  # why groups of other kinds are not known
    asked: Counter[str] = field(default_factory=Counter)

    def listing(self) -> GroupListing:
        self._ask("listing")
        supported = {one: group.kind for one, group in self.found.items() if group.kind in (CLASSIC, CONSUMER)}
        return GroupListing({one: kind for one, kind in supported.items() if one not in self.hides}, self.incomplete)

    def others(self) -> Mapping[str, str]:
        self._ask("others")
        if self.no_others:
            raise BrokerUnavailable(self.no_others)
        return {one: group.kind for one, group in self.found.items() if group.kind not in (CLASSIC, CONSUMER)}

    def facts(self, group_id: str) -> GroupFacts:
        self._ask("facts", group_id)
        group = self.found.get(group_id)
        if group is None or group.kind not in (CLASSIC, CONSUMER):
            return GroupFacts(state="dead", members=0, partitions=frozenset())
        held = frozenset(group.offsets) if group.members else frozenset[TopicPartition]()
        return GroupFacts(state="stable" if group.members else "empty", members=group.members, partitions=held)

    def committed(self, group_id: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        self._ask("committed", group_id)
        group = self.found.get(group_id, FakeGroup())
        return {p: one for p, one in group.offsets.items() if p in partitions}

    def _ask(self, what: str, group_id: str = "") -> None:
        self.asked[what] += 1
        if self.away or group_id in self.lost:
            raise BrokerUnavailable(f"{what} {group_id}: planned")
        if group_id in self.refuses:
            raise TargetError(self.refuses[group_id])
