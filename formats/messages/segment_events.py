"""Segment events: what S3 notifications become, and their records in the event log.

Log record: key = the segment's name (no prefix), value = JSON. A removed segment is a value too, not a Kafka
tombstone: the log's cleanup policy is delete, and readers want the event itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from formats.errors import MalformedEvent
from formats.segment import Segment, SegmentInfo, parse_key

VERSION = 1


@dataclass(frozen=True, slots=True)
class Created:
    info: SegmentInfo

    @property
    def segment(self) -> Segment:
        return self.info.segment


@dataclass(frozen=True, slots=True)
class Removed:
    segment: Segment
    at: datetime  # UTC, when the store removed it


SegmentEvent = Created | Removed


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """One message of the notification queue, as received."""

    message_id: str
    receipt: str  # what `delete` wants; changes with every receipt of the same message
    body: str


def encode_key(event: SegmentEvent) -> bytes:
    return str(event.segment).encode()


def encode(event: SegmentEvent) -> bytes:
    match event:
        case Created(info=info):
            value: dict[str, object] = {
                "type": "created",
                "size_bytes": info.size_bytes,
                "stored_at": info.stored_at.isoformat(),
            }
        case Removed(at=at):
            value = {"type": "removed", "at": at.isoformat()}
    value["segment"] = str(event.segment)
    value["v"] = VERSION
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def decode(data: bytes) -> SegmentEvent:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = json.loads(data)
        if d["v"] != VERSION:
            raise ValueError(f"version {d['v']}, this program reads {VERSION}")
        segment = parse_key("", d["segment"])
        if d["type"] == "created":
            return Created(SegmentInfo(segment, int(d["size_bytes"]), datetime.fromisoformat(d["stored_at"])))
        if d["type"] == "removed":
            return Removed(segment, datetime.fromisoformat(d["at"]))
        raise ValueError(f"unknown type {d['type']!r}")
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a segment event: {data[:200]!r} ({error})") from error
