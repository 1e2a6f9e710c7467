"""What the destinations should be, by the catalogues of the source regions. Pure.

    source topic       destination
    partitions         as many, or as the source's setting `partitions` says
    configs            `formats.policies.topic_configs`, and what keeps every timestamp
    retention          -1 until the first copy is through; then the source's, or what the data's age needs
    ACLs               `formats.policies.acls`

Of several sources with one destination (allow_merge), the largest partition count counts, the configs of the first, and
the largest `max.message.bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from formats.control.catalog import MERGED, Catalog, CatalogTopic
from formats.errors import PluginFailed
from formats.incarnation import Incarnation
from formats.policies.acls import AclBinding, mirrored
from formats.policies.topic_configs import KEEPS_TIMESTAMPS, RETENTION_MS, ConfigValue, wanted_configs, with_floors
from ingress.catalog.differ import DataAge, DesiredTopic
from ingress.catalog.settings import CatalogSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    """A source topic that goes to a destination."""

    region: str
    name: str
    partitions: int | None = None  # as configured for its destination; None: as many as the source has

    def __str__(self) -> str:
        return f"{self.region}/{self.name}"

    def found_in(self, catalogs: Mapping[str, Catalog]) -> CatalogTopic | None:
        catalog = catalogs.get(self.region)
        return None if catalog is None else catalog.topics.get(self.name)

    def was_removed(self, catalogs: Mapping[str, Catalog]) -> bool:
        """Whether the source had it, and has it no longer. A topic that is in no catalogue was not removed."""
        catalog = catalogs.get(self.region)
        return catalog is not None and self.name not in catalog.topics and self.name in catalog.removed_names

    def lineage(self, catalogs: Mapping[str, Catalog]) -> tuple[str, ...]:
        """Ids of the clusters that its records went through, the nearest first; empty when they are not known. Of a
        topic that was removed, too: what the archive has of it is still delivered."""
        catalog = catalogs.get(self.region)
        return () if catalog is None else catalog.lineage_of(self.name)


def lineage_of(sources: Sequence[SourceTopic], catalogs: Mapping[str, Catalog]) -> tuple[str, ...]:
    """Of a destination: the ids of the clusters that its records went through, the nearest first. Where several sources
    meet, of all of them, and MERGED. Empty when it is not known of each."""
    lineages = [source.lineage(catalogs) for source in sources]
    if not all(lineages):
        return ()
    if len(lineages) == 1:
        return lineages[0]
    ids = dict.fromkeys(one for lineage in lineages for one in lineage if one != MERGED)
    return (*ids, MERGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTopic:
    """A destination that this process keeps like its sources."""

    sources: Sequence[SourceTopic]  # at least one
    archived: Sequence[tuple[str, Incarnation]]  # what is delivered to it: region and incarnation
    first_segment_delay: timedelta


def is_left_gone(sources: Sequence[SourceTopic], catalogs: Mapping[str, Catalog], settings: CatalogSettings) -> bool:
    """Whether a destination of these sources that does not exist is not created: it went with them, and what the
    archive still has of them would make it again."""
    return settings.removals == "mirror" and all(source.was_removed(catalogs) for source in sources)


def not_created(partitions: int | None) -> str:
    """Why a destination is missing that ingress may not create. `partitions`: None: as its segments say."""
    count = "" if partitions is None else f" with {partitions} partitions"
    return f"does not exist, and create_topics = false: create it{count}; until then its records wait"


def desired_topics(
    destinations: Mapping[str, Sequence[SourceTopic]], catalogs: Mapping[str, Catalog], settings: CatalogSettings
) -> Sequence[DesiredTopic]:
    """Destinations without a source in any catalogue are left out: they stay as they are."""
    found = (_desired(name, sources, catalogs, settings) for name, sources in destinations.items())
    return [one for one in found if one is not None]


def _desired(
    name: str, sources: Sequence[SourceTopic], catalogs: Mapping[str, Catalog], settings: CatalogSettings
) -> DesiredTopic | None:
    known = [(source, topic) for source in sources if (topic := source.found_in(catalogs)) is not None]
    if not known:
        removed = [source for source in sources if source.was_removed(catalogs)]
        if not removed or len(removed) < len(sources):
            return None
        return DesiredTopic(name=name, source=str(removed[0]), partitions=0, is_removed=True)
    source, first = known[0]
    failed = ""
    try:
        configs, without = _configs(first.configs, [topic.configs or {} for _, topic in known], settings)
    except PluginFailed as error:  # no answer: the configs that it has stay
        configs, without, failed = None, frozenset(), str(error)
    return DesiredTopic(
        name=name,
        source=str(source),
        partitions=max(source.partitions or topic.partitions for source, topic in known),
        configs=configs,
        without=without,
        source_retention_ms=retention_ms(first.configs),
        failed=failed,
    )


def _configs(
    source: Mapping[str, ConfigValue] | None,
    sources: Sequence[Mapping[str, ConfigValue]],
    settings: CatalogSettings,
) -> tuple[Mapping[str, str] | None, frozenset[str]]:
    """`sources`: the configs of all topics that are delivered there, with those of `source`. Raises PluginFailed."""
    if settings.configs == "off" or source is None:
        return None, frozenset()
    configs, without = wanted_configs(source, settings.config_filter, settings.use_defaults_from)
    configs, without = with_floors(sources, configs, without)
    if settings.retention_guard == "raise" and RETENTION_MS in without:
        # set on the topic, since this cluster's default may be shorter
        configs, without = {**configs, RETENTION_MS: source[RETENTION_MS].value}, without - {RETENTION_MS}
    return {**configs, **KEEPS_TIMESTAMPS}, without


def guarded(topic: DesiredTopic, age: DataAge | None, settings: CatalogSettings) -> DesiredTopic:
    """With the age of its data. Where that is more than the source's retention, and the guard is `raise`, the
    destination keeps records for both together: so the oldest stays as long as a new one does."""
    found = replace(topic, age=age)
    if age is None or topic.configs is None or settings.retention_guard != "raise":
        return found
    wanted = _milliseconds(topic.configs.get(RETENTION_MS, ""))
    if wanted is None or not 0 <= wanted < age.age_ms:
        return found
    return replace(found, configs={**topic.configs, RETENTION_MS: str(wanted + age.age_ms)})


def retention_ms(configs: Mapping[str, ConfigValue] | None) -> int | None:
    """The retention in force; -1: for ever; None: not known."""
    if configs is None or (found := configs.get(RETENTION_MS)) is None:
        return None
    return _milliseconds(found.value)


def _milliseconds(value: str) -> int | None:
    try:
        return int(value)
    except ValueError:
        return None


def desired_acls(
    destinations: Mapping[str, Sequence[SourceTopic]], catalogs: Mapping[str, Catalog], settings: CatalogSettings
) -> frozenset[AclBinding]:
    """ACLs that the destinations should have, those of `protect` not included."""
    found: set[AclBinding] = set()
    for region, catalog in catalogs.items():
        names: dict[str, list[str]] = {}
        for destination, sources in destinations.items():
            for source in sources:
                if source.region == region:
                    names.setdefault(source.name, []).append(destination)
        found |= mirrored(catalog.acls or (), settings.acls, names)
    return frozenset(found)
