"""Imported flows as one file: clusters, and the flows between them. Pure.

MirrorMaker 2 has most settings for each flow; here one egress serves all flows from a cluster, and one ingress all
flows to it. What two flows of one cluster want differently is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from infra.settings.field import dotted, settings_of
from infra.settings.storage import S3Settings
from infra.settings.units import parse_duration
from replicator.config.flows import tables_of
from replicator.config.flows_form import ARROW, CLUSTERS
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
    "sync": False,
}
"""Of a flow that does not say it."""

_PREFIX = settings_of(S3Settings)["prefix"].default
_INTERVALS = ("topic_refresh_interval", "heartbeat_interval", "group_interval", "interval")

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
    """One setting of the source's [egress], or of the target's [ingress] or [groups]. `key`: what it was made of."""

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
    groups: Mapping[str, SideSetting]
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
        crossing = {dotted((CLUSTERS, region)): region for region in self._regions}
        return self._file(", ".join(one.name for one in self.flows), self.tables, crossing)

    def by_region(self) -> Mapping[str, str]:
        """A file for each region."""
        return {
            region: self._file(region, tables_of(self.tables, region).tables, {"": region}) for region in self._regions
        }

    @property
    def _regions(self) -> Sequence[str]:
        clusters = self.tables[CLUSTERS]
        assert isinstance(clusters, dict)
        return list(clusters)

    def _file(self, title: str, tables: Mapping[str, object], crossing: Mapping[str, str]) -> str:
        """`crossing`: the regions whose buckets are in the file, by the table around theirs."""
        text = "\n".join([f"# From {self.origin}: {title}", *self._comments(), "", imported_toml(tables)])
        for around, region in crossing.items():
            head = f"{around}." if around else ""
            header = f"\n[{head}s3]\n"
            text = text.replace(header, header + "".join(f"# {line}\n" for line in self._crossing(region, head)), 1)
        return text

    def _crossing(self, region: str, head: str) -> Iterator[str]:
        """What objects have to cross from the region's bucket, and to it. `head`: of the names of its tables."""
        targets = [flow.target for flow in self.flows if flow.source == region]
        sources = [flow.source for flow in self.flows if flow.target == region]
        if targets:
            yield (
                f"what is stored below {_stored(region)} has to reach {_buckets(targets)}: by S3 replication, or by "
                f"[{head}sync];"
            )
            yield f"or {'both' if len(targets) == 1 else 'these'} regions have one bucket"
        if sources:
            have = "has" if len(sources) == 1 else "have"
            yield f"has to get what {_buckets(sources)} {have} below {', '.join(map(_stored, sources))}"

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


def _stored(region: str) -> str:
    return f"{_PREFIX}/{region}/"


def _buckets(regions: Sequence[str]) -> str:
    return f"the bucket{'s' * (len(regions) > 1)} of {', '.join(regions)}"


def imported_file(flows: Sequence[ImportedFlow], *, origin: str = "MirrorMaker 2") -> ImportedFile:
    """`flows`: at least one."""
    refused: RefusedKeys = {}
    clusters: Table = {}
    for alias in dict.fromkeys(end for flow in flows for end in (flow.source, flow.target)):
        leaving = [flow for flow in flows if flow.source == alias]
        coming = [flow for flow in flows if flow.target == alias]
        egress = _side(f"[clusters.{alias}.egress]", {one.name: one.egress for one in leaving}, refused)
        ingress = _side(f"[clusters.{alias}.ingress]", {one.name: one.ingress for one in coming}, refused)
        grouped = {one.name: one.groups for one in coming if "groups" in one.settings}
        groups = _side(f"[clusters.{alias}.groups]", grouped, refused)
        if "start" in egress:
            egress["defaults"] = {"start": egress.pop("start")}
        clients = {flow.name: flow.clients[alias] for flow in (*leaving, *coming)}
        cluster: Table = {
            "kafka": kafka_table(alias, _merged(alias, clients, refused)),
            "s3": {"bucket": variable(alias, "S3_BUCKET")},
        }
        cluster |= {"sqs": {"queue": variable(alias, "SQS_QUEUE")}} if coming else {}
        cluster |= {
            name: table for name, table in (("egress", egress), ("ingress", ingress), ("groups", groups)) if table
        }
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
        wanted = {flow: side[name].value if name in side else _DEFAULTS.get(name) for flow, side in sides.items()}
        if name in _INTERVALS and len({_is_off(value) for value in wanted.values()}) == 1:
            # the most frequent serves all
            found[name] = min((str(one.value) for one in set_by.values()), key=parse_duration)
            continue
        first = next(iter(wanted.values()))
        if any(value != first for value in wanted.values()):
            listed = ", ".join(f"{_written(value)} in {flow}" for flow, value in wanted.items())
            reason = f"is one setting, {table} {name}, but {listed}"
            refused |= {(flow, one.key): reason for flow, one in set_by.items()}
        if first is not None:
            found[name] = first
    return found


def _is_off(interval: object) -> bool:
    """Whether an interval says "not at all"; None is a flow's default, which is some interval."""
    return interval is not None and not parse_duration(str(interval))


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
    """What all have, but `enabled`, which is set for each flow by itself."""
    first, *rest = tables
    return {
        key: value for key, value in first.items() if key != "enabled" and all(one.get(key) == value for one in rest)
    }


def _judged(flow: str, finding: Finding, refused: RefusedKeys) -> Finding:
    reason = refused.get((flow, finding.key))
    return finding if reason is None else replace(finding, treatment=Treatment.REFUSED, reason=reason)


def _written(value: object) -> str:
    return "the default" if value is None else str(value)
