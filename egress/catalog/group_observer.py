"""What the consumer groups of the source have committed, in the topics that are archived.

    topics ─> listing of groups ─> describe, then offsets, of one group a call ─> topics again ─> snapshot

1. A group is in the snapshot when it has a committed offset in such a topic. One that a complete listing lacks, and
   that the cluster does not know, is gone and left out: it needs no tombstone.
2. An error is no absence. A group that may not be described, or whose coordinator does not answer, keeps the offsets of
   the last observation that read them, with its time, and `unreadable` says why; so does each group that a listing
   lacks because a broker did not answer. Other groups are not affected. The offsets of all groups in a topic that may
   not be described any more stay in the same way.
3. An offset has the id of its topic, from two descriptions around the calls that agree. What is committed in a topic
   that is created again meanwhile is left out until the next observation.

Needs DESCRIBE on the groups and the topics. Groups of other kinds are named only: share groups have no committed
offsets, and of those of the streams protocol the client does not show whether they have members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from egress.catalog.observer import SelectedTopics, first_of
from formats.control.group_snapshot import CommittedOffset, GroupSnapshot, SnapshotGroup, TopicCommits
from formats.errors import BrokerUnavailable, ReplicatorError
from infra.contracts.catalog import TopicShape
from infra.contracts.cluster import Committed, GroupFacts, TopicPartition, describe_each
from infra.contracts.groups import GroupListing, GroupReader
from infra.runtime.call_budget import CallBudget

OTHERS_EVERY = timedelta(minutes=10)
"""Groups of other kinds are expensive to ask for. As often as MirrorMaker 2 searches for groups."""
NOT_LISTED = "the cluster knows the group, and does not list it"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Read:
    kind: str
    facts: GroupFacts
    topics: Mapping[str, TopicCommits]  # by name; empty: the group has committed nothing in them


@dataclass(frozen=True, slots=True)
class _Topics:
    """After the groups were read, by name."""

    ids: Mapping[str, str]  # without topics whose id has changed meanwhile
    hidden: Mapping[str, ReplicatorError]  # topics of the earlier snapshot that may not be described any more
    unlisted: Collection[str]  # those that exist, and that a listing before the groups were read had left out

    def unread(self, name: str, topic_id: str) -> bool:
        """Whether the topic exists, perhaps, and no offset in it was asked for."""
        return name in self.hidden or (name in self.unlisted and self.ids.get(name) == topic_id)

    def keeps(self, name: str, topic_id: str) -> bool:
        """Whether the topic is not known to be gone."""
        return name in self.hidden or self.ids.get(name) == topic_id


@dataclass(slots=True)
class GroupObserver:
    """Blocks: use from a thread of its own, which is none of `pool`."""

    topics: SelectedTopics
    groups: GroupReader
    select: Callable[[Iterable[str]], Collection[str]]  # of group ids those that are replicated
    named: Callable[[], Collection[str]]  # group ids in the settings: a right that is missing on one is noticed
    budget: CallBudget  # of all requests about groups
    pool: Executor  # reads as many groups at once as it has threads
    writer: str
    _last: GroupSnapshot | None = None  # of this process: newer than its generation while nothing changes
    _others: Mapping[str, str] | None = None
    _others_at: datetime | None = None

    def observe(self, before: GroupSnapshot | None, now: datetime) -> GroupSnapshot:
        """`before`: the generation that this one follows. Raises BrokerUnavailable, and TargetError when the topics may
        not be described or the groups not be listed."""
        cluster_id = self.topics.admin.cluster_id()
        earlier = self._earlier(before, cluster_id, now)
        shapes = self.topics.shapes()
        listing = self._call(self.groups.listing)
        found, unreadable = self._read_all(listing, shapes)
        unreadable |= self._absent(listing, earlier)
        unsupported, no_others = self._unsupported(listing, earlier, now)
        topics = self._topics_now(shapes, earlier)
        if self.budget.stop.is_set():
            raise BrokerUnavailable("observe the consumer groups: this process ends")
        problems = {"listing": listing.problem, "unsupported": no_others}
        problems["groups"] = first_of(unreadable, "groups") if unreadable else ""
        problems["topics"] = first_of(topics.hidden, "topics") if topics.hidden else ""
        self._last = GroupSnapshot(
            cluster_id=cluster_id,
            writer=self.writer,
            observed_at=now,
            groups=dict(sorted(_merged(found, earlier, unreadable, topics))),
            unsupported=unsupported,
            unreadable={group_id: str(why) for group_id, why in unreadable.items()},
            problems={what: why for what, why in problems.items() if why},
            read_until=max(self.budget.clock.now(), now),
        )
        return self._last

    def _earlier(self, before: GroupSnapshot | None, cluster_id: str, now: datetime) -> GroupSnapshot:
        """The newest snapshot of this cluster that is known, of the groups that are still selected."""
        known = [one for one in (before, self._last) if one is not None and one.cluster_id == cluster_id]
        if not known:
            return GroupSnapshot(cluster_id=cluster_id, writer="", observed_at=now, groups={})
        newest = max(known, key=lambda one: one.observed_at)
        return replace(newest, groups={group_id: newest.groups[group_id] for group_id in self.select(newest.groups)})

    def _read_all(
        self, listing: GroupListing, shapes: Mapping[str, TopicShape]
    ) -> tuple[Mapping[str, _Read], dict[str, ReplicatorError]]:
        """Those that exist, and the errors of those that could not be read."""
        partitions = [TopicPartition(name, n) for name, shape in shapes.items() for n in range(shape.partitions)]
        selected = self.select(listing.kinds)
        asked = {one: self.pool.submit(self._read, one, listing.kinds[one], partitions, shapes) for one in selected}
        found, failed = _collected(asked)
        return {group_id: one for group_id, one in found.items() if one is not None}, failed

    def _read(
        self,
        group_id: str,
        kind: str,
        partitions: Sequence[TopicPartition],
        shapes: Mapping[str, TopicShape],
    ) -> _Read | None:
        """None: the group has gone. Described first: see `GroupReader`."""
        facts = self._call(partial(self.groups.facts, group_id))
        if not facts.is_known:
            return None
        commits = self._call(partial(self.groups.committed, group_id, partitions))
        by_topic: dict[str, dict[int, CommittedOffset]] = {}
        for partition, one in commits.items():
            by_topic.setdefault(partition.topic, {})[partition.partition] = _offset(one)
        return _Read(kind, facts, {name: TopicCommits.of(shapes[name].topic_id, one) for name, one in by_topic.items()})

    def _absent(self, listing: GroupListing, earlier: GroupSnapshot) -> Mapping[str, ReplicatorError]:
        """Why groups are not listed that are not known to be gone: a cluster lists no group that this principal may not
        describe. Groups that the settings name are asked about, too."""
        missing = earlier.groups.keys() - listing.kinds.keys()
        if listing.problem:
            return dict.fromkeys(missing, BrokerUnavailable(listing.problem))
        named = set(self.select(self.named())) - listing.kinds.keys()
        asked = {one: self.pool.submit(self._call, partial(self.groups.facts, one)) for one in missing | named}
        found, failed = _collected(asked)
        return failed | {
            one: BrokerUnavailable(NOT_LISTED) for one, facts in found.items() if facts.is_known and one in missing
        }

    def _unsupported(
        self, listing: GroupListing, earlier: GroupSnapshot, now: datetime
    ) -> tuple[Mapping[str, str], str]:
        """The selected groups of other kinds, and why they are not known."""
        problem = ""
        if self._others_at is None or now >= self._others_at + OTHERS_EVERY:
            try:
                self._others, self._others_at = self._call(self.groups.others), now
            except ReplicatorError as error:
                problem = str(error)
        others = earlier.unsupported if self._others is None else self._others
        return {one: others[one] for one in sorted(self.select(others)) if one not in listing.kinds}, problem

    def _topics_now(self, shapes: Mapping[str, TopicShape], earlier: GroupSnapshot) -> _Topics:
        names = {name for group in earlier.groups.values() for name in group.topics}
        again = self.topics.shapes_of({*shapes, *names})
        missing = set(self.topics.select(names)) - again.keys()
        hidden = describe_each(self.topics.admin, missing)[1] if missing else {}
        ids = {name: one.topic_id for name, one in again.items() if shapes.get(name, one).topic_id == one.topic_id}
        return _Topics(ids, hidden, again.keys() - shapes.keys())

    def _call(self, ask: Callable[[], T]) -> T:
        if not self.budget.wait():
            raise BrokerUnavailable("this process ends")
        return ask()


def _collected(asked: Mapping[str, Future[T]]) -> tuple[dict[str, T], dict[str, ReplicatorError]]:
    """Answers and errors. Waits for all of them."""
    found: dict[str, T] = {}
    failed: dict[str, ReplicatorError] = {}
    for one, future in asked.items():
        try:
            found[one] = future.result()
        except ReplicatorError as error:
            failed[one] = error
    return found, failed


def _merged(
    found: Mapping[str, _Read], earlier: GroupSnapshot, unreadable: Collection[str], topics: _Topics
) -> Iterable[tuple[str, SnapshotGroup]]:
    """What was read, and of what was not the earlier offsets, with their time."""
    for group_id, one in found.items():
        kept = _dated(earlier, group_id, lambda name, one: topics.unread(name, one.topic_id))
        commits = {**kept, **{name: topic for name, topic in one.topics.items() if name in topics.ids}}
        if commits:
            yield (
                group_id,
                SnapshotGroup(kind=one.kind, state=one.facts.state, members=one.facts.members, topics=commits),
            )
    for group_id in unreadable:
        if kept := _dated(earlier, group_id, lambda name, one: topics.keeps(name, one.topic_id)):
            yield group_id, replace(earlier.groups[group_id], topics=kept)


def _dated(
    earlier: GroupSnapshot, group_id: str, keeps: Callable[[str, TopicCommits], bool]
) -> Mapping[str, TopicCommits]:
    """What a group had committed in the topics that `keeps` accepts."""
    group = earlier.groups.get(group_id)
    return {
        name: replace(one, as_of=one.as_of or earlier.observed_at)
        for name, one in ({} if group is None else group.topics).items()
        if keeps(name, one)
    }


def _offset(committed: Committed) -> CommittedOffset:
    return CommittedOffset(
        next_offset=committed.next_offset, leader_epoch=committed.leader_epoch, metadata=committed.metadata
    )
