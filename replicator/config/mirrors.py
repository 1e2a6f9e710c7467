"""Replication loops: one file's ingress delivers a topic that an egress archives and an ingress delivers again. Pure.

    orders of cluster a ──egress of a──> archive a ──ingress of b──> eu.orders of cluster b
        ^                                                                     │ egress of b
        └──────────────────── ingress of a <── archive b <────────────────────┘

A topic is followed from cluster to cluster through the rules of the files. It loops when it reaches a topic where it
was before, or when every source was applied several times and it still continues (`eu.us.eu.orders`, with a longer name
each time).

Names are one half of it: ingress keeps a copy away from the clusters that its records come from, whatever it is called,
where it knows the lineage of the topic. `without_lineage` says where it does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from egress.settings import EgressSettings
from formats.errors import PluginFailed
from formats.incarnation import LEGAL_NAME
from formats.messages.ledger import DEFAULT_LEDGER
from formats.topic_selection import is_internal, select
from ingress.settings import IngressSettings
from ingress.source_settings import IngressSource
from replicator.config.samples import samples_of

ROUNDS = 3  # applications of every source before a growing name counts as a loop
MAX_HOPS = 200  # limit of hops
SHOWN = 4  # limit of hops in one message


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """The parts of one file that select and rename topics."""

    name: str  # for messages
    region: str
    cluster: str  # the same for files of one cluster
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
    """Hops of which the last leads to the topic of the first, or to a longer name that the first selects, too."""

    hops: tuple[Hop, ...]

    @property
    def rules(self) -> frozenset[tuple[str, int]]:
        """The files and sources that make the loop, independent of the topic it was found with."""
        return frozenset((hop.delivered_by.name, hop.source) for hop in self.hops)

    def described(self, *, with_files: bool) -> str:
        """The end of a sentence about the source of the first hop."""
        hops = [
            f"{hop.topic} of {hop.archived_by.region} as {hop.destination}"
            + (f" ({hop.delivered_by.name})" if with_files else "")
            for hop in self.hops[:SHOWN]
        ]
        more = f", and {len(self.hops) - SHOWN} more" if len(self.hops) > SHOWN else ""
        return f"delivers {', then '.join(hops)}{more}, which is archived and delivered again"

    @property
    def is_onto_itself(self) -> bool:
        """Whether a topic is delivered into itself. It was not created by ingress, so it has no lineage."""
        return any((h.archived_by.cluster, h.topic) == (h.delivered_by.cluster, h.destination) for h in self.hops)


def without_lineage(mirrors: Sequence[Mirror]) -> Iterator[tuple[Mirror, str]]:
    """The settings by which copies are not recognized as such, by the ledger of the ingress that creates them and the
    catalogue of the egress that archives them; as file and what is set there."""
    ledgers: dict[str, str] = {}
    for one in mirrors:
        if one.ingress is not None:
            ledgers.setdefault(one.cluster, one.ingress.ledger_topic)
            if not one.ingress.create_topics:
                yield one, "ingress.create_topics = false"
            if any(source.ignore_lineage for source in one.ingress.sources):
                yield one, "ignore_lineage = true of a source"
    for one in mirrors:
        ledger = DEFAULT_LEDGER if one.ingress is None else one.ingress.ledger_topic
        if one.egress is not None and not one.egress.heartbeat_interval:
            yield one, 'egress.heartbeat_interval = "0s", without which there is no catalogue'
        if ledgers.get(one.cluster, ledger) != ledger:
            yield one, f"ingress.ledger_topic is {ledger}, and {ledgers[one.cluster]} in another file of its cluster"


def loops(mirrors: Sequence[Mirror]) -> Iterator[Loop]:
    """Every loop once, with one topic that is replicated in it."""
    search, reported = _Search(mirrors), set[frozenset[tuple[str, int]]]()
    for cluster in dict.fromkeys(one.cluster for one in mirrors if one.egress is not None):
        for name in _names(mirrors):
            loop = search.follow(cluster, name, [])
            if loop is not None and loop.rules not in reported:
                reported.add(loop.rules)
                yield loop


class _Search:
    def __init__(self, mirrors: Sequence[Mirror]) -> None:
        sources = sum(len(one.ingress.sources) for one in mirrors if one.ingress is not None)
        self._mirrors, self._limit = mirrors, min(ROUNDS * (1 + sources), MAX_HOPS)
        self._ends: set[tuple[str, str]] = set()  # (cluster, topic) without a loop

    def follow(self, cluster: str, topic: str, path: list[Hop]) -> Loop | None:
        """The first loop from `topic`. Depth first, so that a growing name reaches the limit at once."""
        if (cluster, topic) in self._ends:
            return None
        hops = _hops(self._mirrors, cluster, topic)
        # a topic delivered into itself first: another loop of the same name must not hide it
        for hop in sorted(hops, key=lambda hop: (hop.delivered_by.cluster, hop.destination) != (cluster, topic)):
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
        if not _archives(archives, archives.egress, topic):
            continue
        for delivers in mirrors:
            with suppress(PluginFailed):  # the topic is refused
                source = _source_of(delivers, archives.region, topic)
                if source is None or delivers.ingress is None:
                    continue
                destination = source.destination(topic)
                if LEGAL_NAME.fullmatch(destination):
                    yield Hop(archives, topic, delivers, delivers.ingress.sources.index(source), destination)


def _archives(mirror: Mirror, egress: EgressSettings, topic: str) -> bool:
    try:
        return bool(select([topic], egress.rules, mirror.own_topics))
    except PluginFailed:  # a name made up from an expression: the filter need not know it
        return False


def _source_of(mirror: Mirror, region: str, topic: str) -> IngressSource | None:
    if mirror.ingress is None or is_internal(topic, mirror.own_topics):
        return None
    source = mirror.ingress.source_of(region, topic)
    return None if source is None or source.refusal(topic, mirror.region) else source


def _first_round(path: Sequence[Hop]) -> tuple[Hop, ...]:
    """The hops until a rule is used again, where the names are shortest."""
    rules = [(hop.delivered_by.name, hop.source) for hop in path]
    again = next((n for n, rule in enumerate(rules) if rule in rules[:n]), None)
    return tuple(path) if again is None else tuple(path[rules.index(rules[again]) : again])


def _names(mirrors: Sequence[Mirror]) -> Sequence[str]:
    """The topics to start with: names in any file, and samples of its expressions."""
    egress = (rule.pattern for one in mirrors if one.egress is not None for rule in one.egress.topics)
    sources = (source.topic for one in mirrors if one.ingress is not None for source in one.ingress.sources)
    return samples_of(pattern for patterns in (egress, sources) for pattern in patterns)
