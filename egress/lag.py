"""Measures how far the archive is behind its topics, and which open transactions hold it back; at an interval, on a
pool."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from egress.open_transactions import OpenTail, StuckTransactions
from egress.segments.builder import SegmentBuilder
from formats.segment import SourcePartition
from infra.contracts.cluster import ClusterAdmin, TopicPartition
from infra.runtime import log_fields
from infra.runtime.lookups import Answer, Failed, Lookup
from infra.runtime.metrics import Metrics

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Ends:
    highs: Mapping[TopicPartition, int]
    stable: Mapping[TopicPartition, int]


@dataclass(slots=True)
class LagGauge:
    """Use from the poll thread only."""

    admin: ClusterAdmin
    builder: SegmentBuilder
    metrics: Metrics
    interval: timedelta
    pool: Executor
    stuck: StuckTransactions | None  # None: `read_uncommitted`, which waits for no transaction
    _committed: dict[TopicPartition, int] = field(default_factory=dict)
    _lookup: Lookup[_Ends] = field(init=False)

    def __post_init__(self) -> None:
        self._lookup = Lookup(self.pool)

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._committed.update(offsets)

    def forget(self, partition: TopicPartition) -> None:
        self._committed.pop(partition, None)
        labels = _labels(partition)
        self.metrics.forget("egress_lag_records", **labels)
        self.metrics.forget("egress_lag_seconds", **labels)
        if self.stuck is not None:
            self.stuck.forget(partition)
            self.metrics.forget("stuck_transaction_seconds", **labels)

    def poll(self, now: datetime, sources: Callable[[], Mapping[TopicPartition, SourcePartition]]) -> None:
        """`sources`: of the assigned partitions."""
        match self._lookup.collect():
            case Answer(value=ends):
                self._report(ends, sources(), now)
            case Failed(error=error):
                log.warning("lag_unknown", extra={log_fields.ERROR: str(error)})
        if self._lookup.is_due(now) and (partitions := list(sources())):
            self._lookup.due_at = now + self.interval
            self._lookup.ask(self._ask, partitions, dict(self._committed))

    def _ask(self, partitions: Collection[TopicPartition], committed: Mapping[TopicPartition, int]) -> _Ends:
        highs = self.admin.high_watermarks(partitions)
        if self.stuck is None:
            return _Ends(highs, {})
        # Where all is committed, no transaction is open, which saves a request for each partition at rest. A stable
        # offset beyond an end that was read before it says the same.
        at_rest = {partition: high for partition, high in highs.items() if committed.get(partition) == high}
        behind = [partition for partition in highs if partition not in at_rest]
        return _Ends(highs, {**at_rest, **self.admin.stable_offsets(behind)})

    def _report(self, ends: _Ends, sources: Mapping[TopicPartition, SourcePartition], now: datetime) -> None:
        for partition, source in sources.items():
            if partition not in ends.highs or partition not in self._committed:
                continue
            labels = _labels(partition)
            oldest_ms = self.builder.oldest_ms(source)
            seconds = 0.0 if oldest_ms is None else max(now.timestamp() - oldest_ms / 1000, 0.0)
            lag = max(ends.highs[partition] - self._committed[partition], 0)
            self.metrics.gauge("egress_lag_records", lag, **labels)
            self.metrics.gauge("egress_lag_seconds", seconds, **labels)
        if self.stuck is not None:
            for tail in self.stuck.seen({p: o for p, o in ends.stable.items() if p in sources}, ends.highs, now):
                self._report_tail(tail, is_news=self.stuck.is_news(tail))

    def _report_tail(self, tail: OpenTail, *, is_news: bool) -> None:
        self.metrics.gauge("stuck_transaction_seconds", tail.age.total_seconds(), **_labels(tail.partition))
        if is_news:
            log.warning(
                "transaction_stuck",
                extra={
                    log_fields.TOPIC: tail.partition.topic,
                    log_fields.PARTITION: tail.partition.partition,
                    log_fields.OFFSET: tail.stable,
                    log_fields.COUNT: tail.high - tail.stable,
                    log_fields.WAIT_MS: int(tail.age.total_seconds() * 1000),
                    log_fields.NEXT: "find its producer, or end it: kafka-transactions.sh find-hanging, abort",
                },
            )


def _labels(partition: TopicPartition) -> dict[str, str]:
    return {"topic": partition.topic, "partition": str(partition.partition)}
