"""Every binding that a topic, a prefix or a group may have, under each value of `acls`, between two brokers with an
authorizer: which of them the target has then, and what the principals may do there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from formats.policies.acls import AclBinding
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
from infra.local.broker import Broker
from infra.local.waiting import wait_until
from replicator.services.egress import build_egress
from replicator.services.ingress import build_ingress
from tests.infra.cluster import Cluster
from tests.infra.principal import Principal
from tests.integration.test_control_plane import (
    PATIENCE,
    Regions,
    await_,
    first_value,
    regions,  # noqa: F401 - the fixture
    why_not_produced,
)

pytestmark = [pytest.mark.integration, pytest.mark.long]

OPERATIONS = (*("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALL"),)
OF_GROUPS = ("READ", "DESCRIBE", "DELETE", "ALL")
MODES = ("mirror", "strict-read", "dr-full")


def crossed(mode: str, permission: str, operation: str) -> str | None:
    """The operation at the target of a binding of the source's own topic; None: it does not cross. The table of
    MirrorMaker 2, and what the other modes say."""
    if mode == "dr-full":
        return operation
    if mode == "strict-read":
        return "READ" if permission == "ALLOW" and operation in ("READ", "ALL") else None
    if permission == "ALLOW" and operation in ("WRITE", "ALL"):
        return {"WRITE": None, "ALL": "READ"}[operation]
    return operation


def acls(broker: Broker) -> KafkaCatalogAdmin:
    return KafkaCatalogAdmin(KafkaAdmin(Cluster(broker).properties).connection)


def user(word: str, permission: str, operation: str) -> str:
    return f"{word}-{permission}-{operation}".lower()


def principal(word: str, permission: str, operation: str) -> str:
    return f"User:{user(word, permission, operation)}"


@pytest.mark.parametrize("mode", MODES)
def test_the_whole_matrix(regions: Regions, mode: str) -> None:  # noqa: F811
    word, brokers = regions.word, regions.stack.brokers
    topic, copy = f"{word}.orders", f"a.{word}.orders"
    Cluster(brokers["a"]).create(topic, partitions=1)
    regions.produce("a", topic, 0, 1)
    users = {one: Principal(brokers["b"], user(word, "ALLOW", one)) for one in ("READ", "WRITE", "ALL")}
    of_topic = [binding(word, topic, *one) for one in product(("ALLOW", "DENY"), OPERATIONS)]
    of_prefix = [replace(one, resource_name=f"{word}.o", pattern_type="PREFIXED") for one in of_topic]
    of_group = [
        replace(one, resource_type="GROUP", resource_name=f"{word}-group")
        for one in of_topic
        if one.operation in OF_GROUPS
    ]
    source, target = acls(brokers["a"]), acls(brokers["b"])
    assert source.create_acls([*of_topic, *of_prefix, *of_group]) == {}
    regions.start(build_egress(regions.egress("a")))
    settings: Mapping[str, Any] = {"acls": mode, "protect": False, "ledger_topic": regions.unique("ledger")}
    regions.start(build_ingress(regions.ingress("b", "a", **settings)))

    wanted = {
        replace(one, resource_name=copy, operation=operation)
        for one in of_topic
        if (operation := crossed(mode, one.permission, one.operation)) is not None
    }
    if mode == "dr-full":
        wanted |= {*of_prefix, *of_group}

    def found() -> Collection[AclBinding]:
        return {one for one in target.acls() if word in one.resource_name}

    wait_until(lambda: found() == wanted, PATIENCE)
    assert found() == wanted
    await_(lambda: regions.count("b", copy, 0) == 1)
    for reader in ("READ", "ALL"):
        await_(lambda reader=reader: first_value(users[reader], copy) == b"0")  # type: ignore[misc]
    for writer in ("WRITE", "ALL"):
        refused = "" if mode == "dr-full" else "TOPIC_AUTHORIZATION_FAILED"
        await_(lambda writer=writer, refused=refused: why_not_produced(users[writer], copy) == refused)  # type: ignore[misc]
    if mode != "dr-full":
        assert regions.count("b", copy, 0) == 1

    source.delete_acls([*of_topic, *of_prefix, *of_group])
    await_(lambda: found() == set())


def binding(word: str, topic: str, permission: str, operation: str) -> AclBinding:
    return AclBinding(
        resource_type="TOPIC",
        resource_name=topic,
        pattern_type="LITERAL",
        principal=principal(word, permission, operation),
        host="*",
        operation=operation,
        permission=permission,
    )
