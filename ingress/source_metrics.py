"""Metrics of the source regions, by what their egress reported: whether they live, and how far delivery is behind.

heartbeats, watermarks ─> SourceReports (on the pool, at an interval) ─> CopyLag of each assigned partition ─> gauges
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.copy_lag import CopyLag
from formats.segment import SourcePartition
from infra.archive.source_reports import SourceReport, SourceReports
from infra.runtime import log_fields
from infra.runtime.lookups import Answer, Failed, Lookup
from infra.runtime.metrics import Metrics
from ingress.assigned_partition import AssignedPartition
from ingress.delivery.events import labels_of

log = logging.getLogger(__name__)


@dataclass(slots=True)
class SourceMetrics:
    """Use from the controller's thread only; the requests run on `pool`."""

    reports: SourceReports
    metrics: Metrics
    pool: Executor
    interval: timedelta
    _latest: Mapping[str, SourceReport] = field(default_factory=dict)
    _since: dict[str, datetime] = field(default_factory=dict)  # when a region was first seen without a heartbeat
    _lags: dict[SourcePartition, CopyLag] = field(default_factory=dict)
    _lookup: Lookup[Mapping[str, SourceReport]] = field(init=False)

    def __post_init__(self) -> None:
        self._lookup = Lookup(self.pool)

    def poll(self, regions: Collection[str], assigned: Iterable[AssignedPartition], now: datetime) -> None:
        if self._lookup.is_due(now):
            self._lookup.due_at = now + self.interval
            self._lookup.ask(self.reports.refresh, regions)
        partitions = {one.delivery_target.source: one for one in assigned}
        match self._lookup.collect():
            case Answer(value=reports):
                for region in self._latest.keys() - reports.keys():
                    self.metrics.forget("source_heartbeat_age_seconds", region=region)
                self._latest = reports
                self._observe(partitions)
            case Failed(error=error):
                log.warning("source_not_seen", extra={log_fields.ERROR: str(error)})
        self._export(partitions, now)

    def _observe(self, partitions: Collection[SourcePartition]) -> None:
        for source in partitions:
            report = self._latest.get(source.region, SourceReport())
            if report.lacks(source.topic):
                self._forget(source)  # deleted there, or no longer archived: nothing more of it is awaited
            end, as_of = report.stable_end(source.topic, source.partition), report.as_of
            if end is not None and as_of is not None:
                self._lags.setdefault(source, CopyLag()).observed(end, as_of)

    def _export(self, partitions: Mapping[SourcePartition, AssignedPartition], now: datetime) -> None:
        for region, report in self._latest.items():
            # of a region of which none has arrived at least so much: a series that is absent raises no alert
            beat_at = self._since.setdefault(region, now) if report.heartbeat is None else report.heartbeat.written_at
            age = max((now - beat_at).total_seconds(), 0.0)
            self.metrics.gauge("source_heartbeat_age_seconds", age, region=region)
        for source in self._lags.keys() - partitions.keys():
            self._forget(source)
        for source, lag in self._lags.items():
            records, seconds = lag.lag(partitions[source].checkpointed or 0, now)
            self.metrics.gauge("source_lag_records", records, **labels_of(source))
            if seconds is not None:
                self.metrics.gauge("source_lag_seconds", seconds, **labels_of(source))

    def _forget(self, source: SourcePartition) -> None:
        if self._lags.pop(source, None) is not None:
            self.metrics.forget("source_lag_records", **labels_of(source))
            self.metrics.forget("source_lag_seconds", **labels_of(source))
