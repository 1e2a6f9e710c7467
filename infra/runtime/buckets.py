"""Buckets of the histograms: upper bounds, inclusive, in the unit of the metric's name. One more has no bound."""

from __future__ import annotations

from collections.abc import Mapping

from infra.runtime.metrics import HistogramName

Bounds = tuple[float, ...]

_LATENCY: Bounds = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_AGE: Bounds = (0.1, 0.5, 1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 6 * 3600, 24 * 3600)  # sealing takes minutes
_STAGE: Bounds = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 30, 60, 300, 900, 3600, 6 * 3600)  # a queue is quick, or it hangs
_SIZE: Bounds = tuple(2**power for power in (6, 8, 10, 12, 14, 16, 18, 20, 22, 24))  # 64 B to 16 MiB

BUCKETS: Mapping[HistogramName, Bounds] = {
    "upload_latency_seconds": _LATENCY,
    "produce_latency_seconds": _LATENCY,
    "segment_stage_seconds": _STAGE,
    "record_size_bytes": _SIZE,
    "record_age_seconds": _AGE,
    "replication_latency_seconds": _AGE,
}
