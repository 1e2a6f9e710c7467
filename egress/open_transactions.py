"""Open source transactions: a partition is archived up to its last stable offset, where the oldest open one began.

A producer that died without a word holds it there until the broker gives it up (`transaction.timeout.ms`), and a lost
one (a hanging transaction) for ever: Kafka's own `kafka-transactions.sh` finds and ends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from infra.contracts.cluster import TopicPartition, Watermarks


@dataclass(frozen=True, slots=True)
class OpenTail:
    """What lies behind a partition's last stable offset."""

    partition: TopicPartition
    stable: int  # first offset of the oldest open transaction: nothing from here on is archived
    high: int  # next offset to be written
    age: timedelta  # since it was first seen to stand still


@dataclass(slots=True)
class StuckTransactions:
    """Since when each partition's last stable offset stands still with more behind it, as often as it is told. Pure."""

    limit: timedelta
    _since: dict[TopicPartition, tuple[int, datetime]] = field(default_factory=dict)
    _told: set[TopicPartition] = field(default_factory=set)

    def seen(
        self, stable: Mapping[TopicPartition, int], marks: Mapping[TopicPartition, Watermarks], now: datetime
    ) -> list[OpenTail]:
        """One for each partition of both, also where nothing is open: its age is zero."""
        return [
            OpenTail(partition, offset, marks[partition].high, self._age(partition, offset, marks[partition].high, now))
            for partition, offset in stable.items()
            if partition in marks
        ]

    def is_news(self, tail: OpenTail) -> bool:
        """Whether it is beyond the limit, for the first time since it last moved."""
        if tail.age < self.limit or tail.partition in self._told:
            return False
        self._told.add(tail.partition)
        return True

    def forget(self, partition: TopicPartition) -> None:
        self._since.pop(partition, None)
        self._told.discard(partition)

    def _age(self, partition: TopicPartition, stable: int, high: int, now: datetime) -> timedelta:
        if stable >= high:
            self.forget(partition)
            return timedelta()
        before = self._since.get(partition)
        if before is None or before[0] != stable:
            self.forget(partition)
            before = self._since[partition] = (stable, now)
        return now - before[1]
