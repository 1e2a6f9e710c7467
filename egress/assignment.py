"""The partitions assigned to this process: begun, waiting, or stopped for an operator."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from egress.assigned_partition import AssignedPartition, Locating, Remainder
from egress.lag import LagGauge
from egress.offset_commits import Commits
from egress.read_session import ReadSession
from egress.segments.builder import SegmentBuilder
from egress.segments.outcomes import SegmentStored
from egress.settings import EgressTopicSettings
from egress.start.query import StartAt
from formats.records.milliseconds import known_time_of_ms
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import SourceConsumer
from infra.runtime import log_fields
from infra.runtime.busy import BusyValues
from infra.runtime.failures import Attempt
from infra.runtime.health import Health
from infra.runtime.metrics import Metrics
from infra.runtime.retry import RETRY, Backoff
from infra.runtime.stages import observe_stage

log = logging.getLogger(__name__)

REFUSED = Backoff(RETRY, timedelta(seconds=30))  # after a request that the cluster refused for now


@dataclass(slots=True)
class Assignment:
    """Use from the poll thread only. May change during an iteration, which covers the partitions assigned at its
    start. A turn of the loop visits the busy ones only: with thousands of partitions, few have something to do."""

    region: str
    consumer: SourceConsumer
    commits: Commits
    builder: SegmentBuilder
    lag: LagGauge
    metrics: Metrics
    health: Health
    _assigned: BusyValues[TopicPartition, AssignedPartition] = field(default_factory=BusyValues)
    # only partitions whose incarnation is known
    _by_source: dict[SourcePartition, AssignedPartition] = field(default_factory=dict)

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(self._assigned)

    def busy(self) -> Collection[AssignedPartition]:
        return self._assigned.busy()

    def settle(self) -> None:
        self._assigned.settle()

    def __contains__(self, assigned: AssignedPartition) -> bool:
        """By identity: the same partition assigned again is another `AssignedPartition`."""
        return self._assigned.all.get(assigned.partition) is assigned

    @property
    def partitions(self) -> Mapping[TopicPartition, AssignedPartition]:
        return self._assigned.all

    def get(self, partition: TopicPartition) -> AssignedPartition | None:
        return self._assigned.get(partition)

    def of(self, source: SourcePartition) -> AssignedPartition | None:
        """None when the partition was revoked, or its topic was created again."""
        found = self._by_source.get(source)
        return None if found is None else self.get(found.partition)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            source = SourcePartition(self.region, partition.topic, partition.partition)
            # what is still uploaded of it, read in an earlier assignment, has to be in the listing of the start
            locating = Locating(is_uploading=self.builder.is_uploading_of(partition))
            assigned = AssignedPartition(partition, source, locating)
            self._assigned.put(partition, assigned)
            # from 0 on: an alert sees the step of the first event then
            self.metrics.count("egress_recorded_gap_offsets", 0, **assigned.labels)
        self._count()

    def begin(self, assigned: AssignedPartition, answer: StartAt, settings: EgressTopicSettings) -> ReadSession:
        self.health.resumed(str(assigned.source))
        self._by_source.pop(assigned.source, None)  # may be of another archive path
        was_stopped, before = bool(assigned.stopped), assigned.session
        if answer.source != assigned.source or (before and answer.start.next_offset > before.core.committable):
            self._forget_rereading(assigned)
        session = assigned.begin(answer, settings)
        self._by_source[assigned.source] = assigned
        if was_stopped:  # else no count changes: with thousands of partitions, counting at each begin takes long
            self._count()
        return session

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in list(partitions):
            self.commits.forget(partition)
            if (assigned := self.partitions.get(partition)) is not None:
                self._assigned.remove(partition)
                self._by_source.pop(assigned.source, None)
                self.builder.discard(assigned.source)
                self.health.resumed(str(assigned.source))
                self.health.solved(assigned.rereading)
                self.health.solved(assigned.attempts)
                self.lag.forget(partition)
        self._count()

    def reopen(self, assigned: AssignedPartition, why: str) -> None:
        """Drop the records that were read, since they may be of another log, and look the start offset up again."""
        log.warning("topic_created_again", extra=assigned.fields | {log_fields.REASON: why})
        self.builder.discard_unconfirmed(assigned.source)
        self.lag.forget(assigned.partition)
        self.commits.forget(assigned.partition)
        self._by_source.pop(assigned.source, None)
        assigned.reopen()

    def stop(self, assigned: AssignedPartition, reason: str, now: datetime) -> None:
        """Stop the partition until the cause is gone, which is checked at growing intervals."""
        self.stop_with_remainder(assigned, assigned.remainder, reason, now)

    def stop_with_remainder(
        self, assigned: AssignedPartition, remainder: Remainder | None, reason: str, now: datetime
    ) -> None:
        """Like `stop`. `remainder`: records that were read and are not all stored."""
        if assigned.stopped != reason:
            log.error("partition_stopped", extra=assigned.fields | {log_fields.REASON: reason})
        assigned.stop(reason, remainder, now)
        self.consumer.pause([assigned.partition])
        self.health.stopped(str(assigned.source), reason)
        self._count()

    def postpone(self, assigned: AssignedPartition, now: datetime, why: str) -> None:
        pause = REFUSED.delay(assigned.failures)
        assigned.failures += 1
        assigned.postpone(now + pause)
        log.warning(
            "partition_waits",
            extra=assigned.fields | {log_fields.REASON: why, log_fields.WAIT_MS: int(pause.total_seconds() * 1000)},
        )

    def _forget_rereading(self, assigned: AssignedPartition) -> None:
        """What was read again and again, or compared in vain, is not read any more."""
        assigned.failures = 0
        assigned.failing.succeeded(Attempt.COMPARISON)
        self.health.solved(assigned.rereading)

    def _count(self) -> None:
        self.metrics.gauge("assigned_partitions", len(self.partitions))
        stopped = sum(1 for assigned in self.partitions.values() if assigned.stopped)
        self.metrics.gauge("stopped_partitions", stopped, held="true")


def report(metrics: Metrics, assigned: AssignedPartition, stored: SegmentStored) -> None:
    labels, footer = assigned.labels, stored.footer
    metrics.count("egress_segments", 1, reason=stored.seal.reason.value, **labels)
    metrics.count("egress_records", footer.count, **labels)
    metrics.count("egress_bytes", footer.raw_bytes, **labels)
    metrics.count("egress_stored_bytes", stored.stored_bytes, **labels)
    metrics.observe("upload_latency_seconds", stored.seconds, **labels)
    if stored.new:
        segment, sealed_at = footer.segment, footer.origin.created_at
        observe_stage(metrics, segment, "close", known_time_of_ms(footer.min_timestamp_ms), sealed_at)
        observe_stage(metrics, segment, "put", sealed_at, sealed_at + timedelta(seconds=stored.seconds))
    else:
        metrics.count("egress_upload_conflicts", 1, **labels)
    offsets = stored.seal.offsets
    log.info(
        "segment_stored",
        extra=assigned.fields
        | {
            log_fields.START: offsets.start,
            log_fields.END: offsets.end,
            log_fields.RECORDS: footer.count,
            log_fields.BYTES: footer.raw_bytes,
            log_fields.STORED_BYTES: stored.stored_bytes,
            log_fields.REASON: stored.seal.reason.value,
            log_fields.UPLOAD_MS: round(stored.seconds * 1000),
        },
    )
