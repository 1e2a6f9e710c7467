"""The cluster in memory does what the real one does, as far as the control plane goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from formats.policies.acls import AclBinding
from infra.contracts.cluster import Committed, TopicPartition
from tests.contracts.catalog_admin import CatalogAdminContract, LogEndContract
from tests.contracts.groups import GroupReaderContract
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_catalog import FakeCatalogAdmin, FakeLogEnds
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.kafka_groups import FakeGroup, FakeGroupReader


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


class TestFakeGroupReader(GroupReaderContract):
    @pytest.fixture
    def reader(self) -> FakeGroupReader:
        self.groups = FakeGroupReader()
        return self.groups

    @pytest.fixture
    def group_id(self) -> str:
        return "g"

    @pytest.fixture
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition("t", 0), TopicPartition("t", 1)]

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        self.groups.found.setdefault(group_id, FakeGroup()).offsets.update(offsets)

    @contextmanager
    def member(self, group_id: str, kind: str, partition: TopicPartition) -> Iterator[None]:
        group = self.groups.found[group_id] = FakeGroup(kind, members=1, offsets={partition: Committed(1, "")})
        yield
        group.members = 0

    @contextmanager
    def share(self, group_id: str, partition: TopicPartition) -> Iterator[None]:
        self.groups.found[group_id] = FakeGroup("share")
        yield
