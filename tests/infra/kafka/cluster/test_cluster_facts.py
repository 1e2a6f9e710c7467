"""Facts about groups and logs of a real cluster."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from formats.errors import BrokerUnavailable
from infra.contracts.cluster import LogEnds, TopicPartition
from infra.kafka.cluster.groups import KafkaGroups
from infra.kafka.cluster.log_probe import KafkaLogProbe
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from tests.infra.cluster import Cluster

PATIENCE = timedelta(seconds=30)
SOME = TopicPartition("some", 0)


@pytest.fixture
def cluster(stack: LocalStack) -> Cluster:
    return Cluster(stack.brokers["b"])


def properties(cluster: Cluster) -> dict[str, str]:
    return {"bootstrap.servers": cluster.broker.bootstrap, "log_level": "0"}


@pytest.mark.integration
class TestGroups:
    def test_an_unknown_group(self, cluster: Cluster, unique: Callable[[str], str]) -> None:
        groups, name = KafkaGroups(properties(cluster), properties(cluster)), unique("group")
        assert (groups.facts(name).members, groups.committed(name, [SOME])) == (0, {})

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_members_come_and_go(
        self, cluster: Cluster, unique: Callable[[str], str], topic_name: str, protocol: str
    ) -> None:
        first, second = cluster.create(topic_name, 2)
        groups, name = KafkaGroups(properties(cluster), properties(cluster)), unique("group")
        member = Consumer(properties(cluster) | {"group.id": name, "group.protocol": protocol})
        try:
            member.subscribe([topic_name])
            member.poll(0.1)

            def joined() -> bool:
                member.poll(0.1)
                return groups.facts(name).partitions == {first, second}

            assert wait_until(joined, PATIENCE)
            assert groups.facts(name).members == 1
            member.commit(offsets=[Place(topic_name, 1, 7, metadata="start=3")], asynchronous=False)
        finally:
            member.close()
        found = groups.committed(name, [first, second])
        assert {p: (c.next_offset, c.metadata) for p, c in found.items()} == {second: (7, "start=3")}
        assert wait_until(lambda: groups.facts(name).members == 0, PATIENCE)


@pytest.mark.integration
class TestProbe:
    def test_an_open_transaction_and_its_age(
        self, cluster: Cluster, unique: Callable[[str], str], topic_name: str
    ) -> None:
        begun = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
        (here,) = cluster.create(topic_name, configs={"retention.ms": "-1"})
        probe = KafkaLogProbe(properties(cluster), admin=properties(cluster))
        for n in range(5):
            cluster.put(topic_name, None, b"%d" % n)
        cluster.cut(topic_name, before=2)
        assert probe.ends([here, TopicPartition(topic_name, 1), TopicPartition(unique("absent"), 0)]) == {
            here: LogEnds(low=2, stable=5, high=5)
        }
        with cluster.producer(**{"transactional.id": unique("open")}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for n in range(3):
                producer.produce(topic_name, b"x", partition=0, timestamp=int(begun.timestamp() * 1000) + n)
            producer.flush()
            assert probe.ends([here]) == {here: LogEnds(low=2, stable=5, high=8)}
            assert probe.timestamps({here: 5}) == {here: begun}
            producer.abort_transaction()
        assert wait_until(lambda: probe.ends([here])[here].stable == 9, PATIENCE)
        assert (probe.without_records({here: 7}), probe.without_records({here: 8})) == (set(), {here}), "a marker"

    def test_partitions_without_a_record_have_no_timestamp(self, cluster: Cluster, topic_name: str) -> None:
        here, there = cluster.create(topic_name, 2)
        cluster.put(topic_name, None, b"x")
        probe = KafkaLogProbe(properties(cluster), admin=properties(cluster), read_within=timedelta(seconds=3))
        assert list(probe.timestamps({here: 0, there: 0})) == [here]
        assert probe.timestamps({}) == {}
        assert probe.without_records({here: 0, there: 0}) == {there}


def test_an_unreachable_broker_is_no_answer() -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:9", "log_level": "0"}
    quick = timedelta(milliseconds=200)
    with pytest.raises(BrokerUnavailable, match="describe group g"):
        KafkaGroups(nowhere, nowhere, timeout=quick).facts("g")
    with pytest.raises(BrokerUnavailable, match="committed offsets of group g"):
        KafkaGroups(nowhere, nowhere, timeout=quick).committed("g", [SOME])
    with pytest.raises(BrokerUnavailable, match="list offsets of t/0"):
        KafkaLogProbe(nowhere, admin=nowhere, timeout=quick).ends([TopicPartition("t", 0)])
