"""Fills the source topic with the flights, as fast as possible and in the given order."""

from __future__ import annotations

from datetime import timedelta
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from infra.contracts.cluster import TopicPartition
from infra.kafka.client.encode import send, slices
from infra.kafka.client.idempotent_producer import POLL_TIMEOUT, IdempotentProducer, producer_properties
from infra.local.errors import LocalStackError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyarrow import RecordBatch

    from infra.contracts.cluster import ClusterAdmin

MEMORY_BYTES = 64 << 20
PIECE_BYTES = 4 << 20
NO_LIMIT = str(2**63 - 1)
KEEPS_OLD_RECORDS = {
    "retention.ms": "-1",  # else the broker deletes records of 2013 within minutes
    "message.timestamp.before.max.ms": NO_LIMIT,
    "message.timestamp.after.max.ms": NO_LIMIT,
}
"""Configs of a topic whose records have old timestamps."""


def create_topic(admin: ClusterAdmin, topic: str, *, partitions: int) -> None:
    """Create the topic. Raises LocalStackError if it exists."""
    if not admin.create_topic(topic, partitions=partitions, replication_factor=1, configs=KEEPS_OLD_RECORDS):
        raise LocalStackError(f"topic {topic} exists already: the demo needs a new stack")


def load(
    batches: Mapping[int, RecordBatch],
    *,
    bootstrap: str,
    topic: str,
    check: Callable[[], None] = lambda: None,
    progress: Callable[[int], None] = lambda _count: None,
) -> None:
    """Produce the records of each partition, in order; the broker has acknowledged all when this returns.

    `check` is called while waiting and raises to give up; `progress` is called with the number of newly queued records.
    Raises LocalStackError if the broker rejects a record.
    """
    properties = producer_properties({"bootstrap.servers": bootstrap}, memory_bytes=MEMORY_BYTES)
    producer: IdempotentProducer[TopicPartition] = IdempotentProducer(properties)

    def wait_for_room() -> bool:
        check()
        producer.serve(POLL_TIMEOUT)
        return not producer.failures

    try:
        turns = zip_longest(*(_pieces(topic, p, batch) for p, batch in batches.items()))  # all partitions grow together
        for where, piece in filter(None, chain.from_iterable(turns)):
            report = producer.reporter(where)
            if not send(
                piece, produce=producer.produce, partition=where, reports=(report, report), wait_for_room=wait_for_room
            ):
                break
            producer.serve(timedelta())
            progress(piece.num_rows)
        failures = producer.settle(wait=check, grace=POLL_TIMEOUT)
    finally:
        producer.close(timedelta())
    if failures:
        reasons = "; ".join(f"{where}: {error.str()}" for where, error in failures.items())
        raise LocalStackError(f"cannot load {topic}: {reasons}")


def _pieces(topic: str, partition: int, batch: RecordBatch) -> list[tuple[TopicPartition, RecordBatch]]:
    return [(TopicPartition(topic, partition), piece) for piece in slices(batch, slice_bytes=PIECE_BYTES)]
