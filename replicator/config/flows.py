"""One file of several regions: clusters, and flows between them, as what the file of one region says. Pure.

    [clusters.A.kafka] and so on, over [cluster_defaults.kafka] ──> the sections of the region A
    [flows."A->B"], over [flow_defaults] ──┬──> of A: egress.topics, exclude, topic_filter, groups, groups_exclude
                                           └──> of B: one of ingress.sources for each topic

Nothing below this module knows that there are flows. What a process does not use of the file is checked for its form
only: its values may need variables of the environment that other processes have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from egress.settings import EgressSettings, EgressTopicSettings
from formats.group_selection import GroupPattern
from formats.topic_selection import TopicPattern
from infra.settings.field import Invalid, Problem, dotted, region_name, setting, settings_of, suggestion
from infra.settings.kafka import ROLES
from infra.settings.secrets import Path
from ingress.settings import IngressSettings
from ingress.source_settings import IngressSource
from replicator.config.convert import flattened, kind
from replicator.config.settings import Config
from replicator.config.show import Table

ARROW = "->"
CLUSTERS, CLUSTER_DEFAULTS, FLOWS, FLOW_DEFAULTS = "clusters", "cluster_defaults", "flows", "flow_defaults"
TABLES = (CLUSTERS, CLUSTER_DEFAULTS, FLOWS, FLOW_DEFAULTS)
DEFAULT_POLICY = "default"  # of a flow

Tree = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSettings:
    """What crosses from the cluster A to the cluster B, of a file of several regions."""

    topics: tuple[TopicPattern, ...] = field(
        metadata=setting("topics that cross: names or ^expressions", reloads=True),
    )
    enabled: bool = field(
        default=True,
        metadata=setting(
            "whether the flow exists; the first and the last flow of a service need its restart", reloads=True
        ),
    )
    groups: tuple[GroupPattern, ...] = field(
        default=(), metadata=setting("as egress.groups, with those of the source's other flows", reloads=True)
    )
    groups_exclude: tuple[GroupPattern, ...] = field(
        default=(), metadata=setting("as egress.groups_exclude, where all flows of the source have it", reloads=True)
    )


_LISTS = ("topics", "groups", "groups_exclude")
SOURCE_KEYS = tuple(name for name in settings_of(IngressSource) if name not in ("region", "topic"))
FLOW_KEYS = (*settings_of(FlowSettings), *SOURCE_KEYS)
_SECTIONS = tuple(settings_of(Config))
_PROPERTIES: tuple[Path, ...] = (("kafka",), *(("kafka", role) for role in ROLES), ("compaction", "spark"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionTables:
    """`tables`: those of a file of one region. `written`: where the file has a path of them and what is below.
    `assumed`: paths that the file does not have, since a flow has a default of its own."""

    region: str | None  # that is asked for
    tables: Tree
    written: Mapping[str, str] = field(default_factory=dict)
    assumed: frozenset[str] = frozenset()

    def where(self, path: str) -> str:
        """The path in the file of a path in `tables`."""
        fitting = [one for one in self.written if _is_below(path, one)]
        if not fitting:
            return path
        longest = max(fitting, key=len)
        rest = path.removeprefix(longest)
        place = self.written[longest]
        return f"{place}.{rest}" if rest and not longest else place + rest


def is_flows(tree: Tree) -> bool:
    return any(name in tree for name in TABLES)


def regions_of(tree: Tree) -> Sequence[str]:
    """Of a file of several regions, in its order."""
    return list(_table(tree.get(CLUSTERS)))


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


# --- the form of the file --------------------------------------------------------------------------------------------


def problems(tree: Tree) -> Iterator[Problem]:
    """All that is wrong with the file, besides values of settings."""
    for key in tree:
        if key in _SECTIONS:
            yield dotted((key,)), f"belongs to a cluster: [{CLUSTERS}.NAME], or [{CLUSTER_DEFAULTS}] for all of them"
        elif key not in TABLES:
            yield dotted((key,)), f"unknown key{suggestion(key, TABLES) or '; known here: ' + ', '.join(TABLES)}"
    for name in TABLES:
        if not isinstance(tree.get(name, {}), dict):
            yield name, f"must be a table, not {kind(tree[name])}"
    if not regions_of(tree):
        yield CLUSTERS, f"missing: a table for each region, [{CLUSTERS}.NAME]"
    if "region" in _table(tree.get(CLUSTER_DEFAULTS)):
        yield f"{CLUSTER_DEFAULTS}.region", "is the name of a cluster; remove it"
    for name, table in _table(tree.get(CLUSTERS)).items():
        where = dotted((CLUSTERS, name))
        if what := region_name(name):
            yield where, what
        if not isinstance(table, dict):
            yield where, f"must be a table, not {kind(table)}"
        elif "region" in table:
            yield f"{where}.region", f"is the name of the cluster, {name}; remove it"
    yield from _flow_problems(tree)


def _flow_problems(tree: Tree) -> Iterator[Problem]:
    clusters, defaults = regions_of(tree), _table(tree.get(FLOW_DEFAULTS))
    yield from _key_problems(defaults, (FLOW_DEFAULTS,), f"{CLUSTERS}.NAME", f"{CLUSTERS}.NAME")
    seen: dict[tuple[str, str], str] = {}
    for name, table in _table(tree.get(FLOWS)).items():
        path = (FLOWS, name)
        where = dotted(path)
        source, target = ends(name)
        if not source or not target:
            yield where, f'is no flow: write "SOURCE{ARROW}TARGET", two of: {", ".join(clusters)}'
            continue
        for end, other in dict.fromkeys(((source, target), (target, source))):
            if end not in clusters:
                near = suggestion(end, [one for one in clusters if one != other])
                yield where, f"there is no cluster {end!r}{near}; the file has: {', '.join(clusters)}"
        if (source, target) in seen:
            yield where, f"is the same flow as {dotted((FLOWS, seen[source, target]))}"
        seen[source, target] = name
        if not isinstance(table, dict):
            yield where, f"must be a table, not {kind(table)}"
            continue
        yield from _key_problems(table, path, dotted((CLUSTERS, source)), dotted((CLUSTERS, target)))
        if "topics" not in table and "topics" not in defaults:
            yield dotted((*path, "topics")), "missing: the topics that cross, names or ^expressions"


def _key_problems(table: Tree, path: Path, source: str, target: str) -> Iterator[Problem]:
    """`source`, `target`: where the settings of either side belong."""
    for key, value in table.items():
        where = dotted((*path, key))
        if key in FLOW_KEYS:
            if key == "enabled" and not isinstance(value, bool):
                yield where, f"must be true or false, not {kind(value)}"
            elif key in _LISTS and not (isinstance(value, list) and all(isinstance(one, str) for one in value)):
                yield where, f"must be a list of names and ^expressions, not {kind(value)}"
            elif key == "topics" and not value:
                yield where, "is empty: no topic would cross; enabled = false ends a flow"
        elif key in settings_of(IngressSettings):
            yield where, f"is one setting for all flows to a cluster: write it into [{target}.ingress]"
        elif key in settings_of(EgressTopicSettings):
            yield where, f"is about the archive: write it into [{source}.egress.topics] or [{source}.egress.defaults]"
        elif key in settings_of(EgressSettings):
            yield where, f"is one setting for all flows from a cluster: write it into [{source}.egress]"
        else:
            near = suggestion(key, FLOW_KEYS) or "; known here: " + ", ".join(sorted(FLOW_KEYS))
            yield where, f"unknown key{near}"


def ends(name: str) -> tuple[str, str]:
    """Source and target of a flow's name; empty where it has none."""
    source, _, target = name.partition(ARROW)
    return source.strip(), target.strip()


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
        self._own = _table(_table(tree[CLUSTERS])[region])
        defaults = _table(tree.get(FLOW_DEFAULTS))
        flows = [
            _Flow(*ends(name), dotted((FLOWS, name)), _table(table), defaults)
            for name, table in _table(tree.get(FLOWS)).items()
        ]
        self._flows = [one for one in flows if one.get("enabled") is not False]
        self._ended = [one for one in flows if one.get("enabled") is False]
        self._written = {"": dotted((CLUSTERS, region))}
        self._assumed: set[str] = set()
        self._tables = self._merged(_table(tree.get(CLUSTER_DEFAULTS)), self._own, ())

    def expanded(self) -> RegionTables:
        self._add_topics([one for one in self._flows if one.source == self._region])
        self._add_sources([one for one in self._flows if one.target == self._region])
        self._drop("egress", "topics", is_ended=any(one.source == self._region for one in self._ended))
        self._drop("ingress", "sources", is_ended=any(one.target == self._region for one in self._ended))
        return RegionTables(
            region=self._region,
            tables={"region": self._region, **self._tables},
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
                found[key] = self._merged(value, _table(own[key]), here)
        return {key: found[key] for key in dict.fromkeys([*defaults, *own])}

    def _drop(self, section: str, content: str, *, is_ended: bool) -> None:
        """A section that has nothing to do: from the defaults of all clusters, or since its flows have ended."""
        table = self._tables.get(section)
        if isinstance(table, dict) and not table.get(content) and (section not in self._own or is_ended):
            del self._tables[section]

    # --- the source's side

    def _add_topics(self, flows: Sequence[_Flow]) -> None:
        if not flows or not isinstance(self._tables.get("egress", {}), dict):
            return
        egress = dict(_table(self._tables.get("egress")))
        topics = egress.get("topics", {})
        if not isinstance(topics, dict):
            return
        given = dict(topics)
        for flow in flows:
            for topic in flow.words("topics"):
                if topic not in given:
                    given[topic] = {}
                    self._written[dotted(("egress", "topics", topic))] = flow.place_of("topics")
        crossing = {topic for flow in flows for topic in flow.words("topics")}
        is_all = crossing >= set(topics)  # otherwise an exclude of the flows is none of what is only archived
        self._add(egress, "groups", [group for flow in flows for group in flow.words("groups")], flows)
        if egress.get("groups"):
            self._add(egress, "groups_exclude", _shared(flows, "groups_exclude"), flows)
        if is_all:
            self._add(egress, "exclude", _shared(flows, "exclude"), flows)
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
        ingress = dict(_table(self._tables.get("ingress")))
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
    return bool(says & (_source_settings(flow).keys() | _table(ingress.get("defaults")).keys())) or (
        "replication_policy" in ingress
    )


def _flat(table: Tree) -> Tree:
    """Properties by their whole names; the tables of roles stay tables."""
    roles = {role: value for role, value in table.items() if role in ROLES and isinstance(value, dict)}
    return {**dict(flattened({key: value for key, value in table.items() if key not in roles})), **roles}


def _shared(flows: Sequence[_Flow], key: str) -> list[str]:
    """What every flow has in this list: of the other entries, some flow wants what they exclude."""
    first, *rest = flows
    return [one for one in first.words(key) if all(one in flow.words(key) for flow in rest)]


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _is_below(path: str, head: str) -> bool:
    return not head or path == head or path.startswith((f"{head}.", f"{head}["))
