"""Whether what arrived is what was sent, by partition: without anything of this project between bytes and digests.

A digest is two CRC-32: of all keys or values one after another, and of their lengths, −1 for an absent one. What a
topic and what a Parquet file hold is read by the plain client, and by pyarrow alone.
"""

from __future__ import annotations

import io
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

from bench.data import GeneratedRecords

BATCH = 10_000
PATIENCE_SECONDS = 60.0  # without a record


@dataclass(slots=True)
class ColumnDigest:
    """Of one partition's keys, or values."""

    bytes_crc: int = 0
    lengths_crc: int = 0
    count: int = 0

    def add(self, entries: Sequence[bytes | None]) -> None:
        self.bytes_crc = zlib.crc32(b"".join(one for one in entries if one), self.bytes_crc)
        lengths = array("i", [-1 if one is None else len(one) for one in entries])
        self.lengths_crc = zlib.crc32(lengths.tobytes(), self.lengths_crc)
        self.count += len(entries)

    def add_column(self, column: pa.Array) -> None:
        """Of binary values."""
        lengths = pc.fill_null(pc.cast(pc.binary_length(column), pa.int32()), -1)
        self.lengths_crc = zlib.crc32(
            lengths.to_numpy(zero_copy_only=False).astype("int32").tobytes(), self.lengths_crc
        )
        plain = pa.concat_arrays([column.drop_null()]).cast(pa.large_binary())
        _, offsets, data = plain.buffers()
        if len(plain) and data is not None:
            ends = memoryview(offsets).cast("q")
            begin, end = ends[plain.offset], ends[plain.offset + len(plain)]
            self.bytes_crc = zlib.crc32(memoryview(data)[begin:end], self.bytes_crc)
        self.count += len(column)


@dataclass(slots=True)
class PartitionDigest:
    keys: ColumnDigest = field(default_factory=ColumnDigest)
    values: ColumnDigest = field(default_factory=ColumnDigest)


PartitionDigests = dict[int, PartitionDigest]


def of_records(made: GeneratedRecords, *, times: int = 1) -> PartitionDigests:
    """Of `made`, produced so many times one after another."""
    keys: dict[int, list[bytes | None]] = {}
    values: dict[int, list[bytes | None]] = {}
    for key, value, partition in zip(made.keys, made.values, made.partitions, strict=True):
        keys.setdefault(partition, []).append(key)
        values.setdefault(partition, []).append(value)
    found: PartitionDigests = {partition: PartitionDigest() for partition in keys}
    for partition, digest in found.items():
        for _ in range(times):
            digest.keys.add(keys[partition])
            digest.values.add(values[partition])
    return found


def of_topic(bootstrap: str, topic: str, counts: Mapping[int, int]) -> PartitionDigests:
    """Of the committed records of a topic; reads as many as `counts` says, and those that follow at once."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "fidelity", "isolation.level": "read_committed", "log_level": 2}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in counts])
    found: PartitionDigests = {partition: PartitionDigest() for partition in counts}
    left = sum(counts.values())
    try:
        # as many as are left: the client returns when it has them, or after the timeout
        while messages := consumer.consume(
            min(BATCH, left) if left > 0 else BATCH, PATIENCE_SECONDS if left > 0 else 0.5
        ):
            left -= _add(found, messages)
    finally:
        consumer.close()
    return found


def _add(found: PartitionDigests, messages: Iterable[Any]) -> int:
    keys: dict[int, list[bytes | None]] = {}
    values: dict[int, list[bytes | None]] = {}
    for message in messages:
        if message.error() is None:
            keys.setdefault(message.partition(), []).append(message.key())
            values.setdefault(message.partition(), []).append(message.value())
    for partition, column in keys.items():
        found[partition].keys.add(column)
        found[partition].values.add(values[partition])
    return sum(map(len, keys.values()))


def of_files(files: Iterable[tuple[int, bytes]]) -> PartitionDigests:
    """Of the segments of an archive: partition and content, in the order of their offsets."""
    found: PartitionDigests = {}
    for partition, content in files:
        digest = found.setdefault(partition, PartitionDigest())
        table = pq.read_table(io.BytesIO(content), columns=["key", "value"])
        for chunk in table.column("key").chunks:
            digest.keys.add_column(chunk)
        for chunk in table.column("value").chunks:
            digest.values.add_column(chunk)
    return found
