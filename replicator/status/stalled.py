"""Partitions that egress does not archive although it has members: stopped ones, or those of a foreign member.

No note says so, unlike at the target. The watermarks do: since when the log has been longer than what is archived.
Where the bucket refuses what egress writes, there are no new watermarks either, nor heartbeats: a problem by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from formats.segment import SegmentInfo, SourcePartition
from infra.archive.source_reports import SourceReport
from infra.archive.watermark_history import WatermarkHistory
from replicator.status.ingress_partition import NO_PROGRESS

FEW = 5  # intervals without a heartbeat, or without watermarks


def silent(report: SourceReport, now: datetime, *, heartbeat_interval: timedelta, watermark_interval: timedelta) -> str:
    """The problem that egress has stored no heartbeat, or no watermarks, for several intervals although its group has
    members and offsets wait; empty if there is none. An interval of 0: it stores none. Pure."""
    beat = report.heartbeat
    if not heartbeat_interval or beat is None:
        return ""
    if now - beat.written_at > max(NO_PROGRESS, FEW * heartbeat_interval):
        return (
            f"egress stored its last heartbeat at {beat.written_at.isoformat(timespec='seconds')}, although offsets "
            "wait and the group has members: see whether the bucket takes what it writes; /readyz of its processes, or "
            "their log, says why"
        )
    limit = max(NO_PROGRESS, FEW * max(heartbeat_interval, watermark_interval))
    if watermark_interval and report.as_of is not None and now - report.as_of > limit:
        return (
            f"egress last observed the ends of its logs at {report.as_of.isoformat(timespec='seconds')}, although "
            "offsets wait and the group has members, so whether it archives them is not known: its log says why"
        )
    return ""


def stalled(
    history: WatermarkHistory,
    report: SourceReport,
    waiting: Mapping[SourcePartition, tuple[int, timedelta]],
    newest: Mapping[SourcePartition, SegmentInfo],
    now: datetime,
) -> Mapping[SourcePartition, datetime]:
    """Since when each of them stands still. `report`: of this region, as `history`. `waiting`: partitions whose log
    goes beyond what is archived, with the next offset to archive and the greatest age of a segment. `newest`: the last
    stored segments: one that is young says that it is only behind. Empty while no watermarks are written. Raises
    StoreUnavailable."""
    if not waiting:
        return {}
    if report.as_of is None or now - report.as_of > NO_PROGRESS:
        return {}
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
