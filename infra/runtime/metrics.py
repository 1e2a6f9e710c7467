"""All exported metrics: name, kind, unit, labels, and what to do about them.

The record metrics mean what KIP-382 says, of each record: count, size, age when it is consumed, and the time from its
timestamp to the target's acknowledgement.

The kind of a metric is the Literal that contains its name, so that a type checker rejects an unknown one; `TABLE` has
everything else. A counter without a unit in its name counts things.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

CounterName = Literal[
    # egress
    "egress_records",
    "egress_bytes",
    "egress_stored_bytes",
    "egress_segments",
    "egress_upload_conflicts",
    "egress_rewinds",
    "egress_pauses",
    "egress_recorded_gaps",
    "egress_recorded_gap_offsets",
    # ingress, KIP-382 names
    "record_count",
    "record_bytes",
    "ingress_segments",
    "late_segments",
    "passed_gaps",
    "passed_offsets",
    "lost_segments",
    "lost_offsets",
    "skipped_records",
    "altered_timestamps",
    "dropped_records",
    "malformed_notifications",
    "malformed_keys",
    "foreign_notifications",
    "corrupt_segments",
    "segment_events",
    "relists",
    "group_checkpoints",
    # sync
    "sync_objects",
    "sync_bytes",
    "sync_clear_objects",
    # compaction
    "compaction_runs",
    "compaction_merged_segments",
    "compaction_deleted_segments",
    "compaction_failures",
    # egress and ingress on Spark
    "spark_lost_attempts",
    "spark_failed_jobs",
    # several processes of egress or ingress under one parent
    "lost_worker_processes",
    # all
    "store_requests",
    "store_errors",
    "broker_errors",
]
GaugeName = Literal[
    "ready",
    "egress_lag_records",
    "egress_lag_seconds",
    "stuck_transaction_seconds",
    "egress_memory_bytes",
    "egress_spool_bytes",
    "egress_spool_limit_bytes",
    "ingress_lag_records",
    "ingress_lag_seconds",
    "source_lag_records",
    "source_lag_seconds",
    "source_not_arrived_records",
    "source_heartbeat_age_seconds",
    "group_snapshot_age_seconds",
    "group_positions",
    "group_checkpoint_latency_seconds",
    "group_offsets",
    "undelivered_offsets",
    "assigned_partitions",
    "stopped_partitions",
    "compaction_last_run_timestamp_seconds",
    "compaction_missed_runs",
    "quarantined_segments",
    # egress and ingress on Spark
    "spark_tasks",
    "spark_running_tasks",
    # several processes of egress or ingress under one parent
    "worker_processes",
    "running_worker_processes",
    # drill
    "drill_timestamp_seconds",
    "drill_restore_seconds",
    "drill_behind_seconds",
    "drill_records",
    "drill_differences",
]
HistogramName = Literal[
    "upload_latency_seconds",
    "produce_latency_seconds",
    # egress and ingress
    "segment_stage_seconds",
    # ingress, KIP-382 names
    "record_size_bytes",
    "record_age_seconds",
    "replication_latency_seconds",
]
MetricName = CounterName | GaugeName | HistogramName
COUNTERS: tuple[CounterName, ...] = get_args(CounterName)
GAUGES: tuple[GaugeName, ...] = get_args(GaugeName)
HISTOGRAMS: tuple[HistogramName, ...] = get_args(HistogramName)


@dataclass(frozen=True, slots=True)
class Metric:
    labels: tuple[str, ...]
    help: str


NONE: tuple[str, ...] = ()
REGION = ("region",)  # of the archive
PARTITION = ("topic", "partition")  # of the process's own cluster: source of egress, target of ingress
JOB = ("compaction_job",)  # by its name in the file; Prometheus' own label `job` is that of the scrape
SOURCE = ("region", "topic", "partition")  # of the source
RECORDS = (*SOURCE, "destination")  # of the source; the topic at the target

TABLE: dict[MetricName, Metric] = {
    # egress
    "egress_records": Metric(PARTITION, "records in stored segments"),
    "egress_bytes": Metric(PARTITION, "raw bytes (keys, values, headers) in stored segments"),
    "egress_stored_bytes": Metric(PARTITION, "bytes of the stored objects"),
    "egress_segments": Metric(
        (*PARTITION, "reason"), "segments stored; label reason: messages, size, age, pressure, moved, stopped"
    ),
    "egress_upload_conflicts": Metric(
        PARTITION, "uploads whose key existed already; with equal content this is normal after a crash"
    ),
    "egress_rewinds": Metric(
        PARTITION, "times a partition was read again because fetched records were lost; growing = check the log"
    ),
    "egress_pauses": Metric(
        PARTITION, "times a partition waited for memory or storage; growing = storage is slower than the topic"
    ),
    "egress_recorded_gaps": Metric(
        PARTITION, "recorded ranges that the source deleted before they were archived; anything but 0 is data loss"
    ),
    "egress_recorded_gap_offsets": Metric(PARTITION, "offsets in those ranges"),
    # ingress, KIP-382 names
    "record_count": Metric(RECORDS, "records acknowledged by the target"),
    "record_bytes": Metric(
        RECORDS, "bytes of keys, values, header keys and header values of the records acknowledged by the target"
    ),
    "ingress_segments": Metric(SOURCE, "segments delivered to their end"),
    "late_segments": Metric(SOURCE, "gaps waited for; a few are normal, growing = segments arrive out of order"),
    "passed_gaps": Metric(
        SOURCE, "gaps recorded by egress that delivery passed over; the objects below gaps/ have the reasons"
    ),
    "passed_offsets": Metric(
        SOURCE, "offsets in gaps recorded by egress; counted again after a restart inside such a gap"
    ),
    "lost_segments": Metric(
        SOURCE, "gaps given up as lost: data is missing; find or restore the segment before skipping"
    ),
    "lost_offsets": Metric(SOURCE, "offsets in gaps given up as lost"),
    "skipped_records": Metric(SOURCE, "records of a delivered segment that were delivered before (overlaps)"),
    "altered_timestamps": Metric(SOURCE, "records whose timestamp was clamped, as configured"),
    "dropped_records": Metric(
        RECORDS, "records that the source's transform left out, of runs whose position the target acknowledged"
    ),
    "malformed_notifications": Metric(NONE, "queue messages in an unknown format; check the dead-letter queue"),
    "malformed_keys": Metric(NONE, "objects below our prefix that are not segments; move them out of the prefix"),
    "foreign_notifications": Metric(
        NONE, "messages about other prefixes or regions; narrow the bucket's notification filter"
    ),
    "corrupt_segments": Metric(
        SOURCE,
        "corrupt segments (unreadable, or contradicting key or footer); the partition stops: run verify, restore the "
        "object",
    ),
    "segment_events": Metric(("type",), "events read from the event log; label type: created, removed"),
    "relists": Metric(
        ("reason",),
        "listings made; label reason: start, timer, gap, late, reset, missing, removed, corrupt, truncated, or "
        "incarnation",
    ),
    # sync
    "sync_objects": Metric(("topic",), "objects copied to the other bucket"),
    "sync_bytes": Metric(("topic",), "stored bytes of objects copied to the other bucket"),
    "sync_clear_objects": Metric(
        ("topic",),
        'objects that sync did not copy because they are not encrypted and encryption.clear_objects is "refuse"; each '
        "round counts them again: find out who wrote them",
    ),
    # compaction
    "compaction_runs": Metric(JOB, "completed runs of a job by this process"),
    "compaction_merged_segments": Metric(JOB, "segments merged into larger ones"),
    "compaction_deleted_segments": Metric(
        JOB, "segments deleted after all their records were proven to be in a larger one"
    ),
    "compaction_failures": Metric(JOB, "failed plans, or whole runs; the log has the reason"),
    # egress and ingress on Spark
    "spark_lost_attempts": Metric(
        NONE, "attempts of tasks that ended without an order to; growing = executors die, or the service fails there"
    ),
    "spark_failed_jobs": Metric(NONE, "jobs that failed as a whole, and were begun again; the log has the reason"),
    "spark_tasks": Metric(NONE, "long-lived tasks wanted: --tasks"),
    "spark_running_tasks": Metric(NONE, "tasks that run; fewer than spark_tasks = executors are missing"),
    # several processes of egress or ingress under one parent
    "lost_worker_processes": Metric(
        NONE, "child processes that ended without an order to, and were started again; growing = the log has the reason"
    ),
    "worker_processes": Metric(NONE, "child processes wanted: `processes` of [egress] or [ingress]"),
    "running_worker_processes": Metric(
        NONE, "child processes that work; fewer than worker_processes for long = they fail at their start"
    ),
    # all
    "store_requests": Metric(("operation",), "requests to the object store; label operation"),
    "store_errors": Metric(("operation",), "failed requests; label operation; growing = the object store has problems"),
    "broker_errors": Metric(NONE, "errors reported by the Kafka client"),
    "egress_lag_records": Metric(PARTITION, "high watermark − first offset that is not archived"),
    "egress_lag_seconds": Metric(
        PARTITION,
        "RPO of the archive: it holds everything that the topic held so many seconds ago; where egress does not know "
        "since when records wait, how long it has seen them wait at least; 0 when none waits",
    ),
    "stuck_transaction_seconds": Metric(
        PARTITION,
        "how long an open source transaction has blocked the archive; beyond `stuck_transaction_after`: find its "
        "producer, or abort it with kafka-transactions.sh",
    ),
    "egress_memory_bytes": Metric(NONE, "raw records held in memory, limited by `memory_budget`"),
    "egress_spool_bytes": Metric(NONE, "encoded bytes waiting for the object store"),
    "egress_spool_limit_bytes": Metric(
        NONE, "limit of egress_spool_bytes; below 4 × `memory_budget`: the disk of `spool_dir` is small, or full"
    ),
    "ingress_lag_records": Metric(
        SOURCE,
        "archived offsets not yet delivered, once the archive was listed; every process exports it for unassigned "
        "partitions: take max by label",
    ),
    "ingress_lag_seconds": Metric(
        SOURCE,
        "age of the oldest stored segment not yet delivered; 0 when none waits; exported like ingress_lag_records",
    ),
    "source_lag_records": Metric(
        SOURCE,
        "last stable offset of the source's partition, by the watermarks that arrived here, − next offset delivered, "
        "once that was read; of assigned partitions of topics that the source has",
    ),
    "source_lag_seconds": Metric(
        SOURCE,
        "RPO: the target holds everything that the source held so many seconds ago, by the source's clock; so much at "
        "least while a backlog of before the start is delivered; of assigned partitions of topics that the source has",
    ),
    "source_not_arrived_records": Metric(
        ("region", "topic"),
        "offsets in the source's logs of a topic that is to be delivered here, and of which nothing has arrived; every "
        "process exports it: take max by label; for long: its egress, or the replication of its bucket, leaves it out",
    ),
    "group_snapshot_age_seconds": Metric(
        REGION,
        "age of the newest snapshot of the source's consumer groups that arrived here, when they were last translated; "
        "where none has arrived that can be read, since the first attempt of this process",
    ),
    "group_positions": Metric(
        ("region", "exactness"), "offsets of the source's groups, by how exactly they are known here"
    ),
    "group_checkpoints": Metric(REGION, "records written to the topic of group checkpoints"),
    "group_checkpoint_latency_seconds": Metric(
        REGION, "from the observation of the source's groups to their checkpoints in this cluster"
    ),
    "group_offsets": Metric(
        ("region", "outcome"), "offsets of groups that are synchronised, by what was done with them"
    ),
    "source_heartbeat_age_seconds": Metric(
        REGION,
        "age of the newest heartbeat of the source region that arrived here, and while none has, of this process; "
        "growing: its egress, or the way to this bucket, stands still",
    ),
    "undelivered_offsets": Metric(
        SOURCE,
        "stored offsets that delivery will not deliver: they arrived after it had started, or had moved on to the next "
        "incarnation; anything but 0: /readyz names them and the remedy",
    ),
    "ready": Metric(NONE, "1 when /readyz answers 200, else 0; /readyz has what is stopped or wrong, and the remedy"),
    "assigned_partitions": Metric(NONE, "partitions assigned to this process"),
    "stopped_partitions": Metric(
        ("held",),
        "partitions that are stopped; anything but 0: read /readyz; label held: true, assigned to this process: sum "
        "over processes; false, refused and assigned to no process: every process exports all, take the maximum",
    ),
    "drill_timestamp_seconds": Metric(REGION, "end of the last drill, seconds since 1970; alert when it is old"),
    "drill_restore_seconds": Metric(REGION, "measured RTO: from the command to the last restored record"),
    "drill_behind_seconds": Metric(
        REGION, "measured RPO: age of the oldest record that was not archived yet; absent when unknown"
    ),
    "drill_records": Metric(REGION, "records restored and proven equal"),
    "drill_differences": Metric(
        REGION, "partitions not restored, or not equal; 1 if the drill failed; anything but 0: a restore would fail"
    ),
    "compaction_last_run_timestamp_seconds": Metric(
        JOB, "end of the last whole run of a job, of any process, seconds since 1970; absent: none is recorded"
    ),
    "compaction_missed_runs": Metric(
        JOB,
        "times of a job's cron since its last whole run began, of any process; 1 while a run works; growing: a run "
        "hangs, fails each time, or its lease is never free",
    ),
    "quarantined_segments": Metric(
        JOB,
        "stored segments found corrupt and set aside; anything but 0: restore them from a copy of the bucket",
    ),
    "upload_latency_seconds": Metric(PARTITION, "from sealing a segment until it is stored"),
    "produce_latency_seconds": Metric(
        SOURCE, "from passing a run to the producer until it is acknowledged, with its checkpoint"
    ),
    "segment_stage_seconds": Metric(
        (*REGION, "stage"),
        "duration of a stage of a segment's way; label stage: close, put (of egress), replicate, notify, queue, share, "
        "deliver (of ingress)",
    ),
    "record_size_bytes": Metric(
        RECORDS, "KIP-382: size of each record acknowledged by the target: key, value, header keys and header values"
    ),
    "record_age_seconds": Metric(
        RECORDS,
        "KIP-382: from each record's timestamp until ingress read the record, of those acknowledged by the target; 0 "
        "for a timestamp in the future; without records that have no timestamp",
    ),
    "replication_latency_seconds": Metric(
        RECORDS,
        "KIP-382: from each record's timestamp until the target acknowledged the record; 0 for a timestamp in the "
        "future; without records that have no timestamp",
    ),
}


def labels(name: MetricName) -> tuple[str, ...]:
    return TABLE[name].labels


class Metrics(Protocol):
    """Safe to call from several threads. Never raises for a known name with its labels."""

    def count(self, name: CounterName, value: float = 1, **labels: str) -> None: ...

    def gauge(self, name: GaugeName, value: float, **labels: str) -> None: ...

    def observe(self, name: HistogramName, value: float, **labels: str) -> None: ...

    def observe_many(self, name: HistogramName, counts: Sequence[int], total: float, **labels: str) -> None:
        """Observe values that are counted already: `counts` has one number for each of the histogram's
        `infra.runtime.buckets.BUCKETS`, and one for the values above the last; `total` is the sum of the values. Raises
        ValueError for another number of counts."""

    def forget(self, name: GaugeName, **labels: str) -> None:
        """Drop a gauge, for example of a partition that was revoked."""


class NoMetrics:
    """For library use without a registry, and for tests that ignore metrics."""

    def count(self, name: CounterName, value: float = 1, **labels: str) -> None: ...

    def gauge(self, name: GaugeName, value: float, **labels: str) -> None: ...

    def observe(self, name: HistogramName, value: float, **labels: str) -> None: ...

    def observe_many(self, name: HistogramName, counts: Sequence[int], total: float, **labels: str) -> None: ...

    def forget(self, name: GaugeName, **labels: str) -> None: ...
