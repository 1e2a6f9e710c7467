"""One file of several regions: clusters, and flows between them, as what the file of one region says. Pure.

    [clusters.A.kafka] and so on, over [cluster_defaults.kafka] ──> the sections of the region A
    [flows."A->B"], over [flow_defaults] ──┬──> of A: egress.topics, exclude, topic_filter, groups, groups_exclude
                                           └──> of B: one of ingress.sources for each topic

Nothing below this module knows that there are flows. What a process does not use of the file is checked for its form
only: its values may need variables of the environment that other processes have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from formats.topic_selection import EXPRESSION_SIGN, TopicPattern
from infra.settings.field import Invalid, dotted, suggestion
from infra.settings.kafka import ROLES
from infra.settings.secrets import Path
from replicator.config.convert import flattened
from replicator.config.flows_form import (
    ARROW,
    CLUSTER_DEFAULTS,
    CLUSTERS,
    FLOW_DEFAULTS,
    FLOWS,
    SOURCE_KEYS,
    Tree,
    ends,
    is_flows,
    problems,
    regions_of,
    table_in,
)
from replicator.config.show import Table

DEFAULT_POLICY = "default"  # of a flow
_PROPERTIES: tuple[Path, ...] = (("kafka",), *(("kafka", role) for role in ROLES), ("compaction", "spark"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionTables:
    """`tables`: those of a file of one region. `written`: where the file has a path of them and what is below.
    `assumed`: paths that the file does not have, since a flow has a default of its own."""

    region: str | None  # that is asked for
    tables: Tree
    written: Mapping[str, str] = field(default_factory=dict)
    assumed: frozenset[str] = frozenset()
    absent: Mapping[str, str] = field(default_factory=dict)  # as of Config

    def where(self, path: str) -> str:
        """The path in the file of a path in `tables`."""
        fitting = [one for one in self.written if _is_below(path, one)]
        if not fitting:
            return path
        longest = max(fitting, key=len)
        if self.written[longest].startswith(CLUSTER_DEFAULTS) and not _has(self.tables, path):
            longest = ""  # what is missing, such as a bucket, belongs to the cluster
        rest = path.removeprefix(longest)
        place = self.written[longest]
        return f"{place}.{rest}" if rest and not longest else place + rest


def tables_of(tree: Tree, region: str | None, *, hint: str = "") -> RegionTables:
    """What a file of several regions says of `region`; None: of its only one. Of a file of one region what it says,
    though its `region` may be another, which shows when its variables are replaced. `hint`: how a region is named, for
    messages. Raises Invalid."""
    if is_flows(tree):
        known = regions_of(tree)
        if region is None and len(known) > 1:
            found = list(problems(tree))
            raise Invalid([*found, ("", f"has several regions: name one of them{hint}: {', '.join(known)}")])
        return expanded(tree, region if region is not None or not known else known[0])
    return RegionTables(region=region, tables=tree)


def expanded(tree: Tree, region: str | None) -> RegionTables:
    """What the file says of one of its regions. Raises Invalid, with every problem of the file's form."""
    found = list(problems(tree))
    known = regions_of(tree)
    if region is not None and known and region not in known:
        found.append(("", f"has no region {region!r}{suggestion(region, known)}; its regions are: {', '.join(known)}"))
    if found or region is None:
        raise Invalid(found)
    return _Region(tree, region).expanded()


# --- what it says of one region --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Flow:
    """`place`: of the flow in the file. Its tables are legal in form."""

    source: str
    target: str
    place: str
    own: Tree
    defaults: Tree

    def get(self, key: str) -> object:
        return self.own.get(key, self.defaults.get(key))

    def words(self, key: str) -> list[str]:
        """One of the lists; empty when it is not set, or not a list."""
        value = self.get(key)
        return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []

    def place_of(self, key: str) -> str:
        return dotted((FLOW_DEFAULTS, key)) if key not in self.own and key in self.defaults else f"{self.place}.{key}"


class _Region:
    def __init__(self, tree: Tree, region: str) -> None:
        self._region = region
        self._own = table_in(table_in(tree[CLUSTERS])[region])
        defaults = table_in(tree.get(FLOW_DEFAULTS))
        flows = [
            _Flow(*ends(name), dotted((FLOWS, name)), table_in(table), defaults)
            for name, table in table_in(tree.get(FLOWS)).items()
        ]
        self._flows = [one for one in flows if one.get("enabled") is not False]
        self._ended = [one for one in flows if one.get("enabled") is False]
        self._written = {"": dotted((CLUSTERS, region))}
        self._assumed: set[str] = set()
        self._tables = self._merged(table_in(tree.get(CLUSTER_DEFAULTS)), self._own, ())

    def expanded(self) -> RegionTables:
        self._add_topics([one for one in self._flows if one.source == self._region])
        self._add_sources([one for one in self._flows if one.target == self._region])
        self._drop("egress", "topics", is_ended=any(one.source == self._region for one in self._ended))
        self._drop("ingress", "sources", is_ended=any(one.target == self._region for one in self._ended))
        return RegionTables(
            region=self._region,
            tables={"region": self._region, **self._tables},
            absent={name: self._absent(name) for name in ("egress", "ingress") if name not in self._tables},
            written=self._written,
            assumed=frozenset(self._assumed),
        )

    def _merged(self, defaults: Tree, own: Tree, path: Path) -> Table:
        """Tables within tables are merged, too; notes what comes from the defaults."""
        if path in _PROPERTIES:  # `a.b` without quotes is the same as "a.b"
            defaults, own = _flat(defaults), _flat(own)
        found = dict(own)
        for key, value in defaults.items():
            here = (*path, key)
            if key not in own:
                found[key] = value
                self._written[dotted(here)] = dotted((CLUSTER_DEFAULTS, *here))
            elif isinstance(value, dict) and isinstance(own[key], dict):
                found[key] = self._merged(value, table_in(own[key]), here)
        return {key: found[key] for key in dict.fromkeys([*defaults, *own])}

    def _drop(self, section: str, content: str, *, is_ended: bool) -> None:
        """A section that has nothing to do: from the defaults of all clusters, or since its flows have ended."""
        table = self._tables.get(section)
        if isinstance(table, dict) and not table.get(content) and (section not in self._own or is_ended):
            del self._tables[section]

    def _absent(self, section: str) -> str:
        is_egress = section == "egress"
        ended = [one.place for one in self._ended if (one.source if is_egress else one.target) == self._region]
        side = "from" if is_egress else "to"
        if ended:
            return f": of the flows {side} {self._region}, enabled = false ends {', '.join(ended)}"
        name = f"{self._region}{ARROW}REGION" if is_egress else f"REGION{ARROW}{self._region}"
        return f": the file has no flow {side} {self._region}; add {dotted((FLOWS, name))} with its topics"

    # --- the source's side

    def _add_topics(self, flows: Sequence[_Flow]) -> None:
        if not flows or not isinstance(self._tables.get("egress", {}), dict):
            return
        egress = dict(table_in(self._tables.get("egress")))
        topics = egress.get("topics", {})
        if not isinstance(topics, dict):
            return
        given = dict(topics)
        for flow in flows:
            for topic in flow.words("topics"):
                if topic not in given:
                    given[topic] = {}
                    self._written[dotted(("egress", "topics", topic))] = flow.place_of("topics")
        # if anything is only archived, an exclude of the flows is none of that
        exclude = _shared(flows, "exclude")
        only_archived = set(topics) - {topic for flow in flows for topic in flow.words("topics")}
        self._add(egress, "groups", [group for flow in flows for group in flow.words("groups")], flows)
        if egress.get("groups"):
            self._add(egress, "groups_exclude", _shared(flows, "groups_exclude"), flows)
        if all(_is_selected(topic, flows) and not _is_any(exclude, topic) for topic in only_archived):
            self._add(egress, "exclude", exclude, flows)
        if not only_archived:
            filters = {str(flow.get("topic_filter") or "") for flow in flows}
            if "topic_filter" not in egress and len(filters) == 1 and "" not in filters:
                egress["topic_filter"] = flows[0].get("topic_filter")
                self._written["egress.topic_filter"] = flows[0].place_of("topic_filter")
        self._tables["egress"] = {**egress, "topics": given}

    def _add(self, egress: Table, key: str, more: Sequence[str], flows: Sequence[_Flow]) -> None:
        own = egress.get(key, [])
        if not isinstance(own, list) or not more:
            return
        egress[key] = list(dict.fromkeys([*own, *more]))
        if not own:
            self._written[dotted(("egress", key))] = next(one for one in flows if one.words(key)).place_of(key)

    # --- the target's side

    def _add_sources(self, flows: Sequence[_Flow]) -> None:
        if not flows or not isinstance(self._tables.get("ingress", {}), dict):
            return
        ingress = dict(table_in(self._tables.get("ingress")))
        given = ingress.get("sources", [])
        if not isinstance(given, list):
            return
        sources: list[object] = list(given)
        for flow in flows:
            settings, is_named = _source_settings(flow), _names_topics(flow, ingress)
            assumed: Table = {} if is_named else {"replication_policy": DEFAULT_POLICY}
            for topic in flow.words("topics"):
                here = dotted(("ingress", "sources", len(sources)))
                self._written[here] = self._written[f"{here}.region"] = flow.place
                self._written[f"{here}.topic"] = flow.place_of("topics")
                self._written |= {f"{here}.{key}": flow.place_of(key) for key in settings}
                self._assumed |= {f"{here}.{key}" for key in assumed}
                sources.append({"region": flow.source, "topic": topic, **settings, **assumed})
        self._tables["ingress"] = {**ingress, "sources": sources}


def _source_settings(flow: _Flow) -> Table:
    """A flow's own replication policy beats the destination_topic of the defaults."""
    beaten = {"destination_topic"} if "replication_policy" in flow.own else set()
    return {key: flow.get(key) for key in SOURCE_KEYS if key in flow.own or key in flow.defaults.keys() - beaten}


def _names_topics(flow: _Flow, ingress: Tree) -> bool:
    """Whether the file says what the flow's topics are called."""
    says = {"replication_policy", "destination_topic"}
    return bool(says & (_source_settings(flow).keys() | table_in(ingress.get("defaults")).keys())) or (
        "replication_policy" in ingress
    )


def _flat(table: Tree) -> Tree:
    """Properties by their whole names; the tables of roles stay tables."""
    roles: Table = {role: value for role, value in table.items() if role in ROLES and isinstance(value, dict)}
    return {**dict(flattened({key: value for key, value in table.items() if key not in roles})), **roles}


def _shared(flows: Sequence[_Flow], key: str) -> list[str]:
    """What every flow has in this list: of the other entries, some flow wants what they exclude."""
    first, *rest = flows
    return [one for one in first.words(key) if all(one in flow.words(key) for flow in rest)]


def _is_selected(topic: str, flows: Sequence[_Flow]) -> bool:
    """Whether an expression of a flow matches the name `topic`, whose table then only says how it is archived."""
    return any(_is_any(flow.words("topics"), topic) for flow in flows)


def _is_any(patterns: Sequence[str], topic: str) -> bool:
    """Whether one of `patterns` matches the name `topic`; False for an expression, and what is no pattern matches
    nothing."""
    if topic.startswith(EXPRESSION_SIGN):
        return False
    for pattern in patterns:
        with suppress(ValueError):
            if TopicPattern(pattern).matches(topic):
                return True
    return False


def _has(value: object, path: str) -> bool:
    """Whether there is anything at the path; of lists any path is."""
    if not isinstance(value, dict):
        return isinstance(value, list)
    for key, below in value.items():
        name = dotted((str(key),))
        if path == name or (_is_below(path, name) and _has(below, path.removeprefix(name).removeprefix("."))):
            return True
    return False


def _is_below(path: str, head: str) -> bool:
    return not head or path == head or path.startswith((f"{head}.", f"{head}["))
