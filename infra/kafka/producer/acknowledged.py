"""What is written outside transactions, each step acknowledged before the next one: records, where they are, and the
checkpoints that cover them.

A gapless producer is done after any failure: it is drained and closed, and a new one takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from confluent_kafka import KafkaError

from formats.errors import BrokerUnavailable
from formats.messages.delivery_checkpoint import encode, encode_key, encode_skipped, encode_skipped_key
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind, RunFailed, TargetRun
from infra.kafka.client.errors import describe_error
from infra.kafka.client.idempotent_producer import SECONDARY, IdempotentProducer, producer_properties
from infra.kafka.internal_topics.ensure import CHECKPOINT_PARTITION
from infra.kafka.producer.offset_pages import OffsetPages, SentRun
from infra.kafka.producer.own_topics import OwnTopics
from infra.kafka.producer.rejections import BATCH_BYTES, BatchSizes, run_failed, writer_rejection
from infra.runtime.lifecycle import Deadline

OWN = TopicPartition("", -1)  # the owner under which failures of the offset map's records are recorded
GRACE = timedelta(seconds=2)  # for answers about records already sent, when the producer is given up


class AcknowledgedProducers:
    """One producer for each batch size, of topics that do not accept larger ones. Use from one thread."""

    def __init__(self, properties: Mapping[str, object], topics: OwnTopics, *, memory_bytes: int) -> None:
        """Connects on first use. Raises ConfigError."""
        self._properties = producer_properties(properties, memory_bytes=memory_bytes)
        self._topics = topics
        self._offset_pages = OffsetPages()
        self.sizes = BatchSizes()
        self._producers: dict[int, IdempotentProducer[TopicPartition]] = {}  # by batch size

    def of(self, batch_bytes: int) -> IdempotentProducer[TopicPartition]:
        if batch_bytes not in self._producers:
            size = {} if batch_bytes == BATCH_BYTES[0] else {"batch.size": batch_bytes}
            self._producers[batch_bytes] = IdempotentProducer({**self._properties, **size})
        return self._producers[batch_bytes]

    def settle(
        self, producer: IdempotentProducer[TopicPartition], wait: Callable[[], None]
    ) -> Mapping[TopicPartition, KafkaError]:
        """Failures, once the outcome of every queued record is known. After any failure a new producer is used: most
        failures are fatal to a gapless producer, which may not have reported that yet."""
        failures = producer.settle(wait=wait, grace=GRACE)
        if failures or producer.fatal is not None:
            self._producers = {size: p for size, p in self._producers.items() if p is not producer}
            producer.close(timedelta())
        return failures

    def failed(
        self, producer: IdempotentProducer[TopicPartition], wait: Callable[[], None]
    ) -> dict[TopicPartition, RunFailed]:
        """Failures by partition. Raises WriterRefused when the writer is rejected and not a partition."""
        rejected_by_client = producer.rejected_by_client.copy()
        producer.rejected_by_client.clear()
        causes = self.settle(producer, wait)
        named = {p for p, cause in causes.items() if cause.code() not in SECONDARY}
        if causes and not named and (refused := writer_rejection(producer.fatal, "deliver")) is not None:
            raise refused
        found: dict[TopicPartition, RunFailed] = {}
        for partition, cause in causes.items():
            if named and partition not in named:
                reason = f"another partition's failure: {', '.join(sorted(causes[p].name() for p in named))}"
                found[partition] = RunFailed(partition, cause.name(), reason, FailureKind.RETRY_NOW)
            elif cause.code() == KafkaError.MSG_SIZE_TOO_LARGE and partition not in rejected_by_client:
                found[partition] = self.sizes.reduce(partition, cause)
            else:
                found[partition] = run_failed(partition, cause)
        return found

    def close(self, timeout: timedelta) -> None:
        """Drop records in flight and release everything. May be called twice; the next use connects again."""
        deadline = Deadline(timeout)
        while self._producers:
            _, producer = self._producers.popitem()
            producer.close(deadline.left)

    def record_pages(self, sent: Sequence[SentRun], wait: Callable[[], None]) -> None:
        """Raises WriterRefused when the topic rejects them, and BrokerUnavailable when they may not be in it."""
        records = self._offset_pages.records(sent)
        if not records:
            self._offset_pages.confirm()
            return
        producer, topic = self.of(BATCH_BYTES[0]), self._topics.offset_map
        try:
            for key, value in records:
                producer.put(topic, key=key, value=value, owner=OWN, wait=wait, partition=CHECKPOINT_PARTITION)
            failures = self.settle(producer, wait)
        except BaseException:
            self._offset_pages.drop()
            raise
        for error in failures.values():
            self._offset_pages.drop()
            if (refused := self._topics.rejection(topic, error)) is not None:
                self._topics.rejecting = topic
                raise refused
            raise BrokerUnavailable(
                f"the records are delivered, but {topic} does not say where: {describe_error(error)}"
            )
        self._offset_pages.confirm()

    def record_notes(self, records: Sequence[tuple[bytes, bytes]], wait: Callable[[], None]) -> None:
        """Write other records to the topic of checkpoints. Raises WriterRefused when it rejects them, and
        BrokerUnavailable when they may not be in it."""
        producer, topic = self.of(BATCH_BYTES[0]), self._topics.checkpoints
        for key, value in records:
            producer.put(topic, key=key, value=value, owner=OWN, wait=wait, partition=CHECKPOINT_PARTITION)
        for error in self.settle(producer, wait).values():
            if (refused := self._topics.rejection(topic, error)) is not None:
                self._topics.rejecting = topic
                raise refused
            raise BrokerUnavailable(f"write to {topic}: {describe_error(error)}")

    def record_checkpoints(
        self, runs: Sequence[TargetRun], wait: Callable[[], None]
    ) -> Mapping[TopicPartition, RunFailed]:
        """Write the checkpoints of delivered runs. Raises WriterRefused when their topic rejects them."""
        if not runs:
            return {}
        producer, topic = self.of(BATCH_BYTES[0]), self._topics.checkpoints
        for run in runs:
            records = [(encode_skipped_key(one), encode_skipped(one)) for one in run.skipped]
            for key, value in (*records, (encode_key(run.key), encode(run.checkpoint))):
                producer.put(
                    topic, key=key, value=value, owner=run.partition, wait=wait, partition=CHECKPOINT_PARTITION
                )
        failures = self.settle(producer, wait)
        for error in failures.values():
            if (refused := self._topics.rejection(topic, error)) is not None:
                self._topics.rejecting = topic
                raise refused
        if not failures:
            self._topics.rejecting = ""
        what = f"the records are delivered, but their checkpoint in {topic} is not: "
        return {partition: run_failed(partition, error, prefix=what) for partition, error in failures.items()}
