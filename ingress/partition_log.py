"""Log lines and counts for each step of a partition's delivery."""

from __future__ import annotations

import logging

from formats.coverage import SegmentSlice
from formats.segment import OffsetRange, Segment
from infra.runtime import log_fields
from infra.runtime.metrics import Metrics
from ingress.assigned_partition import AssignedPartition

log = logging.getLogger(__name__)


def finished(metrics: Metrics, assigned: AssignedPartition, segment_slice: SegmentSlice) -> None:
    metrics.count("ingress_segments", 1, **assigned.labels)
    skipped = segment_slice.offsets.start - segment_slice.segment.offsets.start
    if skipped:
        metrics.count("skipped_records", skipped, **assigned.labels)
    log.info(
        "segment_delivered",
        extra=assigned.fields
        | {
            log_fields.LEVEL: segment_slice.segment.level,
            log_fields.START: segment_slice.offsets.start,
            log_fields.END: segment_slice.segment.offsets.end,
            log_fields.DESTINATION: assigned.delivery_target.target.topic,
        },
    )


def late(metrics: Metrics, assigned: AssignedPartition, offsets: OffsetRange) -> None:
    metrics.count("late_segments", 1, **assigned.labels)
    log.warning("segment_late", extra=assigned.fields | _ends(offsets))


def passed(metrics: Metrics, assigned: AssignedPartition, offsets: OffsetRange) -> None:
    metrics.count("passed_gaps", 1, **assigned.labels)
    metrics.count("passed_offsets", offsets.count, **assigned.labels)
    log.warning("recorded_gap_passed", extra=assigned.fields | _ends(offsets))


def lost(metrics: Metrics, assigned: AssignedPartition, offsets: OffsetRange, *, skipped: bool) -> None:
    metrics.count("lost_segments", 1, **assigned.labels)
    metrics.count("lost_offsets", offsets.count, **assigned.labels)
    log.error("segment_lost", extra=assigned.fields | _ends(offsets) | {"skipped": skipped})


def begins(assigned: AssignedPartition, offset: int) -> None:
    log.info("delivery_begins", extra=assigned.fields | {log_fields.OFFSET: offset})


def before_begin(segment: Segment) -> None:
    log.error(
        "segment_before_begin",
        extra={
            log_fields.SEGMENT: str(segment),
            log_fields.NEXT: "not delivered, delivery had begun after it: it arrived later than first_segment_delay; "
            "/readyz says what to do",
        },
    )


def after_its_end(segment: Segment) -> None:
    log.error(
        "segment_behind_its_incarnation",
        extra={
            log_fields.SEGMENT: str(segment),
            log_fields.NEXT: "not delivered, delivery had turned to the next incarnation: it arrived later than "
            "first_segment_delay; /readyz says what to do",
        },
    )


def _ends(offsets: OffsetRange) -> dict[str, object]:
    return {log_fields.START: offsets.start, log_fields.END: offsets.end}
