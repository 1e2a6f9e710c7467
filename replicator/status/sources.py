"""The state of the source regions, as their egress reported it: alive or not, and how much has not arrived here.

Two facts: the heartbeat says that the region and the way to this bucket work; the records behind, whether data moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType

from infra.archive.source_reports import SourceReport
from replicator.status.ingress_partition import IngressPartition
from replicator.status.not_arrived import NotArrived

SILENT_AFTER = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    region: str
    heartbeat_at: datetime | None  # by the source's clock; None: none has arrived
    as_of: datetime | None  # when the ends of its logs were those that are counted; None: none have arrived
    records_behind: int | None  # in its logs, and not delivered; None: not known
    unknown: int = 0  # partitions of which it is not known, and that are not part of the sum
    heartbeat_topics: Mapping[str, bool] = field(default_factory=dict)  # here, and whether they exist yet

    @property
    def behind_text(self) -> str:
        """Empty where it is not known."""
        if self.records_behind is None:
            return ""
        behind = f"{self.records_behind:,} records behind its logs"
        if not self.unknown:
            return behind
        return f"at least {behind} (not known of {self.unknown} partition{'s' * (self.unknown > 1)})"

    def problem(self, now: datetime) -> str:
        """That it is silent; empty: it is not, or has no heartbeats at all."""
        if self.heartbeat_at is None or now - self.heartbeat_at < SILENT_AFTER:
            return ""
        return (
            f"no heartbeat of {self.region} has arrived since {self.heartbeat_at.isoformat(timespec='seconds')}: its "
            "egress, or the way to this bucket, stands still"
        )


def records_behind(report: SourceReport | None, p: IngressPartition) -> int | None:
    """Records of a source's log that are not delivered, at least those that are stored here: its watermarks may be
    older than these. Of a log that has ended only what is stored is left. None: not known."""
    if p.has_ended:
        return p.lag
    end = None if report is None else report.stable_end(p.key.source.topic, p.key.source.partition)
    return None if end is None else max(end - (p.next_offset or 0), p.lag)


def source_status(
    reports: Mapping[str, SourceReport],
    delivered: Iterable[IngressPartition],
    heartbeat_topics: Mapping[str, tuple[str, bool]] = MappingProxyType({}),
    absent: Iterable[NotArrived] = (),
) -> tuple[SourceStatus, ...]:
    """`delivered`: what is delivered here, and goes on. `heartbeat_topics`: region, and whether the topic exists, by
    name. `absent`: partitions that will be."""
    behind: dict[str, int] = {}
    unknown: Counter[str] = Counter()
    for late in absent:
        behind[late.source.region] = behind.get(late.source.region, 0) + late.records
    for p in delivered:
        region = p.key.source.region
        records = records_behind(reports.get(region), p)
        if records is None:
            unknown[region] += 1
        else:
            behind[region] = behind.get(region, 0) + records
    return tuple(
        SourceStatus(
            region=region,
            heartbeat_at=None if report.heartbeat is None else report.heartbeat.written_at,
            as_of=report.as_of,
            records_behind=behind.get(region),
            unknown=unknown[region],
            heartbeat_topics={name: exists for name, (of, exists) in heartbeat_topics.items() if of == region},
        )
        for region, report in sorted(reports.items())
    )
