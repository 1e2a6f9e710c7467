"""Topics that come back: one file's ingress delivers what an egress archives and some ingress delivers again. Pure.

    orders of cluster a ──egress of a──> archive a ──ingress of b──> eu.orders of cluster b
        ^                                                                     │ egress of b
        └──────────────────── ingress of a <── archive b <────────────────────┘

A topic is followed from cluster to cluster through the files' own rules. It comes back when it gets to where it was, or
when it is still under way after every source had its turn several times (`eu.us.eu.orders`, a longer name each time).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from egress.settings import EgressSettings
from formats.incarnation import LEGAL_NAME
from formats.topic_selection import is_internal, select
from ingress.settings import IngressSettings, IngressSource
from replicator.config.samples import samples_of

TURNS = 3  # of every source, before a name that grows is taken to grow for ever
FURTHEST = 200  # hops in any case
SHOWN = 4  # hops in one message


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """One file, as far as topics go."""

    name: str  # for messages
    region: str
    cluster: str  # files of one cluster have the same
    egress: EgressSettings | None
    ingress: IngressSettings | None

    @property
    def own_topics(self) -> frozenset[str]:
        return frozenset() if self.ingress is None else self.ingress.own_topics


@dataclass(frozen=True, slots=True)
class Hop:
    """One delivery of one topic."""

    archived_by: Mirror
    topic: str
    delivered_by: Mirror
    source: int  # its number in the file
    destination: str


@dataclass(frozen=True, slots=True)
class Loop:
    """Hops of which the last leads to the first, or to a longer name that the first takes, too."""

    hops: tuple[Hop, ...]

    @property
    def rules(self) -> frozenset[tuple[str, int]]:
        """Which sources of which files make it: whatever topic it was found by."""
        return frozenset((hop.delivered_by.name, hop.source) for hop in self.hops)

    def described(self, *, with_files: bool) -> str:
        """As the end of a sentence about the source of the first hop."""
        told = [
            f"{hop.topic} of {hop.archived_by.region} as {hop.destination}"
            + (f" ({hop.delivered_by.name})" if with_files else "")
            for hop in self.hops[:SHOWN]
        ]
        more = f", and {len(self.hops) - SHOWN} more" if len(self.hops) > SHOWN else ""
        return f"delivers {', then '.join(told)}{more}, which is archived and delivered again, for ever"


def loops(mirrors: Sequence[Mirror]) -> Iterator[Loop]:
    """Each once, by one topic that goes round in it."""
    search, told = _Search(mirrors), set[frozenset[tuple[str, int]]]()
    for cluster in dict.fromkeys(one.cluster for one in mirrors if one.egress is not None):
        for name in _names(mirrors):
            loop = search.follow(cluster, name, [])
            if loop is not None and loop.rules not in told:
                told.add(loop.rules)
                yield loop


class _Search:
    def __init__(self, mirrors: Sequence[Mirror]) -> None:
        sources = sum(len(one.ingress.sources) for one in mirrors if one.ingress is not None)
        self._mirrors, self._limit = mirrors, min(TURNS * (1 + sources), FURTHEST)
        self._ends: set[tuple[str, str]] = set()  # topics, by cluster, that come back nowhere

    def follow(self, cluster: str, topic: str, path: list[Hop]) -> Loop | None:
        """Depth first, so that a name that grows is followed to the limit at once."""
        if (cluster, topic) in self._ends:
            return None
        for hop in _hops(self._mirrors, cluster, topic):
            path.append(hop)
            there = hop.delivered_by.cluster, hop.destination
            began = next((n for n, h in enumerate(path) if (h.archived_by.cluster, h.topic) == there), None)
            if began is not None:
                return Loop(tuple(path[began:]))
            if len(path) >= self._limit:
                return Loop(_first_round(path))
            if (found := self.follow(*there, path)) is not None:
                return found
            path.pop()
        self._ends.add((cluster, topic))
        return None


def _hops(mirrors: Sequence[Mirror], cluster: str, topic: str) -> Iterator[Hop]:
    for archives in mirrors:
        if archives.cluster != cluster or archives.egress is None:
            continue
        if not select([topic], archives.egress.topics, archives.own_topics):
            continue
        for delivers in mirrors:
            source = _source_of(delivers, archives.region, topic)
            if source is None or delivers.ingress is None:
                continue
            destination = source.destination(topic)
            if LEGAL_NAME.fullmatch(destination):
                yield Hop(archives, topic, delivers, delivers.ingress.sources.index(source), destination)


def _source_of(mirror: Mirror, region: str, topic: str) -> IngressSource | None:
    if mirror.ingress is None or is_internal(topic, mirror.own_topics):
        return None
    return mirror.ingress.source_of(region, topic)


def _first_round(path: Sequence[Hop]) -> tuple[Hop, ...]:
    """Until a rule is used again: the names are the shortest."""
    rules = [(hop.delivered_by.name, hop.source) for hop in path]
    again = next((n for n, rule in enumerate(rules) if rule in rules[:n]), None)
    return tuple(path) if again is None else tuple(path[rules.index(rules[again]) : again])


def _names(mirrors: Sequence[Mirror]) -> Sequence[str]:
    """Topics to begin with: what is named in any file, and what its expressions are guessed to mean."""
    egress = (rule.pattern for one in mirrors if one.egress is not None for rule in one.egress.topics)
    sources = (source.topic for one in mirrors if one.ingress is not None for source in one.ingress.sources)
    return samples_of(pattern for patterns in (egress, sources) for pattern in patterns)
