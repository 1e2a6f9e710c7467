"""Positions that other replicators store in a topic, converted to next offsets of the source, and back. Pure.

    the Go ancestor        key:   region:topic:partition
                           value: protobuf `Checkpoint{region=1, topic=2, partition=3, offset=4 (last produced),
                                  timestamp=5}`
    Kafka Connect          key:   ["connector",{"cluster":alias,"partition":p,"topic":t}]
    (MirrorMaker 2)        value: {"offset":of the last record copied}

Both topics are compacted: the last record of a key wins; one without a value removes the key. Kafka Connect finds a
position by the bytes of its key, so the key that it wrote is written again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from formats.errors import MalformedEvent
from formats.segment import PARTITIONS

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
        partition = _whole_number(where["partition"], 0, PARTITIONS - 1)
        copied = _whole_number(json.loads(value)["offset"], -1, 2**63 - 2)  # -1: nothing yet
        return ForeignPartition(str(where["cluster"]), str(where["topic"]), partition), copied + 1
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedEvent(f"not an offset of Kafka Connect: {key[:200]!r} = {value[:200]!r} ({error})") from error


def _whole_number(value: object, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{value!r} is no whole number from {low} to {high}")
    return value


def ancestor_highest(records: Iterable[Record]) -> Mapping[ForeignPartition, int]:
    """The highest next offset of each partition among all records: what the ancestor continues from, since it never
    goes back and reads no removals. Raises MalformedEvent."""
    highest: dict[ForeignPartition, int] = {}
    for _, value in records:
        if value:
            partition, next_offset = ancestor_position(value)
            highest[partition] = max(next_offset, highest.get(partition, 0))
    return highest


def connect_keys(records: Iterable[Record]) -> Mapping[ForeignPartition, Mapping[str, bytes]]:
    """The keys of source connectors by their names, also of positions that were removed. Raises MalformedEvent."""
    found: dict[ForeignPartition, dict[str, bytes]] = {}
    for key, _ in records:
        position = connect_position(key or b"", b'{"offset":0}')
        if position is not None:
            found.setdefault(position[0], {})[str(json.loads(key or b"")[0])] = key or b""
    return found


def ancestor_record(where: ForeignPartition, next_offset: int, at: datetime) -> Record:
    """Raises ValueError for position 0: the ancestor has none before its first record."""
    if next_offset < 1:
        raise ValueError(f"no record was produced before {next_offset}")
    seconds, rest = divmod(round(at.timestamp() * 1_000_000), 1_000_000)
    stamp = _number(1, seconds) + _number(2, rest * 1000)
    value = (
        _bytes(1, where.region.encode())
        + _bytes(2, where.topic.encode())
        + _number(3, where.partition)
        + _number(4, next_offset - 1)
        + _bytes(5, stamp)
    )
    return f"{where.region}:{where.topic}:{where.partition}".encode(), value


def connect_record(where: ForeignPartition, next_offset: int, connector: str) -> Record:
    """At position 0 without a value: MirrorMaker 2 then begins with the first record."""
    key = [connector, {"cluster": where.region, "partition": where.partition, "topic": where.topic}]
    return _json(key), _json({"offset": next_offset - 1}) if next_offset else None


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _number(field: int, value: int) -> bytes:
    return _as_varint(field << 3) + _as_varint(value) if value else b""  # protobuf omits zeros


def _bytes(field: int, value: bytes) -> bytes:
    return _as_varint(field << 3 | 2) + _as_varint(len(value)) + value


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


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
