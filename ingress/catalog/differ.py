"""Desired minus actual: what has to change in this cluster so that its remote topics are as the source's are.

    actual            ours           somebody else's
    absent            create         create
    fewer partitions  grow           reported: records of the missing ones wait
    more partitions   reported       -
    other configs     change         reported as drift
    gone at source    reported       -

Nothing shrinks and nothing is removed. A topic is ours if the ledger has it with the id that it has now: only what we
created is ever altered. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from formats.policies.topic_configs import RETENTION_MS, ConfigChange, ConfigValue, config_change


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredTopic:
    """A remote topic as it should be."""

    name: str
    source: str  # region/topic, for people
    partitions: int
    configs: Mapping[str, str] | None = None  # None: not known, or not mirrored, so those it has are kept
    without: frozenset[str] = frozenset()  # configs that it should not have as its own
    source_retention_ms: int | None = None  # in force at the source, also by its default; None: not known; -1: for ever
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

    def __str__(self) -> str:
        return f"grow {self.name} from {self.before} to {self.partitions} partitions"


@dataclass(frozen=True, slots=True)
class ChangeConfigs:
    name: str
    change: ConfigChange

    def __str__(self) -> str:
        parts = [f"set {name}={value}" for name, value in sorted(self.change.set.items())]
        parts += [f"unset {name}" for name in sorted(self.change.unset)]
        return f"{self.name}: {', '.join(parts)}"


Change = CreateTopic | GrowTopic | ChangeConfigs


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
) -> CatalogPlan:
    """`owned`: topic → id that it had when we created it. `keep`: configs of a topic that are decided elsewhere, such
    as its retention until the first copy is through. `created_with`: configs of every new topic, over the source's."""
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
        if topic.is_removed:
            reports.append(Drift(topic.name, f"{topic.source} is gone at the source; this topic is kept"))
            continue
        is_ours = owned.get(topic.name) == here.topic_id
        found = _differences(topic, here, keep.get(topic.name, ()), is_ours=is_ours)
        for one in found:
            if isinstance(one, Drift):
                reports.append(one)
            else:
                changes.append(one)
    order = (CreateTopic, GrowTopic, ChangeConfigs)
    return CatalogPlan(tuple(sorted(changes, key=lambda one: order.index(type(one)))), tuple(reports))


def _differences(
    topic: DesiredTopic, here: ActualTopic, keep: Collection[str], *, is_ours: bool
) -> Iterator[Change | Drift]:
    if here.partitions > topic.partitions:
        text = f"has {here.partitions} partitions, {topic.source} has {topic.partitions}; topics never shrink"
        yield Drift(topic.name, text)
    if here.partitions < topic.partitions and is_ours:
        yield GrowTopic(topic.name, here.partitions, topic.partitions)
    elif here.partitions < topic.partitions:
        yield Drift(
            topic.name,
            f"has {here.partitions} partitions, {topic.source} has {topic.partitions}, and we did not create it: add "
            "partitions to it; until then the records of the others wait",
        )
    if here.configs is None or topic.configs is None:
        return
    change = config_change(topic.configs, topic.without, here.configs, keep=keep)
    if change and is_ours:
        yield ChangeConfigs(topic.name, change)
    elif change:
        names = ", ".join(sorted({*change.set, *change.unset}))
        yield Drift(topic.name, f"its configs {names} differ from those of {topic.source}, and we did not create it")
    retention = change.set.get(RETENTION_MS) or (found.value if (found := here.configs.get(RETENTION_MS)) else None)
    wanted = topic.source_retention_ms
    if retention is None or wanted is None or RETENTION_MS in (*keep, *change.unset):
        return  # not known, for ever until the first copy is through, or known with the next comparison
    if _is_shorter(int(retention), wanted):
        yield Drift(
            topic.name,
            f"keeps records for {retention} ms, {topic.source} for {wanted} ms: set retention_guard = 'raise' or "
            "use_defaults_from = 'source', if they shall be kept as long",
        )


def _is_shorter(retention_ms: int, other_ms: int) -> bool:
    """-1 keeps for ever."""
    return retention_ms >= 0 and (other_ms < 0 or retention_ms < other_ms)
