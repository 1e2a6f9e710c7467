"""The partitions assigned to this process: which go on, which wait, and which an operator has to look at."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from egress.assigned_partition import AssignedPartition, Remainder
from egress.lag import LagGauge
from egress.offset_commits import Commits
from egress.read_session import ReadSession
from egress.segments.builder import SegmentBuilder
from egress.segments.outcomes import SegmentStored
from egress.settings import EgressTopicSettings
from egress.start.resolver import StartAt
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import SourceConsumer
from infra.runtime import log_fields
from infra.runtime.health import Health
from infra.runtime.metrics import Metrics
from infra.runtime.retry import RETRY, Backoff

log = logging.getLogger(__name__)

REFUSED = Backoff(RETRY, timedelta(seconds=30))  # of anything the cluster refused for now


@dataclass(slots=True)
class Assignment:
    """The poll thread's. Iterating may be interrupted by changes: it goes over what was held when it began."""

    region: str
    consumer: SourceConsumer
    commits: Commits
    assembly: SegmentBuilder
    lag: LagGauge
    metrics: Metrics
    health: Health
    _held: dict[TopicPartition, AssignedPartition] = field(default_factory=dict)
    _by_source: dict[SourcePartition, AssignedPartition] = field(default_factory=dict)  # those whose life is known

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(list(self._held.values()))

    def __contains__(self, held: AssignedPartition) -> bool:
        """This very holding; the same partition assigned again is another one."""
        return self._held.get(held.partition) is held

    @property
    def partitions(self) -> Mapping[TopicPartition, AssignedPartition]:
        return self._held

    def get(self, partition: TopicPartition) -> AssignedPartition | None:
        return self._held.get(partition)

    def of(self, source: SourcePartition) -> AssignedPartition | None:
        """None when it moved away, or its topic was created again."""
        return self._by_source.get(source)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            source = SourcePartition(self.region, partition.topic, partition.partition)
            self._held[partition] = AssignedPartition(partition, source)
        self._count()

    def begin(self, held: AssignedPartition, answer: StartAt, settings: EgressTopicSettings) -> ReadSession:
        self.health.resumed(str(held.source))
        self._by_source.pop(held.source, None)  # it may have been another place's
        session = held.begin(answer, settings)
        self._by_source[held.source] = held
        self._count()
        return session

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in list(partitions):
            held = self._held.pop(partition, None)
            self.commits.forget(partition)
            if held is not None:
                self._by_source.pop(held.source, None)
                self.assembly.discard(held.source)
                self.health.resumed(str(held.source))
                self.health.solved(held.rereading)
                self.health.solved(held.attempts)
                self.lag.forget(partition)
        self._count()

    def reopen(self, held: AssignedPartition, why: str) -> None:
        """What was read may be of another log: nothing of it is stored or committed; where to begin is asked anew."""
        log.warning("topic_created_again", extra=held.fields | {log_fields.REASON: why})
        self.assembly.forsake(held.source)
        self.lag.forget(held.partition)
        self.commits.forget(held.partition)
        self._by_source.pop(held.source, None)
        held.reopen()

    def stop(self, held: AssignedPartition, reason: str, now: datetime) -> None:
        """This partition waits for an operator, and asks from time to time whether the cause is gone."""
        self.stop_behind(held, held.remainder, reason, now)

    def stop_behind(self, held: AssignedPartition, remainder: Remainder | None, reason: str, now: datetime) -> None:
        """The same; `remainder` is what is left of what was read."""
        if held.stopped != reason:
            log.error("partition_stopped", extra=held.fields | {log_fields.REASON: reason})
        held.stop(reason, remainder, now)
        self.consumer.pause([held.partition])
        self.health.stopped(str(held.source), reason)
        self._count()

    def later(self, held: AssignedPartition, now: datetime, why: str) -> None:
        pause = REFUSED.delay(held.failures)
        held.failures += 1
        held.postpone(now + pause)
        log.warning(
            "partition_waits",
            extra=held.fields | {log_fields.REASON: why, log_fields.WAIT_MS: int(pause.total_seconds() * 1000)},
        )

    def _count(self) -> None:
        self.metrics.gauge("assigned_partitions", len(self._held))
        stopped = sum(1 for held in self._held.values() if held.stopped)
        self.metrics.gauge("stopped_partitions", stopped, held="true")


def report(metrics: Metrics, held: AssignedPartition, stored: SegmentStored) -> None:
    labels, footer = held.labels, stored.footer
    metrics.count("egress_segments", 1, reason=stored.seal.reason.value, **labels)
    metrics.count("egress_records", footer.count, **labels)
    metrics.count("egress_bytes", footer.raw_bytes, **labels)
    metrics.count("egress_stored_bytes", stored.stored_bytes, **labels)
    metrics.observe("upload_latency_seconds", stored.seconds, **labels)
    if not stored.new:
        metrics.count("egress_upload_conflicts", 1, **labels)
    offsets = stored.seal.offsets
    log.info(
        "segment_stored",
        extra=held.fields
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
