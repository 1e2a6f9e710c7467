"""Open source transactions: a partition is archived up to its last stable offset, where the oldest open one began.

The transaction of a producer that died holds the archive back until the broker aborts it (`transaction.timeout.ms`). A
hanging transaction does so for ever: Kafka's `kafka-transactions.sh` finds and aborts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from infra.contracts.cluster import TopicPartition


@dataclass(frozen=True, slots=True)
class OpenTail:
    """Records after a partition's last stable offset."""

    partition: TopicPartition
    stable: int  # first offset of the oldest open transaction: nothing from here on is archived
    high: int  # next offset to be written
    age: timedelta  # since the last stable offset was first seen unchanged


@dataclass(slots=True)
class StuckTransactions:
    """Since when each partition's last stable offset has not changed although records follow it, as of the calls to
    `seen`. Pure."""

    limit: timedelta
    _since: dict[TopicPartition, tuple[int, datetime]] = field(default_factory=dict)
    _reported: set[TopicPartition] = field(default_factory=set)

    def seen(
        self, stable: Mapping[TopicPartition, int], highs: Mapping[TopicPartition, int], now: datetime
    ) -> list[OpenTail]:
        """One tail for each partition in both mappings; its age is zero when no transaction is open."""
        return [
            OpenTail(partition, offset, highs[partition], self._age(partition, offset, highs[partition], now))
            for partition, offset in stable.items()
            if partition in highs
        ]

    def is_news(self, tail: OpenTail) -> bool:
        """Whether the tail exceeds the limit for the first time since the stable offset last moved."""
        if tail.age < self.limit or tail.partition in self._reported:
            return False
        self._reported.add(tail.partition)
        return True

    def forget(self, partition: TopicPartition) -> None:
        self._since.pop(partition, None)
        self._reported.discard(partition)

    def _age(self, partition: TopicPartition, stable: int, high: int, now: datetime) -> timedelta:
        if stable >= high:
            self.forget(partition)
            return timedelta()
        before = self._since.get(partition)
        if before is None or before[0] != stable:
            self.forget(partition)
            before = self._since[partition] = (stable, now)
        return now - before[1]
