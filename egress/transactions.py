"""Open source transactions: a partition is archived up to its last stable offset, where the oldest open one began.

A producer that died without a word holds it there until the broker gives it up (`transaction.timeout.ms`), and a lost
one (a hanging transaction, KAFKA-12671) for ever: Kafka's own `kafka-transactions.sh` finds and ends it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from replicator.protocols import ClusterAdmin, TopicPartition, Watermarks

RUNGS = tuple(
    timedelta(seconds=seconds)
    for seconds in (1, 10, 60, 5 * 60, 15 * 60, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600, 30 * 24 * 3600)
)


@dataclass(frozen=True, slots=True)
class OpenTail:
    """What lies behind a partition's last stable offset."""

    partition: TopicPartition
    stable: int  # first offset of the oldest open transaction: nothing from here on is archived
    high: int  # next offset to be written
    age: timedelta  # at least


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


def open_tails(admin: ClusterAdmin, partitions: Collection[TopicPartition], now: datetime) -> Sequence[OpenTail]:
    """Partitions with an open transaction now, for who looks only once: the age is the largest of `RUNGS` (or zero)
    that the stamp of the first open record is older than, so it is as right as the producer's clock. Asks the cluster
    once for each rung that somebody reaches. Raises BrokerUnavailable, TargetError."""
    stable = admin.stable_offsets(partitions)
    marks = admin.watermarks(stable)
    ages = {p: timedelta() for p, offset in stable.items() if p in marks and offset < marks[p].high}
    older = set(ages)
    for rung in RUNGS:
        if not older:
            break
        # the first record stamped since then lies behind the open one: that one is older
        found = admin.offsets_at(older, now - rung)
        older = {p for p in older if found.get(p, -1) > stable[p]}
        ages |= dict.fromkeys(older, rung)
    return [OpenTail(p, stable[p], marks[p].high, age) for p, age in sorted(ages.items())]
