"""Consumer groups of a cluster in memory: a ConsumerGroups and a GroupWriter."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from formats.errors import BrokerUnavailable
from infra.contracts.cluster import Committed, GroupFacts, TopicPartition
from infra.contracts.groups import GroupIsActive


@dataclass(slots=True)
class MemoryGroups:
    offsets: dict[str, dict[TopicPartition, Committed]] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)  # groups whose coordinator does not answer
    on_facts: Callable[[], None] = lambda: None
    before_commit: Callable[[], None] = lambda: None
    busy: list[Callable[[], None]] = field(default_factory=list)  # what happens meanwhile
    commits: list[tuple[str, Mapping[TopicPartition, Committed]]] = field(default_factory=list)

    def facts(self, group_id: str) -> GroupFacts:
        self._ask(group_id)
        self.on_facts()
        members = self.members.get(group_id, 0)
        state = "stable" if members else "empty" if group_id in self.offsets else "dead"
        return GroupFacts(state=state, members=members, partitions=frozenset())

    def committed(self, group_id: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        self._ask(group_id)
        found = self.offsets.get(group_id, {})
        return {partition: found[partition] for partition in partitions if partition in found}

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, Committed],
        *,
        before_again: Callable[[], None] = lambda: None,
    ) -> None:
        self.before_commit()
        while self.busy:  # attempts that the coordinator answers with: not now
            self.busy.pop(0)()
            before_again()
        self._ask(group_id)
        if self.members.get(group_id, 0):
            raise GroupIsActive(f"commit offsets of group {group_id}: it has members")
        self.offsets.setdefault(group_id, {}).update(offsets)
        self.commits.append((group_id, dict(offsets)))

    def _ask(self, group_id: str) -> None:
        if group_id in self.away:
            raise BrokerUnavailable(f"group {group_id}: planned")
