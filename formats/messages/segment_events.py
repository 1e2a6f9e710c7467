"""Segment events, made of S3 notifications, and their records in the event log.

Log record: key = the segment's name (no prefix), value = JSON. A removed segment is a value too, not a Kafka
tombstone: the log's cleanup policy is delete, and readers need the event itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from formats.codec import VERSION, dump, load, malformed
from formats.segment import Segment, SegmentInfo, parse_key


@dataclass(frozen=True, slots=True)
class Created:
    info: SegmentInfo
    published_at: datetime | None = field(default=None, compare=False)  # to the event log; None: not read from there

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
    receipt: str  # argument of `delete`; changes each time the same message is received
    body: str
    sent_at: datetime | None = None  # to the queue, by its clock; None: the queue does not say


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
    return dump(value)


def decode(data: bytes, published_at: datetime | None = None) -> SegmentEvent:
    """`published_at`: the time of the log record. Raises MalformedEvent, also for a newer version."""
    with malformed("a segment event", data):
        fields = load(data)
        segment = parse_key("", fields["segment"])
        if fields["type"] == "created":
            info = SegmentInfo(segment, int(fields["size_bytes"]), datetime.fromisoformat(fields["stored_at"]))
            return Created(info, published_at)
        if fields["type"] == "removed":
            return Removed(segment, datetime.fromisoformat(fields["at"]))
        raise ValueError(f"unknown type {fields['type']!r}")
