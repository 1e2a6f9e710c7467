"""Imported flows as one file: clusters, and the flows between them. Pure.

MirrorMaker 2 has most settings for each flow; here one egress serves all flows from a cluster, and one ingress all
flows to it. What two flows of one cluster want differently is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from infra.settings.units import parse_duration
from replicator.config.flows import tables_of
from replicator.config.flows_form import ARROW
from replicator.config.mirrormaker_clients import ClientProperties, imported_toml, kafka_table, variable
from replicator.config.mirrormaker_keys import Treatment
from replicator.config.show import Table

_DEFAULTS: Mapping[str, object] = {
    "configs": "mirror",
    "acls": "mirror",
    "replication_factor": 2,
    "use_defaults_from": "target",
    "config_properties_exclude": None,
    "delivery": "exactly-once",
    "start": "earliest",
}
"""Of a flow that does not say it."""

_INTERVALS = ("topic_refresh_interval", "heartbeat_interval", "group_interval")

RefusedKeys = dict[tuple[str, str], str]
"""The reason by flow and key."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one key. `value`: secrets masked."""

    key: str
    value: str
    treatment: Treatment
    reason: str

    @property
    def text(self) -> str:
        return " ".join(
            f"{self.treatment}: {self.key} = {self.value}: {self.reason}".split()
        )  # one line, whatever it has


@dataclass(frozen=True, slots=True)
class SideSetting:
    """One setting of the source's [egress] or the target's [ingress]. `key`: what it was made of."""

    value: object
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFlow:
    """`settings`: of the flow. `clients`: by alias. `findings`: of every key that the flow reads, in the order of the
    file."""

    source: str
    target: str
    settings: Table
    egress: Mapping[str, SideSetting]
    ingress: Mapping[str, SideSetting]
    clients: Mapping[str, ClientProperties]
    findings: Sequence[Finding]

    @property
    def name(self) -> str:
        return f"{self.source}{ARROW}{self.target}"

    @property
    def refused(self) -> Sequence[Finding]:
        return [one for one in self.findings if one.treatment is Treatment.REFUSED]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """`tables`: of a file of several regions. `flows`: with what is refused since they are in one file."""

    flows: Sequence[ImportedFlow]
    tables: Table
    origin: str = "MirrorMaker 2"

    @property
    def text(self) -> str:
        """The file of several regions, with what has no counterpart as comments."""
        return self._file(", ".join(one.name for one in self.flows), self.tables)

    def by_region(self) -> Mapping[str, str]:
        """A file for each region."""
        clusters = self.tables["clusters"]
        assert isinstance(clusters, dict)
        return {region: self._file(region, tables_of(self.tables, region).tables) for region in clusters}

    def _file(self, title: str, tables: Mapping[str, object]) -> str:
        return "\n".join([f"# From {self.origin}: {title}", *self._comments(), "", imported_toml(tables)])

    def _comments(self) -> Iterator[str]:
        """Each once, with its flows if not all of them have it."""
        found: dict[str, list[str]] = {}
        for flow in self.flows:
            for finding in flow.findings:
                if finding.treatment is not Treatment.MAPPED:
                    names = found.setdefault(finding.text, [])
                    names += [flow.name] if flow.name not in names else []
        for text, names in found.items():
            of_some = "" if len(names) == len(self.flows) else f"{', '.join(names)}: "
            yield f"# {of_some}{text}"


def imported_file(flows: Sequence[ImportedFlow], *, origin: str = "MirrorMaker 2") -> ImportedFile:
    """`flows`: at least one."""
    refused: RefusedKeys = {}
    clusters: Table = {}
    for alias in dict.fromkeys(end for flow in flows for end in (flow.source, flow.target)):
        leaving = [flow for flow in flows if flow.source == alias]
        coming = [flow for flow in flows if flow.target == alias]
        egress = _side(f"[clusters.{alias}.egress]", {one.name: one.egress for one in leaving}, refused)
        ingress = _side(f"[clusters.{alias}.ingress]", {one.name: one.ingress for one in coming}, refused)
        if "start" in egress:
            egress["defaults"] = {"start": egress.pop("start")}
        clients = {flow.name: flow.clients[alias] for flow in (*leaving, *coming)}
        cluster: Table = {
            "kafka": kafka_table(alias, _merged(alias, clients, refused)),
            "s3": {"bucket": variable(alias, "S3_BUCKET")},
        }
        cluster |= {"sqs": {"queue": variable(alias, "SQS_QUEUE")}} if coming else {}
        cluster |= {name: table for name, table in (("egress", egress), ("ingress", ingress)) if table}
        clusters[alias] = cluster
    shared = _shared([flow.settings for flow in flows]) if len(flows) > 1 else {}
    own = {one.name: {key: value for key, value in one.settings.items() if key not in shared} for one in flows}
    defaults: Table = {"flow_defaults": shared} if shared else {}
    return ImportedFile(
        flows=[replace(flow, findings=[_judged(flow.name, one, refused) for one in flow.findings]) for flow in flows],
        tables={"clusters": clusters, **defaults, "flows": own},
        origin=origin,
    )


def _side(table: str, sides: Mapping[str, Mapping[str, SideSetting]], refused: RefusedKeys) -> Table:
    """What the flows of one side have in common. Notes what they want differently."""
    found: Table = {}
    for name in dict.fromkeys(name for side in sides.values() for name in side):
        set_by = {flow: side[name] for flow, side in sides.items() if name in side}
        if name in _INTERVALS:  # the most frequent serves all
            found[name] = min((str(one.value) for one in set_by.values()), key=parse_duration)
            continue
        wanted = {flow: side[name].value if name in side else _DEFAULTS.get(name) for flow, side in sides.items()}
        first = next(iter(wanted.values()))
        if any(value != first for value in wanted.values()):
            listed = ", ".join(f"{_written(value)} in {flow}" for flow, value in wanted.items())
            reason = f"is one setting, {table} {name}, but {listed}"
            refused |= {(flow, one.key): reason for flow, one in set_by.items()}
        if first is not None:
            found[name] = first
    return found


def _merged(alias: str, clients: Mapping[str, ClientProperties], refused: RefusedKeys) -> Mapping[tuple[str, str], str]:
    """The properties of a cluster's clients, by role and name."""
    found: dict[tuple[str, str], str] = {}
    for place in dict.fromkeys(place for one in clients.values() for place in one.values):
        having = {flow: one for flow, one in clients.items() if place in one.values}
        wanted = {flow: one.values[place] for flow, one in having.items()}
        found[place] = next(iter(wanted.values()))
        if len(set(wanted.values())) > 1:
            table = ".".join(filter(None, ("clusters", alias, "kafka", place[0])))
            reason = f'is one property, [{table}] "{place[1]}", but differs between {", ".join(wanted)}'
            refused |= {(flow, one.keys[place]): reason for flow, one in having.items()}
    return found


def _shared(tables: Sequence[Table]) -> Table:
    """What all have, but `enabled`: whoever corrects one flow enables that one."""
    first, *rest = tables
    return {
        key: value for key, value in first.items() if key != "enabled" and all(one.get(key) == value for one in rest)
    }


def _judged(flow: str, finding: Finding, refused: RefusedKeys) -> Finding:
    reason = refused.get((flow, finding.key))
    return finding if reason is None else replace(finding, treatment=Treatment.REFUSED, reason=reason)


def _written(value: object) -> str:
    return "the default" if value is None else str(value)
