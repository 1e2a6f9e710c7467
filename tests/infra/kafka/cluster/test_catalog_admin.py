"""What the control plane asks of a real cluster, and changes in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from infra.contracts.cluster import LogEnds, TopicPartition
from infra.kafka.cluster.admin_connection import AdminConnection
from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
from infra.kafka.cluster.log_ends import KafkaLogEnds
from infra.local.stack import LocalStack
from tests.contracts.catalog_admin import CatalogAdminContract, LogEndContract
from tests.infra.cluster import Cluster
from tests.infra.principal import DESCRIBE, DESCRIBE_CONFIGS, TOPIC, Principal

pytestmark = pytest.mark.integration

TIMEOUT = timedelta(seconds=20)
ANYTHING: Any = None  # which the client takes for a name, a principal and a host


@pytest.fixture
def cluster(stack: LocalStack) -> Cluster:
    return Cluster(stack.brokers["a"])


@pytest.fixture
def connection(cluster: Cluster) -> AdminConnection:
    return AdminConnection(cluster.properties, timeout=TIMEOUT)


class TestKafkaCatalogAdmin(CatalogAdminContract):
    @pytest.fixture
    def admin(self, connection: AdminConnection, unique: Callable[[str], str]) -> Iterator[KafkaCatalogAdmin]:
        self.connection, self.principal = connection, f"User:{unique('alice')}"
        yield KafkaCatalogAdmin(connection)
        every = AclBindingFilter(
            ResourceType.ANY,
            ANYTHING,
            ResourcePatternType.ANY,
            self.principal,
            ANYTHING,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for future in connection.client.delete_acls([every]).values():
            future.result()

    @pytest.fixture
    def topic(self, cluster: Cluster, topic_name: str) -> str:
        cluster.create(topic_name, 3, self.CONFIGS)
        return topic_name

    def grant(self, topic: str, pattern: str = "LITERAL") -> AclBinding:
        binding = ClientBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType[pattern],
            self.principal,
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        for future in self.connection.client.create_acls([binding]).values():
            future.result()
        return AclBinding(
            resource_type="TOPIC",
            resource_name=topic,
            pattern_type=pattern,
            principal=self.principal,
            host="*",
            operation="READ",
            permission="ALLOW",
        )


class TestKafkaCatalogAdminByPrefix(TestKafkaCatalogAdmin):
    """ACLs whose pattern is a prefix."""

    def grant(self, topic: str, pattern: str = "PREFIXED") -> AclBinding:
        return super().grant(topic, pattern)


@pytest.mark.parametrize("missing", ["DESCRIBE", "DESCRIBE_CONFIGS", ""])
def test_an_empty_list_of_acls_means_none_only_with_both_rights_on_the_cluster(
    stack: LocalStack, unique: Callable[[str], str], missing: str
) -> None:
    """The client lists none to a principal without DESCRIBE, too."""
    limited = Principal(stack.brokers["a"], unique("limited"))
    for operation in (DESCRIBE, DESCRIBE_CONFIGS):
        if operation.name != missing:
            limited.allow(ResourceType.BROKER, "kafka-cluster", operation)
    admin = KafkaCatalogAdmin(AdminConnection(limited.properties, timeout=TIMEOUT))
    assert admin.sees_all_acls() is (not missing)


class TestKafkaLogEnds(LogEndContract):
    @pytest.fixture
    def reader(self, cluster: Cluster, connection: AdminConnection, unique: Callable[[str], str]) -> KafkaLogEnds:
        self.cluster, self.unique = cluster, unique
        return KafkaLogEnds(connection)

    @pytest.fixture
    def partition(self, cluster: Cluster, topic_name: str) -> TopicPartition:
        return cluster.create(topic_name)[0]

    def append(self, partition: TopicPartition, count: int) -> None:
        for _ in range(count):
            self.cluster.put(partition.topic, None, b"x")

    def trim(self, partition: TopicPartition, low: int) -> None:
        self.cluster.cut(partition.topic, low)

    @contextmanager
    def transaction(self, partition: TopicPartition) -> Iterator[None]:
        with self.cluster.producer(**{"transactional.id": self.unique("open")}) as producer:
            producer.init_transactions(20)
            producer.begin_transaction()
            producer.produce(partition.topic, b"x", None, partition.partition)
            producer.flush(20)
            yield
            producer.abort_transaction(20)

    def test_a_topic_that_may_not_be_described_holds_up_no_other(
        self, reader: KafkaLogEnds, partition: TopicPartition, stack: LocalStack
    ) -> None:
        [hidden] = self.cluster.create(self.unique("hidden"))
        limited = Principal(stack.brokers["a"], self.unique("limited"))
        limited.allow(TOPIC, partition.topic, DESCRIBE)
        ends = KafkaLogEnds(AdminConnection(limited.properties, timeout=TIMEOUT)).log_ends([partition, hidden])
        assert ends[partition] == LogEnds(low=0, stable=0, high=0)
        assert isinstance(ends[hidden], TargetError)
        assert "allow DESCRIBE" in str(ends[hidden])
