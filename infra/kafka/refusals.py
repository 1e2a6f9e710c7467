"""What a target says no to: which failures of produced records time does not mend, and batches that are too large."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from replicator.logkeys import BYTES, REASON, TOPIC
from replicator.protocols import Fate, RunFailed, TopicPartition

BATCH_BYTES = (1_000_000, 50_000, 1)
"""Sizes of produced batches to try, one after the other, on a topic whose `max.message.bytes` refuses larger ones (the
limit is the batch's, and this client does not split a refused batch). The last one means a batch for each record."""

PERMANENT: Mapping[int, str] = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise the topic's max.message.bytes and the producer's message.max.bytes",
    KafkaError.INVALID_TIMESTAMP: "raise message.timestamp.before.max.ms or after.max.ms of the topic, or clamp",
    KafkaError.INVALID_RECORD: "the topic refuses the record (a compacted topic takes none without a key)",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow WRITE and DESCRIBE on the topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow IDEMPOTENT_WRITE on the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow WRITE and DESCRIBE on the transactional id",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "allow READ on the ingress group",
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "raise the topic's message format to 2",
    KafkaError.POLICY_VIOLATION: "ask who set the cluster's policy",
}
"""Failures that trying again does not mend, with what does. An unknown topic is not one: it may be on its way."""

log = logging.getLogger(__name__)


def run_failed(partition: TopicPartition, error: KafkaError, *, prefix: str = "") -> RunFailed:
    remedy = PERMANENT.get(error.code())
    reason = f"{prefix}{error.str()}" + (f"; {remedy}" if remedy else "")
    return RunFailed(partition, error.name(), reason, Fate.REFUSED if remedy else Fate.RETRY)


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
        return RunFailed(partition, error.name(), reason, Fate.AT_ONCE)
