"""Records are deleted up to an offset: by the fake, and by a real broker."""

from __future__ import annotations

from datetime import timedelta

import pytest

from infra.contracts.cluster import TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.stack import LocalStack
from tests.contracts.record_deletion import RecordDeletionContract
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.infra.cluster import Cluster


class TestFakeAdminDeletes(RecordDeletionContract):
    @pytest.fixture
    def admin(self) -> FakeAdmin:
        return FakeAdmin(FakeBroker())

    @pytest.fixture
    def partitions(self, admin: FakeAdmin) -> list[TopicPartition]:
        made = admin.broker.create("t", partitions=2)
        admin.broker.append(made[0], b"a", b"b", b"c")
        return made

    @pytest.fixture
    def compacted(self, admin: FakeAdmin) -> TopicPartition:
        [made] = admin.broker.create("c")
        admin.broker.append(made, b"a")
        admin.settings["c"] = {"cleanup.policy": "compact"}
        return made


@pytest.mark.integration
class TestKafkaAdminDeletes(RecordDeletionContract):
    @pytest.fixture
    def cluster(self, stack: LocalStack) -> Cluster:
        return Cluster(stack.brokers["a"])

    @pytest.fixture
    def admin(self, cluster: Cluster) -> KafkaAdmin:
        return KafkaAdmin(cluster.properties, timeout=timedelta(seconds=20))

    @pytest.fixture
    def partitions(self, cluster: Cluster, topic_name: str) -> list[TopicPartition]:
        made = cluster.create(topic_name, 2)
        with cluster.producer() as producer:
            for value in (b"a", b"b", b"c"):
                producer.produce(topic_name, value, partition=0)
            producer.flush(20)
        return made

    @pytest.fixture
    def compacted(self, cluster: Cluster, topic_name: str) -> TopicPartition:
        [made] = cluster.create(topic_name, 1, {"cleanup.policy": "compact"})
        cluster.put(topic_name, b"k", b"a")
        return made
