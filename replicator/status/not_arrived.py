"""Partitions that a source has and of which nothing has arrived here: no listing shows them, its watermarks do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from formats.control.watermarks import SourceWatermarks
from formats.errors import PluginFailed
from formats.segment import SourcePartition
from formats.topic_selection import is_internal
from infra.archive.control import ControlStore
from infra.archive.generation_history import watermark_generations
from infra.archive.source_reports import SourceReport
from ingress.settings import IngressSettings

ARRIVES_WITHIN = timedelta(hours=1)
"""A first segment is on its way for so long: it fills at the source, and is copied between the buckets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotArrived:
    source: SourcePartition
    destination: str  # topic
    records: int  # offsets of its log
    is_late: bool  # for longer than ARRIVES_WITHIN

    @property
    def problem(self) -> str:
        return (
            f"{self.source} -> {self.destination}: the source's log has {self.records} offsets, and nothing of it has "
            "arrived: see whether its egress archives it, and whether the replication of its bucket copies it"
        )


def not_arrived(
    control: ControlStore,
    reports: Mapping[str, SourceReport],
    goes_to: Callable[[str, str], str],
    known: Collection[tuple[str, str, int]],
    now: datetime,
) -> Iterator[NotArrived]:
    """`goes_to`: destination of a region's topic, empty when it is not delivered here. `known`: region, topic and
    number of each partition that is stored or delivered, whatever its incarnation. Raises StoreUnavailable."""
    for region, report in sorted(reports.items()):
        if report.watermarks is None:
            continue
        absent = [
            (topic, destination, number, end)
            for topic, number, end in _partitions(report.watermarks)
            if end and (region, topic, number) not in known and (destination := goes_to(region, topic))
        ]
        if not absent:
            continue
        before = watermark_generations(control.objects, control.prefix, region).at(now - ARRIVES_WITHIN).value
        late = set() if before is None else {(topic, number) for topic, number, end in _partitions(before) if end}
        for topic, destination, number, end in absent:
            source = SourcePartition(region, topic, number)
            is_late = (topic, number) in late
            yield NotArrived(source=source, destination=destination, records=end, is_late=is_late)


def _partitions(found: SourceWatermarks) -> Iterator[tuple[str, int, int]]:
    """Topic, number, and how many offsets its log has."""
    for topic, marks in sorted(found.topics.items()):
        for number, (low, stable) in enumerate(zip(marks.low, marks.stable, strict=True)):
            yield topic, number, max((stable or 0) - (low or 0), 0)


def destination_of(settings: IngressSettings, own_topics: Collection[str], here: str, region: str, topic: str) -> str:
    """Of a topic of which nothing has arrived; empty when it is not to be delivered here. `here`: this region."""
    source = settings.source_of(region, topic)
    if source is None or is_internal(topic, own_topics):
        return ""
    try:
        return "" if source.refusal(topic, here) else source.destination(topic)
    except PluginFailed:
        return ""
