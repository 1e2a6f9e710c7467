"""Partitions that egress does not archive although it has members: stopped ones, or those of a foreign member.

No note says so, unlike at the target. The watermarks do: since when the log has been longer than what is archived.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from formats.segment import SegmentInfo, SourcePartition
from infra.archive.control import ControlStore
from infra.archive.source_reports import SourceReports
from infra.archive.watermark_history import WatermarkHistory
from replicator.status.ingress_partition import NO_PROGRESS


def stalled(
    control: ControlStore,
    region: str,
    waiting: Mapping[SourcePartition, tuple[int, timedelta]],
    newest: Mapping[SourcePartition, SegmentInfo],
    now: datetime,
) -> Mapping[SourcePartition, datetime]:
    """Since when each of them stands still. `waiting`: partitions whose log goes beyond what is archived, with the next
    offset to archive and the greatest age of a segment. `newest`: the last stored segments: one that is young says that
    it is only behind. Empty while no watermarks are written. Raises StoreUnavailable."""
    if not waiting:
        return {}
    report = SourceReports(control.objects, control.prefix).refresh([region])[region]
    if report.as_of is None or now - report.as_of > NO_PROGRESS:
        return {}
    history = WatermarkHistory(control.objects, control.prefix, region)
    offsets = {(one.topic, one.partition): next_offset for one, (next_offset, _) in waiting.items()}
    complete = history.complete_as_of(report, offsets)
    found: dict[SourcePartition, datetime] = {}
    for source, (_, age) in waiting.items():
        since, last = complete.get((source.topic, source.partition)), newest.get(source)
        limit = now - age - NO_PROGRESS
        if since is not None and since <= limit and (last is None or last.stored_at <= limit):
            found[source] = since
    return found


def explained(since: datetime) -> str:
    return (
        f"nothing was archived since {since.isoformat(timespec='seconds')}, although offsets wait and the group has "
        "members: /readyz of its owner, or its log, says why"
    )
