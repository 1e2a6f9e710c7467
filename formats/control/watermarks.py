"""Watermarks of a source cluster, as the egress of its region observed them. One object for each generation.

    low        log start: the first offset that is still in the log
    high       high watermark: the next offset to be written
    stable     last stable offset: up to which `read_committed` reads
    position   committed next offset of the egress group: everything below it is archived

Each is a column of a topic, in the order of its partitions. Of one partition, low <= stable <= high unless its log was
truncated while they were read. The position is read first, so it is not beyond a high watermark of the same log.

A partition is *settled* at `settled_at` when its log ended there at its high watermark, and no transaction was open in
it (`egress.catalog.settlement` says how that is known). The high watermarks of all settled partitions are the ends of
their logs at one and the same moment, so together they split no transaction.

Generations are numbered like the catalogue's (`formats.control.catalog`). The object is gzip'd JSON; a stable offset
that equals the high watermark is not written, and neither is a column without any value. `settled` lists the numbers of
partitions; true: all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from formats.codec import VERSION, load, malformed, parse_time
from formats.control.packed import pack, unpack

Column = tuple[int | None, ...]
"""One offset for each partition; None: not known."""

_WHAT = "watermarks of a source cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWatermarks:
    topic_id: str  # empty where brokers have none
    low: Column
    high: Column
    stable: Column
    position: Column  # None also without a commit: nothing of the partition is archived
    settled: frozenset[int] = frozenset()  # numbers of partitions

    def __post_init__(self) -> None:
        if not self.low or len({len(one) for one in (self.low, self.high, self.stable, self.position)}) > 1:
            raise ValueError("columns of a topic have one offset for each of its partitions")
        if any(not 0 <= one < self.partitions for one in self.settled):
            raise ValueError("a topic has no such partition")

    @property
    def partitions(self) -> int:
        return len(self.low)

    @property
    def counts(self) -> Sequence[int]:
        """How many offsets the log of each partition has for who reads what is committed; 0 also where that is not
        known."""
        return [max((stable or 0) - (low or 0), 0) for low, stable in zip(self.low, self.stable, strict=True)]

    def is_as_in(self, other: TopicWatermarks | None) -> bool:
        """Whether all offsets are the same, and what is settled here is settled there."""
        return other is not None and replace(self, settled=other.settled) == other and self.settled <= other.settled


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceWatermarks:
    cluster_id: str
    writer: str  # the process that observed them
    observed_at: datetime  # UTC; when the observation began
    topics: Mapping[str, TopicWatermarks]
    problems: Mapping[str, str] = field(default_factory=dict)  # what could not be observed → why, and the remedy
    settled_at: datetime | None = None  # UTC; not before `observed_at`; None: no partition is settled

    def __post_init__(self) -> None:
        if self.settled_at is None and any(topic.settled for topic in self.topics.values()):
            raise ValueError("partitions are settled at a moment")

    def has_same_content(self, other: SourceWatermarks) -> bool:
        """Whether `other`, the generation before, has the same offsets and problems; the observer and the times may
        differ. A partition whose offsets are the same has not changed since it was settled."""
        about_it = (self.cluster_id, self.problems, self.topics.keys())
        return about_it == (other.cluster_id, other.problems, other.topics.keys()) and all(
            topic.is_as_in(other.topics.get(name)) for name, topic in self.topics.items()
        )


def encode_watermarks(found: SourceWatermarks) -> bytes:
    settled = {} if found.settled_at is None else {"settled_at": found.settled_at.isoformat()}
    return pack(
        {
            "v": VERSION,
            "cluster_id": found.cluster_id,
            "writer": found.writer,
            "observed_at": found.observed_at.isoformat(),
            "topics": {name: _topic_to_json(topic) for name, topic in found.topics.items()},
            "problems": dict(found.problems),
            **settled,
        }
    )


def decode_watermarks(data: bytes) -> SourceWatermarks:
    """Raises MalformedEvent, also for another version."""
    text = unpack(_WHAT, data)
    with malformed(_WHAT, text):
        message = load(text)
        return SourceWatermarks(
            cluster_id=str(message["cluster_id"]),
            writer=str(message["writer"]),
            observed_at=parse_time(message["observed_at"]),
            topics={str(name): _topic_from_json(one) for name, one in message["topics"].items()},
            problems={str(what): str(why) for what, why in message["problems"].items()},
            settled_at=parse_time(message["settled_at"]) if "settled_at" in message else None,
        )


def _topic_to_json(topic: TopicWatermarks) -> Mapping[str, Any]:
    message: dict[str, Any] = {"id": topic.topic_id, "partitions": topic.partitions}
    columns = {"low": topic.low, "high": topic.high, "position": topic.position}
    message |= {name: list(column) for name, column in columns.items() if any(one is not None for one in column)}
    if topic.stable != topic.high:
        message["stable"] = list(topic.stable)
    if topic.settled:
        is_whole = len(topic.settled) == topic.partitions
        message["settled"] = True if is_whole else sorted(topic.settled)
    return message


def _topic_from_json(message: Mapping[str, Any]) -> TopicWatermarks:
    unknown, settled = [None] * int(message["partitions"]), message.get("settled", [])
    high = _column(message.get("high", unknown))
    return TopicWatermarks(
        topic_id=str(message["id"]),
        low=_column(message.get("low", unknown)),
        high=high,
        stable=_column(message["stable"]) if "stable" in message else high,
        position=_column(message.get("position", unknown)),
        settled=frozenset(range(len(unknown)) if settled is True else map(int, settled)),
    )


def _column(values: Sequence[int | None]) -> Column:
    return tuple(None if value is None else int(value) for value in values)
