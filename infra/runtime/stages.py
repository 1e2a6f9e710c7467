"""Stages of a segment's way, from its oldest record to the target's acknowledgement: the labels `stage` of the metric
`segment_stage_seconds`. Each stage is measured once, by the process where it ends.

    produced ──close──> sealed ──put──> in the source's bucket
                        sealed ──replicate──> in the target's bucket ──notify──> in the queue ──queue──> received
                          ──share──> read from the event log ──deliver──> acknowledged by the target
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from formats.segment import LEVEL_STREAMING, Segment
from infra.runtime.metrics import Metrics

Stage = Literal["close", "put", "replicate", "notify", "queue", "share", "deliver"]


def observe_stage(metrics: Metrics, segment: Segment, stage: Stage, begin: datetime | None, end: datetime) -> None:
    """Nothing is observed while `begin` is not known, nor of merged segments, whose records have their ways behind
    them. The ends of a stage may be of two machines' clocks: a negative duration counts as 0."""
    if begin is not None and segment.level == LEVEL_STREAMING:
        seconds = max((end - begin).total_seconds(), 0)
        metrics.observe("segment_stage_seconds", seconds, region=segment.source.region, stage=stage)
