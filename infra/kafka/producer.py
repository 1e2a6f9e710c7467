"""At-least-once delivery: records first, then the checkpoint that says they are there.

    produce the runs ─> all acknowledged ─> produce their checkpoints ─> acknowledged ─> return
         │ crash: some records, no checkpoint: the runs of this call are delivered again
         └ a run with a failed record gets no checkpoint; the others do

A refused record is fatal to a gapless producer: it is drained, closed, and another one takes over. What it had not
sent of other runs is answered as transient failures, what it had delivered stays delivered and is checkpointed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from confluent_kafka import KafkaError

from infra.kafka.idempotent import SECONDARY, IdempotentProducer, producer_properties
from infra.kafka.refusals import BATCH_BYTES, BatchSizes, run_failed
from replicator.checkpoint import Author, encode, encode_key
from replicator.durable import Step, durable
from replicator.errors import BrokerUnavailable
from replicator.lifecycle import Deadline
from replicator.protocols import RunFailed, TargetRun, TopicPartition

UNKNOWN_FATE = frozenset(KafkaError(code).name() for code in SECONDARY)
GRACE = timedelta(seconds=2)  # for answers about records already sent, when the producer is given up


class AtLeastOnceWriter:
    """A TargetWriter. Records may be repeated after a failure, never lost, and first copies keep their order."""

    author = Author.AT_LEAST_ONCE

    def __init__(self, properties: Mapping[str, object], *, checkpoint_topic: str, memory_bytes: int) -> None:
        """Connects when first used. `memory_bytes` bounds what was handed to the client and is not acknowledged, its
        bookkeeping included. Raises ConfigError."""
        self._properties = producer_properties(properties, memory_bytes=memory_bytes)
        self._checkpoint_topic = checkpoint_topic
        self._memory_bytes = memory_bytes
        self._producers: dict[int, IdempotentProducer[TopicPartition]] = {}  # by batch size
        self._sizes = BatchSizes()

    def lane(self, topic: str) -> int:
        return self._sizes.of(topic)

    def deliver(
        self,
        runs: Iterable[TargetRun],
        *,
        should_stop: Callable[[], bool],
        fence: object = None,  # noqa: ARG002 -- nothing is fenced here
    ) -> Sequence[RunFailed]:
        """See TargetWriter. With several runs of one partition, all of them fail when one does."""
        wait = partial(_check, should_stop)
        last: dict[TopicPartition, TargetRun] = {}
        producer: IdempotentProducer[TopicPartition] | None = None
        try:
            # 1. Records, and their acknowledgement. A crash in here repeats runs of this call, no others: their
            #    checkpoints are not written, those of earlier calls are.
            with durable(Step.PRODUCE_RECORDS):
                for run in runs:
                    if producer is None:
                        producer = self._producer(self.lane(run.partition.topic))
                    last[run.partition] = replace(run, batches=())
                    if producer.fatal is not None:
                        producer.fail(run.partition, producer.fatal)
                    elif run.partition not in producer.failures:
                        producer.send(run, run.partition, memory_bytes=self._memory_bytes, wait=wait)
                if producer is None:
                    return []
                failed = self._failed(producer, wait)
            # 2. Checkpoints of runs whose every record is acknowledged: never before, a checkpoint ahead of its
            #    records would lose them. Acknowledged before this returns, so that the next call's crash repeats none
            #    of this call's runs.
            with durable(Step.PRODUCE_CHECKPOINT):
                failed.update(self._record_checkpoints([r for p, r in last.items() if p not in failed], wait))
        except BrokerUnavailable:
            self.close(GRACE)  # what is still in the queue must not be delivered behind the caller's back
            raise
        if last and all(p in failed and failed[p].code in UNKNOWN_FATE for p in last):
            raise BrokerUnavailable(f"nothing can be said of any run: {next(iter(failed.values())).reason}")
        return list(failed.values())

    def close(self, timeout: timedelta) -> None:
        """Drop what is in flight and release everything. May be called twice; the next `deliver` connects again."""
        deadline = Deadline(timeout)
        while self._producers:
            _, producer = self._producers.popitem()
            producer.close(deadline.left)

    def _failed(
        self, producer: IdempotentProducer[TopicPartition], wait: Callable[[], None]
    ) -> dict[TopicPartition, RunFailed]:
        refused_here = producer.refused_here.copy()
        producer.refused_here.clear()
        return {
            partition: self._sizes.refused(partition, cause)
            if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE and partition not in refused_here
            else run_failed(partition, cause)
            for partition, cause in self._settle(producer, wait).items()
        }

    def _record_checkpoints(
        self, runs: Sequence[TargetRun], wait: Callable[[], None]
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
                wait=wait,
            )
        what = f"the records are delivered, but their checkpoint in {self._checkpoint_topic} is not: "
        failures = self._settle(producer, wait)
        return {partition: run_failed(partition, error, prefix=what) for partition, error in failures.items()}

    def _producer(self, batch_bytes: int) -> IdempotentProducer[TopicPartition]:
        if batch_bytes not in self._producers:
            size = {} if batch_bytes == BATCH_BYTES[0] else {"batch.size": batch_bytes}
            self._producers[batch_bytes] = IdempotentProducer({**self._properties, **size})
        return self._producers[batch_bytes]

    def _settle(
        self, producer: IdempotentProducer[TopicPartition], wait: Callable[[], None]
    ) -> Mapping[TopicPartition, KafkaError]:
        """Failures, once the fate of everything handed over is known. After any, a new producer takes over: most are
        fatal to a gapless one, and it may not have said so yet."""
        failures = producer.settle(wait=wait, grace=GRACE)
        if failures or producer.fatal is not None:
            self._producers = {size: p for size, p in self._producers.items() if p is not producer}
            producer.close(timedelta())
        return failures


def _check(should_stop: Callable[[], bool]) -> None:
    if should_stop():
        raise BrokerUnavailable("told to stop before the target had acknowledged everything")
