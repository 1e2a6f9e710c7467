"""Which incarnation of a topic a path of the archive belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from formats.codec import VERSION, dump, load
from formats.errors import MalformedEvent

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicClaim:
    """The life of a topic that a place was claimed for. `number` counts the places of one name, from 0."""

    topic_id: str
    cluster_id: str
    number: int
    claimed_at: datetime  # UTC
    fork: int = 0  # number of the fork of that life's log behind which it begins, from 1 on; 0: with the life
    forked_from: str = ""  # the place that holds the log up to that fork


def stand_in(cluster_id: str, number: int) -> str:
    """A name for a life where brokers have no topic ids; fit for keys."""
    return f"{_NOT_IN_A_NAME.sub('_', cluster_id)[:40]}-{number}"


def newest_stand_in(lives: Iterable[str], cluster_id: str) -> str:
    """Of the lives of one topic, by name: the last that stands for one of this cluster; empty when none does."""
    head = stand_in(cluster_id, 0)[:-1]
    numbers = [int(n) for life in lives if life.startswith(head) and (n := life[len(head) :]).isdecimal()]
    return f"{head}{max(numbers)}" if numbers else ""


def incarnations(places: Iterable[str], topic: str) -> list[str]:
    """Of places: those of later lives of `topic`, by the name behind the `@`."""
    return [place[len(topic) + 1 :] for place in places if place.startswith(f"{topic}@")]


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
