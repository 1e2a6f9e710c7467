"""What the control plane asks of a real cluster, and changes in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding as ClientBinding,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from formats.errors import TargetError
from formats.policies.acls import AclBinding
from formats.policies.topic_configs import ConfigChange, ConfigSource, ConfigValue
from infra.kafka.cluster.admin_connection import AdminConnection
from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from tests.infra.cluster import Cluster

pytestmark = pytest.mark.integration


@pytest.fixture
def cluster(stack: LocalStack) -> Cluster:
    return Cluster(stack.brokers["a"])


@pytest.fixture
def connection(cluster: Cluster) -> AdminConnection:
    return AdminConnection(cluster.properties, timeout=timedelta(seconds=20))


@pytest.fixture
def admin(connection: AdminConnection) -> KafkaCatalogAdmin:
    return KafkaCatalogAdmin(connection)


@pytest.fixture
def topic(cluster: Cluster, topic_name: str) -> str:
    cluster.create(topic_name, 3, {"retention.ms": "777000", "cleanup.policy": "compact"})
    return topic_name


def test_topics_with_ids_partitions_and_replicas(admin: KafkaCatalogAdmin, topic: str) -> None:
    found = admin.shapes([topic, "no-such-topic"])
    assert list(found) == [topic]
    shape = found[topic]
    assert (shape.name, shape.partitions, shape.replication_factor) == (topic, 3, 1)
    assert shape.topic_id
    assert "/" not in shape.topic_id


def test_configs_with_their_source(admin: KafkaCatalogAdmin, topic: str) -> None:
    found = admin.config_values([topic, "no-such-topic"])
    assert list(found) == [topic]
    configs = found[topic]
    assert not isinstance(configs, Exception)
    assert configs["retention.ms"] == ConfigValue("777000", ConfigSource.TOPIC)
    assert configs["cleanup.policy"] == ConfigValue("compact", ConfigSource.TOPIC)
    assert configs["segment.bytes"].source is ConfigSource.DEFAULT


def test_partitions_are_added_once(admin: KafkaCatalogAdmin, topic: str) -> None:
    for _ in range(2):
        admin.grow(topic, 5)
    assert admin.shapes([topic])[topic].partitions == 5
    admin.grow(topic, 4)
    assert admin.shapes([topic])[topic].partitions == 5
    with pytest.raises(TargetError, match="no-such-topic"):
        admin.grow("no-such-topic", 2)


def test_configs_are_set_and_unset_and_a_refused_one_holds_up_no_other(admin: KafkaCatalogAdmin, topic: str) -> None:
    change = ConfigChange({"retention.ms": "5000", "segment.bytes": "not a number"}, frozenset({"cleanup.policy"}))
    refused = admin.change_configs(topic, change)
    assert list(refused) == ["segment.bytes"]
    assert "not a number" in refused["segment.bytes"]
    configs = admin.config_values([topic])[topic]
    assert not isinstance(configs, Exception)
    assert configs["retention.ms"] == ConfigValue("5000", ConfigSource.TOPIC)
    assert configs["cleanup.policy"] == ConfigValue("delete", ConfigSource.DEFAULT)
    assert admin.change_configs(topic, ConfigChange()) == {}


@pytest.fixture
def granted(connection: AdminConnection, topic: str, unique: Callable[[str], str]) -> Iterator[str]:
    """A principal that may read the topic, and write whatever begins with its name."""
    principal = f"User:{unique('alice')}"
    bindings = [
        ClientBinding(ResourceType.TOPIC, topic, pattern, principal, "*", operation, AclPermissionType.ALLOW)
        for pattern, operation in (
            (ResourcePatternType.LITERAL, AclOperation.READ),
            (ResourcePatternType.PREFIXED, AclOperation.WRITE),
        )
    ]
    for future in connection.client.create_acls(bindings).values():
        future.result()
    yield principal
    anything: Any = None
    every = AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        principal,
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    for future in connection.client.delete_acls([every]).values():
        future.result()


def test_acls_of_topics_by_pattern(admin: KafkaCatalogAdmin, granted: str, topic: str) -> None:
    common = {"resource_type": "TOPIC", "resource_name": topic, "principal": granted, "host": "*"}
    expected = {
        AclBinding(**common, pattern_type="LITERAL", operation="READ", permission="ALLOW"),
        AclBinding(**common, pattern_type="PREFIXED", operation="WRITE", permission="ALLOW"),
    }

    def ours() -> set[AclBinding]:
        return {acl for acl in admin.acls() if acl.principal == granted}

    assert wait_until(lambda: ours() == expected, timedelta(seconds=20)), ours()
