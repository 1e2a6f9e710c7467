"""What the control plane asks about the groups of a real cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]  # its stubs hide them

from formats.control.group_snapshot import CLASSIC, OTHER_KIND
from formats.errors import BrokerUnavailable, TargetError
from infra.contracts.cluster import Committed, TopicPartition
from infra.kafka.cluster.groups import KafkaGroups
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from tests.contracts.groups import GroupReaderContract
from tests.infra.cluster import Cluster
from tests.infra.kafka_groups import PATIENCE, commit, member, share_member
from tests.infra.principal import DESCRIBE, GROUP, TOPIC, Principal

TIMEOUT = timedelta(seconds=20)


@pytest.mark.integration
class TestKafkaGroups(GroupReaderContract):
    @pytest.fixture
    def cluster(self, stack: LocalStack) -> Cluster:
        return Cluster(stack.brokers["a"])

    @pytest.fixture
    def reader(self, cluster: Cluster) -> KafkaGroups:
        self.properties = cluster.properties
        return KafkaGroups(cluster.properties, {**cluster.properties, "log_level": "0"}, timeout=TIMEOUT)

    @pytest.fixture
    def group_id(self, unique: Callable[[str], str]) -> str:
        return unique("group")

    @pytest.fixture
    def partitions(self, cluster: Cluster, topic_name: str) -> list[TopicPartition]:
        return cluster.create(topic_name, 2)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        commit(self.properties, group_id, offsets)

    def member(self, group_id: str, kind: str, partition: TopicPartition) -> AbstractContextManager[None]:
        return member(self.properties, group_id, kind, {partition: Committed(1, "")})

    def share(self, group_id: str, partition: TopicPartition) -> AbstractContextManager[None]:
        return share_member(self.properties, group_id, partition.topic)

    def test_a_share_group_has_a_kind_that_the_client_does_not_show(
        self, reader: KafkaGroups, group_id: str, partitions: list[TopicPartition]
    ) -> None:
        with self.share(group_id, partitions[0]):
            assert wait_until(lambda: reader.others().get(group_id) == OTHER_KIND, PATIENCE)


@pytest.mark.integration
class TestRights:
    """What `docs/rights.md` says: DESCRIBE on a group and on its topics, and on no cluster."""

    @pytest.fixture
    def cluster(self, stack: LocalStack) -> Cluster:
        return Cluster(stack.brokers["a"])

    @pytest.fixture
    def limited(self, cluster: Cluster, unique: Callable[[str], str]) -> Principal:
        return Principal(cluster.broker, unique("limited"))

    def reader(self, limited: Principal) -> KafkaGroups:
        return KafkaGroups(limited.properties, {**limited.properties, "log_level": "0"}, timeout=timedelta(seconds=5))

    def test_describe_on_group_and_topic_is_enough(
        self, cluster: Cluster, limited: Principal, unique: Callable[[str], str], topic_name: str
    ) -> None:
        [partition], group_id = cluster.create(topic_name), unique("group")
        commit(cluster.properties, group_id, {partition: Committed(3, "")})
        limited.allow(GROUP, group_id, DESCRIBE)
        limited.allow(TOPIC, topic_name, DESCRIBE)
        reader = self.reader(limited)
        assert reader.listing().kinds == {group_id: CLASSIC}
        assert reader.facts(group_id).state == "empty"
        assert reader.committed(group_id, [partition]) == {partition: Committed(3, "")}
        assert reader.others() == {}

    def test_a_group_that_may_not_be_described_is_not_listed_and_refuses_at_once(
        self, cluster: Cluster, limited: Principal, unique: Callable[[str], str], topic_name: str
    ) -> None:
        [partition], group_id = cluster.create(topic_name), unique("group")
        commit(cluster.properties, group_id, {partition: Committed(3, "")})
        reader = self.reader(limited)
        assert reader.listing().kinds == {}
        with pytest.raises(TargetError, match=f"describe group {group_id}: .*allow DESCRIBE"):
            reader.facts(group_id)
        limited.allow(ResourceType.BROKER, "kafka-cluster", DESCRIBE)
        assert wait_until(lambda: group_id in reader.listing().kinds, PATIENCE), "DESCRIBE on the cluster lists all"
        with pytest.raises(TargetError, match="allow DESCRIBE"):
            reader.facts(group_id)

    def test_offsets_in_a_topic_that_may_not_be_described_are_refused(
        self, cluster: Cluster, limited: Principal, unique: Callable[[str], str], topic_name: str
    ) -> None:
        [partition], group_id = cluster.create(topic_name), unique("group")
        commit(cluster.properties, group_id, {partition: Committed(3, "")})
        limited.allow(GROUP, group_id, AclOperation.READ)  # which includes DESCRIBE
        with pytest.raises(TargetError, match=f"{topic_name}.*allow DESCRIBE"):
            self.reader(limited).committed(group_id, [partition])


def test_an_unreachable_broker_is_no_answer() -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:9", "log_level": "0"}
    groups = KafkaGroups(nowhere, nowhere, timeout=timedelta(milliseconds=200))
    with pytest.raises(BrokerUnavailable, match="list the consumer groups"):
        groups.listing()
    with pytest.raises(BrokerUnavailable, match="list the groups of all kinds"):
        groups.others()
