"""Which incarnation of a topic a path of the archive belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from formats.codec import VERSION, dump, load
from formats.errors import MalformedEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicClaim:
    """The incarnation of a topic that an archive path was claimed for. `number` counts the paths of one topic, from
    0."""

    topic_id: str
    cluster_id: str
    number: int
    claimed_at: datetime  # UTC
    fork: int = 0  # number of the fork of the topic's log behind which it begins, from 1 on; 0: with the topic
    forked_from: str = ""  # the path that holds the log up to that fork


def encode_place(place: TopicClaim) -> bytes:
    said: dict[str, object] = {
        "claimed_at": place.claimed_at.isoformat(),
        "cluster_id": place.cluster_id,
        "number": place.number,
        "topic_id": place.topic_id,
        "v": VERSION,
    }
    return dump(said | {"fork": place.fork, "forked_from": place.forked_from} if place.fork else said)


def decode_place(data: bytes) -> TopicClaim:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = load(data)
        return TopicClaim(
            topic_id=str(d["topic_id"]),
            cluster_id=str(d["cluster_id"]),
            number=int(d["number"]),
            claimed_at=datetime.fromisoformat(d["claimed_at"]),
            fork=int(d.get("fork", 0)),
            forked_from=str(d.get("forked_from", "")),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a place: {data[:200]!r} ({error})") from error
