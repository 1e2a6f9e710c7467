"""Configurations of MirrorMaker 2 as configurations of ours: one file with its clusters and flows.

    properties ─> keys: of all, of a cluster, of a flow ─> for each flow: every key is mapped, ignored or refused
                                                                    └──> clusters and flows, `mirrormaker_file`

A key of a flow (`a->b.topics`) beats one of its target cluster (`b.topics`), which beats one of all (`topics`). What
every key means is data: `replicator.config.mirrormaker_keys`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from formats.incarnation import LEGAL_NAME
from formats.policies.named_policies import replication_policy
from formats.policies.topic_configs import DEFAULT_EXCLUDES
from formats.topic_selection import TopicPattern
from infra.settings.field import region_name
from infra.settings.secrets import MASK, is_secret
from replicator.config.flows import DEFAULT_POLICY
from replicator.config.flows_form import ARROW as FLOW
from replicator.config.mirrormaker_clients import ClientKey, ClientProperties, Side, client_key
from replicator.config.mirrormaker_file import Finding, ImportedFlow, SideSetting
from replicator.config.mirrormaker_keys import DEFAULT_CLASSES, SPELLINGS, Treatment, rule_of
from replicator.config.mirrormaker_mistyped import (
    DECISIVE,
    concerns,
    decides,
    is_enabled,
    no_cluster,
    no_property,
    truth,
)
from replicator.config.show import Table

NO_NEW_TOPICS = "0s"  # topic_refresh_interval

_DEFAULT_TOPIC_EXCLUDES = frozenset((r"mm2.*\.internal", r".*\.replica", "__.*", "__consumer_offsets"))
_DEFAULT_GROUP_EXCLUDES = frozenset(("console-consumer-.*", "connect-.*", "__.*"))
_JAVA_ONLY = (
    (re.compile(r"\\[pP]\{"), r"\p{…}"),
    (re.compile(r"\\Q"), r"\Q…\E"),
    (re.compile(r"\[[^\]]*&&"), "&& in a class"),
    (re.compile(r"\(\?<[A-Za-z]"), "(?<name>…)"),
    (re.compile(r"\(\?[a-zA-Z]+\)"), "(?i) and other flags"),
    (re.compile(r"(?<!\\)\[(?:\\.|[^\]\\\[])*\["), "a class in a class"),
    (re.compile(r"\\[bB]\{"), r"\b{…}"),
    (re.compile(r"\\[xk0ce]"), r"\x{…}, \k<…>, \0…, \c… or \e"),
    (re.compile(r"\\[hHvVRXzG]"), r"\h, \v, \R, \X, \z or \G"),
)


@dataclass(frozen=True, slots=True)
class _Key:
    text: str  # as it is written
    scope: str  # empty: of all; an alias; or a flow
    name: str  # without the scope, in the spelling of today
    value: str

    @property
    def shown(self) -> str:
        return MASK if is_secret(self.text) or "jaas" in self.text else self.value


def imported_flows(properties: Mapping[str, str]) -> list[ImportedFlow]:
    """Those that are enabled. Raises ValueError for a file that names no flow (neither `clusters` nor a connector's
    `source.cluster.alias`) or enables none, for an alias that cannot be a region's name, and for an `enabled` that is
    neither true nor false, or is mistyped."""
    keys = list(_keys(properties))
    pairs = _flows(properties, keys)
    for alias in dict.fromkeys(alias for pair in pairs for alias in pair):
        if what := region_name(alias):
            raise ValueError(f"the alias {alias!r} {what}, since it becomes the name of its archive")
    unread = list(_unread(keys, pairs, known={*_aliases(properties), *(alias for pair in pairs for alias in pair)}))
    off = {flow for _, flows in unread for flow in flows}
    return [
        _Flow(
            *pair,
            keys,
            findings=[finding for finding, _ in unread],
            settings={"enabled": False} if pair in off else {},
        ).imported()
        for pair in pairs
    ]


def _unread(
    keys: Sequence[_Key], pairs: Sequence[tuple[str, str]], known: Collection[str]
) -> Iterator[tuple[Finding, Collection[tuple[str, str]]]]:
    """What becomes of keys that no enabled flow reads, and the flows that are off since they may have been meant."""
    flows = {f"{source}{FLOW}{target}" for source, target in pairs}
    read = {"", *flows, *(alias for pair in pairs for alias in pair)}
    for key in keys:
        if key.scope in read:
            continue
        why = no_cluster(key.scope, known)
        if not why:
            yield Finding(key.text, key.shown, Treatment.IGNORED, "is about no flow that is enabled"), ()
            continue
        off = [pair for pair in pairs if decides(key.name) and _may_mean(pair, key, keys, known)]
        if off:
            why += f"; {', '.join(FLOW.join(pair) for pair in off)}: {decides(key.name)}"
        yield Finding(key.text, key.shown, Treatment.REFUSED, why), off


def _may_mean(pair: tuple[str, str], key: _Key, keys: Sequence[_Key], known: Collection[str]) -> bool:
    has_its_own = any(one.scope == FLOW.join(pair) and one.name == key.name for one in keys)
    return not has_its_own and concerns(key.scope, pair, known)


def _keys(properties: Mapping[str, str]) -> Iterator[_Key]:
    aliases = _aliases(properties)
    for text, value in properties.items():
        scope, rest = "", text
        head, arrow, tail = text.partition(FLOW)
        if arrow:
            alias = next((one for one in _longest(aliases) if tail.startswith(f"{one}.")), tail.partition(".")[0])
            scope, rest = f"{head.strip()}{FLOW}{alias}", tail[len(alias) + 1 :]
        else:
            for plain in (text, text.removeprefix("cluster.")):  # cluster.primary.bootstrap.servers: of a first draft
                alias = next((one for one in _longest(aliases) if plain.startswith(f"{one}.")), "")
                if alias:
                    scope, rest = alias, plain[len(alias) + 1 :]
                    break
            else:
                scope, rest = _of_unknown(text)
        yield _Key(text, scope, SPELLINGS.get(rest, rest), value)


def _of_unknown(text: str) -> tuple[str, str]:
    """Scope and name of a key that begins with no cluster's alias: `us-est.topics` is about a cluster all the same."""
    if rule_of(text) is not None:  # transforms.x.topics
        return "", text
    ends = (n for n, sign in enumerate(text) if sign == "." and SPELLINGS.get(text[n + 1 :], text[n + 1 :]) in DECISIVE)
    at = next(ends, 0)
    return (text[:at], text[at + 1 :]) if at else ("", text)


def _aliases(properties: Mapping[str, str]) -> Sequence[str]:
    """Of `clusters`; without it, as in the sample of KIP-545, those that keys of flows name."""
    if "clusters" in properties:
        return [one.strip() for one in properties["clusters"].split(",") if one.strip()]
    ends = (text.partition(FLOW) for text in properties if FLOW in text)
    return list(dict.fromkeys(one for head, _, tail in ends for one in (head.strip(), tail.partition(".")[0])))


def _longest(aliases: Sequence[str]) -> Sequence[str]:
    return sorted(aliases, key=len, reverse=True)


def _flows(properties: Mapping[str, str], keys: Sequence[_Key]) -> list[tuple[str, str]]:
    """Enabled flows. If no key says `enabled`, as in KIP-382, they are all."""
    if "source.cluster.alias" in properties and "clusters" in properties:
        raise ValueError("has both clusters and source.cluster.alias, and is no file of either kind: remove one")
    if "source.cluster.alias" in properties:
        return [(properties["source.cluster.alias"], properties.get("target.cluster.alias", "target"))]
    aliases = _aliases(properties)
    if not aliases:
        raise ValueError("names no flow: neither clusters = …, nor the source.cluster.alias of a connector")
    enabled = dict(_enabled(keys))
    named = {key.scope for key in keys}
    pairs = [
        (a, b) for a in aliases for b in aliases if a != b and ("clusters" in properties or f"{a}{FLOW}{b}" in named)
    ]
    default = enabled.get("", not enabled)
    chosen = [(a, b) for a, b in pairs if enabled.get(f"{a}{FLOW}{b}", default)]
    if not chosen:
        strange = next((one for one in keys if one.name == "enabled" and no_cluster(one.scope, ["", *aliases])), None)
        why = "" if strange is None else f"; {strange.text}: {no_cluster(strange.scope, aliases)}"
        raise ValueError(f"enables no flow: write A{FLOW}B.enabled = true, with two of {', '.join(aliases)}{why}")
    return chosen


def _enabled(keys: Sequence[_Key]) -> Iterator[tuple[str, bool]]:
    """Of each scope. What is not understood raises ValueError: without it flows may be on that are meant to be off."""
    for key in keys:
        if key.name == "enabled":
            try:
                yield key.scope, truth(key.value)
            except ValueError as error:
                raise ValueError(f"{key.text} = {key.value}: {error}") from None
        elif not _is_setting(key) and client_key(key.name, is_of_cluster=True) is None and is_enabled(key.name):
            raise ValueError(f"{key.text} = {key.shown}: {no_property(key.name)}: correct or remove it")


@dataclass(slots=True)
class _Flow:
    source: str
    target: str
    keys: Sequence[_Key]
    settings: Table = field(default_factory=dict)
    egress: dict[str, SideSetting] = field(default_factory=dict)
    ingress: dict[str, SideSetting] = field(default_factory=dict)
    topics: list[str] = field(default_factory=lambda: ["^.*"])  # MirrorMaker 2's defaults
    groups: list[str] = field(default_factory=lambda: ["^.*"])
    has_checkpoints: bool = True
    has_heartbeats: bool = True
    refuses_new_topics: bool = False
    clients: dict[str, ClientProperties] = field(default_factory=dict)  # by alias
    findings: list[Finding] = field(default_factory=list)
    taken: str = ""  # the key that is being taken

    def imported(self) -> ImportedFlow:
        self.clients = {alias: ClientProperties(alias) for alias in (self.source, self.target)}
        ours = ("", self.target, f"{self.source}{FLOW}{self.target}")
        last = {key.name: key for scope in ours for key in self.keys if key.scope == scope and _is_setting(key)}
        for key in self.keys:
            if key.scope in (*ours, self.source) and not (_is_setting(key) and key.scope in ours):
                self._learn_client(key)
        for key in self.keys:
            if _is_setting(key) and key.scope in ours:
                if last[key.name] is key:
                    self._take(key)
                else:
                    self._found(key, Treatment.IGNORED, f"{last[key.name].text} beats it")
            elif key.scope in (*ours, self.source):
                self._take_client(key)
        groups: Table = {"groups": self.groups} if self.has_checkpoints else {}
        heartbeats: Table = {} if self.has_heartbeats else {"heartbeats": False}
        return ImportedFlow(
            source=self.source,
            target=self.target,
            settings={"topics": self.topics, **groups, **heartbeats, **self.settings},
            egress=self.egress,
            ingress=self.ingress,
            clients=self.clients,
            findings=self.findings,
        )

    def _found(self, key: _Key, treatment: Treatment, reason: str) -> None:
        self.findings.append(Finding(key.text, key.shown, treatment, reason))

    def _of_source(self, name: str, value: object) -> None:
        self.egress[name] = SideSetting(value, self.taken)

    def _of_target(self, name: str, value: object) -> None:
        self.ingress[name] = SideSetting(value, self.taken)

    # --- MirrorMaker 2's own properties

    def _take(self, key: _Key) -> None:
        rule = rule_of(key.name)
        assert rule is not None
        treatment, reason = rule.treatment, rule.reason
        self.taken = key.text
        try:
            if treatment is Treatment.REFUSED and (why := _harmless(key)):
                treatment, reason = Treatment.IGNORED, why
            if treatment is Treatment.MAPPED and (take := _MAPPERS.get(key.name)) is not None:
                reason = take(self, key.value.strip()) or reason
        except ValueError as error:
            treatment, reason = Treatment.REFUSED, str(error)
        if treatment is Treatment.REFUSED and key.name in DECISIVE:
            self.settings["enabled"] = False
            reason += f"; {DECISIVE[key.name]}"
        self._found(key, treatment, reason)

    def _take_topics(self, value: str) -> str:
        self.topics = patterns(value)
        return ""

    def _take_exclude(self, value: str) -> str:
        own = [one for one in _items(value) if one not in _DEFAULT_TOPIC_EXCLUDES]
        if own:
            self.settings["exclude"] = patterns(",".join(own))
        return "flows.exclude; the default excludes hold for expressions in any case"

    def _take_groups(self, value: str) -> str:
        self.groups = patterns(value)
        return ""

    def _take_groups_exclude(self, value: str) -> str:
        own = [one for one in _items(value) if one not in _DEFAULT_GROUP_EXCLUDES]
        if own:
            self.settings["groups_exclude"] = patterns(",".join(own))
        return "flows.groups_exclude; the default excludes hold for expressions in any case"

    def _take_checkpoints(self, value: str) -> str:
        self.has_checkpoints &= truth(value)
        return "flows.groups; none without checkpoints"

    def _take_checkpoint_interval(self, value: str) -> str:
        seconds = int(value)
        if seconds <= 0:
            self.has_checkpoints = False
            return "flows.groups; none without an interval"
        self._of_source("group_interval", f"{seconds}s")
        return ""

    def _take_config_excludes(self, value: str) -> str:
        if set(_items(value)) != {one.replace(".", r"\.") for one in DEFAULT_EXCLUDES}:
            self._of_target("config_properties_exclude", _items(value))
        return ""

    def _take_policy(self, value: str) -> str:
        replication_policy(value, self.source, ".")
        name = value.rpartition(".")[2]
        self._name_by({"DefaultReplicationPolicy": "default", "IdentityReplicationPolicy": "identity"}.get(name, name))
        return ""

    def _name_by(self, policy: str) -> None:
        if policy != DEFAULT_POLICY:
            self.settings["replication_policy"] = policy

    def _take_format(self, value: str) -> str:
        match = re.fullmatch(r"(\$\{cluster\}(?P<separator>[A-Za-z0-9._-]+))?\$\{topic\}", value.strip('"'))
        if match is None:
            raise ValueError("names that are not <cluster><separator><topic> need a policy in Python")
        self._name_by(DEFAULT_POLICY if match["separator"] else "identity")
        if match["separator"]:
            self._take_separator(match["separator"])
        return ""

    def _take_separator(self, value: str) -> str:
        if value != ".":
            self.settings["replication_policy_separator"] = value
        return ""

    def _take_interval(self, value: str) -> str:
        seconds = int(value)
        if seconds <= 0:
            raise ValueError("must be at least 1 s")
        if not self.refuses_new_topics:
            self._refresh_every(f"{seconds}s")
        return ""

    def _take_refresh(self, value: str) -> str:
        if not truth(value):
            self.refuses_new_topics = True
            self._refresh_every(NO_NEW_TOPICS)
        return ""

    def _refresh_every(self, interval: str) -> None:
        self._of_source("topic_refresh_interval", interval)
        self._of_target("topic_refresh_interval", interval)

    def _take_heartbeats(self, value: str) -> str:
        self.has_heartbeats &= truth(value)
        return ""

    def _take_heartbeat_interval(self, value: str) -> str:
        seconds = int(value)
        if seconds <= 0:
            self.has_heartbeats = False
            return "flows.heartbeats; none without an interval"
        self._of_target("heartbeat_interval", f"{seconds}s")
        return ""

    def _take_factor(self, value: str) -> str:
        self._of_target("replication_factor", int(value))
        return ""

    def _take_defaults(self, value: str) -> str:
        if value not in ("source", "target"):
            raise ValueError("must be source or target")
        self._of_target("use_defaults_from", value)
        return ""

    def _take_delivery(self, value: str) -> str:
        if value.lower() in ("true", "enabled", "preparing", "required"):
            self._of_target("delivery", "exactly-once")
            return ""
        return "ingress.delivery is exactly-once by default; at-least-once is a choice"

    def _take_configs(self, value: str) -> str:
        self._of_target("configs", "mirror" if truth(value) else "off")
        return ""

    def _take_acls(self, value: str) -> str:
        self._of_target("acls", "mirror" if truth(value) else "off")
        return ""

    # --- properties of clients

    def _client_of(self, key: _Key) -> tuple[ClientKey | None, Sequence[str]]:
        """What a key is to the clients of which clusters."""
        found = client_key(key.name, is_of_cluster=bool(key.scope) and FLOW not in key.scope)
        aliases = {"source": [self.source], "target": [self.target], "both": [self.source, self.target]}
        if key.scope in self.clients:
            return found, [key.scope]
        return found, aliases[found.side] if found else ()

    def _learn_client(self, key: _Key) -> None:
        found, names = self._client_of(key)
        if found is not None:
            for alias in names:
                self.clients[alias].learn(found.role, found.name, key.value)

    def _take_client(self, key: _Key) -> None:
        found, names = self._client_of(key)
        if found is None:
            if key.scope == self.source and rule_of(key.name) is not None:
                self._found(key, Treatment.IGNORED, "it is about flows to this cluster")
            else:
                self._take_unknown(key)
            return
        results = [self.clients[alias].take(found.role, found.name, key.value, key.text) for alias in names]
        if found.name == "auto.offset.reset":
            self.taken = key.text
            results = [self._take_start(key.value.strip(), found.side)]
        self._found(key, *results[0])

    def _take_unknown(self, key: _Key) -> None:
        reason = no_property(key.name, key.value)
        if key.scope != self.source and (why := decides(key.name, key.value)):  # of a source are flows to it
            self.settings["enabled"] = False
            reason += f"; {why}"
        self._found(key, Treatment.REFUSED, reason)

    def _take_start(self, value: str, side: Side) -> tuple[Treatment, str]:
        if side == "target":
            return Treatment.IGNORED, "it is about the consumer of the source"
        if value not in ("earliest", "latest"):
            return Treatment.REFUSED, 'egress.defaults.start is "earliest", "latest" or a time'
        if value == "latest":
            self._of_source("start", value)
        return Treatment.MAPPED, "egress.defaults.start"


def _is_setting(key: _Key) -> bool:
    return rule_of(key.name) is not None


def _harmless(key: _Key) -> str:
    """Why a value of a refused property changes nothing; empty when it does. Raises ValueError for what is none."""
    if key.value.strip().rpartition(".")[2] in DEFAULT_CLASSES:
        return "is the default, and what is done here"
    if key.name == "sync.group.offsets.enabled" and not truth(key.value):
        return "offsets of groups are not written to the target's groups"
    return ""


def _items(value: str) -> list[str]:
    """`a, b`, or `["a", "b"]` as in a first draft of KIP-382."""
    if value.startswith('["'):
        value = value.strip("[]").replace('"', "")
    return [one.strip() for one in value.split(",") if one.strip()]


def patterns(value: str) -> list[str]:
    """MirrorMaker 2's list of names and expressions, each of which matches a whole name, in our writing. Raises
    ValueError for what only Java understands."""
    found = []
    for one in _items(value):
        if LEGAL_NAME.fullmatch(one):
            found.append(one)  # as it is meant: in MirrorMaker 2 its dots match any character
            continue
        wrong = next((name for sign, name in _JAVA_ONLY if sign.search(one)), "")
        if wrong:
            raise ValueError(f"{one!r} has {wrong}, which only Java's expressions have, or have so")
        found.append(str(TopicPattern(one if one.startswith("^") else f"^{one}")))
    if not found:
        raise ValueError("is empty: nothing would be replicated")
    return found


_MAPPERS: Mapping[str, Callable[[_Flow, str], str]] = {
    "topics": _Flow._take_topics,
    "topics.exclude": _Flow._take_exclude,
    "groups": _Flow._take_groups,
    "groups.exclude": _Flow._take_groups_exclude,
    "emit.checkpoints.enabled": _Flow._take_checkpoints,
    "emit.checkpoints.interval.seconds": _Flow._take_checkpoint_interval,
    "emit.heartbeats.enabled": _Flow._take_heartbeats,
    "emit.heartbeats.interval.seconds": _Flow._take_heartbeat_interval,
    "config.properties.exclude": _Flow._take_config_excludes,
    "replication.policy.class": _Flow._take_policy,
    "replication.policy.separator": _Flow._take_separator,
    "remote.topic.format": _Flow._take_format,
    "refresh.topics.enabled": _Flow._take_refresh,
    "refresh.topics.interval.seconds": _Flow._take_interval,
    "replication.factor": _Flow._take_factor,
    "use.defaults.from": _Flow._take_defaults,
    "exactly.once.source.support": _Flow._take_delivery,
    "exactly.once.support": _Flow._take_delivery,
    "transaction.producer": _Flow._take_delivery,
    "sync.topic.configs.enabled": _Flow._take_configs,
    "sync.topic.acls.enabled": _Flow._take_acls,
}
