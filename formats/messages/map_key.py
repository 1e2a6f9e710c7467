"""Keys of the offset map's records: whose offsets a page has, and its first offset at the target. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass

from formats.codec import dump, malformed
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.segment import SourcePartition


@dataclass(frozen=True, slots=True, order=True)
class MapKey:
    """One source partition, in one incarnation of its destination."""

    delivery: CheckpointKey
    destination_id: str  # topic id of the destination

    def __str__(self) -> str:
        return f"{self.delivery.source} to {self.delivery.destination_topic}"


def encode_map_key(key: MapKey, start: int) -> bytes:
    s = key.delivery.source
    return dump(
        {
            "destination": key.delivery.destination_topic,
            "destination_id": key.destination_id,
            "incarnation": s.incarnation,
            "partition": s.partition,
            "region": s.region,
            "start": start,
            "topic": s.topic,
        }
    )


def decode_page_key(data: bytes) -> tuple[MapKey, int]:
    """The partition, and the page's first offset at the target. Raises MalformedEvent."""
    with malformed("a key of the offset map", data):
        fields = json.loads(data)
        source = SourcePartition(fields["region"], fields["topic"], fields["partition"], fields["incarnation"])
        key = MapKey(CheckpointKey(source, fields["destination"]), str(fields["destination_id"]))
        return key, int(fields["start"])
