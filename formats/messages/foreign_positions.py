"""Positions that other replicators stored in a topic, converted to next offsets of the source. Pure.

    the Go ancestor        value: protobuf `Checkpoint{region=1, topic=2, partition=3, offset=4 (last produced)}`
    Kafka Connect          key:   ["connector", {"cluster": alias, "topic": t, "partition": p}]
    (MirrorMaker 2)        value: {"offset": of the last record copied}

Both topics are compacted: the last record of a key wins; one without a value removes the key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from formats.errors import MalformedEvent

ForeignPosition = tuple["ForeignPartition", int]  # partition, next offset
Record = tuple[bytes | None, bytes | None]  # key, value


@dataclass(frozen=True, slots=True, order=True)
class ForeignPartition:
    region: str  # or the alias of a cluster
    topic: str
    partition: int


def ancestor_positions(records: Iterable[Record]) -> Mapping[ForeignPartition, int]:
    """Raises MalformedEvent for any other record: then the topic is not the ancestor's."""
    return _latest(records, lambda _key, value: ancestor_position(value))


def connect_positions(records: Iterable[Record]) -> Mapping[ForeignPartition, int]:
    """Positions of MirrorMaker 2's source connectors; offsets of other connectors in the topic are ignored. Raises
    MalformedEvent."""
    return _latest(records, connect_position)


def _latest(
    records: Iterable[Record], read: Callable[[bytes, bytes], ForeignPosition | None]
) -> Mapping[ForeignPartition, int]:
    last = dict(records)
    found = [read(key or b"", value) for key, value in last.items() if value is not None]
    positions: dict[ForeignPartition, int] = {}
    for partition, next_offset in filter(None, found):
        # two connectors may copy one partition: both are past the lower position
        positions[partition] = min(next_offset, positions.get(partition, next_offset))
    return positions


def ancestor_position(data: bytes) -> ForeignPosition:
    """Raises MalformedEvent."""
    try:
        fields = dict(_protobuf(data))
        region, topic = _text(fields.get(1, b"")), _text(fields.get(2, b""))
        partition, offset = fields.get(3, 0), fields.get(4, 0)  # protobuf omits zeros
        if not region or not topic or not isinstance(partition, int) or not isinstance(offset, int):
            raise ValueError("it names no source")
        return ForeignPartition(region, topic, partition), offset + 1
    except (ValueError, IndexError) as error:
        raise MalformedEvent(f"not a checkpoint of the ancestor: {data[:200]!r} ({error})") from error


def connect_position(key: bytes, value: bytes) -> ForeignPosition | None:
    """None for a record that is not about a partition of a source connector. Raises MalformedEvent."""
    try:
        _connector, where = json.loads(key)
        if not isinstance(where, dict) or where.keys() != {"cluster", "topic", "partition"}:
            return None
        partition = ForeignPartition(str(where["cluster"]), str(where["topic"]), int(where["partition"]))
        return partition, int(json.loads(value)["offset"]) + 1
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not an offset of Kafka Connect: {key[:200]!r} = {value[:200]!r} ({error})") from error


def _text(value: int | bytes) -> str:
    if isinstance(value, int):
        raise ValueError("a number where a name was expected")
    return value.decode()


def _protobuf(data: bytes) -> Iterable[tuple[int, int | bytes]]:
    """Fields by number: varints as integers, all others as bytes. Raises ValueError or IndexError."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
                yield tag >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, at = _varint(data, at)
            case 5:
                length = 4
            case other:
                raise ValueError(f"wire type {other}")
        if at + length > len(data):
            raise ValueError("it ends in a field")
        yield tag >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number longer than 64 bits")
