"""One target partition that has the source's offsets, as its writer sees it: where it ends, and what lies there.

    taken over ──> earlier transactions have ended ──> waits until the end stands still ──> ready: the end is ours

A record of an idempotent producer carries no fence: one that was frozen, and goes on within `message.timeout.ms`, still
delivers behind the next owner's (seen). So an owner begins only once the end has not moved for that long. What lies
beyond the last checkpoint then is compared with the source, record by record, before anything follows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa

from formats.errors import BrokerUnavailable
from formats.records.compare import equal_column, first_difference
from formats.records.schema import SCHEMA
from formats.records.statistics import records_within
from formats.segment import OffsetRange
from infra.contracts.cluster import LogEnds, TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.consumer.partition_reader import read_partition

PATIENCE = timedelta(seconds=20)  # for records of the target that are compared
COMPARED = ("offset", "key", "value", "headers")  # timestamps may have been clamped, or be the broker's


@dataclass(slots=True)
class Stillness:
    """Whether the end of a log has stood still. Pure: `now` is of the monotonic clock, in seconds."""

    end: int
    since: float

    def seen(self, end: int, now: float) -> None:
        if end != self.end:
            self.end, self.since = end, now

    def lasts(self, now: float) -> timedelta:
        return timedelta(seconds=now - self.since)


@dataclass(slots=True)
class PreservedLog:
    """Of one ownership."""

    partition: TopicPartition
    epoch: int
    low: int
    end: int  # next offset, with what is queued
    checked_from: int  # offsets from here to the end have been compared, or written, by this owner
    still: Stillness
    wait: timedelta  # how long the end has to stand still
    is_ready: bool = False
    is_taken: bool = False  # a record says so, before the first one of this owner
    is_quiet: bool = True  # all that this owner has sent is acknowledged


@dataclass(slots=True)
class TargetLogs:
    """The logs of a cluster. Raises BrokerUnavailable and TargetError. Use from one thread."""

    admin: KafkaAdmin
    properties: Mapping[str, object]  # of a consumer
    monotonic: Callable[[], float] = field(default=time.monotonic)

    def ends(self, partition: TopicPartition) -> LogEnds:
        found = self.admin.ends([partition])
        if partition not in found:
            raise BrokerUnavailable(f"{partition} does not exist")
        return found[partition]

    def stable_end(self, partition: TopicPartition) -> int:
        found = self.admin.stable_offsets([partition])
        if partition not in found:
            raise BrokerUnavailable(f"{partition} does not exist")
        return found[partition]

    def first_difference(
        self, partition: TopicPartition, batches: Sequence[pa.RecordBatch], start: int, next_offset: int
    ) -> int | None:
        """The lowest offset from `start` to before `next_offset` at which the target has another record than `batches`,
        or one where they have none, or none where they have one. None: there is no difference."""
        wanted = _within(batches, start, next_offset)
        there = read_partition(self.properties, partition, start, next_offset, patience=PATIENCE)
        found = _within(there, start, next_offset)
        rows = min(wanted.num_rows, found.num_rows)
        at = first_difference(wanted.slice(0, rows), found.slice(0, rows), _equal) if rows else None
        if at is None and wanted.num_rows == found.num_rows:
            return None
        at = rows if at is None else at
        return min(int(table.column("offset")[at].as_py()) for table in (wanted, found) if at < table.num_rows)


def _within(batches: Iterable[pa.RecordBatch], start: int, next_offset: int) -> pa.RecordBatch:
    """One batch of the records at these offsets."""
    parts = list(records_within(batches, OffsetRange(start, next_offset - 1)))
    return pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=SCHEMA)


def _equal(a: pa.RecordBatch, b: pa.RecordBatch) -> bool:
    return all(equal_column(name, a, b) for name in COMPARED)
