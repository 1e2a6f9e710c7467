"""What a target says no to for good, and what each of these refusals is about: a record, a topic, or the writer itself.

Classified by Kafka's error code, wherever it comes from: a delivery report, or a call that begins, fences or ends a
transaction. A code that is not here may go away by itself.
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
from infra.kafka.client.errors import CREDENTIALS, told
from infra.runtime.log_fields import BYTES, REASON, TOPIC

BATCH_BYTES = (1_000_000, 50_000, 1)
"""Sizes of produced batches to try, one after the other, on a topic whose `max.message.bytes` refuses larger ones (the
limit is the batch's, and this client does not split a refused batch). The last one means a batch for each record."""


class About(Enum):
    RECORD = auto()  # others of the partition may pass
    TOPIC = auto()  # no record of it passes
    WRITER = auto()  # nothing of this process passes


@dataclass(frozen=True, slots=True)
class Refusal:
    about: About
    remedy: str


_CLIENT = "a broker and a client that do not fit: see the README for the versions that do"

REFUSALS: Mapping[int, Refusal] = {
    KafkaError.MSG_SIZE_TOO_LARGE: Refusal(
        About.RECORD, "raise the topic's max.message.bytes and the producer's message.max.bytes"
    ),
    KafkaError.INVALID_TIMESTAMP: Refusal(
        About.RECORD, "raise message.timestamp.before.max.ms or after.max.ms of the topic, or clamp"
    ),
    KafkaError.INVALID_RECORD: Refusal(
        About.RECORD, "the topic refuses the record (a compacted topic takes none without a key)"
    ),
    KafkaError.POLICY_VIOLATION: Refusal(About.RECORD, "ask who set the cluster's policy"),
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: Refusal(About.TOPIC, "raise the topic's message format to 2"),
    KafkaError.TOPIC_EXCEPTION: Refusal(About.TOPIC, "give the destination a name that Kafka allows"),
    # READ is for the group offset that a transaction commits with its records
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Refusal(About.TOPIC, "allow WRITE, READ and DESCRIBE on the topic"),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Refusal(
        About.WRITER, "allow WRITE on the destination topics, or IDEMPOTENT_WRITE on the cluster"
    ),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Refusal(
        About.WRITER, "allow WRITE and DESCRIBE on the transactional id, by its prefix: a process makes up the rest"
    ),
    KafkaError.GROUP_AUTHORIZATION_FAILED: Refusal(About.WRITER, "allow READ on the ingress group"),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: Refusal(
        About.WRITER, "lower ingress.transaction_timeout, or raise the brokers' transaction.max.timeout.ms"
    ),
    KafkaError.SASL_AUTHENTICATION_FAILED: Refusal(About.WRITER, CREDENTIALS),
    KafkaError._AUTHENTICATION: Refusal(About.WRITER, CREDENTIALS),
    KafkaError.UNSUPPORTED_SASL_MECHANISM: Refusal(About.WRITER, CREDENTIALS),
    KafkaError.UNSUPPORTED_VERSION: Refusal(About.WRITER, _CLIENT),
    KafkaError._UNSUPPORTED_FEATURE: Refusal(About.WRITER, _CLIENT),
}
"""By code. An unknown destination is not one of them: it may be on its way."""

MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})

log = logging.getLogger(__name__)


def run_failed(partition: TopicPartition, error: KafkaError, *, prefix: str = "") -> RunFailed:
    """Of a partition that is to blame. Raises WriterRefused when it is not the partition that is refused."""
    refusal = REFUSALS.get(error.code())
    if refusal is None:
        return RunFailed(partition, error.name(), f"{prefix}{error.str()}", FailureKind.RETRY_LATER)
    if refusal.about is About.WRITER:
        raise WriterRefused(f"{prefix}{told(error)}: {refusal.remedy}")
    fate = FailureKind.REJECTED if refusal.about is About.RECORD else FailureKind.DENIED
    where = f" ({partition.topic})" if refusal.about is About.TOPIC else ""
    return RunFailed(partition, error.name(), f"{prefix}{error.str()}; {refusal.remedy}{where}", fate)


def refuses_writer(error: KafkaError | None, doing: str) -> WriterRefused | None:
    """None when it is something else, or may go away by itself."""
    refusal = REFUSALS.get(error.code()) if error is not None else None
    if error is None or refusal is None or refusal.about is not About.WRITER:
        return None
    return WriterRefused(f"{doing}: {told(error)}: {refusal.remedy}")


def refuses_checkpoints(error: KafkaError | None, topic: str) -> WriterRefused | None:
    """The same of a record for the checkpoint topic, without which nothing is delivered."""
    if error is None:
        return None
    if error.code() in MISSING:
        return WriterRefused(
            f"the checkpoint topic {topic} does not exist ({error.name()}), and without it nothing is delivered. "
            "Create it again, compacted and with one partition. Partitions that are being delivered go on where they "
            "are; for the others seed the position (`replicator checkpoints seed`) before ingress is started again"
        )
    refusal = REFUSALS.get(error.code())
    if refusal is None:
        return None
    return WriterRefused(f"the checkpoint topic {topic} takes no checkpoint: {told(error)}: {refusal.remedy}")


@dataclass(slots=True)
class BatchSizes:
    """The largest batches that each topic takes, as learnt. One thread."""

    _known: dict[str, int] = field(default_factory=dict)  # topics that refused the largest

    def of(self, topic: str) -> int:
        return self._known.get(topic, BATCH_BYTES[0])

    def refused(self, partition: TopicPartition, error: KafkaError) -> RunFailed:
        """A batch of the size in use was too large: the next try makes smaller ones, if there are any."""
        topic, size = partition.topic, self.of(partition.topic)
        smaller = next((s for s in BATCH_BYTES if s < size), None)
        if smaller is None:
            self._known.pop(topic, None)  # it was not the batches: once mended, large ones may do
            return run_failed(partition, error)
        self._known[topic] = smaller
        log.warning("smaller_batches", extra={TOPIC: topic, BYTES: smaller, REASON: error.str()})
        reason = f"{error.str()}; the next try makes batches of {smaller} bytes"
        return RunFailed(partition, error.name(), reason, FailureKind.RETRY_NOW)
