"""The record metrics of delivery: size, age and latency of each record, computed by columns.

Sizes and ages are counted when a run is read. The latency is known only when the target has acknowledged the round: the
timestamps are kept until then, 8 bytes a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from formats.records.distribution import Timestamps, distribution, joined, no_numbers
from formats.records.milliseconds import ms_at_or_before
from formats.records.statistics import record_bytes
from infra.runtime.buckets import BUCKETS
from infra.runtime.metrics import HistogramName, Metrics

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from formats.records.distribution import Distribution


def _milliseconds(name: HistogramName) -> tuple[int, ...]:
    return tuple(round(bound * 1000) for bound in BUCKETS[name])


_SIZES = tuple(int(bound) for bound in BUCKETS["record_size_bytes"])
_AGES = _milliseconds("record_age_seconds")
_LATENCIES = _milliseconds("replication_latency_seconds")


@dataclass(frozen=True, slots=True)
class RunMeasures:
    """What is measured of a run before it is delivered."""

    sizes: Distribution  # bytes
    ages: Distribution  # milliseconds
    timestamps: Timestamps


def measures_of(batches: Sequence[RecordBatch], read_at: datetime) -> RunMeasures:
    """About 20 ns a record; may be called on any thread."""
    timestamps = Timestamps.of(batches)
    sizes = joined([record_bytes(batch) for batch in batches])
    return RunMeasures(distribution(sizes, _SIZES), timestamps.ages(ms_at_or_before(read_at), _AGES), timestamps)


@dataclass(slots=True)
class RecordMetrics:
    """Of the runs of one partition in one round."""

    _sizes: Distribution = field(default_factory=lambda: no_numbers(_SIZES))
    _ages: Distribution = field(default_factory=lambda: no_numbers(_AGES))
    _timestamps: list[Timestamps] = field(default_factory=list)

    def add(self, run: RunMeasures) -> None:
        self._sizes += run.sizes
        self._ages += run.ages
        self._timestamps.append(run.timestamps)

    def acknowledged(self, at: datetime, metrics: Metrics, labels: dict[str, str]) -> None:
        """Count the records of the added runs: the target has acknowledged them `at`."""
        latencies = Timestamps.joined(self._timestamps).ages(ms_at_or_before(at), _LATENCIES)
        metrics.count("record_count", sum(self._sizes.counts), **labels)
        metrics.count("record_bytes", self._sizes.total, **labels)
        metrics.observe_many("record_size_bytes", self._sizes.counts, self._sizes.total, **labels)
        metrics.observe_many("record_age_seconds", self._ages.counts, self._ages.total / 1000, **labels)
        metrics.observe_many("replication_latency_seconds", latencies.counts, latencies.total / 1000, **labels)
