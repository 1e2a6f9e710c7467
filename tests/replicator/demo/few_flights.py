"""Flights, verdicts and names that the tests of the demo share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats.records.align import compare_streams
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from replicator.demo.judge import PartitionVerdict
from replicator.verify.verifier import ArchiveVerdict, TargetVerdict
from tests.formats.sample_records import Row, batch_of

if TYPE_CHECKING:
    import pyarrow as pa


FEW = 3_000
SOURCE = SourcePartition("a", "flights", 0)


def numbered(rows: list[Row], first: int = 0) -> list[Row]:
    return [row | {"offset": first + i} for i, row in enumerate(rows)]


def lost(rows: list[Row]) -> list[Row]:
    return rows[:4] + rows[5:]


WHOLE = ArchiveVerdict(source=SOURCE, offsets=None, objects=1, size_bytes=1, read={})
TOPIC = TopicPartition("flights", 0)


def side(rows: list[Row]) -> list[pa.RecordBatch]:
    return [batch_of(rows)] if rows else []


def compared(first: list[pa.RecordBatch], second: list[pa.RecordBatch]) -> TargetVerdict:
    return TargetVerdict(source=SOURCE, target=TOPIC, result=compare_streams(iter(first), iter(second)))


def verdict_of(
    source: list[pa.RecordBatch], archive: list[pa.RecordBatch], target: list[pa.RecordBatch]
) -> PartitionVerdict:
    return PartitionVerdict(
        partition=0, alone=WHOLE, archived=compared(archive, source), delivered=compared(source, target)
    )
