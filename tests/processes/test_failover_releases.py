"""A failover releases what only ingress may write to: an application of this region may write from then on, until the
failback; killed at each step of it, the same command goes on. On a broker with an authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, Producer

from infra.contracts.cluster import Committed, TopicPartition
from infra.runtime.crash_points import AFTER, BEFORE
from tests.faults.crash_points import RELEASE
from tests.faults.test_failover_killed import DONE, killed_then_done, points
from tests.faults.victim import Orders
from tests.infra.kafka_groups import commit
from tests.infra.principal import TOPIC, WRITE, Principal
from tests.processes.flow import Flow
from tests.processes.harness import PATIENCE, A, B
from tests.processes.traffic import Draft

if TYPE_CHECKING:
    from pathlib import Path

    from tests.processes.harness import Site

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_killed_while_it_releases_a_protected_topic(site: Site, tmp_path: Path) -> None:
    orders = Orders(tmp_path / "given")
    application = Principal(site.stack.brokers[B], f"{site.name}.application")
    with Flow(site, partitions=1) as flow:
        flow.target = flow.topic
        source, group = TopicPartition(flow.topic, 0), f"{site.name}.group"
        words = flow.produce([Draft(0, None, b"%d" % n, (), 1_700_000_000_000 + n) for n in range(30)])
        commit({"bootstrap.servers": site.bootstrap(A)}, group, {source: Committed(10, "")})
        application.allow(TOPIC, flow.topic, WRITE)
        egress = site.egress(
            "egress",
            {flow.topic: {}},
            heartbeat_interval="1s",
            watermark_interval="1s",
            groups=[group],
            group_interval="1s",
        ).start()
        ingress = site.ingress("ingress", {"topic": flow.topic, "replication_policy": "identity"}, protect=True).start()
        flow.wait_for(words)
        site.wait("the protection", lambda: not may_write(application, flow.topic))
        plan = site.command("plan", ingress, "failover", "plan")
        site.wait("a plan without a loss", lambda: plan.start().wait(PATIENCE) == DONE)
        over = site.command("over", ingress, "failover", "execute")
        hand = site.command("hand", ingress, "failback", "execute", "--to", A)
        hand.tables = {**ingress.tables, "egress": {**egress.tables["egress"], "topics": {"none": {}}}}
        egress.stop()
        for point in [*points(RELEASE, BEFORE), *points(RELEASE, AFTER)]:
            killed_then_done(site, over, orders, point)
            assert may_write(application, flow.topic), point
            ingress.stop()
            words = flow.produce([])
            egress.start()
            ingress.start()  # reads all of its destinations, and delivers: it denies nothing meanwhile
            flow.wait_for(words)
            egress.stop()
            assert may_write(application, flow.topic), point
            assert hand.start().wait(PATIENCE) == DONE, hand.explain("was to hand the group over")
            site.wait("the protection again", lambda: not may_write(application, flow.topic))
            # as if the group had never been here: the next failover has something to write
            commit({"bootstrap.servers": site.bootstrap(B)}, group, {source: Committed(0, "")})
        ingress.stop()


def may_write(principal: Principal, topic: str) -> bool:
    errors: list[KafkaError | None] = []
    producer = Producer({**principal.properties, "log_level": 0})
    producer.produce(topic, b"of the application", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE.total_seconds()) == 0
    producer.close()
    [error] = errors
    assert error is None or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, error
    return error is None
