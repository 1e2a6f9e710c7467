"""Consumer groups of a source cluster with their committed offsets, as the egress of its region observed them. One
object for each generation.

    groups         what each has committed in the topics that are archived, and its state
    unsupported    groups of other kinds, which are not moved: their positions are no committed offsets, or not shown
    unreadable     groups whose offsets could not be read, and why

A position belongs to one incarnation of a topic, so each topic of a group has the topic id of then: a topic that was
created again has other records at the same offsets.

An error is no absence: what could not be read keeps the offsets of an earlier observation, with its time. A group that
is in neither of the three has no committed offset in these topics.

Generations are numbered like the catalogue's (`formats.control.catalog`). The object is gzip'd JSON with one column of
offsets for each topic of a group; columns without any value are not written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from formats.codec import VERSION, load, malformed, parse_time
from formats.control.packed import pack, unpack

CLASSIC, CONSUMER = "classic", "consumer"
"""Kinds of groups that are moved: of the classic protocol, also without members, and of KIP-848."""
OTHER_KIND = "other"
"""Of share groups, and of groups of the streams protocol (KIP-1071), which Kafka's client shows alike."""
_WHAT = "consumer groups of a source cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    next_offset: int  # of the next record that the group wants
    leader_epoch: int | None = None  # of the record before it, when the consumer knew it
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCommits:
    """What one group has committed in one topic. Columns in the order of `partitions`, those with a commit."""

    topic_id: str  # when the offsets were read; empty where brokers have none
    partitions: tuple[int, ...]  # ascending
    next_offsets: tuple[int, ...]
    leader_epochs: tuple[int | None, ...]
    metadata: tuple[str, ...]
    as_of: datetime | None = None  # UTC; they could not be read since; None: when the snapshot was observed

    def __post_init__(self) -> None:
        columns = (self.partitions, self.next_offsets, self.leader_epochs, self.metadata)
        if not self.partitions or len({len(one) for one in columns}) > 1:
            raise ValueError("columns of a topic have one value for each partition with a commit, of at least one")
        if self.partitions[0] < 0 or any(one >= after for one, after in pairwise(self.partitions)):
            raise ValueError(f"partitions are not ascending: {self.partitions[:10]}")
        if min(self.next_offsets) < 0 or any(one is not None and one < 0 for one in self.leader_epochs):
            raise ValueError("an offset or a leader epoch is negative")

    @classmethod
    def of(cls, topic_id: str, commits: Mapping[int, CommittedOffset]) -> TopicCommits:
        """`commits`: by partition, at least one."""
        found = sorted(commits.items())
        return cls(
            topic_id=topic_id,
            partitions=tuple(partition for partition, _ in found),
            next_offsets=tuple(one.next_offset for _, one in found),
            leader_epochs=tuple(one.leader_epoch for _, one in found),
            metadata=tuple(one.metadata for _, one in found),
        )

    def items(self) -> Iterator[tuple[int, CommittedOffset]]:
        """By partition, in order."""
        for partition, next_offset, epoch, metadata in zip(
            self.partitions, self.next_offsets, self.leader_epochs, self.metadata, strict=True
        ):
            yield partition, CommittedOffset(next_offset=next_offset, leader_epoch=epoch, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotGroup:
    kind: str  # CLASSIC or CONSUMER
    state: str  # Kafka's name in lower case, such as "stable" or "empty"
    members: int
    topics: Mapping[str, TopicCommits]  # by name; those with a commit

    def __post_init__(self) -> None:
        if not self.topics or self.members < 0:
            raise ValueError(f"a group with {self.members} members and offsets in {len(self.topics)} topics")

    @property
    def as_of(self) -> datetime | None:
        """When its offsets were read, the oldest of them; None: when the snapshot was observed."""
        return min((one.as_of for one in self.topics.values() if one.as_of is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    cluster_id: str
    writer: str  # the process that observed them
    observed_at: datetime  # UTC; when the observation began
    groups: Mapping[str, SnapshotGroup]  # by group id
    unsupported: Mapping[str, str] = field(default_factory=dict)  # group id -> kind, as far as it is known
    unreadable: Mapping[str, str] = field(default_factory=dict)  # group id -> why, and the remedy
    problems: Mapping[str, str] = field(default_factory=dict)  # what could not be observed -> why, and the remedy
    read_until: datetime | None = None  # UTC; when the observation ended; None: written by an earlier version

    @property
    def known_at(self) -> datetime:
        """No offset of it was committed later, as far as that is known."""
        return self.read_until or self.observed_at

    def has_same_content(self, other: GroupSnapshot) -> bool:
        """Whether both have the same groups and problems; the observer and the times may differ."""
        mine = replace(self, writer="", observed_at=other.observed_at, read_until=other.read_until)
        return mine == replace(other, writer="")


def encode_group_snapshot(found: GroupSnapshot) -> bytes:
    ids: dict[str, str] = {}  # of most topics all groups have the same
    for _, group in sorted(found.groups.items()):
        for name, topic in group.topics.items():
            ids.setdefault(name, topic.topic_id)
    return pack(
        {
            "v": VERSION,
            "cluster_id": found.cluster_id,
            "writer": found.writer,
            "observed_at": found.observed_at.isoformat(),
            **({} if found.read_until is None else {"read_until": found.read_until.isoformat()}),
            "topics": ids,
            "groups": {group_id: _group_to_json(group, ids) for group_id, group in found.groups.items()},
            "unsupported": dict(found.unsupported),
            "unreadable": dict(found.unreadable),
            "problems": dict(found.problems),
        }
    )


def decode_group_snapshot(data: bytes) -> GroupSnapshot:
    """Raises MalformedEvent, also for another version."""
    text = unpack(_WHAT, data)
    with malformed(_WHAT, text):
        message = load(text)
        ids = _texts(message["topics"])
        return GroupSnapshot(
            cluster_id=str(message["cluster_id"]),
            writer=str(message["writer"]),
            observed_at=parse_time(message["observed_at"]),
            groups={str(group_id): _group_from_json(one, ids) for group_id, one in message["groups"].items()},
            unsupported=_texts(message["unsupported"]),
            unreadable=_texts(message["unreadable"]),
            problems=_texts(message["problems"]),
            read_until=None if (until := message.get("read_until")) is None else parse_time(until),
        )


def _group_to_json(group: SnapshotGroup, ids: Mapping[str, str]) -> Mapping[str, Any]:
    return {
        "kind": group.kind,
        "state": group.state,
        "members": group.members,
        "topics": {name: _topic_to_json(topic, ids[name]) for name, topic in group.topics.items()},
    }


def _group_from_json(message: Mapping[str, Any], ids: Mapping[str, str]) -> SnapshotGroup:
    return SnapshotGroup(
        kind=str(message["kind"]),
        state=str(message["state"]),
        members=int(message["members"]),
        topics={name: _topic_from_json(one, ids[name]) for name, one in message["topics"].items()},
    )


def _topic_to_json(topic: TopicCommits, topic_id: str) -> Mapping[str, Any]:
    message: dict[str, Any] = {"next": list(topic.next_offsets)}
    if topic.partitions != tuple(range(len(topic.partitions))):
        message["partitions"] = list(topic.partitions)
    if any(one is not None for one in topic.leader_epochs):
        message["epochs"] = list(topic.leader_epochs)
    if any(topic.metadata):
        message["metadata"] = list(topic.metadata)
    if topic.topic_id != topic_id:
        message["id"] = topic.topic_id
    if topic.as_of is not None:
        message["as_of"] = topic.as_of.isoformat()
    return message


def _topic_from_json(message: Mapping[str, Any], topic_id: str) -> TopicCommits:
    next_offsets = _numbers(message["next"])
    count = len(next_offsets)
    return TopicCommits(
        topic_id=str(message.get("id", topic_id)),
        partitions=_numbers(message["partitions"]) if "partitions" in message else tuple(range(count)),
        next_offsets=next_offsets,
        leader_epochs=tuple(None if one is None else int(one) for one in message.get("epochs", [None] * count)),
        metadata=tuple(map(str, message.get("metadata", [""] * count))),
        as_of=parse_time(message["as_of"]) if "as_of" in message else None,
    )


def _numbers(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(int, values))


def _texts(values: Mapping[str, str]) -> Mapping[str, str]:
    return {str(name): str(value) for name, value in values.items()}
