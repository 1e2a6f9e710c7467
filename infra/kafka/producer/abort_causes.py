"""Attributes an aborted transaction to partitions or topics, and decides what happens to the others. Pure.

    delivery reports name partitions ──────────────> those; the others are delivered again at once
    nothing was acknowledged, or no partition is named:
       one topic in the transaction ───────────────> all of its partitions
       several ────────────────────────────────────> undecided: each topic in a transaction of its own

One partition that the target does not admit fails AddPartitionsToTxn as a whole, and the client then reports every
record of the transaction alike, as purged. It logs the partition's name but does not report it. Permissions and configs
belong to topics, and problems of a partition are reported by partition; so one more round with each topic by itself
shows the cause.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind, RunFailed
from infra.kafka.client.errors import FENCED, describe_error
from infra.kafka.client.idempotent_producer import SECONDARY
from infra.kafka.producer.rejections import BatchSizes, run_failed, writer_rejection


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """Facts about an aborted transaction."""

    partitions: Sequence[TopicPartition]  # of its runs
    failures: Mapping[TopicPartition, KafkaError] = field(default_factory=dict)  # from delivery reports
    rejected_by_client: Collection[TopicPartition] = ()  # rejected by the client itself: smaller batches would not help
    stalled: str = ""  # why it was aborted, when records were not acknowledged for too long
    cause: KafkaError | None = None  # of the transaction as a whole, if the client reports one
    reason: str = ""  # for the partitions that did not cause it


def attribute_failures(abort: Abort, sizes: BatchSizes) -> Sequence[RunFailed]:
    """One failure for each partition. Raises WriterRefused when the cause is the writer and no partition."""
    named = {p: error for p, error in abort.failures.items() if error.code() not in SECONDARY}
    if named:
        found = {p: _failure(abort, p, error, sizes) for p, error in named.items()}
        if abort.stalled:
            found |= {p: _stalled(p, abort) for p in abort.failures.keys() - named.keys()}
        return [found.get(p) or _unaffected(p, abort) for p in abort.partitions]
    if (refused := writer_rejection(abort.cause, "deliver")) is not None:
        raise refused
    if abort.cause is not None and abort.cause.code() in FENCED:
        return _all(abort, FailureKind.RETRY_LATER, "ABORTED", abort.reason)  # caused by the group, not by a topic
    if abort.stalled:
        unacknowledged = abort.failures.keys()
        if 0 < len(unacknowledged) < len(abort.partitions):
            return [_stalled(p, abort) if p in unacknowledged else _unaffected(p, abort) for p in abort.partitions]
    if abort.cause is None and not (abort.stalled and abort.failures):
        return _all(abort, FailureKind.RETRY_LATER, "ABORTED", abort.reason)  # for example, the client did not answer
    if len({p.topic for p in abort.partitions}) > 1:
        return _all(
            abort, FailureKind.DELIVER_SEPARATELY, "ABORTED", f"one of several topics is the cause: {abort.reason}"
        )
    if abort.stalled:
        return [_stalled(p, abort) for p in abort.partitions]
    assert abort.cause is not None
    return [run_failed(p, abort.cause) for p in abort.partitions]


def _failure(abort: Abort, partition: TopicPartition, error: KafkaError, sizes: BatchSizes) -> RunFailed:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and partition not in abort.rejected_by_client:
        return sizes.reduce(partition, error)
    return run_failed(partition, error)


def _stalled(partition: TopicPartition, abort: Abort) -> RunFailed:
    cause = f" ({describe_error(abort.cause)})" if abort.cause is not None else ""
    reason = f"{abort.stalled}{cause}: does the partition lack a leader, or replicas (min.insync.replicas)?"
    return RunFailed(partition, "STALLED", reason, FailureKind.STALLED)


def _unaffected(partition: TopicPartition, abort: Abort) -> RunFailed:
    return RunFailed(partition, "ABORTED", f"another partition's failure: {abort.reason}", FailureKind.RETRY_NOW)


def _all(abort: Abort, kind: FailureKind, code: str, reason: str) -> Sequence[RunFailed]:
    return [RunFailed(p, code, reason, kind) for p in abort.partitions]
