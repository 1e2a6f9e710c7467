"""Brokers of a cluster come and go while records flow: leaders move, and nothing is lost, repeated or held up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from infra.contracts.cluster import TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.consumer.partition_reader import read_partition
from infra.local.broker import Broker
from tests.processes.flow import Flow
from tests.processes.test_groups_cross import produce_with_holes
from tests.processes.traffic import Draft

if TYPE_CHECKING:
    from infra.local.cluster import BrokerCluster
    from tests.processes.harness import Site, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

SEED = 31
ROUNDS = 2
PATIENCE = timedelta(seconds=90)


def start_all(site: Site, flow: Flow) -> Sequence[Worker]:
    workers = [site.egress(f"egress-{n}", {flow.topic: {}}) for n in range(2)]
    workers += [site.ingress(f"ingress-{n}", {"topic": flow.topic}, replication_factor=3) for n in range(2)]
    return [worker.start() for worker in workers]


@pytest.mark.parametrize("end", [pytest.param(Broker.stop, id="stopped"), pytest.param(Broker.kill, id="killed")])
def test_rolling_restart(site: Site, cluster: BrokerCluster, end: Callable[[Broker], None]) -> None:
    with Flow(site) as flow:
        start_all(site, flow)
        led: set[int | None] = set()
        with flow.traffic(seed=SEED, most=100) as traffic:
            flow.wait_for_more(1, PATIENCE)
            for broker in [*cluster.brokers.values()] * ROUNDS:
                end(broker)
                flow.wait_for_more(1, PATIENCE)
                broker.start()
                cluster.wait_until_in_sync(cluster.brokers)
                led.add(cluster.leader(flow.topic, 0))
                for partition in range(flow.partitions):
                    cluster.elect(flow.topic, partition)
                led.add(cluster.leader(flow.topic, 0))
                flow.wait_for_more(1, PATIENCE)
            words = traffic.finish()
        finish(site, flow, words)
    assert len(led) > 1, "no leader moved"


def test_a_broker_lost_for_good(site: Site, cluster: BrokerCluster) -> None:
    """The other two carry on, also with processes that are started while its address is still in their files; when
    another one goes there are too few replicas, and records wait for it."""
    with Flow(site) as flow:
        workers = start_all(site, flow)
        with flow.traffic(seed=SEED, most=100) as traffic:
            flow.wait_for_more(1, PATIENCE)
            cluster.brokers[1].burn()
            flow.wait_for_more(1, PATIENCE)
            for worker in workers:
                worker.kill()
                worker.start()
            flow.wait_for_more(1, PATIENCE)
            cluster.brokers[2].kill()
            site.wait("too few replicas", lambda: cluster.in_sync(flow.topic, 0) == {3} or stands_still(cluster, flow))
            cluster.brokers[2].start()
            cluster.wait_until_in_sync([2, 3])
            flow.wait_for_more(1, PATIENCE)
            words = traffic.finish()
        finish(site, flow, words)


@pytest.mark.parametrize("end", [pytest.param(Broker.stop, id="stopped"), pytest.param(Broker.kill, id="killed")])
def test_offsets_are_kept_while_leaders_move(site: Site, cluster: BrokerCluster, end: Callable[[Broker], None]) -> None:
    """Plain records while brokers go, since a coordinator that takes over may write a marker twice; transactions, and
    so holes to be filled, once all are back."""
    with Flow(site, partitions=1) as flow:
        source, here = TopicPartition(flow.topic, 0), TopicPartition(flow.target, 0)
        egress = site.egress("egress", {flow.topic: {}}).start()
        ingress = site.ingress(
            "ingress",
            {"topic": flow.topic, "offsets": "preserve"},
            replication_factor=3,
            session_ms=9000,
            preserve_wait="1s",
        ).start()
        led: set[int | None] = set()
        for broker in cluster.brokers.values():
            produce_with_holes(cluster.bootstrap, flow.topic)
            with flow.traffic(seed=SEED, most=100, transactions=False) as traffic:
                flow.wait_for_more(1, PATIENCE)
                end(broker)
                flow.wait_for_more(1, PATIENCE)
                broker.start()
                cluster.wait_until_in_sync(cluster.brokers)
                cluster.elect(flow.target, 0)
                led.add(cluster.leader(flow.target, 0))
                flow.wait_for_more(1, PATIENCE)
                words = traffic.finish()
            flow.wait_for(words, PATIENCE)
        site.stop(egress, ingress)
        properties = {"bootstrap.servers": cluster.bootstrap}
        found = [positions(properties, partition) for partition in (source, here)]
        assert found[0] == found[1]
        marks = KafkaAdmin(properties).watermarks([source, here])
        assert marks[source] == marks[here]
    assert led


def positions(properties: Mapping[str, str], partition: TopicPartition) -> Sequence[tuple[int, bytes | None]]:
    """Offsets and values of all records that a consumer sees."""
    end = KafkaAdmin(properties).watermarks([partition])[partition].high
    batches = read_partition(properties, partition, 0, end, patience=PATIENCE)
    return [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]


def stands_still(cluster: BrokerCluster, flow: Flow) -> bool:
    """Its replica may be the one that was not the last in sync: then the partition waits for the other."""
    return cluster.leader(flow.topic, 0) is None


def finish(site: Site, flow: Flow, words: Sequence[Draft]) -> None:
    flow.wait_for(words, PATIENCE)
    flow.wait_for_archive(PATIENCE)
    site.stop(*site.workers)
    print(flow.judge_target(rewinds=0))
    flow.judge_archive()
