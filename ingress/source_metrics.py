"""Metrics of the source regions, by what their egress reported: whether they live, and how far delivery is behind.

heartbeats, watermarks ─> SourceReports (on the pool, at an interval) ─> CopyLag of each assigned partition ─> gauges

A topic that was created again at the source is another log: what is delivered of the earlier one is not behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.copy_lag import CopyLag
from formats.incarnation import Incarnation
from formats.segment import SourcePartition
from infra.archive.source_reports import SourceReport, SourceReports
from infra.runtime import log_fields
from infra.runtime.lookups import Answer, Failed, Lookup
from infra.runtime.metrics import Metrics
from ingress.assigned_partition import AssignedPartition
from ingress.delivery.events import labels_of
from ingress.groups.topic_ids import ClaimedTopicIds, is_another
from ingress.topics_not_arrived import TopicsNotArrived

log = logging.getLogger(__name__)


Paths = Collection[tuple[str, str]]  # region and archive path


@dataclass(frozen=True, slots=True)
class SourceReading:
    reports: Mapping[str, SourceReport]  # by region
    topic_ids: Mapping[tuple[str, str], str | None]  # claimed, by region and archive path
    not_arrived: Mapping[tuple[str, str], int] | None  # offsets, by region and topic; None: not known


@dataclass(slots=True)
class SourceMetrics:
    """Use from the controller's thread only; the requests run on `pool`."""

    reports: SourceReports
    topic_ids: ClaimedTopicIds
    not_arrived: TopicsNotArrived
    metrics: Metrics
    pool: Executor
    interval: timedelta
    _latest: Mapping[str, SourceReport] = field(default_factory=dict)
    _since: dict[str, datetime] = field(default_factory=dict)  # when a region was first seen without a heartbeat
    _lags: dict[SourcePartition, CopyLag] = field(default_factory=dict)
    _not_arrived: Mapping[tuple[str, str], int] = field(default_factory=dict)
    _lookup: Lookup[SourceReading] = field(init=False)

    def __post_init__(self) -> None:
        self._lookup = Lookup(self.pool)

    def poll(
        self,
        regions: Collection[str],
        assigned: Iterable[AssignedPartition],
        known: Collection[tuple[str, Incarnation]] | None,
        now: datetime,
    ) -> None:
        """`known`: region and incarnation of what is archived or in a catalogue; None: not read yet."""
        partitions = {one.delivery_target.source: one for one in assigned}
        if self._lookup.is_due(now):
            self._lookup.due_at = now + self.interval
            self._lookup.ask(self._read, regions, {(source.region, source.path) for source in partitions}, known)
        match self._lookup.collect():
            case Answer(value=found):
                for region in self._latest.keys() - found.reports.keys():
                    self.metrics.forget("source_heartbeat_age_seconds", region=region)
                self._latest = found.reports
                self._observe(partitions, found.topic_ids)
                if found.not_arrived is not None:
                    self._count_not_arrived(found.not_arrived)
            case Failed(error=error):
                log.warning("source_not_seen", extra={log_fields.ERROR: str(error)})
        self._export(partitions, now)

    def _read(
        self, regions: Collection[str], paths: Paths, known: Collection[tuple[str, Incarnation]] | None
    ) -> SourceReading:
        reports = self.reports.refresh(regions)
        topic_ids = {path: self.topic_ids.of(*path) for path in paths}
        not_arrived = None if known is None else self.not_arrived.find(reports, known, topic_ids)
        return SourceReading(reports, topic_ids, not_arrived)

    def _count_not_arrived(self, records_of: Mapping[tuple[str, str], int]) -> None:
        for region, topic in self._not_arrived.keys() - records_of.keys():
            self.metrics.forget("source_not_arrived_records", region=region, topic=topic)
        for (region, topic), records in records_of.items():
            self.metrics.gauge("source_not_arrived_records", records, region=region, topic=topic)
        self._not_arrived = records_of

    def _observe(
        self, partitions: Collection[SourcePartition], topic_ids: Mapping[tuple[str, str], str | None]
    ) -> None:
        for source in partitions:
            if (source.region, source.path) not in topic_ids:
                continue  # assigned since
            report = self._latest.get(source.region, SourceReport())
            claimed = topic_ids[source.region, source.path]
            if report.lacks(source.topic) or is_another(claimed, report.topic_id(source.topic)):
                self._forget(source)  # nothing more of it is awaited; while only its end is not known, the lag grows
                continue
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
            assigned = partitions[source]
            records, seconds = lag.lag(assigned.checkpointed or 0, now)
            if assigned.was_located:  # else all that its log ever had would count
                self.metrics.gauge("source_lag_records", records, **labels_of(source))
            if seconds is not None:
                self.metrics.gauge("source_lag_seconds", seconds, **labels_of(source))

    def _forget(self, source: SourcePartition) -> None:
        if self._lags.pop(source, None) is not None:
            self.metrics.forget("source_lag_records", **labels_of(source))
            self.metrics.forget("source_lag_seconds", **labels_of(source))
