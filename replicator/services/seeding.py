"""Positions where delivery of source partitions continues: from an offset, a time, a consumer group or the checkpoints
of another replicator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, assert_never

from formats.errors import TargetError
from formats.segment import SourcePartition
from replicator.config import Config
from replicator.selection import SourceName
from replicator.services.clients import Clients

if TYPE_CHECKING:
    from formats.messages.foreign_positions import ForeignPartition, Record


@dataclass(frozen=True, slots=True)
class AtOffset:
    """Source offset of the next record."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The smallest archived offset whose record has a timestamp at or after `at`."""

    at: datetime


@dataclass(frozen=True, slots=True)
class OfGroup:
    """The committed offsets of a consumer group of the source cluster."""

    group_id: str
    cluster: Config  # configuration of the source's region


@dataclass(frozen=True, slots=True)
class OfAncestor:
    """The positions in the Go replicator's checkpoint topic, in this cluster."""

    topic: str


@dataclass(frozen=True, slots=True)
class OfConnect:
    """The positions in MirrorMaker 2's Kafka Connect offsets topic, in this cluster."""

    topic: str
    alias: str  # of the source cluster in that topic


PositionOrigin = AtOffset | AtTime | OfGroup | OfAncestor | OfConnect


def may_lead(origin: PositionOrigin) -> bool:
    """Whether a position may lie beyond the end of the archive: possible for programs that read the topic itself."""
    return not isinstance(origin, AtOffset | AtTime)


def positions(clients: Clients, name: SourceName, origin: PositionOrigin) -> Mapping[SourcePartition, int]:
    """Next offsets of the partitions of `name` for which `origin` has a position. Raises TargetError for a topic that
    does not exist, and what store and clusters raise."""
    match origin:
        case AtOffset(offset=offset):
            return dict.fromkeys(_archived(clients, name), offset)
        case AtTime(at=at):
            return _at_time(clients, name, at)
        case OfGroup(group_id=group_id, cluster=cluster):
            return _committed(name, group_id, cluster)
        case OfAncestor(topic=topic):
            from formats.messages.foreign_positions import ancestor_positions  # noqa: PLC0415 -- rarely used

            return _foreign(clients, name, topic, name.region, ancestor_positions)
        case OfConnect(topic=topic, alias=alias):
            from formats.messages.foreign_positions import connect_positions  # noqa: PLC0415 -- rarely used

            return _foreign(clients, name, topic, alias, connect_positions)
        case _:
            assert_never(origin)


def _archived(clients: Clients, name: SourceName) -> Sequence[SourcePartition]:
    """The partition of `name`, or every one in the archive."""
    if name.partition is not None:
        return [name.at(name.partition)]
    return [name.at(partition) for partition in clients.store.partitions(name.region, name.path)]


def _at_time(clients: Clients, name: SourceName, at: datetime) -> Mapping[SourcePartition, int]:
    from infra.archive.offset_for_time import TimeFinder  # noqa: PLC0415 -- loads the segment readers

    finder = TimeFinder(clients.archive, clients.pool)
    times = {source: finder.next_offset(source, at) for source in _archived(clients, name)}
    return {source: next_offset for source, next_offset in times.items() if next_offset is not None}


def _committed(name: SourceName, group_id: str, cluster: Config) -> Mapping[SourcePartition, int]:
    with Clients(cluster) as there:
        facts = there.admin.describe([name.topic]).get(name.topic)
        if facts is None:
            raise TargetError(f"there is no topic {name.topic} in the cluster of {cluster.source}")
        wanted = [one for one in facts.partitions if name.at(one.partition) in name]
        committed = there.groups.committed(group_id, wanted)
    return {name.at(p.partition): c.next_offset for p, c in committed.items()}


def _foreign(
    clients: Clients,
    name: SourceName,
    topic: str,
    region: str,
    read: Callable[[list[Record]], Mapping[ForeignPartition, int]],
) -> Mapping[SourcePartition, int]:
    from infra.kafka.internal_topics.whole_topic import read_whole  # noqa: PLC0415 -- loads the Kafka client

    if topic not in clients.admin.describe([topic]):
        raise TargetError(f"there is no topic {topic} in this cluster")
    found = read(list(read_whole(clients.config.cluster.properties("consumer"), topic)))
    return {
        name.at(where.partition): next_offset
        for where, next_offset in found.items()
        if (where.region, where.topic) == (region, name.topic) and name.at(where.partition) in name
    }
