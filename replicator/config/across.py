"""Contradictions between files: replication loops, names that two files use in one cluster, and mistyped regions. Pure.

Files are of one cluster when they name the same region, or one broker of their `bootstrap.servers` is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations

from egress.settings import EgressSettings
from formats.errors import PluginFailed
from formats.topic_selection import is_internal, select
from infra.settings.field import dotted
from infra.settings.kafka import ROLES, SERVERS
from ingress.settings import IngressSettings
from replicator.config.mirrors import Loop, Mirror, loops, without_lineage
from replicator.config.mistyped import meant
from replicator.config.queues import is_same_queue, is_url
from replicator.config.samples import samples_of
from replicator.config.settings import Config

Place = Callable[[str], str]
"""The path of a setting as its file has it: of one with several regions."""


def between_files(configs: Sequence[Config], places: Mapping[str, Place] | None = None) -> list[str]:
    """Every problem, with its files, the setting, and what to do. Each file has to be valid by itself. `places`: by
    `source` of a configuration."""
    clusters = _clusters(configs)
    return [
        *_mistyped(configs, places or {}),
        *_endless(_mirrors(configs, clusters), places or {}),
        *_shared(configs, clusters),
        *_one_queue(configs, places or {}),
    ]


def notes_between(configs: Sequence[Config], places: Mapping[str, Place] | None = None) -> list[str]:
    """What is no problem, as far as the files tell: replication loops by the names, which lineage ends."""
    return list(_ended(_mirrors(configs, _clusters(configs)), places or {}))


def _place(places: Mapping[str, Place], source: str, path: str) -> str:
    return places[source](path) if source in places else path


def _mistyped(configs: Sequence[Config], places: Mapping[str, Place]) -> Iterator[str]:
    regions = list(dict.fromkeys(config.region for config in configs))
    if len(regions) < 2:
        return
    for config in configs:
        for n, source in enumerate(() if config.ingress is None else config.ingress.sources):
            near = meant(source.region, regions)
            if near is not None:
                where = _place(places, config.source, dotted(("ingress", "sources", n, "region")))
                yield f"{config.source}: {where}: no file is of region {source.region!r} (did you mean {near!r}?)"


def _clusters(configs: Sequence[Config]) -> Sequence[str]:
    """A name of the cluster for each file; the same for files of one cluster."""
    signs = [_signs(config) for config in configs]
    names = [str(n) for n in range(len(configs))]
    for (a, first), (b, second) in combinations(enumerate(signs), 2):
        if first & second:
            names = [names[a] if name == names[b] else name for name in names]
    return names


def _signs(config: Config) -> frozenset[tuple[str, str]]:
    properties = [] if config.kafka is None else [config.kafka.properties(role) for role in ROLES]
    servers = {one.strip() for table in properties for one in table.get(SERVERS, "").split(",") if one.strip()}
    return frozenset({("region", config.region), *(("server", server) for server in servers)})


def _mirrors(configs: Sequence[Config], clusters: Sequence[str]) -> Sequence[Mirror]:
    return [
        Mirror(name=c.source, region=c.region, cluster=cluster, egress=c.egress, ingress=c.ingress)
        for c, cluster in zip(configs, clusters, strict=True)
    ]


def _loops(mirrors: Sequence[Mirror]) -> Iterator[Loop]:
    """Those of several files."""
    for loop in loops(mirrors):
        if len({file.name for hop in loop.hops for file in (hop.archived_by, hop.delivered_by)}) > 1:
            yield loop  # else reported for the file alone


def _endless(mirrors: Sequence[Mirror], places: Mapping[str, Place]) -> Iterator[str]:
    """Loops that no lineage ends. One setting without lineage counts for all loops: their clusters may share it."""
    unknown = [f"{one.name}: {what}" for one, what in without_lineage(mirrors)]
    for loop in _loops(mirrors):
        if unknown or loop.is_onto_itself:
            why = (
                "it is the same topic" if loop.is_onto_itself else f"lineage does not end it with {'; '.join(unknown)}"
            )
            yield f"{_of_loop(loop, places)}, for ever ({why}); {_remedy(loop, places)}"


def _ended(mirrors: Sequence[Mirror], places: Mapping[str, Place]) -> Iterator[str]:
    if any(without_lineage(mirrors)):
        return
    for loop in _loops(mirrors):
        if not loop.is_onto_itself:
            yield (
                f"{_of_loop(loop, places)}, by the names alone. Ingress does not copy back what comes from the cluster "
                "itself, by the lineage of the topics that it creates. A topic that exists in both clusters before has "
                f"none, and may go round: {_remedy(loop, places)}"
            )


def _of_loop(loop: Loop, places: Mapping[str, Place]) -> str:
    first = loop.hops[0]
    where = _place(places, first.delivered_by.name, dotted(("ingress", "sources", first.source, "topic")))
    return f"{first.delivered_by.name}: {where}: {loop.described(with_files=True)}"


def _remedy(loop: Loop, places: Mapping[str, Place]) -> str:
    first, last = loop.hops[0], loop.hops[-1]
    path = dotted(("ingress", "sources", first.source))
    place = _place(places, first.delivered_by.name, path)
    if place == path:  # not of a flow
        return f"exclude {last.destination} from [egress] of {first.archived_by.name}, or narrow an expression"
    return f"exclude {last.destination} with {place}.exclude, or narrow an expression"


def _one_queue(configs: Sequence[Config], places: Mapping[str, Place]) -> Iterator[str]:
    """Two deliveries, of any clusters: a message reaches one reader only. Processes of one delivery share it."""
    for one, other in combinations(configs, 2):
        if one.ingress is None or other.ingress is None or one.sqs is None or other.sqs is None:
            continue
        if _same_delivery(one, other) or not is_same_queue(one.sqs, other.sqs):
            continue
        first, second = (f"{c.source}: {_place(places, c.source, 'sqs.queue')}" for c in (one, other))
        names = dict.fromkeys(repr(settings.queue) for settings in (one.sqs, other.sqs))
        remedy = "" if is_url(one.sqs) == is_url(other.sqs) else "; if they are two, name both by URL"
        yield (
            f"{first} and {second} are one queue, {' and '.join(names)}, of two deliveries: a message reaches one "
            f"reader only, so each would take the other's notifications; give each a queue of its own{remedy}"
        )


def _shared(configs: Sequence[Config], clusters: Sequence[str]) -> Iterator[str]:
    for (n, one), (m, other) in combinations(enumerate(configs), 2):
        if clusters[n] != clusters[m]:
            continue
        both = f"{one.source} and {other.source}"
        if one.ingress is not None and other.ingress is not None and not _same_delivery(one, other):
            yield from (f"{both}: {what}" for what in _two_deliveries(one.ingress, other.ingress))
        if one.egress is not None and other.egress is not None and not _same_archive(one, other):
            yield from (f"{both}: {what}" for what in _two_archives(one.egress, other.egress))
        for first, second in ((one, other), (other, one)):
            if first.egress is not None and second.ingress is not None and first is not second:
                yield from (f"{both}: {what}" for what in _two_sides(first.egress, second.ingress))


def _same_delivery(one: Config, other: Config) -> bool:
    """Whether both files configure the same ingress: its processes may use separate files."""
    is_one_queue = is_same_queue(one.sqs, other.sqs) if one.sqs and other.sqs else one.sqs is other.sqs
    return is_one_queue and (one.region, one.s3.bucket, one.s3.prefix, one.ingress) == (
        other.region,
        other.s3.bucket,
        other.s3.prefix,
        other.ingress,
    )


def _same_archive(one: Config, other: Config) -> bool:
    return (one.region, one.s3.bucket, one.s3.prefix, one.egress) == (
        other.region,
        other.s3.bucket,
        other.s3.prefix,
        other.egress,
    )


def _two_deliveries(one: IngressSettings, other: IngressSettings) -> Iterator[str]:
    if one.group_id == other.group_id:
        yield (
            f"ingress.group_id {one.group_id!r} is the same in both files, but they deliver different data: Kafka "
            "would assign partitions to processes that do not deliver them; set another group_id in one of them"
        )
    if one.checkpoint_topic == other.checkpoint_topic:
        yield (
            f"ingress.checkpoint_topic {one.checkpoint_topic!r} is the same in both files: set another one in one of "
            "them, before its first start"
        )
    if one.segment_events_topic == other.segment_events_topic:
        yield (
            f"ingress.segment_events_topic {one.segment_events_topic!r} is the same in both files, so each would read "
            "the events of the other's bucket: set another one in one of them"
        )
    reached, also = _destinations(one, other), _destinations(other, one)
    for name in sorted((one.own_topics & also.keys()) | (other.own_topics & reached.keys())):
        yield f"{name!r} is an internal topic of one file and a destination of the other: rename one of them"
    for destination in sorted(reached.keys() & also.keys()):
        yield (
            f"ingress.sources: {destination!r} receives {reached[destination]} by one file and {also[destination]} by "
            "the other: set another destination_topic, or exclude it in one of them"
        )


def _two_archives(one: EgressSettings, other: EgressSettings) -> Iterator[str]:
    if one.group_id == other.group_id:
        yield (
            f"egress.group_id {one.group_id!r} is the same in both files, but they archive different data: Kafka "
            "would assign partitions to processes that do not archive them; set another group_id in one of them"
        )


def _two_sides(egress: EgressSettings, ingress: IngressSettings) -> Iterator[str]:
    if egress.group_id == ingress.group_id:
        yield f"{egress.group_id!r} is egress.group_id of one file and ingress.group_id of the other: set another"
    chosen: list[str] = []
    with suppress(PluginFailed):  # then the filter selects nothing
        chosen = sorted(select(ingress.own_topics, egress.rules, ()))
    if chosen:
        yield (
            f"egress.topics of one file selects {', '.join(chosen)}, internal topics of the other file's ingress: "
            "narrow the expression"
        )


def _destinations(settings: IngressSettings, other: IngressSettings) -> dict[str, str]:
    """The source by destination, for topics named in either file and for samples of its expressions."""
    found: dict[str, str] = {}
    sources = (*settings.sources, *other.sources)
    for region in dict.fromkeys(source.region for source in settings.sources):
        for name in samples_of(source.topic for source in sources if source.region == region):
            with suppress(PluginFailed):  # the topic is refused
                source = settings.source_of(region, name)
                if source is not None and not is_internal(name, settings.own_topics):
                    found.setdefault(source.destination(name), f"{name} of {region}")
    return found
