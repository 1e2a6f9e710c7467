"""Copies committed records of one partition to another one of the same cluster, which no other process writes to."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from formats.errors import BrokerUnavailable
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import TargetRun
from infra.kafka.client.errors import describe_error
from infra.kafka.client.idempotent_producer import IdempotentProducer, producer_properties
from infra.kafka.consumer.partition_reader import read_partition
from infra.runtime.crash_points import Step, durable

if TYPE_CHECKING:
    from pyarrow import RecordBatch

MEMORY_BYTES = 32 << 20
GRACE = timedelta(seconds=2)
NEVER = Checkpoint(0, "", datetime(1970, 1, 1, tzinfo=UTC), Author.AT_LEAST_ONCE)  # none is written


class PartitionCopier:
    """Connects on first use. Use from one thread."""

    def __init__(self, consumer: Mapping[str, object], producer: Mapping[str, object]) -> None:
        """`consumer`, `producer`: properties of such clients. Raises ConfigError."""
        self._consumer = consumer
        self._properties = producer_properties(producer, memory_bytes=MEMORY_BYTES)
        self._producer: IdempotentProducer[TopicPartition] | None = None

    def copy(
        self,
        source: TopicPartition,
        target: TopicPartition,
        *,
        start: int,
        next_offset: int,
        most: int,
        check: Callable[[], None],
    ) -> array[int]:
        """The offsets of `source` that were copied, from `start` on and up to `next_offset`, at most so many; those of
        the target are 0, 1, 2 and so on, since it was empty. `check` is called from time to time and raises to give
        up. Raises BrokerUnavailable, and TargetError when the records cannot be read."""
        copied = array("q")
        if self._producer is None:
            self._producer = IdempotentProducer(self._properties)
        with durable(Step.PRODUCE_RECORDS):
            for batch in read_partition(self._consumer, source, start, next_offset):
                some = batch.slice(0, most - len(copied))
                self._producer.send(_run(target, some), target, memory_bytes=MEMORY_BYTES, wait=check)
                copied.extend(some.column("offset").to_pylist())
                if len(copied) >= most:
                    break
            for failure in self._producer.settle(wait=check, grace=GRACE).values():
                raise BrokerUnavailable(f"copy {source} to {target}: {describe_error(failure)}")
        return copied

    def close(self) -> None:
        """May be called twice."""
        if self._producer is not None:
            self._producer.close(GRACE)
            self._producer = None


def _run(target: TopicPartition, batch: RecordBatch) -> TargetRun:
    key = CheckpointKey(SourcePartition("copied", target.topic, target.partition), target.topic)
    return TargetRun(
        partition=target,
        batches=(batch,),
        count=batch.num_rows,
        size_bytes=batch.nbytes,
        key=key,
        checkpoint=NEVER,
        position=0,
        epoch=0,
    )
