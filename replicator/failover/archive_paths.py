"""Which archive paths of another region hold the log that a topic has there now. Pure.

orders, orders@new           created again: offsets of the first path are of a log that is gone
orders, orders@id-fork1      the log has forked: below the fork the first path has the log of now
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from formats.control.claim import TopicClaim
from ingress.groups.translation import Exactness
from ingress.routing.archived import ArchivedTopic
from ingress.routing.succession import ArchivedIncarnation
from replicator.offsets import TranslatedOffset


@dataclass(frozen=True, slots=True)
class PathsThere:
    superseded: frozenset[str] = frozenset()  # of incarnations that a later one has followed
    before_fork: frozenset[str] = frozenset()  # of the last incarnation, before a fork of its log


def paths_there(
    region: str, routes: Iterable[ArchivedTopic], claim_of: Callable[[str], TopicClaim | None]
) -> PathsThere:
    """`routes`: also of other regions. `claim_of`: of an archive path; None when it has none, or cannot be read.
    Incarnations with topics of their own here (`on_recreate = "new-topic"`) are planned without their claims, so
    without an order."""
    by_topic: dict[str, dict[str, ArchivedIncarnation]] = {}
    for route in (one for one in routes if one.region == region):
        for one in route.incarnations:
            claimed = one if one.claim is not None else replace(one, claim=claim_of(one.path))
            by_topic.setdefault(one.topic, {})[one.path] = claimed
    superseded, before_fork = set[str](), set[str]()
    for some in by_topic.values():
        last = max(some.values(), key=lambda one: -1 if one.number is None else one.number)
        for one in some.values():
            if one.path != last.path:
                (before_fork if _is_same_topic(one, last) else superseded).add(one.path)
    return PathsThere(frozenset(superseded), frozenset(before_fork))


def _is_same_topic(one: ArchivedIncarnation, other: ArchivedIncarnation) -> bool:
    return one.claim is not None and other.claim is not None and one.claim.topic_id == other.claim.topic_id


def unknown_there(one: TranslatedOffset, why: str) -> TranslatedOffset:
    """The same offset here, of which nothing is known there."""
    return replace(one, source_offset=None, exactness=Exactness.UNKNOWN, reason=why)


def before_the_fork(one: TranslatedOffset, forked_at: int) -> TranslatedOffset:
    """An offset of a path before a fork: from `forked_at` on, the log has other records by now."""
    if one.source_offset is None or one.source_offset <= forked_at:
        return one
    reason = f"the log of {one.source} has forked at {forked_at}, from where on it has other records by now"
    return replace(one, source_offset=forked_at, exactness=Exactness.REPEATED, reason=reason)
