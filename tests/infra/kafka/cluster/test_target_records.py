"""Whether a target partition holds committed records, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import pytest
from confluent_kafka import Producer

from formats.errors import BrokerUnavailable
from infra.contracts.cluster import Occupancy, TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.target_records import KafkaTargetRecords
from infra.local.stack import LocalStack
from tests.infra.cluster import Cluster

pytestmark = pytest.mark.integration

EMPTY, FULL = Occupancy(holds_records=False), Occupancy(holds_records=True)
MANY = 20_000  # aborted records, in some hundred transactions


@pytest.fixture
def cluster(stack: LocalStack) -> Cluster:
    return Cluster(stack.brokers["b"])


@pytest.fixture
def partitions(cluster: Cluster, unique: Callable[[str], str]) -> Sequence[TopicPartition]:
    return cluster.create(unique("target"), 6)


def records(cluster: Cluster, read_within: float = 20) -> KafkaTargetRecords:
    given = {name: str(value) for name, value in cluster.properties.items()} | {"log_level": "0"}
    return KafkaTargetRecords(
        KafkaAdmin(given, timeout=timedelta(seconds=5)), given, read_within=timedelta(seconds=read_within)
    )


@contextmanager
def transactions(cluster: Cluster, name: str) -> Iterator[Producer]:
    with cluster.producer(**{"transactional.id": name}) as producer:
        producer.init_transactions()
        yield producer


def write(producer: Producer, partition: TopicPartition, count: int) -> None:
    """Produce in a transaction that stays open."""
    producer.begin_transaction()
    for n in range(count):
        producer.produce(partition.topic, b"%d" % n, b"k", partition.partition)
    producer.flush()


def test_only_a_committed_record_counts(
    cluster: Cluster, partitions: Sequence[TopicPartition], unique: Callable[[str], str]
) -> None:
    empty, plain, aborted, committed, behind, cut = partitions
    with cluster.producer() as producer:
        producer.produce(plain.topic, b"x", partition=plain.partition)
        producer.produce(cut.topic, b"x", partition=cut.partition)
    with transactions(cluster, unique("tx")) as producer:
        write(producer, committed, 1)
        producer.commit_transaction()
        for _ in range(MANY // 100):
            write(producer, aborted, 100)
            producer.abort_transaction()
            write(producer, behind, 100)
            producer.abort_transaction()
        write(producer, behind, 1)
        producer.commit_transaction()
    found = records(cluster).occupancies(partitions)
    assert found == {empty: EMPTY, plain: FULL, aborted: EMPTY, committed: FULL, behind: FULL, cut: FULL}


def test_a_deleted_record_does_not_count(cluster: Cluster, unique: Callable[[str], str]) -> None:
    (partition,) = cluster.create(unique("target"))
    cluster.put(partition.topic, None, b"x")
    cluster.cut(partition.topic)
    assert records(cluster).occupancies([partition]) == {partition: EMPTY}


def test_the_wait_for_an_open_transaction_is_limited(
    cluster: Cluster, partitions: Sequence[TopicPartition], unique: Callable[[str], str]
) -> None:
    opened, beside = partitions[:2]
    with transactions(cluster, unique("tx")) as producer:
        write(producer, opened, 1)
        found = records(cluster, read_within=2).occupancies([opened, beside])
        assert (found[opened].holds_records, found[beside]) == (None, EMPTY)
        assert "an open transaction" in found[opened].reason
        producer.abort_transaction()
    assert records(cluster).occupancies([opened]) == {opened: EMPTY}


def test_an_unreachable_cluster_raises(cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
    asked = records(cluster)
    with cluster.frozen(), pytest.raises(BrokerUnavailable):
        asked.occupancies(partitions)
