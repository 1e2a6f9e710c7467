"""The form of a file of several regions: its tables, the names of its flows, and which settings a flow has. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from egress.settings import EgressSettings, EgressTopicSettings
from formats.group_selection import GroupPattern
from formats.topic_selection import TopicPattern
from infra.settings.field import Problem, dotted, region_name, setting, settings_of, suggestion
from infra.settings.secrets import Path
from ingress.settings import IngressSettings
from ingress.source_settings import IngressSource
from replicator.config.convert import kind
from replicator.config.settings import Config
from replicator.config.unknown_key import unknown

ARROW = "->"
CLUSTERS, CLUSTER_DEFAULTS, FLOWS, FLOW_DEFAULTS = "clusters", "cluster_defaults", "flows", "flow_defaults"
TABLES = (CLUSTERS, CLUSTER_DEFAULTS, FLOWS, FLOW_DEFAULTS)

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
# of a flow, for each of its sources at the target
SOURCE_KEYS = tuple(name for name in settings_of(IngressSource) if name not in ("region", "topic"))
FLOW_KEYS = (*settings_of(FlowSettings), *SOURCE_KEYS)
_SECTIONS = tuple(settings_of(Config))


def is_flows(tree: Tree) -> bool:
    return any(name in tree for name in TABLES)


def regions_of(tree: Tree) -> Sequence[str]:
    """Of a file of several regions, in its order."""
    return list(table_in(tree.get(CLUSTERS)))


def problems(tree: Tree) -> Iterator[Problem]:
    """All that is wrong with the file, besides values of settings."""
    for key in tree:
        if key in _SECTIONS:
            yield dotted((key,)), f"belongs to a cluster: [{CLUSTERS}.NAME], or [{CLUSTER_DEFAULTS}] for all of them"
        elif key not in TABLES:
            yield dotted((key,)), unknown(key, TABLES)
    for name in TABLES:
        if not isinstance(tree.get(name, {}), dict):
            yield name, f"must be a table, not {kind(tree[name])}"
    if not regions_of(tree):
        yield CLUSTERS, f"missing: a table for each region, [{CLUSTERS}.NAME]"
    if "region" in table_in(tree.get(CLUSTER_DEFAULTS)):
        yield f"{CLUSTER_DEFAULTS}.region", "is the name of a cluster; remove it"
    for name, table in table_in(tree.get(CLUSTERS)).items():
        where = dotted((CLUSTERS, name))
        if what := region_name(name):
            yield where, what
        if not isinstance(table, dict):
            yield where, f"must be a table, not {kind(table)}"
        elif "region" in table:
            yield f"{where}.region", f"is the name of the cluster, {name}; remove it"
    yield from _flow_problems(tree)


def _flow_problems(tree: Tree) -> Iterator[Problem]:
    clusters, defaults = regions_of(tree), table_in(tree.get(FLOW_DEFAULTS))
    yield from _key_problems(defaults, (FLOW_DEFAULTS,), f"{CLUSTERS}.NAME", f"{CLUSTERS}.NAME")
    seen: dict[tuple[str, str], str] = {}
    for name, table in table_in(tree.get(FLOWS)).items():
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
            yield where, unknown(key, FLOW_KEYS)


def ends(name: str) -> tuple[str, str]:
    """Source and target of a flow's name; empty where it has none."""
    source, _, target = name.partition(ARROW)
    return source.strip(), target.strip()


def table_in(value: object) -> dict[str, object]:
    """Empty for what is no table."""
    return value if isinstance(value, dict) else {}
