"""A topic that arrives with the source's own offsets, holes included, through real processes; its groups with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from infra.contracts.cluster import Committed, TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.groups import KafkaGroups
from tests.infra.cluster import Cluster
from tests.infra.kafka_groups import commit
from tests.processes.flow import Flow
from tests.processes.harness import A, B
from tests.processes.test_groups_cross import produce_with_holes, values

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = pytest.mark.integration


def test_offsets_and_groups_are_those_of_the_source(site: Site) -> None:
    """One process is killed between two parts of the log, and the next one goes on at the log's end."""
    with Flow(site, partitions=1) as flow:
        flow.target = f"{A}.{flow.topic}"
        source, here = TopicPartition(flow.topic, 0), TopicPartition(flow.target, 0)
        there, cluster = Cluster(site.stack.brokers[A]), Cluster(site.stack.brokers[B])
        properties = {"bootstrap.servers": site.bootstrap(B), "log_level": "0"}
        egress = site.egress(
            "egress", {flow.topic: {}}, groups=[f"^{site.name}[.]at-.*"], group_interval="1s", heartbeat_interval="1s"
        ).start()
        ingress = site.ingress(
            "ingress",
            {"topic": flow.topic, "replication_policy": "default", "offsets": "preserve"},
            session_ms=9000,
            preserve_wait="1s",
        )
        ingress.write({**ingress.tables, "groups": {"sync": True, "interval": "1s"}})
        ingress.start()

        def arrived() -> bool:
            return values(cluster.messages(here)) == values(there.messages(source))

        produce_with_holes(site.bootstrap(A), flow.topic)
        flow.wait_for(flow.produce([]))
        assert arrived()
        ingress.kill()
        produce_with_holes(site.bootstrap(A), flow.topic)
        flow.produce([])
        end = KafkaAdmin({"bootstrap.servers": site.bootstrap(A)}).watermarks([source])[source].high
        groups = {f"{site.name}.at-{offset}": offset for offset in range(end + 1)}
        for group, offset in groups.items():
            commit({"bootstrap.servers": site.bootstrap(A)}, group, {source: Committed(offset, "note")})
        ingress.start()
        site.wait("all of it", arrived)

        commits = KafkaGroups(properties, properties)

        def committed(group: str) -> int | None:
            found = commits.committed(group, [here]).get(here)
            return None if found is None else found.next_offset

        site.wait("the groups", lambda: committed(f"{site.name}.at-{end}") == end)
        assert {group: committed(group) for group in groups} == groups
        site.stop(egress, ingress)


@pytest.mark.long
def test_a_foreign_record_stops_it_and_map_mode_goes_on(site: Site) -> None:
    with Flow(site, partitions=1) as flow:
        egress = site.egress("egress", {flow.topic: {}}).start()
        source = {"topic": flow.topic, "offsets": "preserve"}
        ingress = site.ingress("ingress", source, session_ms=9000, preserve_wait="1s").start()
        flow.wait_for(flow.produce([]))
        end = KafkaAdmin({"bootstrap.servers": site.bootstrap(A)}).watermarks([TopicPartition(flow.topic, 0)])
        with_others = Producer({"bootstrap.servers": site.bootstrap(B)})
        with_others.produce(flow.target, b"foreign", partition=0)
        assert with_others.flush(30) == 0
        with_others.close()

        words = flow.produce([])
        broken = f"preserve broken at {end[TopicPartition(flow.topic, 0)].high}: "
        site.wait("the stop", lambda: broken in str(ingress.readiness().get("stopped")))
        code, text = ingress.run("status")
        assert broken in text.replace("\n", " "), (code, text)
        assert not flow.has_arrived(words)

        ingress.stop()
        ingress.write(site.ingress("map", {**source, "offsets": "map"}, session_ms=9000).tables)
        ingress.start()
        flow.wait_for(words)
        assert len(values(Cluster(site.stack.brokers[B]).messages(TopicPartition(flow.target, 0)))) == 3, "none twice"

        ingress.stop()
        ingress.write(site.ingress("again", source, session_ms=9000, preserve_wait="1s").tables)
        ingress.start()
        flow.produce([])
        site.wait("the refusal", lambda: "was delivered at other offsets" in str(ingress.readiness().get("stopped")))
        site.stop(egress, ingress)


@pytest.mark.long
def test_a_log_that_begins_later_begins_there_here_too(site: Site) -> None:
    """The plan says how long that takes; above the limit the partition stops until the limit is raised."""
    with Flow(site, partitions=1) as flow:
        source, here = TopicPartition(flow.topic, 0), TopicPartition(flow.target, 0)
        begin_later(site.bootstrap(A), source, 20_000)
        egress = site.egress("egress", {flow.topic: {}}).start()
        given = {"topic": flow.topic, "offsets": "preserve"}
        ingress = site.ingress("ingress", given, session_ms=9000, preserve_wait="1s", preserve_hole_limit=19_999)
        ingress.start()
        words = flow.produce([])
        site.wait("the stop", lambda: "LONG_HOLE: 20000 offsets" in str(ingress.readiness().get("stopped")))
        _, text = ingress.run("plan")
        refused = "its archive begins at offset 20000; to fill what is before takes about 0 s, and"
        assert refused in " ".join(text.split()), text
        ingress.stop()
        assert KafkaAdmin({"bootstrap.servers": site.bootstrap(B)}).watermarks([here])[here].high == 0

        ingress.write(site.ingress("raised", given, session_ms=9000, preserve_wait="1s").tables)
        _, text = ingress.run("plan")
        assert "up to offset 20000, where its archive begins: about 0 s" in " ".join(text.split()), text
        ingress.start()
        flow.wait_for(words)
        assert KafkaAdmin({"bootstrap.servers": site.bootstrap(B)}).watermarks([here])[here].low == 20_000
        there, cluster = Cluster(site.stack.brokers[A]), Cluster(site.stack.brokers[B])
        assert values(cluster.messages(here)) == values(there.messages(source))
        site.stop(egress, ingress)


def begin_later(bootstrap: str, partition: TopicPartition, offset: int) -> None:
    """So many records at the source that are deleted again: its log begins there."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "queue.buffering.max.messages": offset})
    for _ in range(offset):
        producer.produce(partition.topic, partition=partition.partition)
    assert producer.flush(60) == 0
    producer.close()
    KafkaAdmin({"bootstrap.servers": bootstrap}).delete_records({partition: offset})
