"""The state of the source regions, as their egress reported it: alive or not, and how much has not arrived here.

Two facts: the heartbeat says that the region and the way to this bucket work; the records behind, whether data moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from infra.archive.source_reports import SourceReport


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    region: str
    heartbeat_at: datetime | None  # by the source's clock; None: none has arrived
    as_of: datetime | None  # when the ends of its logs were those that are counted; None: none have arrived
    records_behind: int | None  # in its logs, and not delivered; None: not known
    heartbeat_topics: Mapping[str, bool] = field(default_factory=dict)  # here, and whether they exist yet


def source_status(
    reports: Mapping[str, SourceReport],
    configured: Iterable[CheckpointKey],
    checkpoints: Mapping[CheckpointKey, Checkpoint],
    heartbeat_topics: Mapping[str, tuple[str, bool]] = MappingProxyType({}),
) -> tuple[SourceStatus, ...]:
    """`configured`: what is delivered here. `heartbeat_topics`: region, and whether the topic exists, by name."""
    behind: dict[str, int] = {}
    for key in configured:
        report = reports.get(key.source.region)
        end = None if report is None else report.stable_end(key.source.topic, key.source.partition)
        if end is not None:
            done = checkpoints[key].next_offset if key in checkpoints else 0
            behind[key.source.region] = behind.get(key.source.region, 0) + max(end - done, 0)
    return tuple(
        SourceStatus(
            region=region,
            heartbeat_at=None if report.heartbeat is None else report.heartbeat.written_at,
            as_of=report.as_of,
            records_behind=behind.get(region),
            heartbeat_topics={name: exists for name, (of, exists) in heartbeat_topics.items() if of == region},
        )
        for region, report in sorted(reports.items())
    )
