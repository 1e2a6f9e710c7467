"""Incarnations of a topic: how an archive path is parsed and formatted, and which incarnation is current.

    orders                       the incarnation that claimed the topic's plain path first
    orders@{topic id}            a later one: the topic was deleted and created again, or is another cluster's
    orders@{topic id}-fork{n}    the same topic after the n-th fork of its log: see `formats.forks`

Where brokers have no topic ids, one is generated: `{cluster id}-{number}`. No other module knows the form of a path.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from formats.errors import MalformedKey

CONTROL = "_control"  # the folder of control objects below a region; no topic may have this name

LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")  # of a topic: Kafka's rule
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # a topic id as Kafka prints it, with an optional fork number
_FORK = re.compile(r"(?P<topic_id>.+)-fork(?P<number>[1-9][0-9]{0,5})")
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, order=True)
class Incarnation:
    """`id` is empty for the incarnation with the plain path; else it is the topic id, or the generated one, with the
    fork number if the path begins after a fork."""

    topic: str
    id: str = ""

    def __post_init__(self) -> None:
        if not LEGAL_NAME.fullmatch(self.topic) or self.topic in (".", "..", CONTROL):
            raise ValueError(f"not a topic name: {self.topic!r}")
        if self.id and not _ID.fullmatch(self.id):
            raise ValueError(f"not a topic id: {self.id!r}")

    @property
    def path(self) -> str:
        """The topic's folder name in the archive."""
        return f"{self.topic}@{self.id}" if self.id else self.topic

    @property
    def fork(self) -> int:
        """Number of the fork after which the path begins; 0: it begins with the topic."""
        return fork_number(self.id)

    @property
    def topic_id(self) -> str:
        """As far as the path says it: empty for the plain one. Generated where brokers have none."""
        match = _FORK.fullmatch(self.id)
        return match["topic_id"] if match else self.id

    def __str__(self) -> str:
        return self.path


def parse_incarnation(path: str) -> Incarnation:
    """Inverse of `path`. Raises MalformedKey."""
    topic, separator, id_ = path.partition("@")
    try:
        if separator and not id_:
            raise ValueError("no topic id after the @")
        return Incarnation(topic, id_)
    except ValueError as error:
        raise MalformedKey(f"not the archive path of a topic: {path!r} ({error})") from error


def topics_of(paths: Iterable[str]) -> frozenset[str]:
    """The topics of archive paths; of a path that is none, what would be its topic."""
    return frozenset(path.partition("@")[0] for path in paths)


def later_paths(topic: str) -> str:
    """The common start of the paths of all incarnations of `topic` except the one with the plain path."""
    return f"{topic}@"


def later_ids(paths: Iterable[str], topic: str) -> list[str]:
    """The ids of the incarnations of `topic` in `paths`, except the one with the plain path."""
    head = later_paths(topic)
    return [path[len(head) :] for path in paths if path.startswith(head)]


def generated_id(cluster_id: str, number: int) -> str:
    """The substitute for a topic id where brokers have none; usable in object keys."""
    return f"{_NOT_IN_AN_ID.sub('_', cluster_id)[:40]}-{number}"


def newest_generated(ids: Iterable[str], cluster_id: str) -> str:
    """The highest of `ids`, all of one topic, that was generated for this cluster; empty when there is none."""
    head = generated_id(cluster_id, 0)[:-1]
    numbers = [int(n) for one in ids if one.startswith(head) and (n := one[len(head) :]).isdecimal()]
    return f"{head}{max(numbers)}" if numbers else ""


def fork_id(topic_id: str, number: int) -> str:
    """The id of the incarnation that begins after fork `number` of a topic's log, from 1."""
    return f"{topic_id}-fork{number}"


def fork_number(id_: str) -> int:
    """The fork number in an id; 0 when there is none."""
    match = _FORK.fullmatch(id_)
    return int(match["number"]) if match else 0


def newest_fork(ids: Iterable[str], topic_id: str) -> int:
    """The highest fork number of `topic_id` in `ids`, all of one topic; 0 when there is none."""
    matches = (_FORK.fullmatch(one) for one in ids)
    return max((int(m["number"]) for m in matches if m and m["topic_id"] == topic_id), default=0)


def before_forks(topic: str, topic_id: str, first_id: str | None) -> Incarnation:
    """The incarnation under which a topic is archived as long as its log does not fork. `first_id`: the topic id for
    which the plain path was claimed; None: it is not claimed yet, and goes to the first that claims it."""
    return Incarnation(topic, "" if first_id in (None, topic_id) else topic_id)


def current(topic: str, topic_id: str, cluster_id: str, *, first_id: str | None, claimed: Iterable[str]) -> Incarnation:
    """The incarnation under which the topic is archived, as the cluster reports it now.

    `topic_id` is empty where brokers have none; `claimed`: the claimed paths of the region. A path that is not claimed
    yet, but will be, counts as claimed. Whether it may be claimed is not decided here.
    """
    ids = later_ids(claimed, topic)
    if not topic_id:
        return Incarnation(topic, newest_generated(ids, cluster_id))
    if fork := newest_fork(ids, topic_id):
        return Incarnation(topic, fork_id(topic_id, fork))
    if first_id is None and topic_id in ids:  # the plain path is an earlier incarnation's, whose claim is gone
        return Incarnation(topic, topic_id)
    return before_forks(topic, topic_id, first_id)


def is_current(incarnation: Incarnation, topic_id: str, cluster_id: str, claimed: Collection[str]) -> bool:
    """Whether the topic is not archived under a later path yet. `incarnation` may be newer than `claimed`."""
    ids = later_ids(claimed, incarnation.topic)
    if topic_id:
        return newest_fork(ids, topic_id) <= incarnation.fork
    return newest_generated([*ids, incarnation.id], cluster_id) in ("", incarnation.id)
