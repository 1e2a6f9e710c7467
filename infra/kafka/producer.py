"""At-least-once delivery: records first, then the checkpoint that says they are there.

    produce the runs ─> all acknowledged ─> produce their checkpoints ─> acknowledged ─> return
         │ crash: some records, no checkpoint: the runs of this call are delivered again (≤ 1 run per partition, since
         │ a caller gives one run of a partition at a time)
         └ a run with a failed record gets no checkpoint; the others do

A refused record is fatal to a gapless producer: it is drained, closed, and another one takes over. What it had not
sent of other runs is answered as transient failures, what it had delivered stays delivered and is checkpointed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial

from confluent_kafka import KafkaError, KafkaException

from infra.kafka.idempotent import RECORD_OVERHEAD_BYTES, SECONDARY, SLICE, IdempotentProducer, producer_properties
from infra.kafka.outgoing import pieces, send
from replicator.checkpoint import encode, encode_key
from replicator.errors import BrokerUnavailable
from replicator.lifecycle import Deadline
from replicator.logkeys import BYTES, REASON, TOPIC
from replicator.protocols import RunFailed, TargetRun, TopicPartition

BATCH_BYTES = (1_000_000, 50_000, 1)
"""Sizes of produced batches to try, one after the other, on a topic whose `max.message.bytes` refuses larger ones (the
limit is the batch's, and this client does not split a refused batch). The last one means a batch for each record."""

PERMANENT: Mapping[int, str] = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise the topic's max.message.bytes and the producer's message.max.bytes",
    KafkaError.INVALID_TIMESTAMP: "raise message.timestamp.before.max.ms or after.max.ms of the topic, or clamp",
    KafkaError.INVALID_RECORD: "the topic refuses the record (a compacted topic takes none without a key)",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow WRITE and DESCRIBE on the topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow IDEMPOTENT_WRITE on the cluster",
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "raise the topic's message format to 2",
    KafkaError.POLICY_VIOLATION: "ask who set the cluster's policy",
}
"""Failures that trying again does not mend, with what does. An unknown topic is not one: it may be on its way."""

UNKNOWN_FATE = frozenset(KafkaError(code).name() for code in SECONDARY)
GRACE = timedelta(seconds=2)  # for answers about records already sent, when the producer is given up

log = logging.getLogger(__name__)


class AtLeastOnceWriter:
    """A TargetWriter. Records may be repeated after a failure, never lost, and first copies keep their order."""

    def __init__(self, properties: Mapping[str, object], *, checkpoint_topic: str, memory_bytes: int) -> None:
        """Connects when first used. `memory_bytes` bounds what was handed to the client and is not acknowledged, its
        bookkeeping included. Raises ConfigError."""
        self._properties = producer_properties(properties, memory_bytes=memory_bytes)
        self._checkpoint_topic = checkpoint_topic
        self._memory_bytes = memory_bytes
        self._producers: dict[int, IdempotentProducer[TopicPartition]] = {}  # by batch size
        self._batch_bytes: dict[str, int] = {}  # topics that refused the largest

    def deliver(self, runs: Sequence[TargetRun], *, should_stop: Callable[[], bool]) -> Sequence[RunFailed]:
        """See TargetWriter. With several runs of one partition, all of them fail when one does."""
        failed: dict[TopicPartition, RunFailed] = {}
        try:
            # 1. Records, and their acknowledgement. A crash in here repeats runs of this call, no others: their
            #    checkpoints are not written, those of earlier calls are.
            for batch_bytes, some in self._by_batch_size(runs).items():
                failed.update(self._deliver_records(some, batch_bytes, should_stop))
            # 2. Checkpoints of runs whose every record is acknowledged: never before, a checkpoint ahead of its
            #    records would lose them. Acknowledged before this returns, so that the next call's crash repeats none
            #    of this call's runs.
            failed.update(self._record_checkpoints([r for r in runs if r.partition not in failed], should_stop))
        except BrokerUnavailable:
            self.close(GRACE)  # what is still in the queue must not be delivered behind the caller's back
            raise
        if runs and all(r.partition in failed and failed[r.partition].code in UNKNOWN_FATE for r in runs):
            raise BrokerUnavailable(f"nothing can be said of any run: {failed[runs[0].partition].reason}")
        return list(failed.values())

    def close(self, timeout: timedelta) -> None:
        """Drop what is in flight and release everything. May be called twice; the next `deliver` connects again."""
        deadline = Deadline(timeout)
        while self._producers:
            _, producer = self._producers.popitem()
            producer.close(deadline.left)

    def _deliver_records(
        self, runs: Sequence[TargetRun], batch_bytes: int, should_stop: Callable[[], bool]
    ) -> Mapping[TopicPartition, RunFailed]:
        producer = self._producer(batch_bytes)
        refused: set[TopicPartition] = set()  # by the client itself: no size of batches would help
        for run in runs:
            if producer.fatal is not None:
                producer.fail(run.partition, producer.fatal)
            elif run.partition not in producer.failures:
                try:
                    self._send(run, producer, should_stop)
                except KafkaException as error:
                    # what is queued of the run goes out; what follows must not, it would leave a gap in the order
                    refused.add(run.partition)
                    producer.refused(run.partition, error)
        failed: dict[TopicPartition, RunFailed] = {}
        for partition, cause in self._settle(batch_bytes, should_stop).items():
            if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE and partition not in refused:
                failed[partition] = self._too_large(partition, batch_bytes, cause)
            else:
                failed[partition] = _failed(partition, cause)
        return failed

    def _send(
        self, run: TargetRun, producer: IdempotentProducer[TopicPartition], should_stop: Callable[[], bool]
    ) -> None:
        """Hand the run over, but nothing after a failure. Raises KafkaException when the client refuses a record, and
        BrokerUnavailable when told to stop."""
        record_bytes = run.size_bytes // max(run.count, 1) + RECORD_OVERHEAD_BYTES
        most = max(self._memory_bytes // record_bytes, 1)  # records; the client's own limit leaves out keys and headers

        def going() -> bool:
            _check(should_stop)
            return producer.fatal is None and run.partition not in producer.failures

        def wait_for_room() -> bool:
            producer.serve(SLICE)
            return going()

        report = producer.reporter(run.partition)
        for batch in run.batches:
            for piece in pieces(batch, piece_bytes=self._memory_bytes // 8):
                producer.serve(timedelta())
                while going() and len(producer) >= most:
                    producer.serve(SLICE)
                if not going() or not send(
                    piece, produce=producer.produce, partition=run.partition, report=report, wait_for_room=wait_for_room
                ):
                    producer.fail(run.partition, producer.fatal or KafkaError(KafkaError._FATAL))
                    return

    def _record_checkpoints(
        self, runs: Sequence[TargetRun], should_stop: Callable[[], bool]
    ) -> Mapping[TopicPartition, RunFailed]:
        if not runs:
            return {}
        producer = self._producer(BATCH_BYTES[0])
        for run in runs:
            producer.put(
                self._checkpoint_topic,
                key=encode_key(run.key),
                value=encode(run.checkpoint),
                owner=run.partition,
                wait=partial(_check, should_stop),
            )
        what = f"the records are delivered, but their checkpoint in {self._checkpoint_topic} is not: "
        failures = self._settle(BATCH_BYTES[0], should_stop)
        return {partition: _failed(partition, error, prefix=what) for partition, error in failures.items()}

    def _by_batch_size(self, runs: Sequence[TargetRun]) -> Mapping[int, Sequence[TargetRun]]:
        groups: dict[int, list[TargetRun]] = {}
        for run in runs:
            groups.setdefault(self._batch_bytes.get(run.partition.topic, BATCH_BYTES[0]), []).append(run)
        return groups

    def _producer(self, batch_bytes: int) -> IdempotentProducer[TopicPartition]:
        if batch_bytes not in self._producers:
            size = {} if batch_bytes == BATCH_BYTES[0] else {"batch.size": batch_bytes}
            self._producers[batch_bytes] = IdempotentProducer({**self._properties, **size})
        return self._producers[batch_bytes]

    def _settle(self, batch_bytes: int, should_stop: Callable[[], bool]) -> Mapping[TopicPartition, KafkaError]:
        """Failures, once the fate of everything handed over is known. After any, a new producer takes over: most are
        fatal to a gapless one, and it may not have said so yet."""
        producer = self._producers[batch_bytes]
        failures = producer.settle(wait=partial(_check, should_stop), grace=GRACE)
        if failures or producer.fatal is not None:
            del self._producers[batch_bytes]
            producer.close(timedelta())
        return failures

    def _too_large(self, partition: TopicPartition, batch_bytes: int, error: KafkaError) -> RunFailed:
        smaller = next((size for size in BATCH_BYTES if size < batch_bytes), None)
        if smaller is None:
            self._batch_bytes.pop(partition.topic, None)  # it was not the batches: once mended, large ones may do
            return _failed(partition, error)
        self._batch_bytes[partition.topic] = smaller
        log.warning("smaller_batches", extra={TOPIC: partition.topic, BYTES: smaller, REASON: error.str()})
        reason = f"{error.str()}; the next try makes batches of {smaller} bytes"
        return RunFailed(partition, error.name(), reason, transient=True)


def _check(should_stop: Callable[[], bool]) -> None:
    if should_stop():
        raise BrokerUnavailable("told to stop before the target had acknowledged everything")


def _failed(partition: TopicPartition, error: KafkaError, *, prefix: str = "") -> RunFailed:
    remedy = PERMANENT.get(error.code())
    reason = f"{prefix}{error.str()}" + (f"; {remedy}" if remedy else "")
    return RunFailed(partition, error.name(), reason, transient=remedy is None)
