"""Filling the source topic: the flights at once, in the order they are given."""

from __future__ import annotations

from collections import deque
from contextlib import closing
from datetime import timedelta
from functools import partial
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from infra.kafka.idempotent import SLICE, IdempotentProducer, producer_properties
from infra.kafka.outgoing import pieces, send
from infra.local.errors import LocalStackError
from replicator.protocols import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyarrow import RecordBatch

    from replicator.protocols import ClusterAdmin

MEMORY_BYTES = 64 << 20
PIECE_BYTES = 4 << 20
FOR_EVER = str(2**63 - 1)
KEEPS_OLD_RECORDS = {
    "retention.ms": "-1",  # else the broker deletes what is stamped 2013 within minutes
    "message.timestamp.before.max.ms": FOR_EVER,
    "message.timestamp.after.max.ms": FOR_EVER,
}
"""Settings of a topic whose records are stamped long ago."""


def create_topic(admin: ClusterAdmin, topic: str, *, partitions: int) -> None:
    """Raises LocalStackError if it exists."""
    if not admin.create_topic(topic, partitions=partitions, replication_factor=1, configs=KEEPS_OLD_RECORDS):
        raise LocalStackError(f"topic {topic} exists already: the demo needs a fresh stack")


def load(
    batches: Mapping[int, RecordBatch],
    *,
    bootstrap: str,
    topic: str,
    progress: Callable[[int], None] = lambda _count: None,
) -> None:
    """Produce the records of each partition, in order; the broker has them all when this returns.

    `progress` is told how many records were handed over, now and then. Raises LocalStackError.
    """
    properties = producer_properties({"bootstrap.servers": bootstrap}, memory_bytes=MEMORY_BYTES)
    with closing(_Producer(IdempotentProducer(properties))) as producer:
        turns = zip_longest(*(_pieces(topic, p, batch) for p, batch in batches.items()))  # all partitions grow together
        for where, piece in filter(None, chain.from_iterable(turns)):
            producer.send(where, piece)
            progress(piece.num_rows)
        producer.settle()


def _pieces(topic: str, partition: int, batch: RecordBatch) -> list[tuple[TopicPartition, RecordBatch]]:
    return [(TopicPartition(topic, partition), piece) for piece in pieces(batch, piece_bytes=PIECE_BYTES)]
