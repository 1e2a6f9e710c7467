"""Every metric there is: name, kind, unit, and what to do about it. Nothing else is exported.

The first group keeps KIP-382's meanings: count and bytes of records replicated, their age when they arrived, and the
time from the source's stamp to the target's acknowledgement.
"""

from __future__ import annotations

from typing import Literal, Protocol, get_args

CounterName = Literal[
    # egress
    "egress_records",  # records in stored segments
    "egress_bytes",  # raw bytes (keys, values, headers) in stored segments
    "egress_stored_bytes",  # bytes of the stored objects
    "egress_segments",  # segments stored; label reason: messages, size, age, moved, stopped
    "egress_upload_conflicts",  # final keys found taken; equal content is normal after a crash
    "egress_rewinds",  # partitions read again because fetched records were lost; growing = look at the log
    "egress_pauses",  # times a partition waited for memory or storage; growing = storage is slower than the topic
    # ingress, KIP-382 names
    "record_count",  # records acknowledged by the target
    "record_bytes",  # their raw bytes
    "ingress_segments",  # segments delivered to their end
    "late_segments",  # gaps waited for; now and then is normal, growing = notifications get lost
    "lost_segments",  # gaps given up as lost: data is missing; find the segment, or restore it, before skipping
    "lost_offsets",  # offsets in those gaps
    "skipped_records",  # records of a delivered segment that were applied before (overlaps)
    "altered_timestamps",  # records whose stamp was clamped, by policy
    "malformed_notifications",  # queue messages that say nothing we know; look at the dead-letter queue
    "malformed_keys",  # objects below our prefix that are no segment's; move them out of the prefix
    "foreign_notifications",  # messages about other prefixes or regions; narrow the bucket's notification filter
    "corrupt_segments",  # segments that are not what they say; the partition stops: run verify, restore the object
    "segment_events",  # label type: created, removed
    "relists",  # listings made; label reason: start, timer, late, reset, missing
    # sync
    "sync_objects",  # objects copied to the other bucket
    "sync_bytes",  # their stored bytes
    # both
    "store_requests",  # requests to the object store; label operation
    "store_errors",  # refused or failed requests; label operation; growing = storage is in trouble
    "broker_errors",  # errors told by the Kafka client
]
GaugeName = Literal[
    "egress_lag_records",  # high watermark − committed offset
    "egress_lag_seconds",  # age of the oldest record not yet stored; 0 when none waits
    "egress_memory_bytes",  # raw records held in memory, of `memory_budget`
    "egress_spool_bytes",  # encoded bytes waiting for the object store
    "ingress_lag_records",  # archived offsets not yet delivered
    "ingress_lag_seconds",  # age of the oldest stored segment not yet delivered; 0 when none waits
    "assigned_partitions",  # partitions this process holds
    "stopped_partitions",  # partitions waiting for an operator; anything but 0: read /readyz
]
HistogramName = Literal[
    "upload_latency_seconds",  # sealing a segment → stored
    "produce_latency_seconds",  # handing a run to the producer → acknowledged, with its checkpoint
    "record_age_seconds",  # KIP-382: age of the newest record of a run when delivery began
    "replication_latency_seconds",  # KIP-382: source stamp → target acknowledgement, newest record of each run
]
MetricName = CounterName | GaugeName | HistogramName
COUNTERS: tuple[CounterName, ...] = get_args(CounterName)
GAUGES: tuple[GaugeName, ...] = get_args(GaugeName)
HISTOGRAMS: tuple[HistogramName, ...] = get_args(HistogramName)

LABELS: dict[str, tuple[str, ...]] = {
    "egress_segments": ("topic", "partition", "reason"),
    "egress_memory_bytes": (),
    "egress_spool_bytes": (),
    "late_segments": ("region", "topic", "partition"),
    "malformed_notifications": (),
    "malformed_keys": (),
    "foreign_notifications": (),
    "segment_events": ("type",),
    "relists": ("reason",),
    "sync_objects": ("topic",),
    "sync_bytes": ("topic",),
    "store_requests": ("operation",),
    "store_errors": ("operation",),
    "broker_errors": (),
    "assigned_partitions": (),
    "stopped_partitions": (),
}
"""Labels of those that differ from the rule: egress_* and upload_* have topic and partition; the others region, topic
and partition of the source."""


def labels(name: str) -> tuple[str, ...]:
    if name in LABELS:
        return LABELS[name]
    return ("topic", "partition") if name.startswith(("egress_", "upload_")) else ("region", "topic", "partition")


class Metrics(Protocol):
    """Safe to call from several threads; never raises for a known name with its labels."""

    def count(self, name: CounterName, value: float = 1, **labels: str) -> None: ...

    def gauge(self, name: GaugeName, value: float, **labels: str) -> None: ...

    def observe(self, name: HistogramName, value: float, **labels: str) -> None: ...

    def forget(self, name: GaugeName, **labels: str) -> None:
        """Drop a gauge of a partition that moved away."""


class NoMetrics:
    """For library use without a registry, and for tests that do not look."""

    def count(self, name: CounterName, value: float = 1, **labels: str) -> None: ...

    def gauge(self, name: GaugeName, value: float, **labels: str) -> None: ...

    def observe(self, name: HistogramName, value: float, **labels: str) -> None: ...

    def forget(self, name: GaugeName, **labels: str) -> None: ...
