"""The properties of MirrorMaker 2's `MirrorClient`: those of a Kafka client, and those of the names of topics. Pure.

bootstrap.servers = kafka.eu:9092
security.protocol = SASL_SSL                          names of Kafka's Java clients, or of librdkafka
replication.policy.separator = __
replication.policy.class = …IdentityReplicationPolicy
source.cluster.alias = us                             of the identity policy
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from formats.policies.named_policies import replication_policy
from formats.policies.names import ReplicationPolicy
from replicator.config.java_properties import read_properties
from replicator.config.mirrormaker_clients import NO_JAAS, login_of
from replicator.config.mirrormaker_keys import CLIENT_KEYS, Treatment

POLICY, SEPARATOR, ALIAS = "replication.policy.class", "replication.policy.separator", "source.cluster.alias"
INTERNAL_SEPARATOR = "replication.policy.internal.topic.separator.enabled"
_NO_ALIAS = "source"  # of policies that answer for every alias
_OF_BOTH = ("ssl.keystore.location", "ssl.keystore.password")  # librdkafka has these names, too: of PKCS#12
_UNUSED = ("auto.offset.reset",)  # topics are read from their begin


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorClientProperties:
    client: Mapping[str, str]  # of librdkafka; may hold secrets
    policy: ReplicationPolicy


def mirror_client_properties(text: str) -> MirrorClientProperties:
    """Of a properties file. Raises ValueError that names every property that is refused; which names the client knows,
    it says itself."""
    given = dict(read_properties(text))
    names = {name: given.pop(name, "").strip() for name in (POLICY, SEPARATOR, ALIAS, INTERNAL_SEPARATOR)}
    client, problems = _client(given)
    separator = names[SEPARATOR] or "."
    if names[INTERNAL_SEPARATOR].lower() == "false" and separator != ".":
        problems.append(f"{INTERNAL_SEPARATOR}: internal topics are named with {SEPARATOR} here: write a policy")
    policy: ReplicationPolicy | None = None
    try:
        policy = replication_policy(names[POLICY] or "default", names[ALIAS] or _NO_ALIAS, separator)
    except ValueError as error:
        problems.append(f"{POLICY}: {error}")
    if policy is None or problems:
        raise ValueError("; ".join(problems))
    return MirrorClientProperties(client=client, policy=policy)


def _client(given: Mapping[str, str]) -> tuple[Mapping[str, str], list[str]]:
    """The client's properties, and those that are refused."""
    client: dict[str, str] = {}
    problems: list[str] = []
    for name, value in given.items():
        rule = None if name in _OF_BOTH else CLIENT_KEYS.get(name)
        if name == "sasl.jaas.config":
            login = login_of(value)
            if login is None:
                problems.append(f"{name}: {NO_JAAS}")
            else:
                client["sasl.username"], client["sasl.password"] = login
        elif rule is not None and rule.treatment is Treatment.REFUSED:
            problems.append(f"{name}: {rule.reason}")
        elif (rule is None or rule.treatment is Treatment.MAPPED) and name not in _UNUSED:
            client[name if rule is None else rule.reason] = value.strip()
    return client, problems
