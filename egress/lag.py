"""How far the archive is behind its topics, measured from time to time on a pool."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from egress.assembly import Assembly
from replicator import logkeys
from replicator.errors import ReplicatorError
from replicator.metrics import Metrics
from replicator.protocols import ClusterAdmin, TopicPartition, Watermarks
from replicator.segment import SourcePartition

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LagGauge:
    """The poll thread calls."""

    admin: ClusterAdmin
    assembly: Assembly
    metrics: Metrics
    interval: timedelta
    pool: Executor
    _committed: dict[TopicPartition, int] = field(default_factory=dict)
    _asked: Future[Mapping[TopicPartition, Watermarks]] | None = None
    _due_at: datetime | None = None

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._committed.update(offsets)

    def forget(self, partition: TopicPartition) -> None:
        self._committed.pop(partition, None)
        labels = {"topic": partition.topic, "partition": str(partition.partition)}
        self.metrics.forget("egress_lag_records", **labels)
        self.metrics.forget("egress_lag_seconds", **labels)

    def turn(self, now: datetime, held: Mapping[TopicPartition, SourcePartition]) -> None:
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            try:
                self._report(asked.result(), held, now)
            except ReplicatorError as error:
                log.warning("lag_unknown", extra={logkeys.ERROR: str(error)})
        if self._asked is None and held and (self._due_at is None or now >= self._due_at):
            self._due_at = now + self.interval
            self._asked = self.pool.submit(self.admin.watermarks, list(held))

    def _report(
        self,
        marks: Mapping[TopicPartition, Watermarks],
        held: Mapping[TopicPartition, SourcePartition],
        now: datetime,
    ) -> None:
        for partition, source in held.items():
            if partition not in marks or partition not in self._committed:
                continue
            labels = {"topic": partition.topic, "partition": str(partition.partition)}
            oldest_ms = self.assembly.oldest_ms(source)
            seconds = 0.0 if oldest_ms is None else max(now.timestamp() - oldest_ms / 1000, 0.0)
            lag = max(marks[partition].high - self._committed[partition], 0)
            self.metrics.gauge("egress_lag_records", lag, **labels)
            self.metrics.gauge("egress_lag_seconds", seconds, **labels)
