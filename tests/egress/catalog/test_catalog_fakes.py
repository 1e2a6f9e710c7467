"""The cluster in memory does what the real one does, as far as the control plane goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from formats.policies.acls import AclBinding
from infra.contracts.cluster import TopicPartition
from tests.contracts.catalog_admin import CatalogAdminContract, LogEndContract
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_catalog import FakeCatalogAdmin, FakeLogEnds
from tests.fakes.kafka_consumer import FakeBroker


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


class TestFakeCatalogAdmin(CatalogAdminContract):
    @pytest.fixture
    def admin(self, broker: FakeBroker) -> FakeCatalogAdmin:
        self.made = FakeCatalogAdmin(FakeAdmin(broker), sees_all=True)
        return self.made

    @pytest.fixture
    def topic(self, admin: FakeCatalogAdmin, broker: FakeBroker) -> str:
        broker.create("t", partitions=3)
        admin.configs["t"] = dict(self.CONFIGS)
        return "t"

    def grant(self, topic: str) -> AclBinding:
        binding = AclBinding(
            resource_type="TOPIC",
            resource_name=topic,
            pattern_type="LITERAL",
            principal="User:alice",
            host="*",
            operation="READ",
            permission="ALLOW",
        )
        self.made.bindings.add(binding)
        return binding


class TestFakeLogEnds(LogEndContract):
    @pytest.fixture
    def reader(self, broker: FakeBroker) -> FakeLogEnds:
        self.broker = broker
        return FakeLogEnds(broker)

    @pytest.fixture
    def partition(self, broker: FakeBroker) -> TopicPartition:
        return broker.create("t")[0]

    def append(self, partition: TopicPartition, count: int) -> None:
        self.broker.append(partition, *[b"x"] * count)

    def trim(self, partition: TopicPartition, low: int) -> None:
        self.broker.trim(partition, low)

    @contextmanager
    def transaction(self, partition: TopicPartition) -> Iterator[None]:
        open_one = self.broker.begin(partition, b"x")
        yield
        open_one.abort()
