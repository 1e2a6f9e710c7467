"""Watermarks of a source cluster, as the egress of its region observed them. One object for each generation.

    low        log start: the first offset that is still in the log
    high       high watermark: the next offset to be written
    stable     last stable offset: up to which `read_committed` reads
    position   committed next offset of the egress group: everything below it is archived

Each is a column of a topic, in the order of its partitions. Of one partition, low <= stable <= high unless its log was
truncated while they were read. The position is read first, so it is not beyond a high watermark of the same log.

Generations are numbered like the catalogue's (`formats.control.catalog`). The object is gzip'd JSON; a stable offset
that equals the high watermark is not written, and neither is a column without any value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from formats.codec import VERSION, load, malformed
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

    def __post_init__(self) -> None:
        if not self.low or len({len(one) for one in (self.low, self.high, self.stable, self.position)}) > 1:
            raise ValueError("columns of a topic have one offset for each of its partitions")

    @property
    def partitions(self) -> int:
        return len(self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceWatermarks:
    cluster_id: str
    writer: str  # the process that observed them
    observed_at: datetime  # UTC; when the observation began
    topics: Mapping[str, TopicWatermarks]
    problems: Mapping[str, str] = field(default_factory=dict)  # what could not be observed → why, and the remedy

    def has_same_content(self, other: SourceWatermarks) -> bool:
        """Whether both have the same offsets and problems; the observer and the time may differ."""
        return replace(self, writer="", observed_at=other.observed_at) == replace(other, writer="")


def encode_watermarks(found: SourceWatermarks) -> bytes:
    return pack(
        {
            "v": VERSION,
            "cluster_id": found.cluster_id,
            "writer": found.writer,
            "observed_at": found.observed_at.isoformat(),
            "topics": {name: _topic_to_json(topic) for name, topic in found.topics.items()},
            "problems": dict(found.problems),
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
            observed_at=datetime.fromisoformat(message["observed_at"]),
            topics={str(name): _topic_from_json(one) for name, one in message["topics"].items()},
            problems={str(what): str(why) for what, why in message["problems"].items()},
        )


def _topic_to_json(topic: TopicWatermarks) -> Mapping[str, Any]:
    message: dict[str, Any] = {"id": topic.topic_id, "partitions": topic.partitions}
    columns = {"low": topic.low, "high": topic.high, "position": topic.position}
    message |= {name: list(column) for name, column in columns.items() if any(one is not None for one in column)}
    return message if topic.stable == topic.high else message | {"stable": list(topic.stable)}


def _topic_from_json(message: Mapping[str, Any]) -> TopicWatermarks:
    unknown = [None] * int(message["partitions"])
    high = _column(message.get("high", unknown))
    return TopicWatermarks(
        topic_id=str(message["id"]),
        low=_column(message.get("low", unknown)),
        high=high,
        stable=_column(message["stable"]) if "stable" in message else high,
        position=_column(message.get("position", unknown)),
    )


def _column(values: Sequence[int | None]) -> Column:
    return tuple(None if value is None else int(value) for value in values)
