"""What the archive holds that a source of the configuration wants, life by life."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ingress.lives import Life, in_order, life_of
from replicator import logkeys
from replicator.config import IngressSettings, IngressSource
from replicator.control import Place
from replicator.control_store import ControlStore
from replicator.errors import DataError
from replicator.store import SegmentStore
from replicator.topics import is_internal

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What should be delivered to one topic here."""

    region: str
    lives: Sequence[Life]  # in this order; at least one
    settings: IngressSource

    @property
    def name(self) -> str:
        return f"{self.region}/{self.lives[0].place}"

    @property
    def destination(self) -> str:
        return self.settings.destination(self.lives[0].topic, self.lives[0].incarnation)


@dataclass(slots=True)
class WishFinder:
    """One call at a time."""

    store: SegmentStore
    control: ControlStore
    settings: IngressSettings
    own_topics: Collection[str]
    _claims: dict[tuple[str, str], Place] = field(default_factory=dict)  # by region and place; they never change
    _idle: set[tuple[str, str]] = field(default_factory=set)  # region and pattern: told once

    def look(self, region: str, refused: dict[str, str]) -> Iterator[Wish]:
        """Adds to `refused` what is not wished for and should be known: by region/place, why and what to do. Raises
        StoreUnavailable."""
        topics: dict[str, list[Life]] = {}
        for life in map(life_of, self.store.topics(region)):
            topics.setdefault(life.topic, []).append(life)
        self._tell_idle(region, topics)
        claimed: Sequence[str] | None = None
        for topic, lives in topics.items():
            source = self.settings.source_of(region, topic)
            if source is None or is_internal(topic, self.own_topics):
                continue
            if source.on_recreate == "follow" and any(life.incarnation for life in lives):
                claimed = self.control.places(region) if claimed is None else claimed
                # a life of which nothing is stored yet has its number, too, and must not be passed over
                places = {life.place for life in lives} | {p for p in claimed if life_of(p).topic == topic}
                ordered, unordered = in_order(self._with_claim(region, place, refused) for place in places)
                for life, reason in unordered.items():
                    refused.setdefault(f"{region}/{life.place}", reason)
                if ordered:
                    yield Wish(region=region, lives=ordered, settings=source)
                continue
            for life in lives:
                if life.incarnation and source.on_recreate == "stop":
                    refused[f"{region}/{life.place}"] = _stopped(life)
                else:
                    yield Wish(region=region, lives=(life,), settings=source)

    def _tell_idle(self, region: str, topics: Collection[str]) -> None:
        """A source that matches nothing: perhaps a slip of the pen, perhaps an archive that is still to come."""
        for source in self.settings.sources:
            rule = (region, str(source.topic))
            if source.region != region or source.topic.matches_any(topics):
                self._idle.discard(rule)
            elif rule not in self._idle:
                self._idle.add(rule)
                log.warning("source_matches_no_topic", extra={logkeys.REGION: region, logkeys.TOPIC: rule[1]})

    def _with_claim(self, region: str, place: str, refused: dict[str, str]) -> Life:
        key, life = (region, place), life_of(place)
        if key not in self._claims:
            try:
                claim = self.control.place(region, place)
            except DataError as error:  # it says nothing; least of all that nobody claimed the place
                refused[f"{region}/{place}"] = (
                    f"{error}. Copy _control/v1/places/{place} again from the source's bucket"
                )
                return replace(life, is_readable=False)
            if claim is None:
                return life
            self._claims[key] = claim
        return replace(life, claim=self._claims[key])


def _stopped(life: Life) -> str:
    return (
        f"topic {life.topic} was deleted and created again at the source: {life.place} is a later life of it, with the "
        f"topic id {life.incarnation}, and on_recreate = 'stop': nothing of it is delivered. Set on_recreate for this "
        "source: 'follow' delivers it behind everything of the life before, 'new-topic' to a topic of its own"
    )
