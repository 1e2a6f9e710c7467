"""Permanent rejections by a target, and what each is about: a record, a topic, or the writer.

Classified by Kafka's error code, regardless of its source: a delivery report, or a call that begins, fences or ends a
transaction. Any other code may be temporary.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from confluent_kafka import KafkaError

from formats.errors import WriterRefused
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind, RunFailed
from infra.kafka.client.encode import CUT_NAME
from infra.kafka.client.errors import CREDENTIALS, describe_error
from infra.runtime.log_fields import BYTES, REASON, TOPIC

BATCH_BYTES = (1_000_000, 50_000, 1)
"""Batch sizes to try, one after the other, on a topic whose `max.message.bytes` rejects larger batches (the limit
applies to the batch, and this client does not split a rejected batch). The last size means one batch for each
record."""


class RejectionScope(Enum):
    RECORD = auto()  # other records of the partition may be accepted
    TOPIC = auto()  # no record of the topic is accepted
    WRITER = auto()  # no record of this process is accepted


@dataclass(frozen=True, slots=True)
class Rejection:
    about: RejectionScope
    remedy: str


_CLIENT = "the broker and the client are incompatible: see the README for the supported versions"

REJECTIONS: Mapping[int, Rejection] = {
    KafkaError.MSG_SIZE_TOO_LARGE: Rejection(
        RejectionScope.RECORD, "raise the topic's max.message.bytes and the producer's message.max.bytes"
    ),
    KafkaError.INVALID_TIMESTAMP: Rejection(
        RejectionScope.RECORD, "raise message.timestamp.before.max.ms or after.max.ms of the topic, or clamp"
    ),
    KafkaError.INVALID_RECORD: Rejection(
        RejectionScope.RECORD, "the topic rejects the record (a compacted topic accepts none without a key)"
    ),
    CUT_NAME: Rejection(
        RejectionScope.RECORD,
        "run ingress where it produces by compiled code (the log's native_records_off says why it does not), or rename "
        "the header by a transform",
    ),
    KafkaError.POLICY_VIOLATION: Rejection(RejectionScope.RECORD, "ask the cluster's administrators about its policy"),
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: Rejection(RejectionScope.TOPIC, "raise the topic's message format to 2"),
    KafkaError.TOPIC_EXCEPTION: Rejection(RejectionScope.TOPIC, "give the destination a name that Kafka allows"),
    # READ is for the group offset that a transaction commits with its records
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Rejection(
        RejectionScope.TOPIC, "allow WRITE, READ and DESCRIBE on the topic"
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Rejection(
        RejectionScope.WRITER, "allow WRITE on the destination topics, or IDEMPOTENT_WRITE on the cluster"
    ),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Rejection(
        RejectionScope.WRITER,
        "allow WRITE and DESCRIBE on the transactional id, by its prefix: each process adds a suffix",
    ),
    KafkaError.GROUP_AUTHORIZATION_FAILED: Rejection(RejectionScope.WRITER, "allow READ on the ingress group"),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: Rejection(
        RejectionScope.WRITER, "lower ingress.transaction_timeout, or raise the brokers' transaction.max.timeout.ms"
    ),
    KafkaError.SASL_AUTHENTICATION_FAILED: Rejection(RejectionScope.WRITER, CREDENTIALS),
    KafkaError._AUTHENTICATION: Rejection(RejectionScope.WRITER, CREDENTIALS),
    KafkaError.UNSUPPORTED_SASL_MECHANISM: Rejection(RejectionScope.WRITER, CREDENTIALS),
    KafkaError.UNSUPPORTED_VERSION: Rejection(RejectionScope.WRITER, _CLIENT),
    KafkaError._UNSUPPORTED_FEATURE: Rejection(RejectionScope.WRITER, _CLIENT),
}
"""By code. An unknown destination topic is not among them: it may be about to appear."""

MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})

log = logging.getLogger(__name__)


def run_failed(partition: TopicPartition, error: KafkaError, *, prefix: str = "") -> RunFailed:
    """The failure of a partition that caused `error`. Raises WriterRefused when the writer is rejected and not the
    partition."""
    refusal = REJECTIONS.get(error.code())
    if refusal is None:
        return RunFailed(partition, error.name(), f"{prefix}{error.str()}", FailureKind.RETRY_LATER)
    if refusal.about is RejectionScope.WRITER:
        raise WriterRefused(f"{prefix}{describe_error(error)}: {refusal.remedy}")
    kind = FailureKind.REJECTED if refusal.about is RejectionScope.RECORD else FailureKind.DENIED
    where = f" ({partition.topic})" if refusal.about is RejectionScope.TOPIC else ""
    return RunFailed(partition, error.name(), f"{prefix}{error.str()}; {refusal.remedy}{where}", kind)


def writer_rejection(error: KafkaError | None, operation: str) -> WriterRefused | None:
    """The error of a rejected writer; None when the cause is another one, or may be temporary."""
    refusal = REJECTIONS.get(error.code()) if error is not None else None
    if error is None or refusal is None or refusal.about is not RejectionScope.WRITER:
        return None
    return WriterRefused(f"{operation}: {describe_error(error)}: {refusal.remedy}")


def checkpoint_rejection(error: KafkaError | None, topic: str) -> WriterRefused | None:
    """The same for a record of the checkpoint topic, without which nothing is delivered."""
    if error is None:
        return None
    if error.code() in MISSING:
        return WriterRefused(
            f"the checkpoint topic {topic} does not exist ({error.name()}), and without it nothing is delivered. "
            "Create it again, compacted and with one partition. Partitions being delivered continue at their position; "
            "for the others seed the position (`replicator checkpoints seed`) before ingress is started again"
        )
    return _topic_rejection(error, f"the checkpoint topic {topic} rejects checkpoints")


def offset_map_rejection(error: KafkaError | None, topic: str) -> WriterRefused | None:
    """The same for a record of the offset map's topic: a record that is in no map would be skipped by a consumer group
    that is moved here."""
    if error is None:
        return None
    if error.code() in MISSING:
        return WriterRefused(
            f"the offset map's topic {topic} does not exist ({error.name()}), and without it nothing is delivered. "
            "Create it again, compacted and with one partition, or start ingress again, which creates it; offsets of "
            "records that are delivered already are translated by the copies of the map in the bucket only"
        )
    return _topic_rejection(error, f"the offset map's topic {topic} rejects records")


def _topic_rejection(error: KafkaError, what: str) -> WriterRefused | None:
    refusal = REJECTIONS.get(error.code())
    return None if refusal is None else WriterRefused(f"{what}: {describe_error(error)}: {refusal.remedy}")


@dataclass(slots=True)
class BatchSizes:
    """The largest batch size that each topic is known to accept. Use from one thread only."""

    _known: dict[str, int] = field(default_factory=dict)  # topics that rejected the largest size

    def of(self, topic: str) -> int:
        return self._known.get(topic, BATCH_BYTES[0])

    def reduce(self, partition: TopicPartition, error: KafkaError) -> RunFailed:
        """Record that a batch of the current size was too large: the next attempt uses the next smaller size, if
        any."""
        topic, size = partition.topic, self.of(partition.topic)
        smaller = next((s for s in BATCH_BYTES if s < size), None)
        if smaller is None:
            self._known.pop(topic, None)  # the record itself is too large: once fixed, large batches may be accepted
            return run_failed(partition, error)
        self._known[topic] = smaller
        log.warning("smaller_batches", extra={TOPIC: topic, BYTES: smaller, REASON: error.str()})
        reason = f"{error.str()}; the next attempt uses batches of {smaller} bytes"
        return RunFailed(partition, error.name(), reason, FailureKind.RETRY_NOW)
