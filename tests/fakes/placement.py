"""Group membership on destination topics, in memory: partitions come and go as the test says.

placement.assign(P) / revoke(P) / lose(P)     the listener hears of it in the next `poll`
placement.disturb("why")                      the next `poll` says so
placement.pending.append(end)                 what an owner before has under way: ends when it is waited for
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import ConsumerDisturbed, GroupListener


@dataclass(slots=True)
class FakePlacement:
    topics: frozenset[str] = frozenset()
    held: set[TopicPartition] = field(default_factory=set)
    closed: bool = False
    problem: str = ""
    pending: list[Callable[[], None]] = field(default_factory=list)
    _listener: GroupListener | None = None
    _changes: deque[Callable[[], None]] = field(default_factory=deque)
    _disturbed: list[ConsumerDisturbed] = field(default_factory=list)

    def assign(self, *partitions: TopicPartition) -> None:
        self._changes.append(lambda: self._assigned(partitions))

    def revoke(self, *partitions: TopicPartition) -> None:
        self._changes.append(lambda: self._revoked(partitions))

    def lose(self, *partitions: TopicPartition) -> None:
        self._changes.append(lambda: self._lost(partitions))

    def disturb(self, reason: str = "planned") -> None:
        self._disturbed.append(ConsumerDisturbed(reason))

    def subscribe(self, topics: Collection[str], listener: GroupListener) -> None:
        assert topics, "the client library refuses an empty subscription"
        self.topics, self._listener = frozenset(topics), listener

    def poll(self, timeout: timedelta) -> Sequence[ConsumerDisturbed]:
        assert not self.closed
        while self._changes and self._listener is not None:  # before it subscribes, a member is given nothing
            self._changes.popleft()()
        disturbed, self._disturbed = self._disturbed, []
        return disturbed

    def fence(self) -> object:
        return object()

    def wait_until_settled(self, partitions: Collection[TopicPartition]) -> None:
        while self.pending:
            self.pending.pop()()

    def close(self, timeout: timedelta) -> None:
        if not self.closed and self.held:
            self._revoked(tuple(self.held))
        self.closed = True

    def _assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.held.update(partitions)
        if self._listener is not None:
            self._listener.assigned(frozenset(partitions))

    def _revoked(self, partitions: Collection[TopicPartition]) -> None:
        if self._listener is not None:
            self._listener.revoked(frozenset(partitions))
        self.held.difference_update(partitions)

    def _lost(self, partitions: Collection[TopicPartition]) -> None:
        self.held.difference_update(partitions)
        if self._listener is not None:
            self._listener.lost(frozenset(partitions))
