"""The topics of a source region, as its catalogue describes them at the moment that is restored to.

A topic that was removed before that moment is described by the catalogue that was in force just before its removal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from formats.control.catalog import Catalog, CatalogTopic
from formats.int_range import ANY_TIME
from formats.policies.acls import AclBinding
from infra.archive.generation_history import GenerationHistory, GenerationInForce
from replicator.selection import Selection

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
JUST = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDescription:
    """A source topic, as one generation of a catalogue lists it."""

    generation: int
    observed_at: datetime  # UTC
    topic: CatalogTopic
    acls: frozenset[AclBinding] | None  # None: not observed
    problems: Mapping[str, str] = field(default_factory=dict)  # what was not observed → why

    def __str__(self) -> str:
        return f"catalogue {self.generation}, observed at {self.observed_at.isoformat(timespec='seconds')}"


@dataclass(frozen=True, slots=True)
class NotDescribed:
    why: str


@dataclass(slots=True)
class SourceCatalog:
    """Of one region. Use from one thread at a time."""

    history: GenerationHistory[Catalog]
    region: str
    moment: datetime | None  # None: the newest catalogue
    _found: dict[datetime | None, GenerationInForce[Catalog]] = field(default_factory=dict)

    def describe(self, name: str, topic_id: str) -> SourceDescription | NotDescribed:
        """`topic_id`: of the incarnation that is restored; empty: not known, and the name decides. Raises
        StoreUnavailable."""
        found = self._at(self.moment)
        if found.value is None:
            return NotDescribed(self._nothing(found))
        topic = found.value.topics.get(name)
        if topic is not None and _is_same(topic.topic_id, topic_id):
            return _described(found.number, found.value, topic)
        removed = (one for one in found.value.removed if one.name == name and _is_same(one.topic_id, topic_id))
        removals = [one.removed_at for one in removed]
        if removals:
            before = self._at(max(removals) - JUST)
            earlier = None if before.value is None else before.value.topics.get(name)
            if before.value is not None and earlier is not None and _is_same(earlier.topic_id, topic_id):
                return _described(before.number, before.value, earlier)
            at = max(removals).isoformat()
            return NotDescribed(f"{name} was removed at {at}, and no catalogue before that lists it")
        of = f"catalogue {found.number} of {self.region}"
        if topic is not None:
            ids = f"its topic id is {topic.topic_id}, that of the archive is {topic_id}"
            return NotDescribed(f"{of} lists another incarnation of {name}: {ids}")
        return NotDescribed(f"{of} does not list {name}")

    @property
    def problems(self) -> Sequence[str]:
        """Generations that could not be read, where one of them may have been in force."""
        return list(dict.fromkeys(text for one in self._found.values() if (text := self._problem(one))))

    def _at(self, moment: datetime | None) -> GenerationInForce[Catalog]:
        if moment not in self._found:
            self._found[moment] = self.history.at(moment)
        return self._found[moment]

    def _nothing(self, found: GenerationInForce[Catalog]) -> str:
        region = self.region
        if found.first_observed_at is not None:
            return f"no catalogue of {region} is that old: the first one is of {found.first_observed_at.isoformat()}"
        if found.problems:
            return f"no catalogue of {region} can be read"
        return f"the archive has no catalogue of {region}"

    def _problem(self, found: GenerationInForce[Catalog]) -> str:
        if not found.problems:
            return ""
        first, count = found.problems[0], len(found.problems)
        used = f"generation {found.number} before it is used" if found.value else "none before it can be used"
        more = f" and {count - 1} more" if count > 1 else ""
        return (
            f"a catalogue of {self.region} cannot be read, {used}: {first}{more}. Copy the object again, or "
            "upgrade this program if the source's is newer"
        )


def moment_of(selection: Selection) -> datetime | None:
    """The moment that is restored to: the end of the selected timestamps; None: now."""
    if selection.timestamps.high >= ANY_TIME.high:
        return None
    try:
        return EPOCH + timedelta(milliseconds=selection.timestamps.high + 1)
    except OverflowError:
        return None


def _is_same(topic_id: str, other: str) -> bool:
    """Whether both may be the id of one topic; empty: not known."""
    return topic_id == other or not topic_id or not other


def _described(number: int, catalog: Catalog, topic: CatalogTopic) -> SourceDescription:
    return SourceDescription(
        generation=number,
        observed_at=catalog.observed_at,
        topic=topic,
        acls=catalog.acls,
        problems=catalog.problems,
    )
