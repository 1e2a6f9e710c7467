"""Which consumer groups are applications of Kafka Streams, and what they lack to continue in this cluster. Pure.

    application.id = shop    group `shop`, topics shop-…-repartition and shop-…-changelog, commits with encoded metadata
                             with group.protocol = "streams", what it commits is not shown: known by its topics alone

An application subscribes to fixed names and keeps its state in topics of its own. So it continues elsewhere only where
its input and its own topics have the same names, and its changelogs the same offsets, or where its state is built anew.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from formats.control.group_snapshot import OTHER_KIND, GroupSnapshot, SnapshotGroup

CHANGELOG, REPARTITION = "-changelog", "-repartition"
NOT_MOVED = (
    "its group has the streams protocol, which is not moved: start it at the source with "
    'group.protocol = "classic", which takes its offsets over once no instance runs; or reset it here'
)
_METADATA_VERSIONS = (1, 2)
_METADATA_BYTES = 9  # at least: a version and the time of the partition, 8 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivingTopic:
    """A topic of the source as it is delivered here."""

    name: str  # at the source
    destination: str
    keeps_offsets: bool  # `offsets = "preserve"`

    @property
    def keeps_name(self) -> bool:
        return self.name == self.destination


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsApplication:
    group: str  # its application id
    inner: tuple[str, ...]  # its own topics at the source, as far as they are known here
    missing: tuple[str, ...]  # why it does not continue as it was, and the remedy; empty: it does


def streams_applications(
    snapshot: GroupSnapshot, topics: Collection[str], arriving: Iterable[ArrivingTopic]
) -> Sequence[StreamsApplication]:
    """`topics`: names of the source's topics that are known here, delivered or not."""
    by_name: dict[str, list[ArrivingTopic]] = {}
    for one in arriving:
        by_name.setdefault(one.name, []).append(one)
    known = {*topics, *by_name}
    found = []
    for group, commits in sorted(snapshot.groups.items()):
        inner = inner_topics(group, {*known, *commits.topics})
        if inner or is_committed_by_streams(commits):
            missing = tuple(_missing(group, inner, sorted(commits.topics), by_name))
            found.append(StreamsApplication(group=group, inner=inner, missing=missing))
    for group, kind in sorted(snapshot.unsupported.items()):
        if kind == OTHER_KIND and (inner := inner_topics(group, known)):
            missing = (NOT_MOVED, *_missing(group, inner, (), by_name))
            found.append(StreamsApplication(group=group, inner=inner, missing=missing))
    return found


def inner_topics(application: str, topics: Iterable[str]) -> tuple[str, ...]:
    """The topics that the application keeps for itself."""
    head = f"{application}-"
    return tuple(sorted(name for name in topics if name.startswith(head) and name.endswith((CHANGELOG, REPARTITION))))


def is_committed_by_streams(group: SnapshotGroup) -> bool:
    """Whether the metadata of every commit is what Kafka Streams writes: base64 of a version and a timestamp."""
    found = [one.metadata for commits in group.topics.values() for _, one in commits.items()]
    return bool(found) and all(map(_is_streams_metadata, found))


def _is_streams_metadata(text: str) -> bool:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return len(data) >= _METADATA_BYTES and data[0] in _METADATA_VERSIONS


def _missing(
    application: str, inner: Sequence[str], read: Sequence[str], arriving: Mapping[str, Sequence[ArrivingTopic]]
) -> Iterator[str]:
    if not any(name.endswith(CHANGELOG) for name in inner):
        yield (
            "no changelog topic of it is known here: if it has state, name its topics in [egress.topics] of the "
            f'source, as "^{application}-.*-(changelog|repartition)", or build the state anew'
        )
    for name in inner:
        if name not in arriving:
            yield f"{name} is not delivered here: name it in [egress.topics] of the source, and in a source here"
    for name in dict.fromkeys([*read, *inner]):
        elsewhere = [one.destination for one in arriving.get(name, ()) if not one.keeps_name]
        if elsewhere and len(elsewhere) == len(arriving[name]):
            yield f'{name} arrives as {elsewhere[0]}, where it is not searched for: replication_policy = "identity"'
    for name in inner:
        if name.endswith(CHANGELOG) and any(one.keeps_name and not one.keeps_offsets for one in arriving.get(name, ())):
            yield (
                f'{name} has other offsets here: offsets = "preserve" for it, or remove the local state of each '
                "instance, so that it is restored from the changelog"
            )
