"""Offsets written for a group by somebody who is no member, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from formats.errors import BrokerUnavailable
from infra.contracts.cluster import Committed, TopicPartition
from infra.contracts.groups import GroupIsActive
from infra.kafka.cluster.group_commits import KafkaGroupCommits
from infra.kafka.cluster.groups import KafkaGroups
from infra.local.stack import LocalStack
from infra.runtime.lifecycle import Deadline
from tests.infra.cluster import Cluster

pytestmark = pytest.mark.integration

PATIENCE = timedelta(seconds=30)


@pytest.fixture
def cluster(stack: LocalStack) -> Cluster:
    return Cluster(stack.brokers["b"])


@pytest.fixture
def commits(cluster: Cluster) -> KafkaGroupCommits:
    return KafkaGroupCommits({str(k): str(v) for k, v in cluster.properties.items()} | {"log_level": "0"})


@pytest.fixture
def groups(cluster: Cluster) -> KafkaGroups:
    properties = {str(k): str(v) for k, v in cluster.properties.items()} | {"log_level": "0"}
    return KafkaGroups(properties, properties)


@contextmanager
def member(cluster: Cluster, group: str, topic: str, protocol: str) -> Iterator[Consumer]:
    """A consumer of the group that has its partitions."""
    consumer = Consumer(
        {
            **cluster.properties,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([topic])
        deadline = Deadline(PATIENCE)
        while not consumer.assignment() and not deadline.expired:
            consumer.poll(0.1)
        assert consumer.assignment()
        yield consumer
    finally:
        consumer.close()


def test_a_group_that_does_not_exist_gets_its_offsets(
    cluster: Cluster, commits: KafkaGroupCommits, groups: KafkaGroups, unique: Callable[[str], str]
) -> None:
    partitions, group = cluster.create(unique("topic"), 3), unique("group")
    wanted = {partitions[0]: Committed(0, ""), partitions[2]: Committed(7, "from the source")}
    commits.commit(group, wanted)
    assert groups.committed(group, partitions) == wanted
    commits.commit(group, {partitions[2]: Committed(5, "")})  # the caller decides whether an offset goes back
    assert groups.committed(group, partitions) == {**wanted, partitions[2]: Committed(5, "")}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_left_alone(
    cluster: Cluster, commits: KafkaGroupCommits, groups: KafkaGroups, unique: Callable[[str], str], protocol: str
) -> None:
    [partition], group = cluster.create(unique("topic"), 1), unique("group")
    with member(cluster, group, partition.topic, protocol) as consumer:
        consumer.commit(offsets=[Place(partition.topic, 0, 4)], asynchronous=False)
        with pytest.raises(GroupIsActive, match="has members"):
            commits.commit(group, {partition: Committed(9, "")})
        assert groups.committed(group, [partition])[partition].next_offset == 4
    commits.commit(group, {partition: Committed(9, "")})
    assert groups.committed(group, [partition])[partition].next_offset == 9
    with member(cluster, group, partition.topic, protocol) as consumer:
        [found] = consumer.committed([Place(partition.topic, 0)], timeout=10)
        assert found.offset == 9


@pytest.mark.long
def test_no_answer_is_an_error_within_the_limit(cluster: Cluster, unique: Callable[[str], str]) -> None:
    group, partition = unique("group"), TopicPartition(unique("topic"), 0)
    hasty = KafkaGroupCommits(
        {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, timeout=timedelta(milliseconds=300)
    )
    with pytest.raises(BrokerUnavailable, match=f"commit offsets of group {group}"):
        hasty.commit(group, {partition: Committed(1, "")})
