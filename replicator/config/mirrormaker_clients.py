"""Properties of Kafka's Java clients as those of librdkafka, for the clients of one cluster. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from infra.settings.secrets import is_secret
from replicator.config.mirrormaker_keys import CLIENT_KEYS, ROLES, Treatment

Side = Literal["source", "target", "both"]

_HEADS: Mapping[str, Side] = {"source.cluster.": "source", "source.": "source", "target.cluster.": "target"}
_SIDES: Mapping[str, Side] = {**_HEADS, "target.": "target", "remote.": "source"}
_OF_ROLE: Mapping[str, Side] = {"consumer": "source", "producer": "target", "admin": "both"}  # without a side
_JAAS = re.compile(
    r'[\w.]*?(?P<module>\w+)\s+required\b.*?username="(?P<name>[^"]*)".*?password="(?P<secret>[^"]*)"', re.DOTALL
)
_MODULES = ("PlainLoginModule", "ScramLoginModule")
NO_JAAS = "only PlainLoginModule and ScramLoginModule with username and password are known: see librdkafka's sasl.*"


@dataclass(frozen=True, slots=True)
class ClientKey:
    side: Side
    role: str  # empty: of all clients
    name: str


def client_key(name: str, *, is_of_cluster: bool) -> ClientKey | None:
    """Of `source.consumer.fetch.min.bytes` and the like; None for what is no property of a client."""
    side: Side = "both"
    for head, one in _SIDES.items():
        if name.startswith(head):
            side, name = one, name.removeprefix(head)
            break
    role = next((one for one in ROLES if name.startswith(f"{one}.")), "")
    name = name.removeprefix(f"{role}.").removeprefix("override.") if role else name
    if name not in CLIENT_KEYS:
        return None
    if side == "both" and role and not is_of_cluster:
        side = _OF_ROLE[role]
    return ClientKey(side, role, name)


def login_of(jaas_config: str) -> tuple[str, str] | None:
    """User name and password of `sasl.jaas.config`; None for a login module without them."""
    match = _JAAS.match(jaas_config.strip())
    return None if match is None or match["module"] not in _MODULES else (match["name"], match["secret"])


@dataclass(slots=True)
class ClientProperties:
    """Of the cluster `alias`. Secrets become variables of the environment, named after it."""

    alias: str
    _base: dict[str, object] = field(default_factory=dict)
    _roles: dict[str, dict[str, object]] = field(default_factory=dict)

    def take(self, role: str, name: str, value: str) -> tuple[Treatment, str]:
        """Add one property. Returns what became of it."""
        rule = CLIENT_KEYS[name]
        if rule.treatment is not Treatment.MAPPED or name == "auto.offset.reset":
            return rule.treatment, rule.reason
        table = self._roles.setdefault(role, {}) if role else self._base
        if name == "sasl.jaas.config":
            login = login_of(value)
            if login is None:
                return Treatment.REFUSED, NO_JAAS
            table["sasl.username"], table["sasl.password"] = login[0], self._variable("sasl.password")
        elif is_secret(name):
            table[rule.reason] = self._variable(name)
        elif name == "ssl.endpoint.identification.algorithm" and not value.strip():
            table[name] = "none"
        else:
            table[rule.reason] = value.strip()
        return rule.treatment, f"kafka.{rule.reason}"

    def table(self) -> dict[str, object]:
        """[kafka], with a variable for brokers that the file does not name."""
        base = {"bootstrap.servers": self._variable("bootstrap.servers"), **self._base}
        return {**base, **{role: self._roles[role] for role in ROLES if self._roles.get(role)}}

    def _variable(self, name: str) -> str:
        return f"@{{{re.sub(r'[^A-Z0-9]+', '_', f'{self.alias}_{name}'.upper())}}}"
