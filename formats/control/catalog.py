"""The catalogue: what a source cluster has, as the egress of its region observed it. One object for each generation.

    topics     name, id, partitions, replication factor, configs with the source of each value, and the clusters that
               a topic's records went through before
    removed    topics that an earlier generation had: only this, never an absence, says that a topic is gone
    acls       bindings of topics and groups; none without permission to read them, or without an authorizer

Generations are numbered, complete and never changed; the highest number counts (`infra.archive.generations`). Configs
that most topics share are written once. The object is gzip'd JSON, the same bytes for the same value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from formats.codec import VERSION, load, malformed, parse_time
from formats.control.packed import pack, unpack
from formats.policies.acls import AclBinding
from formats.policies.topic_configs import ConfigSource, ConfigValue

MERGED = "merged"
"""The last of a lineage where records of several clusters meet in one topic: no other topic has the same records."""


LINEAGE_PROBLEM = "lineage"  # of a catalogue whose new topics are without lineage because it could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTopic:
    name: str
    topic_id: str  # empty where brokers have none
    partitions: int
    replication_factor: int
    configs: Mapping[str, ConfigValue] | None  # None: not permitted to read them
    lineage: tuple[str, ...] = ()  # ids of the clusters that its records went through before, the nearest first

    def __post_init__(self) -> None:
        if not self.name or self.partitions < 1 or self.replication_factor < 0:
            raise ValueError(f"not a topic: {self.name!r} of {self.partitions} partitions")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RemovedTopic:
    """An incarnation of a topic that the cluster had, and does not have any more."""

    name: str
    topic_id: str
    removed_at: datetime  # UTC; when this was first observed
    lineage: tuple[str, ...] | None = None  # as of the topic that it was; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    cluster_id: str
    writer: str  # the process that observed it
    observed_at: datetime  # UTC; when the observation began
    topics: Mapping[str, CatalogTopic]
    removed: tuple[RemovedTopic, ...] = ()
    acls: frozenset[AclBinding] | None = None
    problems: Mapping[str, str] = field(default_factory=dict)  # what could not be observed → why, and the remedy

    @property
    def removed_names(self) -> frozenset[str]:
        return frozenset(one.name for one in self.removed)

    def lineage_of(self, name: str) -> tuple[str, ...]:
        """Of a topic, or of its last incarnation when it was removed: ids of the clusters that its records went
        through, the nearest first, which is this one; empty when they are not known."""
        if (topic := self.topics.get(name)) is not None:
            return (self.cluster_id, *topic.lineage)
        incarnations = (one for one in self.removed if one.name == name)
        last = max(incarnations, key=lambda one: (one.removed_at, one.topic_id), default=None)
        return () if last is None or last.lineage is None else (self.cluster_id, *last.lineage)

    def has_same_content(self, other: Catalog) -> bool:
        """Whether both describe the same cluster state; the observer and the time may differ."""
        return replace(self, writer="", observed_at=other.observed_at) == replace(other, writer="")


def with_removals(now: Catalog, before: Catalog | None, *, existing: Collection[str]) -> Catalog:
    """`now` with the topics that `before` had, or had as removed. `existing`: names of all topics of the cluster: one
    that is only not selected any more was not removed. Another cluster removes nothing: its topics are other topics. A
    topic whose id changed was removed, and is there again."""
    if before is None or before.cluster_id != now.cluster_id:
        return now
    present = {(topic.name, topic.topic_id) for topic in now.topics.values()}
    known = {(one.name, one.topic_id): one for one in before.removed}
    for topic in before.topics.values():
        if topic.name in existing and topic.name not in now.topics:
            continue
        lineage = topic.lineage or (None if LINEAGE_PROBLEM in before.problems else ())
        known.setdefault(
            (topic.name, topic.topic_id),
            RemovedTopic(name=topic.name, topic_id=topic.topic_id, removed_at=now.observed_at, lineage=lineage),
        )
    removed = tuple(sorted(one for key, one in known.items() if key not in present))
    return replace(now, removed=removed)


def encode_catalog(catalog: Catalog) -> bytes:
    shared = _most_common(topic.configs for topic in catalog.topics.values() if topic.configs is not None)
    lineages = [[one.name, one.topic_id, list(one.lineage)] for one in catalog.removed if one.lineage is not None]
    message: dict[str, Any] = {
        "v": VERSION,
        "cluster_id": catalog.cluster_id,
        "writer": catalog.writer,
        "observed_at": catalog.observed_at.isoformat(),
        "configs": {name: _pair(value) for name, value in shared.items()},
        "topics": [_topic_to_json(topic, shared) for _, topic in sorted(catalog.topics.items())],
        "removed": [[one.name, one.topic_id, one.removed_at.isoformat()] for one in catalog.removed],
        "acls": None if catalog.acls is None else [_acl_to_json(one) for one in sorted(catalog.acls)],
        "problems": dict(catalog.problems),
    }
    if lineages:  # a field of its own: earlier readers take exactly three values of a removal
        message["removed_lineages"] = lineages
    return pack(message)


def decode_catalog(data: bytes) -> Catalog:
    """Raises MalformedEvent, also for another version."""
    text = unpack("a catalogue", data)
    with malformed("a catalogue", text):
        message = load(text)
        shared = {name: _config(pair) for name, pair in message["configs"].items()}
        topics = [_topic_from_json(one, shared) for one in message["topics"]]
        acls = message["acls"]
        lineages = {(name, id_): tuple(map(str, ids)) for name, id_, ids in message.get("removed_lineages", ())}
        return Catalog(
            cluster_id=str(message["cluster_id"]),
            writer=str(message["writer"]),
            observed_at=parse_time(message["observed_at"]),
            topics={topic.name: topic for topic in topics},
            removed=tuple(
                RemovedTopic(
                    name=str(name),
                    topic_id=str(id_),
                    removed_at=parse_time(at),
                    lineage=lineages.get((name, id_)),
                )
                for name, id_, at in message["removed"]
            ),
            acls=None if acls is None else frozenset(_acl_from_json(one) for one in acls),
            problems={str(what): str(why) for what, why in message["problems"].items()},
        )


def _most_common(configs: Iterable[Mapping[str, ConfigValue]]) -> Mapping[str, ConfigValue]:
    """Of each config the value that most topics have; of equally many, the smallest."""
    counts: dict[str, Counter[ConfigValue]] = {}
    for one in configs:
        for name, value in one.items():
            counts.setdefault(name, Counter())[value] += 1
    return {name: min(found, key=lambda value: (-found[value], value)) for name, found in counts.items()}


def _topic_to_json(topic: CatalogTopic, shared: Mapping[str, ConfigValue]) -> Mapping[str, Any]:
    message: dict[str, Any] = {
        "name": topic.name,
        "id": topic.topic_id,
        "partitions": topic.partitions,
        "replicas": topic.replication_factor,
    }
    if topic.lineage:
        message["lineage"] = list(topic.lineage)
    if topic.configs is None:
        return message | {"configs": None}
    own = {name: _pair(value) for name, value in topic.configs.items() if shared.get(name) != value}
    without = sorted(shared.keys() - topic.configs.keys())
    return message | {"configs": own} | ({"without": without} if without else {})


def _topic_from_json(message: Mapping[str, Any], shared: Mapping[str, ConfigValue]) -> CatalogTopic:
    own = message["configs"]
    configs: dict[str, ConfigValue] | None = None
    if own is not None:
        configs = {**shared, **{name: _config(pair) for name, pair in own.items()}}
        for name in message.get("without", ()):
            del configs[name]
    return CatalogTopic(
        name=str(message["name"]),
        topic_id=str(message["id"]),
        partitions=int(message["partitions"]),
        replication_factor=int(message["replicas"]),
        configs=configs,
        lineage=tuple(map(str, message.get("lineage", ()))),
    )


def _pair(value: ConfigValue) -> list[str]:
    return [value.value, value.source]


def _config(pair: list[str]) -> ConfigValue:
    value, source = pair
    return ConfigValue(str(value), ConfigSource(source))


def _acl_to_json(acl: AclBinding) -> list[str]:
    return [
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    ]


def _acl_from_json(values: list[str]) -> AclBinding:
    kind, name, pattern, principal, host, operation, permission = map(str, values)
    return AclBinding(
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission=permission,
    )
