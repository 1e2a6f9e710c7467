"""Measures how far the archive is behind its topics, and which open transactions hold it back; at an interval, on a
pool."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from egress.assigned_partition import AssignedPartition
from egress.open_transactions import OpenTail, StuckTransactions
from egress.segments.builder import SegmentBuilder
from formats.copy_lag import CopyLag
from formats.errors import BrokerUnavailable, ReplicatorError
from formats.records.milliseconds import known_time_of_ms
from formats.segment import SourcePartition
from infra.contracts.catalog import LogEndReader
from infra.contracts.cluster import ClusterAdmin, LogEnds, TopicPartition
from infra.runtime import log_fields
from infra.runtime.lookups import Answer, Failed, Lookup
from infra.runtime.metrics import Metrics

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Ends:
    asked_at: datetime
    highs: Mapping[TopicPartition, int]
    stable: Mapping[TopicPartition, int]
    failed: Mapping[TopicPartition, ReplicatorError] = field(default_factory=dict)  # such as one without a leader


@dataclass(slots=True)
class LagGauge:
    """Use from the poll thread only."""

    admin: ClusterAdmin
    ends: LogEndReader
    builder: SegmentBuilder
    metrics: Metrics
    interval: timedelta
    pool: Executor
    stuck: StuckTransactions | None  # None: `read_uncommitted`, which waits for no transaction
    _stored: dict[TopicPartition, int] = field(default_factory=dict)  # everything below is archived
    _lags: dict[TopicPartition, CopyLag] = field(default_factory=dict)
    _at_rest: set[TopicPartition] = field(default_factory=set)  # reported without lag: most of thousands
    _lookup: Lookup[_Ends] = field(init=False)

    def __post_init__(self) -> None:
        self._lookup = Lookup(self.pool)

    def forget(self, partition: TopicPartition) -> None:
        self._stored.pop(partition, None)
        self._lags.pop(partition, None)
        self._at_rest.discard(partition)
        labels = _labels(partition)
        self.metrics.forget("egress_lag_records", **labels)
        self.metrics.forget("egress_lag_seconds", **labels)
        if self.stuck is not None:
            self.stuck.forget(partition)
            self.metrics.forget("stuck_transaction_seconds", **labels)

    def poll(self, now: datetime, partitions: Mapping[TopicPartition, AssignedPartition]) -> None:
        """`partitions`: those assigned to this process."""
        match self._lookup.collect():
            case Answer(value=found):
                self._note(partitions, now)
                self._answered(found, partitions, now)
                if found.failed:
                    self._unknown(found.failed.keys() & partitions.keys(), next(iter(found.failed.values())), now)
            case Failed(error=error):
                self._note(partitions, now)
                self._unknown(partitions, error, now)
        if self._lookup.is_due(now) and partitions:
            self._lookup.due_at = now + self.interval
            self._note(partitions, now)
            self._lookup.ask(self._ask, now, list(partitions), dict(self._stored))

    def _answered(self, found: _Ends, partitions: Mapping[TopicPartition, AssignedPartition], now: datetime) -> None:
        highs = {partition: high for partition, high in found.highs.items() if partition in partitions}
        for partition, high in highs.items():
            self._lags[partition].observed(high, found.asked_at)
        at_rest = {partition for partition, high in highs.items() if self._stored.get(partition) == high}
        changed = highs.keys() - (at_rest & self._at_rest)
        self._at_rest = at_rest
        for partition in changed:
            self._report(partitions[partition], now)
        if self.stuck is not None:
            stable = {p: found.stable[p] for p in changed if p in found.stable}
            for tail in self.stuck.seen(stable, highs, now):
                self._report_tail(tail, is_news=self.stuck.is_news(tail))

    def _unknown(self, partitions: Collection[TopicPartition], error: Exception, now: datetime) -> None:
        """Not the last answer for ever: since then, records may wait."""
        log.warning("lag_unknown", extra={log_fields.ERROR: str(error), log_fields.COUNT: len(partitions)})
        for partition in partitions:
            self._at_rest.discard(partition)
            _, seconds = self._lags[partition].lag(self._stored.get(partition, 0), now)
            self.metrics.gauge("egress_lag_seconds", seconds or 0.0, **_labels(partition))

    def _note(self, partitions: Mapping[TopicPartition, AssignedPartition], now: datetime) -> None:
        """What is stored of each, as far as it is known: where a partition stops, the last that was."""
        for partition, assigned in partitions.items():
            self._lags.setdefault(partition, CopyLag(now))
            if (session := assigned.session) is not None:
                self._stored[partition] = session.core.committable

    def _ask(
        self, now: datetime, partitions: Collection[TopicPartition], stored: Mapping[TopicPartition, int]
    ) -> _Ends:
        try:
            return self._of_all(now, partitions, stored)
        except BrokerUnavailable:
            # of one partition perhaps, which has no leader: the lag of the others is known
            answers = self.ends.log_ends(partitions)
            failed = {p: answer for p, answer in answers.items() if isinstance(answer, ReplicatorError)}
            known = {p: answer for p, answer in answers.items() if isinstance(answer, LogEnds)}
            if not known:
                raise
            stable = {} if self.stuck is None else {p: one.stable for p, one in known.items()}
            return _Ends(now, {p: one.high for p, one in known.items()}, stable, failed)

    def _of_all(
        self, now: datetime, partitions: Collection[TopicPartition], stored: Mapping[TopicPartition, int]
    ) -> _Ends:
        highs = self.admin.high_watermarks(partitions)
        if self.stuck is None:
            return _Ends(now, highs, {})
        # Where all is stored, no transaction is open, which saves a request for each partition at rest. A stable offset
        # beyond an end that was read before it says the same.
        at_rest = {partition: high for partition, high in highs.items() if stored.get(partition) == high}
        behind = [partition for partition in highs if partition not in at_rest]
        return _Ends(now, highs, {**at_rest, **self.admin.stable_offsets(behind)})

    def _report(self, assigned: AssignedPartition, now: datetime) -> None:
        lag, labels = self._lags[assigned.partition], _labels(assigned.partition)
        records, seconds = lag.lag(self._stored.get(assigned.partition, 0), now)
        if assigned.partition in self._stored:
            self.metrics.gauge("egress_lag_records", records, **labels)
        waiting = self._waiting(assigned.source, lag, seconds or 0.0, now) if records else 0.0
        self.metrics.gauge("egress_lag_seconds", waiting, **labels)

    def _waiting(self, source: SourcePartition, lag: CopyLag, behind: float, now: datetime) -> float:
        """Age in seconds of the oldest record that is not archived. By its timestamp when egress has read it, which a
        producer may have set to any time: so no more than since when records wait, if that is known."""
        oldest = known_time_of_ms(self.builder.oldest_ms(source) or None)  # 0 says as little as -1
        age = behind if oldest is None else (now - oldest).total_seconds()
        if age < 0:  # its producer's clock is ahead
            return behind
        return min(age, behind) if lag.is_caught_up else age

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
