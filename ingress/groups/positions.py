"""Where the consumer groups of a source stand in this cluster: each committed offset, translated.

    snapshot of the groups ──> partition of the source ──> destination that it is delivered to ──> offset there

An offset without a translation says why, for the operator. Pure: `translate` reads the offset map.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from formats.control.claim import UNREADABLE
from formats.control.group_snapshot import CommittedOffset, GroupSnapshot
from formats.messages.delivery_checkpoint import CheckpointKey
from infra.contracts.cluster import TopicPartition
from ingress.groups.lookup import NotKnownNow
from ingress.groups.translation import END_OF_OFFSETS, Exactness, Translation
from ingress.routing.archived import ArchivedTopic
from ingress.routing.succession import ArchivedIncarnation

Translate = Callable[[CheckpointKey, Sequence[int]], Sequence[Translation] | str]
"""Source offsets of this delivery, ascending; or why nothing is known of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """Where one group stands in one partition, in offsets of both clusters."""

    group: str
    source: str  # region/topic/partition, for people
    target: TopicPartition
    upstream: int  # next offset at the source
    downstream: int | None  # and here; None: not known
    exactness: Exactness
    metadata: str = ""
    reason: str = ""  # why it is not known; empty when it is
    is_known_later: bool = False  # perhaps, where it is not known now


class Deliveries(Protocol):
    def deliveries(self, topic: str, topic_id: str, partition: int) -> Sequence[CheckpointKey] | str:
        """Where a partition of that incarnation goes; or why it goes nowhere."""

    def unread(self, topic: str, topic_id: str, partition: int, /) -> Mapping[CheckpointKey, str]:
        """Where one that goes nowhere may go all the same, and why that is not known now."""


@dataclass(frozen=True, slots=True)
class DeliveredTopics:
    """The topics of one source region that are delivered here, by their name there."""

    routes: Mapping[str, Sequence[ArchivedTopic]]
    id_of: Callable[[str, str], str | None]  # topic id of a region's archive path; None: not known
    shared: frozenset[str] = frozenset()  # topics without a route that share their destination with others

    @classmethod
    def of(
        cls,
        region: str,
        destinations: Iterable[Sequence[ArchivedTopic]],
        id_of: Callable[[str, str], str | None],
    ) -> DeliveredTopics:
        """`destinations`: the routes to each. Left out are topics of which only records may cross, by their replication
        policy, and destinations that several topics share: a group of one of them has no place there that is right for
        the records of the others."""
        found: dict[str, list[ArchivedTopic]] = {}
        shared: set[str] = set()
        for routes in destinations:
            for route in routes:
                if route.region == region and not route.settings.syncs_nothing:
                    topic = route.incarnations[0].topic
                    if len(routes) == 1:
                        found.setdefault(topic, []).append(route)
                    else:
                        shared.add(topic)
        return cls(found, id_of, frozenset(shared - found.keys()))

    def deliveries(self, topic: str, topic_id: str, partition: int) -> Sequence[CheckpointKey] | str:
        """Where a partition of that incarnation goes; or why it goes nowhere. A topic whose log forked has several
        paths: the offsets of its groups are those of the last one."""
        if topic not in self.routes:
            return "its topic is not delivered here"
        found = []
        for route in self.routes[topic]:
            ours = [one for one in route.incarnations if self._is(route.region, one, topic_id)]
            if ours:
                found.append(CheckpointKey(ours[-1].source(route.region, partition), route.destination))
        return found or (
            "its offset is one of another incarnation of the topic than those that are delivered here: the topic was "
            "deleted and created again since the group committed, or is about to be followed"
        )

    def unread(self, topic: str, topic_id: str, partition: int, /) -> Mapping[CheckpointKey, NotKnownNow]:
        if not isinstance(self.deliveries(topic, topic_id, partition), str):
            return {}
        return {
            CheckpointKey(one.source(route.region, partition), route.destination): NotKnownNow(
                f"the claim of {route.region}/{one.path} cannot be read, so whether the offset is one of that topic is "
                "not known"
            )
            for route in self.routes.get(topic, ())
            for one in route.incarnations
            if not one.incarnation.topic_id and self.id_of(route.region, one.path) == UNREADABLE
        }

    def _is(self, region: str, one: ArchivedIncarnation, topic_id: str) -> bool:
        """Also where brokers have no topic ids. A path whose claim has not arrived, or cannot be read, says the id
        itself, except the plain one."""
        if not topic_id:
            return True
        claimed = self.id_of(region, one.path)
        if claimed == UNREADABLE:
            return topic_id == one.incarnation.topic_id
        return topic_id == (claimed if claimed is not None else one.incarnation.topic_id or topic_id)


def group_positions(snapshot: GroupSnapshot, delivered: Deliveries, translate: Translate) -> Iterator[GroupPosition]:
    """Each committed offset of a topic that is delivered here; more than once for one that goes to several topics.

    Each offset of a partition is translated once, in their order: a page of the map is read once then."""
    found = list(_deliveries(snapshot, delivered))
    offsets: dict[CheckpointKey, set[int]] = defaultdict(set)
    for _, key, commit, unread in found:
        if unread is None:
            offsets[key].add(commit.next_offset)
    known = {key: _translated(translate, key, sorted(offsets[key])) for key in sorted(offsets)}
    for group, key, commit, unread in found:
        there = known[key] if unread is None else unread
        yield _position(group, key, commit, there if isinstance(there, str) else there[commit.next_offset])


def of_other_incarnations(snapshot: GroupSnapshot, delivered: DeliveredTopics) -> Mapping[str, Sequence[str]]:
    """By group, those of its topics that are delivered here in other incarnations only than it committed for: none of
    these offsets is among `group_positions`."""
    found = {
        group: sorted(
            topic
            for topic, commits in one.topics.items()
            if topic in delivered.routes
            and isinstance(delivered.deliveries(topic, commits.topic_id, 0), str)
            and not delivered.unread(topic, commits.topic_id, 0)
        )
        for group, one in snapshot.groups.items()
    }
    return {group: topics for group, topics in found.items() if topics}


def of_shared_destinations(snapshot: GroupSnapshot, delivered: DeliveredTopics) -> Mapping[str, Sequence[str]]:
    """By group, those of its topics that share their destination with others."""
    found = {group: sorted(one.topics.keys() & delivered.shared) for group, one in snapshot.groups.items()}
    return {group: topics for group, topics in found.items() if topics}


def _translated(translate: Translate, key: CheckpointKey, offsets: Sequence[int]) -> Mapping[int, Translation] | str:
    found = translate(key, [min(one, END_OF_OFFSETS - 1) for one in offsets])  # a client may commit any number
    return found if isinstance(found, str) else dict(zip(offsets, found, strict=True))


def _deliveries(
    snapshot: GroupSnapshot, delivered: Deliveries
) -> Iterator[tuple[str, CheckpointKey, CommittedOffset, str | None]]:
    for group, found in snapshot.groups.items():
        for topic, commits in found.topics.items():
            for partition, commit in commits.items():
                keys = delivered.deliveries(topic, commits.topic_id, partition)
                if not isinstance(keys, str):
                    yield from ((group, key, commit, None) for key in keys)
                else:  # nothing that is here, as far as that is known
                    unread = delivered.unread(topic, commits.topic_id, partition)
                    yield from ((group, key, commit, why) for key, why in unread.items())


def _position(group: str, key: CheckpointKey, commit: CommittedOffset, found: Translation | str) -> GroupPosition:
    reason = found if isinstance(found, str) else ""
    if not isinstance(found, str) and found.offset is None:
        reason = "its records were delivered before the offset map began; it is known once the group has moved on"
    return GroupPosition(
        group=group,
        source=str(key.source),
        target=TopicPartition(key.destination_topic, key.source.partition),
        upstream=commit.next_offset,
        downstream=None if isinstance(found, str) else found.offset,
        exactness=Exactness.UNKNOWN if isinstance(found, str) else found.exactness,
        metadata=commit.metadata,
        reason=reason,
        is_known_later=isinstance(found, NotKnownNow),
    )
