"""Builds record batches byte by byte, for records that no Kafka client would send (header names that are not UTF-8 or
contain NUL, and timestamps of 0 and below, which librdkafka replaces by the current time)."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from datetime import timedelta

from awscrt.checksums import crc32c

from infra.runtime.lifecycle import Deadline

PRODUCE, VERSION = 0, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRecord:
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp_ms: int = 1


MOVING = (3, 6)  # unknown partition, not leader: not every broker knows a new topic at once


def produce(bootstrap: str, topic: str, partition: int, record: WireRecord) -> int:
    """Produce a record, and return its offset."""
    deadline = Deadline(timedelta(seconds=20))
    error, offset = _produce(bootstrap, topic, partition, record)
    while error in MOVING and not deadline.expired:
        error, offset = _produce(bootstrap, topic, partition, record)
    assert error == 0, f"the broker rejected the batch: error {error}"
    return offset


def _produce(bootstrap: str, topic: str, partition: int, record: WireRecord) -> tuple[int, int]:
    """Send one batch, and return the error code and the offset."""
    batch = _batch(record)
    body = struct.pack(">hhii", -1, -1, 10_000, 1) + _string(topic.encode())
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    request = struct.pack(">hhi", PRODUCE, VERSION, 1) + _string(b"wire") + body
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as file:
            (size,) = struct.unpack(">i", file.read(4))
            answer = file.read(size)
    _, error, offset = struct.unpack_from(">ihq", answer, 4 + 4 + 2 + len(topic.encode()) + 4)
    return int(error), int(offset)


def _batch(record: WireRecord) -> bytes:
    stamp = record.timestamp_ms
    headers = b"".join(_bytes(name) + _bytes(value) for name, value in record.headers)
    body = b"\0" + _varint(0) + _varint(0) + _bytes(record.key) + _bytes(record.value)
    body += _varint(len(record.headers)) + headers
    tail = struct.pack(">hiqqqhii", 0, 0, stamp, stamp, -1, -1, -1, 1) + _varint(len(body)) + body
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c(tail)) + tail


def _varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*out, zigzag])


def _bytes(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _string(data: bytes) -> bytes:
    return struct.pack(">h", len(data)) + data
