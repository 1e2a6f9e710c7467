"""What a configuration does with one topic or group, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from formats.group_selection import GroupPattern
from formats.group_selection import explain_group as explain_group_name
from formats.topic_selection import TopicMatch, TopicRule, explain
from ingress.groups.flows import group_flows
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
    topic: str  # or the group
    selected: bool
    why: str
    destination: str | None = None
    naming: str = ""  # what gives the destination its name
    changing: str = ""  # what changes the records on their way
    doing: str = ""  # what is done with a group's offsets
    settings: Mapping[str, object]

    @property
    def text(self) -> str:
        arrow = f" → {self.destination}" if self.destination else ""
        chosen = "selected" if self.selected else "not selected"
        named = f"; {self.naming}" if self.naming else ""
        changed = f"; {self.changing}" if self.changing else ""
        done = f"; {self.doing}" if self.doing else ""
        return f"{self.flow}: {self.topic}{arrow}: {chosen}, {self.why}{named}{changed}{done}"


def explain_topic(config: Config, name: str) -> list[Explanation]:
    """One answer for each configured flow, and one for retention; empty if none of them is configured."""
    return [*_egress(config, name), *_ingress(config, name), *_retention(config, name)]


def explain_group(config: Config, name: str) -> list[Explanation]:
    """What is done with the offsets of a group: of this region's, and of each source region's. Empty without [egress]
    and [ingress]."""
    return [*_groups_here(config, name), *_groups_of_sources(config, name)]


def _groups_here(config: Config, name: str) -> Iterator[Explanation]:
    if config.egress is None:
        return
    verdict = explain_group_name(name, config.egress.group_rules, config.own_groups)
    doing = "its committed offsets are stored beside the archive; [groups] of a target's file says what follows"
    yield Explanation(
        flow=f"groups of {config.region}",
        topic=name,
        selected=verdict.selected,
        why=verdict.why if config.egress.groups else "because [egress] groups is empty: no group is replicated",
        doing=doing if verdict.selected else "",
        settings={},
    )


def _groups_of_sources(config: Config, name: str) -> Iterator[Explanation]:
    if config.ingress is None:
        return
    flows, problems = group_flows(config.ingress)
    internal = explain_group_name(name, [TopicRule(GroupPattern("^.*"), None)], config.own_groups)
    for region in dict.fromkeys(source.region for source in config.ingress.sources):
        flow = next((one for one in flows if one.region == region), None)
        answer = Explanation(flow=f"groups from {region}", topic=name, selected=False, why="", settings={})
        checkpoints = "" if flow is None or not config.groups.emit_checkpoints else flow.checkpoints
        written = f"its translated offsets are written to {checkpoints}" if checkpoints else ""
        if not internal.selected:
            yield replace(answer, why=internal.why)
        elif region in problems:
            yield replace(answer, why=f"because the replication policy failed: {problems[region]}")
        elif flow is None:
            yield replace(answer, why="because no topic of this source has offsets that can be translated")
        elif not config.groups.sync:
            yield replace(answer, why="because [groups] sync = false: nothing is committed for it here", doing=written)
        else:
            committed = "its translated offsets are committed here while it has no members here"
            yield replace(
                answer,
                selected=True,
                why=f"because [groups] sync = true, if egress.groups of the file of {region} selects it",
                doing="; ".join(filter(None, (committed, written))),
            )


def _egress(config: Config, name: str) -> Iterator[Explanation]:
    if config.egress is None:
        return
    verdict = explain(name, config.egress.rules, config.own_topics)
    yield _answer(f"egress of {config.region}", verdict, None)


def _ingress(config: Config, name: str) -> Iterator[Explanation]:
    if config.ingress is None:
        return
    for region in dict.fromkeys(source.region for source in config.ingress.sources):
        verdict = explain(name, config.ingress.rules(region), config.own_topics)
        source = None if verdict.rule is None else verdict.rule.settings
        if source is None:
            yield _answer(f"ingress from {region}", verdict, None)
        elif reason := source.refusal(name, config.region):
            yield replace(_answer(f"ingress from {region}", verdict, None), selected=False, why=f"because {reason}")
        else:
            answer = _answer(f"ingress from {region}", verdict, source.destination(name))
            yield replace(answer, naming=source.naming, changing=source.changing)


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
