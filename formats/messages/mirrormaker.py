"""The records of MirrorMaker 2's internal topics, byte for byte.

    heartbeats                        key: source and target alias           value: version 0, timestamp
    {alias}.checkpoints.internal      key: group, topic, partition           value: version 0, offsets and metadata
    mm2-offset-syncs.{alias}.internal key: topic, partition                  value: offsets of source and target

Kafka's wire types: big-endian integers; a string is its length in two bytes, then UTF-8. As text, a record is the line
that MirrorMaker 2's formatter of its topic prints. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from formats.errors import MalformedEvent

VERSION = 0  # of the values of heartbeats and checkpoints
LONGEST_STRING = 32_767  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorHeartbeat:
    source_alias: str
    target_alias: str
    timestamp_ms: int

    def __str__(self) -> str:
        return (
            f"Heartbeat{{sourceClusterAlias={self.source_alias}, targetClusterAlias={self.target_alias}, "
            f"timestamp={self.timestamp_ms}}}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorCheckpoint:
    """Where a consumer group stands, in offsets of both clusters."""

    group: str
    topic: str  # the remote topic
    partition: int
    upstream_offset: int
    downstream_offset: int
    metadata: str = ""

    def __str__(self) -> str:
        return (
            f"Checkpoint{{consumerGroupId={self.group}, topicPartition={self.topic}-{self.partition}, "
            f"upstreamOffset={self.upstream_offset}, downstreamOffset={self.downstream_offset}, "
            f"metadata={self.metadata}}}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSync:
    """The offsets of one record in both clusters."""

    topic: str  # at the source
    partition: int
    upstream_offset: int
    downstream_offset: int

    def __str__(self) -> str:
        return (
            f"OffsetSync{{topicPartition={self.topic}-{self.partition}, upstreamOffset={self.upstream_offset}, "
            f"downstreamOffset={self.downstream_offset}}}"
        )


def encode_heartbeat(beat: MirrorHeartbeat) -> tuple[bytes, bytes]:
    """Key and value."""
    key = _string(beat.source_alias) + _string(beat.target_alias)
    return key, struct.pack(">hq", VERSION, beat.timestamp_ms)


def decode_heartbeat(key: bytes, value: bytes) -> MirrorHeartbeat:
    """Raises MalformedEvent, also for another version."""
    with _malformed("a heartbeat of MirrorMaker 2", key, value):
        source, rest = _read_string(key)
        target, rest = _read_string(rest)
        _expect_end(rest)
        version, timestamp_ms = struct.unpack(">hq", value)
        _expect_version(version)
        return MirrorHeartbeat(source_alias=source, target_alias=target, timestamp_ms=timestamp_ms)


def encode_checkpoint(checkpoint: MirrorCheckpoint) -> tuple[bytes, bytes]:
    """Key and value."""
    key = _string(checkpoint.group) + _string(checkpoint.topic) + struct.pack(">i", checkpoint.partition)
    offsets = struct.pack(">hqq", VERSION, checkpoint.upstream_offset, checkpoint.downstream_offset)
    return key, offsets + _string(checkpoint.metadata)


def decode_checkpoint(key: bytes, value: bytes) -> MirrorCheckpoint:
    """Raises MalformedEvent, also for another version."""
    with _malformed("a checkpoint of MirrorMaker 2", key, value):
        group, rest = _read_string(key)
        topic, rest = _read_string(rest)
        (partition,) = struct.unpack(">i", rest)
        version, upstream, downstream = struct.unpack_from(">hqq", value)
        _expect_version(version)
        metadata, rest = _read_string(value[struct.calcsize(">hqq") :])
        _expect_end(rest)
        return MirrorCheckpoint(
            group=group,
            topic=topic,
            partition=partition,
            upstream_offset=upstream,
            downstream_offset=downstream,
            metadata=metadata,
        )


def encode_offset_sync(sync: OffsetSync) -> tuple[bytes, bytes]:
    """Key and value."""
    key = _string(sync.topic) + struct.pack(">i", sync.partition)
    return key, struct.pack(">qq", sync.upstream_offset, sync.downstream_offset)


def decode_offset_sync(key: bytes, value: bytes) -> OffsetSync:
    """Raises MalformedEvent."""
    with _malformed("an offset sync of MirrorMaker 2", key, value):
        topic, rest = _read_string(key)
        (partition,) = struct.unpack(">i", rest)
        upstream, downstream = struct.unpack(">qq", value)
        return OffsetSync(topic=topic, partition=partition, upstream_offset=upstream, downstream_offset=downstream)


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > LONGEST_STRING:
        raise ValueError(f"a text of {len(data)} bytes: at most {LONGEST_STRING} fit")
    return struct.pack(">h", len(data)) + data


def _read_string(data: bytes) -> tuple[str, bytes]:
    (size,) = struct.unpack_from(">h", data)
    end = 2 + size
    if size < 0 or end > len(data):
        raise ValueError(f"a text of {size} bytes in {len(data) - 2}")
    return data[2:end].decode(), data[end:]


def _expect_version(version: int) -> None:
    if version != VERSION:
        raise ValueError(f"version {version}, this program reads {VERSION}")


def _expect_end(rest: bytes) -> None:
    if rest:
        raise ValueError(f"{len(rest)} bytes too many")


@contextmanager
def _malformed(what: str, key: bytes, value: bytes) -> Iterator[None]:
    try:
        yield
    except (struct.error, ValueError) as error:
        raise MalformedEvent(f"not {what}: key {key[:100]!r}, value {value[:100]!r} ({error})") from error
