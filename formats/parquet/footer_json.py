"""A footer as bytes: one JSON object under one versioned key, with a checksum of itself.

A format that proves its records in parts also stores one `RowGroup` for each part: `docs/decisions/0001`.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from awscrt import checksums

from formats.codec import dump, parse_time
from formats.errors import CorruptSegment, MalformedKey
from formats.footer import STREAMS, Digest, SchemaIds, SegmentFooter, SegmentOrigin, Stream
from formats.int_range import INT64_MAX, INT64_MIN
from formats.records.digest import combine
from formats.segment import format_key, parse_key

VERSION = 1
KEY_PREFIX = "replicator.segment.v"
KEY = f"{KEY_PREFIX}{VERSION}"

_ROW_GROUP = struct.Struct("<IqqQQ" + "QQ" * len(STREAMS))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """A run of records that is stored and proved as a unit. Never empty."""

    first_offset: int
    last_offset: int
    stored_bytes: int  # length of the run as stored; it starts where the run before it ends
    stored_crc: int  # CRC-64/NVME of those bytes
    digest: Digest

    @property
    def count(self) -> int:
        return self.digest.count

    def pack(self) -> bytes:
        """The form that `encode` takes; it needs a tenth of the object's memory."""
        streams = [number for s in self.digest.streams for number in (s.crc, s.length_bytes)]
        head = (self.count, self.first_offset, self.last_offset, self.stored_bytes, self.stored_crc)
        return _ROW_GROUP.pack(*head, *streams)


@dataclass(frozen=True, slots=True)
class Decoded:
    footer: SegmentFooter
    row_groups: tuple[RowGroup, ...]  # empty for a format that stores none, and for a segment without records


def encode(footer: SegmentFooter, row_groups: Sequence[bytes] | None = None) -> bytes:
    """The JSON object. `row_groups` are packed; None for a format that stores none."""
    if footer.digest is None:
        raise ValueError("a footer without a digest cannot be encoded")
    value = {
        "v": VERSION,
        "segment": format_key("", footer.segment),
        "origin": _encode_origin(footer.origin),
        "count": footer.count,
        "first_offset": footer.first_offset,
        "last_offset": footer.last_offset,
        "raw_bytes": footer.raw_bytes,
        "largest_record_bytes": footer.largest_record_bytes,
        "min_timestamp_ms": footer.min_timestamp_ms,
        "max_timestamp_ms": footer.max_timestamp_ms,
        "fidelity": footer.origin.fidelity,
        "digest": {n: f"{s.crc:016x}:{s.length_bytes}" for n, s in zip(STREAMS, footer.digest.streams, strict=True)},
    }
    if footer.keyless_count is not None:
        value["keyless_count"] = footer.keyless_count
    if (found := footer.schema_ids) is not None:
        value["schema_ids"] = {"carrying": found.carrying, "ids": list(found.ids), "sampled": found.sampled}
    if row_groups is not None:
        value["row_groups"] = base64.b64encode(b"".join(row_groups)).decode()
    return dump(value | {"checksum": _checksum(value)})


def decode(name: str, data: bytes) -> Decoded:
    """Inverse of `encode`. Raises CorruptSegment(name), also for another version and for contradicting facts."""
    try:
        value = json.loads(data)
        version = value["v"]
        if version != VERSION:
            raise CorruptSegment(
                name, found=f"footer version {version}", wanted=f"version {VERSION}; upgrade to read it"
            )
        checksum = value.pop("checksum")
        if checksum != _checksum(value):
            raise CorruptSegment(name, found=f"footer checksum {_checksum(value)}", wanted=checksum)
        decoded = _decode(value)
    except CorruptSegment:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error, MalformedKey) as error:
        raise CorruptSegment(name, found=f"an unreadable footer ({error!r})", wanted=f"version {VERSION}") from error
    problem = _contradiction(decoded, has_row_groups="row_groups" in value)
    if problem:
        raise CorruptSegment(name, found=problem, wanted="footer facts that agree")
    return decoded


def _decode(value: dict[str, Any]) -> Decoded:
    footer = SegmentFooter(
        segment=parse_key("", value["segment"]),
        origin=_decode_origin(value["origin"], value["fidelity"]),
        count=_number(value["count"]),
        first_offset=_number_or_none(value["first_offset"]),
        last_offset=_number_or_none(value["last_offset"]),
        raw_bytes=_number(value["raw_bytes"]),
        largest_record_bytes=_number(value["largest_record_bytes"]),
        min_timestamp_ms=_number_or_none(value["min_timestamp_ms"], INT64_MIN),
        max_timestamp_ms=_number_or_none(value["max_timestamp_ms"], INT64_MIN),
        digest=_decode_digest(value["count"], value["digest"]),
        keyless_count=_decode_keyless(value.get("keyless_count"), value["count"]),
        schema_ids=_decode_schema_ids(value["schema_ids"]) if "schema_ids" in value else None,
    )
    packed = base64.b64decode(value.get("row_groups", ""), validate=True)
    return Decoded(footer, tuple(map(_unpack, _ROW_GROUP.iter_unpack(packed))))


def _decode_keyless(keyless_count: object, count: int) -> int | None:
    if keyless_count is None:
        return None
    if (keyless := _number(keyless_count)) > count:
        raise ValueError(f"{keyless} of {count} records without a key")
    return keyless


def _decode_schema_ids(value: dict[str, Any]) -> SchemaIds:
    return SchemaIds(
        sampled=_number(value["sampled"]), carrying=_number(value["carrying"]), ids=tuple(map(_number, value["ids"]))
    )


def _contradiction(decoded: Decoded, *, has_row_groups: bool) -> str:
    """The first contradiction between facts, or empty. A valid checksum over contradicting facts is a writer's bug."""
    footer, groups = decoded.footer, decoded.row_groups
    first, last = footer.first_offset, footer.last_offset
    if first is None or last is None:
        if footer.count or first is not None or last is not None or groups:
            return f"{footer.count} records with offsets {first} to {last}"
        return ""
    if not 0 < footer.count <= last - first + 1:
        return f"{footer.count} records with offsets {first} to {last}"
    low, high = footer.min_timestamp_ms, footer.max_timestamp_ms
    if low is not None and high is not None and low > high:
        return f"timestamps {low} to {high}"
    if first not in footer.offsets or last not in footer.offsets:
        return f"offsets {first} to {last} outside of {footer.offsets}"
    if has_row_groups:
        reached = first - 1
        for group in groups:
            if not (reached < group.first_offset <= group.last_offset and group.count):
                return f"a row group [{group.first_offset},{group.last_offset}] of {group.count} after {reached}"
            reached = group.last_offset
        if reached != last or groups[0].first_offset != first:
            return f"row groups that do not span {first} to {last}"
        if combine(*(group.digest for group in groups)) != footer.digest:
            return "row groups whose digests do not combine to the whole"
    return ""


def _encode_origin(origin: SegmentOrigin) -> dict[str, Any]:
    given = {"role": origin.role, "created_by": origin.created_by}
    return {name: text for name, text in given.items() if text} | {
        "topic_id": origin.topic_id,
        "cluster_id": origin.cluster_id,
        "source_partition_count": origin.source_partition_count,
        "isolation_level": origin.isolation_level,
        "last_leader_epoch": origin.last_leader_epoch,
        "catalog_generation": origin.catalog_generation,
        "created_at": origin.created_at.isoformat(),
        "writer": origin.writer,
    }


def _decode_origin(value: dict[str, Any], fidelity: object) -> SegmentOrigin:
    return SegmentOrigin(
        topic_id=_text(value["topic_id"]),
        cluster_id=_text(value["cluster_id"]),
        source_partition_count=_number_or_none(value["source_partition_count"]),
        isolation_level=_text(value["isolation_level"]),
        last_leader_epoch=_number_or_none(value["last_leader_epoch"]),
        catalog_generation=_number_or_none(value["catalog_generation"]),
        created_at=parse_time(value["created_at"]),
        writer=_text(value["writer"]),
        role=_text(value.get("role", "")),
        created_by=_text(value.get("created_by", "")),
        fidelity=_text(fidelity),
    )


def _number(value: object, low: int = 0, high: int = INT64_MAX) -> int:
    """What others calculate with: of another type, it would end more than the reading of this segment."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{value!r} is no whole number from {low} to {high}")
    return value


def _number_or_none(value: object, low: int = 0) -> int | None:
    return None if value is None else _number(value, low)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _decode_digest(count: int, value: dict[str, str]) -> Digest:
    parts = [value[name].split(":") for name in STREAMS]
    streams = tuple(Stream(_number(int(crc, 16), high=2**64 - 1), _number(int(length))) for crc, length in parts)
    return Digest(count=count, streams=streams)


def _unpack(numbers: tuple[int, ...]) -> RowGroup:
    count, first, last, stored_bytes, stored_crc, *streams = numbers
    return RowGroup(
        first_offset=first,
        last_offset=last,
        stored_bytes=stored_bytes,
        stored_crc=stored_crc,
        digest=Digest(count=count, streams=tuple(map(Stream, streams[0::2], streams[1::2]))),
    )


def _checksum(value: dict[str, Any]) -> str:
    return f"{checksums.crc64nvme(dump(value)):016x}"
