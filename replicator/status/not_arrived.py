"""Partitions that a source has and of which nothing has arrived here: no listing shows them, its watermarks do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from formats.control.watermarks import SourceWatermarks
from formats.incarnation import Incarnation
from formats.segment import SourcePartition
from infra.archive.control import ControlStore
from infra.archive.generation_history import watermark_generations
from infra.archive.source_reports import SourceReport

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
    goes_to: Callable[[str, Incarnation], str],
    known: Iterable[SourcePartition],
    *,
    recreated: Collection[tuple[str, str]],
    now: datetime,
) -> Iterator[NotArrived]:
    """`goes_to`: destination of a region's incarnation, empty when it is not delivered here. `known`: partitions that
    are stored or delivered; `recreated`: region and archive path of those among them whose topic was created again
    since, which is another log. Raises StoreUnavailable."""
    arrived: set[tuple[str, str, int]] = set()
    paths: dict[tuple[str, str], str] = {}  # the incarnation that arrives, by region and topic
    created_again: set[tuple[str, str]] = set()
    for one in known:
        if (one.region, one.path) in recreated:
            created_again.add((one.region, one.topic))
        else:
            arrived.add((one.region, one.topic, one.partition))
            paths[one.region, one.topic] = one.incarnation
    for region, report in sorted(reports.items()):
        if report.watermarks is None:
            continue
        absent: list[tuple[SourcePartition, str, str, int]] = []
        for (topic, topic_id, number), end in _partitions(report.watermarks).items():
            if not end or (region, topic, number) in arrived:
                continue
            new = topic_id if (region, topic) in created_again else ""
            incarnation = Incarnation(topic, paths.get((region, topic), new))
            if destination := goes_to(region, incarnation):
                absent.append((SourcePartition.of(region, incarnation, number), topic_id, destination, end))
        if not absent:
            continue
        before = watermark_generations(control.objects, control.prefix, region).at(now - ARRIVES_WITHIN).value
        then = {} if before is None else _partitions(before)
        for source, topic_id, destination, end in absent:
            is_late = then.get((source.topic, topic_id, source.partition), 0) > 0
            yield NotArrived(source=source, destination=destination, records=end, is_late=is_late)


def _partitions(found: SourceWatermarks) -> Mapping[tuple[str, str, int], int]:
    """How many offsets the log of each has; by topic, its id, and number."""
    return {
        (topic, marks.topic_id, number): count
        for topic, marks in sorted(found.topics.items())
        for number, count in enumerate(marks.counts)
    }
