"""How many bytes a backfill is to write, by a sample of each topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

from formats.errors import TargetError, TransientError
from formats.records.statistics import total_bytes
from infra.contracts.cluster import TopicPartition
from infra.kafka.consumer.partition_reader import read_partition
from replicator.backfill.plan import PartitionBackfill

SAMPLE = 500  # offsets of a topic that are read
SAMPLED_TOPICS = 20  # of the others the average is taken


def estimated_bytes(
    properties: Mapping[str, str], partitions: Sequence[PartitionBackfill], pool: Executor
) -> tuple[int, bool]:
    """Bytes of the records to write, and whether each topic could be sampled. `properties`: of consumers."""
    largest: dict[str, PartitionBackfill] = {}
    counts: dict[str, int] = {}
    for one in partitions:
        if one.ranges:
            name = one.source.topic
            counts[name] = counts.get(name, 0) + one.offset_count
            largest[name] = max(largest.get(name, one), one, key=lambda p: p.offset_count)
    samples = list(largest.items())[:SAMPLED_TOPICS]
    found = pool.map(partial(_bytes_per_offset, properties), (partition for _, partition in samples))
    sampled = dict(zip((name for name, _ in samples), found, strict=True))
    known = [rate for rate in sampled.values() if rate is not None]
    average = sum(known) / len(known) if known else 0.0
    rates = {name: average if (rate := sampled.get(name)) is None else rate for name in counts}
    return int(sum(counts[name] * rates[name] for name in counts)), len(known) == len(counts)


def _bytes_per_offset(properties: Mapping[str, str], partition: PartitionBackfill) -> float | None:
    first = partition.ranges[0]
    end = min(first.start + SAMPLE, first.next_offset)
    source = TopicPartition(partition.source.topic, partition.source.partition)
    try:
        size = sum(total_bytes(batch) for batch in read_partition(properties, source, first.start, end))
    except (TargetError, TransientError):  # an estimate only: the tasks say what is wrong
        return None
    return size / (end - first.start)
