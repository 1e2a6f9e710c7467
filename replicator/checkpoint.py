"""Checkpoints: how far a source partition has been delivered to a destination, and their records in Kafka.

The checkpoint record is the position. Topic: compacted; key: who; value: how far. Both are JSON objects with sorted
keys and no blanks, so that one key always has the same bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from replicator.errors import MalformedEvent
from replicator.segment import SourcePartition

VERSION = 1


@dataclass(frozen=True, slots=True, order=True)
class CheckpointKey:
    source: SourcePartition
    destination_topic: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    next_offset: int  # source offset of the next record wanted
    destination_topic_id: str  # another id there means that the target was created again
    at: datetime  # UTC


def encode_key(key: CheckpointKey) -> bytes:
    s = key.source
    return _dump(
        {
            "destination": key.destination_topic,
            "incarnation": s.incarnation,
            "partition": s.partition,
            "region": s.region,
            "topic": s.topic,
        }
    )


def encode(checkpoint: Checkpoint) -> bytes:
    return _dump(
        {
            "at": checkpoint.at.isoformat(),
            "destination_topic_id": checkpoint.destination_topic_id,
            "next_offset": checkpoint.next_offset,
            "v": VERSION,
        }
    )


def decode_key(data: bytes) -> CheckpointKey:
    """Raises MalformedEvent."""
    try:
        d = json.loads(data)
        source = SourcePartition(d["region"], d["topic"], d["partition"], d["incarnation"])
        return CheckpointKey(source, d["destination"])
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a checkpoint key: {data[:200]!r} ({error})") from error


def decode(data: bytes) -> Checkpoint:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = json.loads(data)
        if d["v"] != VERSION:
            raise ValueError(f"version {d['v']}, this program reads {VERSION}")
        at = datetime.fromisoformat(d["at"])
        return Checkpoint(int(d["next_offset"]), str(d["destination_topic_id"]), at)
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a checkpoint: {data[:200]!r} ({error})") from error


def _dump(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
