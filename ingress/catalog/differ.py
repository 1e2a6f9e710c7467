"""Desired minus actual: what has to change in this cluster so that its remote topics are as the source's are.

    actual            ours           somebody else's
    absent            create         create
    fewer partitions  grow           reported: records of the missing ones wait
    more partitions   reported       -
    other configs     change         reported as drift
    configs of its    reported       reported as drift: they are unset where configs = "authoritative" and it is ours
      own
    gone at source    reported       -         deleted where `ingress.catalog.removals` permits it

Nothing shrinks: Kafka cannot. A topic is ours if the ledger has it with the id that it has now: only what we
created is ever altered. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from formats.policies.topic_configs import RETENTION_MS, ConfigChange, ConfigValue, config_change

CLEANUP = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class DataAge:
    """How old the oldest record of a first copy is: as it is now while the copy is under way, then as it was at its
    end."""

    oldest_at: datetime  # UTC
    age_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredTopic:
    """A remote topic as it should be."""

    name: str
    source: str  # region/topic, for people
    partitions: int
    configs: Mapping[str, str] | None = None  # None: not known, or not mirrored, so those it has are kept
    without: frozenset[str] = frozenset()  # configs that it should not have as its own
    source_retention_ms: int | None = None  # in force at the source, also by its default; None: not known; -1: for ever
    age: DataAge | None = None  # of what is delivered to it; None: not known
    is_removed: bool = False  # the source has it no longer
    failed: str = ""  # why a user's filter did not say which configs cross


@dataclass(frozen=True, slots=True, kw_only=True)
class ActualTopic:
    """A topic of this cluster as it is."""

    name: str
    topic_id: str
    partitions: int
    configs: Mapping[str, ConfigValue] | None = None  # None: not known, and not compared


@dataclass(frozen=True, slots=True)
class CreateTopic:
    name: str
    partitions: int
    configs: Mapping[str, str]

    def __str__(self) -> str:
        configs = ", ".join(f"{name}={value}" for name, value in sorted(self.configs.items()))
        return f"create {self.name} with {self.partitions} partitions" + (f" and {configs}" if configs else "")


@dataclass(frozen=True, slots=True)
class GrowTopic:
    name: str
    before: int
    partitions: int
    topic_id: str

    def __str__(self) -> str:
        return f"grow {self.name} from {self.before} to {self.partitions} partitions"


@dataclass(frozen=True, slots=True)
class ChangeConfigs:
    name: str
    change: ConfigChange
    topic_id: str

    def __str__(self) -> str:
        parts = [f"set {name}={value}" for name, value in sorted(self.change.set.items())]
        parts += [f"unset {name}" for name in sorted(self.change.unset)]
        return f"{self.name}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    name: str
    topic_id: str
    source: str  # region/topic, for people

    def __str__(self) -> str:
        return f"delete {self.name}, since {self.source} is gone at the source"


Change = CreateTopic | GrowTopic | ChangeConfigs | DeleteTopic


@dataclass(frozen=True, slots=True)
class Drift:
    """A difference that is left as it is, with the reason and the remedy."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


@dataclass(frozen=True, slots=True)
class CatalogPlan:
    """Changes in the order in which they are made: topics exist before they grow or change."""

    changes: tuple[Change, ...] = ()
    reports: tuple[Drift, ...] = ()


def plan_changes(
    desired: Iterable[DesiredTopic],
    actual: Mapping[str, ActualTopic],
    owned: Mapping[str, str],
    *,
    keep: Mapping[str, Collection[str]],
    created_with: Mapping[str, str] | None = None,
    set_by_us: Mapping[str, Collection[str]] | None = None,
    obstacles: Mapping[str, str] | None = None,
) -> CatalogPlan:
    """`owned`: topic → id that it had when we created it. `keep`: configs of a topic that are decided elsewhere, such
    as its retention until the first copy is through. `created_with`: configs of every new topic, over the source's.
    `set_by_us`: configs of topics of ours that are unset when the source has them no longer; None: all are.
    `obstacles`: of topics that shall be deleted with their source, why they may not be; empty when they may."""
    created_with = created_with or {}
    changes: list[Change] = []
    reports: list[Drift] = []
    for topic in sorted(desired, key=lambda one: one.name):
        here = actual.get(topic.name)
        if topic.failed:
            reports.append(Drift(topic.name, f"its configs stay as they are: {topic.failed}"))
        if here is None:
            if not topic.is_removed:
                changes.append(CreateTopic(topic.name, topic.partitions, {**(topic.configs or {}), **created_with}))
            continue
        is_ours = owned.get(topic.name) == here.topic_id
        if topic.is_removed:
            obstacle = (obstacles or {}).get(topic.name)
            if obstacle == "" and is_ours and here.topic_id:
                changes.append(DeleteTopic(topic.name, here.topic_id, topic.source))
            else:
                why = f": {obstacle}" if obstacle else ""
                reports.append(Drift(topic.name, f"{topic.source} is gone at the source; this topic is kept{why}"))
            continue
        may_unset = None if set_by_us is None else set_by_us.get(topic.name, ())
        found = _differences(topic, here, keep.get(topic.name, ()), may_unset, is_ours=is_ours)
        for one in found:
            if isinstance(one, Drift):
                reports.append(one)
            else:
                changes.append(one)
    order = (CreateTopic, GrowTopic, ChangeConfigs, DeleteTopic)
    return CatalogPlan(tuple(sorted(changes, key=lambda one: order.index(type(one)))), tuple(reports))


def _differences(
    topic: DesiredTopic,
    here: ActualTopic,
    keep: Collection[str],
    may_unset: Collection[str] | None,
    *,
    is_ours: bool,
) -> Iterator[Change | Drift]:
    if here.partitions > topic.partitions:
        text = f"has {here.partitions} partitions, {topic.source} has {topic.partitions}; topics never shrink"
        yield Drift(topic.name, text)
    if here.partitions < topic.partitions and is_ours:
        yield GrowTopic(topic.name, here.partitions, topic.partitions, here.topic_id)
    elif here.partitions < topic.partitions:
        yield Drift(
            topic.name,
            f"has {here.partitions} partitions, {topic.source} has {topic.partitions}, and we did not create it: add "
            "partitions to it; until then the records of the others wait",
        )
    if here.configs is None or topic.configs is None:
        return
    change = config_change(topic.configs, topic.without, here.configs, keep=keep)
    if is_ours and may_unset is not None and (others := change.unset.difference(may_unset)):
        names = ", ".join(f"{name}={here.configs[name].value}" for name in sorted(others))
        yield Drift(
            topic.name,
            f"has {names}, which {topic.source} has not and ingress did not set: kept. Set configs = 'authoritative', "
            "if ingress shall unset it, or exclude it in config_properties_exclude",
        )
        change = replace(change, unset=change.unset - others)
    if change and is_ours:
        yield ChangeConfigs(topic.name, change, here.topic_id)
    elif change and not is_ours:
        names = ", ".join(sorted({*change.set, *change.unset}))
        yield Drift(topic.name, f"its configs {names} differ from those of {topic.source}, and we did not create it")
    yield from _retention_reports(topic, here.configs, change, keep)


def _retention_reports(
    topic: DesiredTopic, actual: Mapping[str, ConfigValue], change: ConfigChange, keep: Collection[str]
) -> Iterator[Drift]:
    """Where records are kept for less time than at the source, or than those that are delivered are old."""
    policy = change.set.get(CLEANUP) or (found.value if (found := actual.get(CLEANUP)) else "delete")
    if "delete" not in policy:
        return
    if (retention := _retention_to_be(topic, actual, change, keep)) is None:
        return
    wanted, age = topic.source_retention_ms, topic.age
    # before the first copy is through it has no other retention than for ever
    if wanted is not None and RETENTION_MS not in keep and _is_shorter(retention, wanted):
        yield Drift(
            topic.name,
            f"keeps records for {retention} ms, {topic.source} for {wanted} ms: set retention_guard = 'raise' or "
            "use_defaults_from = 'source', if they shall be kept as long",
        )
    if age is not None and _is_shorter(retention, age.age_ms):
        yield Drift(
            topic.name,
            f"keeps records for {retention} ms from the end of its first copy on, and its archive goes back to "
            f"{age.oldest_at.isoformat(timespec='seconds')}: older ones are deleted once they are delivered. Set "
            "retention_guard = 'raise', if they shall be kept",
        )


def _retention_to_be(
    topic: DesiredTopic, actual: Mapping[str, ConfigValue], change: ConfigChange, keep: Collection[str]
) -> int | None:
    """The retention.ms that the topic has once it is as its source says; None: this cluster's default, known with the
    next comparison."""
    found = actual.get(RETENTION_MS)
    text = (topic.configs or {}).get(RETENTION_MS) or (found.value if found is not None else None)
    if text is None or RETENTION_MS in change.unset or (RETENTION_MS in keep and RETENTION_MS in topic.without):
        return None
    try:
        return int(text)
    except ValueError:
        return None


def _is_shorter(retention_ms: int, other_ms: int) -> bool:
    """-1 keeps for ever."""
    return retention_ms >= 0 and (other_ms < 0 or retention_ms < other_ms)
