"""MirrorMaker 2's own properties as settings of a flow, and of the egress and the ingress at its ends. Pure.

What every property means is data: `replicator.config.mirrormaker_keys`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from formats.policies.named_policies import replication_policy
from formats.policies.topic_configs import DEFAULT_EXCLUDES
from infra.settings.units import parse_duration
from replicator.config.flows import DEFAULT_POLICY
from replicator.config.mirrormaker_clients import Side
from replicator.config.mirrormaker_file import SideSetting
from replicator.config.mirrormaker_keys import DEFAULT_CLASSES, Treatment, rule_of
from replicator.config.mirrormaker_mistyped import DECISIVE, truth
from replicator.config.mirrormaker_patterns import items_of, patterns
from replicator.config.show import Table

NO_NEW_TOPICS = "0s"  # topic_refresh_interval

_WITHOUT_RECORDS: Mapping[str, str] = {
    "MirrorCheckpointConnector": "flows.groups, and groups.sync of the target",
    "MirrorHeartbeatConnector": "flows.heartbeats",
}
"""Connectors of MirrorMaker 2 that do not replicate topics, and the settings for what they do."""
_DEFAULT_TOPIC_EXCLUDES = frozenset((r"mm2.*\.internal", r".*\.replica", "__.*", "__consumer_offsets"))
_DEFAULT_GROUP_EXCLUDES = frozenset(("console-consumer-.*", "connect-.*", "__.*"))


@dataclass(slots=True)
class FlowProperties:
    """Of a flow from the cluster `source`. `settings`: besides those with a field of their own."""

    source: str
    separator: str = "."  # of names, wherever it is written
    settings: Table = field(default_factory=dict)
    egress: dict[str, SideSetting] = field(default_factory=dict)
    ingress: dict[str, SideSetting] = field(default_factory=dict)
    topics: list[str] = field(default_factory=lambda: ["^.*"])  # MirrorMaker 2's defaults
    groups: list[str] = field(default_factory=lambda: ["^.*"])
    has_checkpoints: bool = True
    checkpoint_interval: SideSetting | None = None
    syncs: SideSetting | None = None  # the groups' offsets
    never_syncs: SideSetting | None = None  # beats it
    sync_interval: SideSetting | None = None
    has_heartbeats: bool = True
    refuses_new_topics: bool = False
    taken: str = ""  # the key that is being taken

    @property
    def table(self) -> Table:
        """The settings of the flow."""
        groups: Table = {"groups": self.groups} if self.has_checkpoints else {}
        heartbeats: Table = {} if self.has_heartbeats else {"heartbeats": False}
        return {"topics": self.topics, **groups, **heartbeats, **self.settings}

    @property
    def group_settings(self) -> Mapping[str, SideSetting]:
        """Of the target's [groups]. Without checkpoints there are none, and MirrorMaker 2 commits no offsets either."""
        if not self.has_checkpoints:
            return {}
        syncs = self.never_syncs or self.syncs
        intervals = [self.checkpoint_interval, self.sync_interval if syncs and syncs.value else None]
        found = {} if syncs is None else {"sync": syncs}
        if any(intervals):
            found["interval"] = min(filter(None, intervals), key=lambda one: parse_duration(str(one.value)))
        return found

    def take(self, name: str, value: str, key: str) -> tuple[Treatment, str]:
        """Add one property. `key`: as it is written. Returns what became of it."""
        rule = rule_of(name)
        assert rule is not None
        treatment, reason = rule.treatment, rule.reason
        self.taken = key
        try:
            if treatment is Treatment.REFUSED and (why := _harmless(value)):
                treatment, reason = Treatment.IGNORED, why
            if treatment is not Treatment.REFUSED and (take := _MAPPERS.get(name)) is not None:
                reason = take(self, value.strip()) or reason
        except ValueError as error:
            treatment, reason = Treatment.REFUSED, str(error)
        if treatment is Treatment.REFUSED and name in DECISIVE:
            self.settings["enabled"] = False
            reason += f"; {DECISIVE[name]}"
        return treatment, reason

    def take_start(self, value: str, side: Side, key: str) -> tuple[Treatment, str]:
        """Add `auto.offset.reset` of a consumer of `side`."""
        self.taken = key
        if side == "target":
            return Treatment.IGNORED, "it is about the consumer of the source"
        if value not in ("earliest", "latest"):
            return Treatment.REFUSED, 'egress.defaults.start is "earliest", "latest" or a time'
        if value == "latest":
            self._of_source("start", value)
        return Treatment.MAPPED, "egress.defaults.start"

    def _of_source(self, name: str, value: object) -> None:
        self.egress[name] = SideSetting(value, self.taken)

    def _of_target(self, name: str, value: object) -> None:
        self.ingress[name] = SideSetting(value, self.taken)

    def _take_connector(self, value: str) -> str:
        name = value.rpartition(".")[2]
        if name not in _WITHOUT_RECORDS:
            return ""
        self.settings["enabled"] = False  # it has no topics of its own, and without them all would cross
        raise ValueError(
            f"{name} copies no record: the flow is off. Import the file of the MirrorSourceConnector between these "
            f"clusters; what this one does there is {_WITHOUT_RECORDS[name]}"
        )

    def _take_topics(self, value: str) -> str:
        self.topics = patterns(value)
        return ""

    def _take_exclude(self, value: str) -> str:
        own = [one for one in items_of(value) if one not in _DEFAULT_TOPIC_EXCLUDES]
        if own:
            self.settings["exclude"] = patterns(",".join(own))
        return "flows.exclude; the default excludes hold for expressions in any case"

    def _take_groups(self, value: str) -> str:
        self.groups = patterns(value)
        return ""

    def _take_groups_exclude(self, value: str) -> str:
        own = [one for one in items_of(value) if one not in _DEFAULT_GROUP_EXCLUDES]
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
        self.checkpoint_interval = SideSetting(f"{seconds}s", self.taken)
        return ""

    def _take_sync(self, value: str) -> str:
        self.syncs = SideSetting(truth(value), self.taken)
        return "groups.sync; without checkpoints nothing is committed, as in MirrorMaker 2"

    def _take_sync_interval(self, value: str) -> str:
        seconds = int(value)
        if seconds <= 0:
            self.never_syncs = SideSetting(value=False, key=self.taken)
            return "groups.sync; none without an interval"
        self.sync_interval = SideSetting(f"{seconds}s", self.taken)
        return "groups.interval: the shorter one of this and the checkpoints'"

    def _take_config_excludes(self, value: str) -> str:
        if set(items_of(value)) != {one.replace(".", r"\.") for one in DEFAULT_EXCLUDES}:
            self._of_target("config_properties_exclude", items_of(value))
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

    def _take_internal_separator(self, value: str) -> str:
        if not truth(value) and self.separator != ".":
            raise ValueError("checkpoints and offset syncs are named with the separator, too: write a policy in Python")
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


def _harmless(value: str) -> str:
    """Why a value of a refused property changes nothing; empty when it does."""
    if value.strip().rpartition(".")[2] in DEFAULT_CLASSES:
        return "is the default, and what is done here"
    return ""


_MAPPERS: Mapping[str, Callable[[FlowProperties, str], str]] = {
    "connector.class": FlowProperties._take_connector,
    "topics": FlowProperties._take_topics,
    "topics.exclude": FlowProperties._take_exclude,
    "groups": FlowProperties._take_groups,
    "groups.exclude": FlowProperties._take_groups_exclude,
    "emit.checkpoints.enabled": FlowProperties._take_checkpoints,
    "emit.checkpoints.interval.seconds": FlowProperties._take_checkpoint_interval,
    "sync.group.offsets.enabled": FlowProperties._take_sync,
    "sync.group.offsets.interval.seconds": FlowProperties._take_sync_interval,
    "emit.heartbeats.enabled": FlowProperties._take_heartbeats,
    "emit.heartbeats.interval.seconds": FlowProperties._take_heartbeat_interval,
    "config.properties.exclude": FlowProperties._take_config_excludes,
    "replication.policy.class": FlowProperties._take_policy,
    "replication.policy.separator": FlowProperties._take_separator,
    "replication.policy.internal.topic.separator.enabled": FlowProperties._take_internal_separator,
    "remote.topic.format": FlowProperties._take_format,
    "refresh.topics.enabled": FlowProperties._take_refresh,
    "refresh.topics.interval.seconds": FlowProperties._take_interval,
    "replication.factor": FlowProperties._take_factor,
    "use.defaults.from": FlowProperties._take_defaults,
    "exactly.once.source.support": FlowProperties._take_delivery,
    "exactly.once.support": FlowProperties._take_delivery,
    "transaction.producer": FlowProperties._take_delivery,
    "sync.topic.configs.enabled": FlowProperties._take_configs,
    "sync.topic.acls.enabled": FlowProperties._take_acls,
}
