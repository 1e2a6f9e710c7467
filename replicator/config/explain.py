"""What a configuration does with one topic name, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from formats.topic_selection import TopicMatch, explain
from replicator.config.settings import Config
from replicator.config.show import table_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer for one flow: egress of this region, ingress from one region, or retention. `settings`: those of the
    matching rule."""

    flow: str
    topic: str
    selected: bool
    why: str
    destination: str | None = None
    settings: Mapping[str, object]

    @property
    def text(self) -> str:
        arrow = f" → {self.destination}" if self.destination else ""
        chosen = "selected" if self.selected else "not selected"
        return f"{self.flow}: {self.topic}{arrow}: {chosen}, {self.why}"


def explain_topic(config: Config, name: str) -> list[Explanation]:
    """One answer for each configured flow, and one for retention; empty if none of them is configured."""
    return [*_egress(config, name), *_ingress(config, name), *_retention(config, name)]


def _egress(config: Config, name: str) -> Iterator[Explanation]:
    if config.egress is None:
        return
    verdict = explain(name, config.egress.topics, config.own_topics)
    yield _answer(f"egress of {config.region}", verdict, None)


def _ingress(config: Config, name: str) -> Iterator[Explanation]:
    if config.ingress is None:
        return
    for region in dict.fromkeys(source.region for source in config.ingress.sources):
        verdict = explain(name, config.ingress.rules(region), config.own_topics)
        destination = None if verdict.rule is None else verdict.rule.settings.destination(name)
        yield _answer(f"ingress from {region}", verdict, destination)


def _retention(config: Config, name: str) -> Iterator[Explanation]:
    if config.retention is None:
        return
    verdict = explain(name, config.retention.topics, config.own_topics)
    yield _answer(f"retention of {config.retention.region or config.region}", verdict, None)


def _answer(flow: str, verdict: TopicMatch[S], destination: str | None) -> Explanation:
    return Explanation(
        flow=flow,
        topic=verdict.topic,
        selected=verdict.selected,
        why=verdict.why,
        destination=destination,
        settings={} if verdict.rule is None else table_of(verdict.rule.settings),
    )
