"""Properties of Kafka's Java clients as those of librdkafka, for the clients of one cluster. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from infra.settings.secrets import is_secret
from replicator.config.mirrormaker_keys import CLIENT_KEYS, ROLES, Treatment
from replicator.config.show import to_toml

OPEN = "@{"  # of a variable, until all other texts are escaped
Side = Literal["source", "target", "both"]

_HEADS: Mapping[str, Side] = {"source.cluster.": "source", "source.": "source", "target.cluster.": "target"}
_SIDES: Mapping[str, Side] = {**_HEADS, "target.": "target", "remote.": "source"}
_OF_ROLE: Mapping[str, Side] = {"consumer": "source", "producer": "target", "admin": "both"}  # without a side
_JAAS = re.compile(r"[\w.$]*?(?P<module>\w+)\s+(required|requisite|sufficient|optional)\b(?P<options>.*)", re.DOTALL)
_OPTION = re.compile(
    r"""(?P<name>[\w.]+)\s*=\s*(?:"(?P<a>(?:\\.|[^"\\])*)"|'(?P<b>(?:\\.|[^'\\])*)'|(?P<c>[^\s;"']+))"""
)
_STORES = ("ssl.truststore", "ssl.keystore")
_OF_PEM: Mapping[str, Sequence[str]] = {
    "ssl.truststore.location": ["ssl.ca.location"],
    "ssl.keystore.location": ["ssl.certificate.location", "ssl.key.location"],  # OpenSSL finds each in the one file
    **dict.fromkeys((f"{store}.{what}" for store in _STORES for what in ("type", "password")), ()),
}
"""Properties of a store that is a PEM file, as those of librdkafka."""
_PEM = "librdkafka reads PEM files as they are; the password of a key is ssl.key.password"
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
    """User name and password of `sasl.jaas.config`; None for a login module without them, and for delegation tokens,
    which librdkafka does not know."""
    match = _JAAS.match(jaas_config.strip())
    if match is None or match["module"] not in _MODULES:
        return None
    given = {
        one["name"]: re.sub(r"\\(.)", r"\1", next(one[sign] for sign in "abc" if one[sign] is not None))
        for one in _OPTION.finditer(match["options"])
    }
    if given.get("tokenauth", "").lower() == "true" or not {"username", "password"} <= given.keys():
        return None
    return given["username"], given["password"]


@dataclass(slots=True)
class ClientProperties:
    """Of the cluster `alias`. Secrets become variables of the environment, named after it."""

    alias: str
    values: dict[tuple[str, str], str] = field(default_factory=dict)  # by role, which is empty for all, and name
    keys: dict[tuple[str, str], str] = field(default_factory=dict)  # what each was made of
    pem: set[tuple[str, str]] = field(default_factory=set)  # stores that are PEM files, by role and `_STORES`

    def learn(self, role: str, name: str, value: str) -> None:
        """Note of what type a store is; of every property, before any is taken."""
        for store in _STORES:
            if name == f"{store}.type":
                (self.pem.add if value.strip().upper() == "PEM" else self.pem.discard)((role, store))

    def take(self, role: str, name: str, value: str, key: str) -> tuple[Treatment, str]:
        """Add one property. `key`: as it is written. Returns what became of it."""
        rule = CLIENT_KEYS[name]
        store = next((one for one in _STORES if name.startswith(f"{one}.")), "")
        if store and {(role, store), ("", store)} & self.pem and name in _OF_PEM:
            for target in (targets := _OF_PEM[name]):
                self.put(role, target, value.strip(), key)
            return (Treatment.MAPPED, f"kafka.{', kafka.'.join(targets)}") if targets else (Treatment.IGNORED, _PEM)
        if store:
            return rule.treatment, f"{rule.reason} in [clusters.{self.alias}.kafka]"
        if rule.treatment is not Treatment.MAPPED or name == "auto.offset.reset":
            return rule.treatment, rule.reason
        found = {rule.reason: value.strip()}
        if name == "sasl.jaas.config":
            login = login_of(value)
            if login is None:
                return Treatment.REFUSED, NO_JAAS
            found = {"sasl.username": login[0], "sasl.password": variable(self.alias, "sasl.password")}
        elif is_secret(name):
            found = {rule.reason: variable(self.alias, name)}
        elif name == "ssl.endpoint.identification.algorithm" and not value.strip():
            found = {name: "none"}
        for target, text in found.items():
            self.put(role, target, text, key)
        return rule.treatment, f"kafka.{rule.reason}"

    def put(self, role: str, name: str, value: str, key: str) -> None:
        """`name`: of librdkafka."""
        self.values[role, name], self.keys[role, name] = value, key


def kafka_table(alias: str, values: Mapping[tuple[str, str], str]) -> dict[str, object]:
    """[kafka], with a variable for brokers that nothing names."""
    base = {name: value for (role, name), value in values.items() if not role}
    tables = {
        role: {name: value for (one, name), value in values.items() if one == role}
        for role in ROLES
        if any(one == role for one, _ in values)
    }
    return {"bootstrap.servers": variable(alias, "bootstrap.servers"), **base, **tables}


def variable(alias: str, name: str) -> str:
    """A reference to the environment, for `imported_toml`."""
    return f"{OPEN}{re.sub(r'[^A-Z0-9]+', '_', f'{alias}_{name}'.upper())}}}"


def imported_toml(tables: Mapping[str, object]) -> str:
    return to_toml(tables).replace(f'"{OPEN}', '"${')
