"""An ingress that keeps the source's offsets is killed at each step of a record or a hole, or frozen until another one
has its partitions: both logs have the same records at the same offsets."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from formats.holes import MOST_FILLERS
from infra.contracts.cluster import TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from tests.faults.crash_points import PRESERVE, PRESERVE_PREFIX
from tests.faults.hand import hand
from tests.faults.points import points_of
from tests.faults.victim import CrashPoint
from tests.infra.cluster import Cluster
from tests.processes.flow import Flow
from tests.processes.harness import A, B
from tests.processes.test_groups_cross import produce_with_holes, values
from tests.processes.test_preserved_offsets import begin_later

if TYPE_CHECKING:
    from tests.processes.harness import Site, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

PREFIX = MOST_FILLERS + 20_000  # two transactions
SESSION_MS = 9000  # longer than a pause between two polls and the wait after a take-over together


def preserving(site: Site, flow: Flow, name: str, **consumer: str) -> Worker:
    return site.ingress(
        name,
        {"topic": flow.topic, "offsets": "preserve"},
        kafka={"consumer": {"session.timeout.ms": str(SESSION_MS), "heartbeat.interval.ms": "500", **consumer}},
        preserve_wait="1s",
    )


def logs(site: Site, flow: Flow) -> Mapping[str, object]:
    """Records by offset of both logs, and where they begin and end."""
    found: dict[str, object] = {}
    for region, topic in ((A, flow.topic), (B, flow.target)):
        partition = TopicPartition(topic, 0)
        cluster = Cluster(site.stack.brokers[region])
        found[region] = values(cluster.messages(partition))
        marks = KafkaAdmin(cluster.properties).watermarks([partition])[partition]
        found[f"{region} ends"] = marks.low, marks.high
    return found


@pytest.mark.parametrize("point", points_of({step: [occurrence] for step, occurrence in PRESERVE.items()}))
def test_killed_at(site: Site, point: CrashPoint) -> None:
    with Flow(site, partitions=1) as flow:
        egress = site.egress("egress", {flow.topic: {}}).start()
        victim = hand(site, preserving(site, flow, "ingress", **{"group.instance.id": "preserving"}))
        produce_with_holes(site.bootstrap(A), flow.topic)
        victim.start(point)
        site.wait(f"it gets to {point.name}", lambda: victim.crashed() == point)
        victim.start()
        produce_with_holes(site.bootstrap(A), flow.topic)
        flow.wait_for(flow.produce([]))
        site.stop(egress)
        victim.worker.stop()
        found = logs(site, flow)
        assert found[A] == found[B]
        assert found[f"{A} ends"] == found[f"{B} ends"]


def test_frozen_until_another_one_has_its_partition(site: Site) -> None:
    """Thawed, it sends nothing of what it had read before, and joins the group again."""
    with Flow(site, partitions=1) as flow:
        egress = site.egress("egress", {flow.topic: {}}).start()
        frozen = preserving(site, flow, "frozen").start()
        produce_with_holes(site.bootstrap(A), flow.topic)
        flow.wait_for(flow.produce([]))
        frozen.signal(signal.SIGSTOP)
        produce_with_holes(site.bootstrap(A), flow.topic)
        other = preserving(site, flow, "other").start()
        flow.wait_for(flow.produce([]))
        produce_with_holes(site.bootstrap(A), flow.topic)
        frozen.signal(signal.SIGCONT)
        flow.wait_for(flow.produce([]))
        site.wait("it is back", lambda: bool(frozen.readiness().get("ready")))
        flow.wait_for(flow.produce([]))
        site.stop(egress, other, frozen)
        found = logs(site, flow)
        assert found[A] == found[B]
        assert found[f"{A} ends"] == found[f"{B} ends"]


@pytest.mark.parametrize("point", points_of(PRESERVE_PREFIX))
def test_killed_while_it_fills_what_is_before_the_begin(site: Site, point: CrashPoint) -> None:
    with Flow(site, partitions=1) as flow:
        begin_later(site.bootstrap(A), TopicPartition(flow.topic, 0), PREFIX)
        produce_with_holes(site.bootstrap(A), flow.topic)
        egress = site.egress("egress", {flow.topic: {}}).start()
        victim = hand(site, preserving(site, flow, "ingress", **{"group.instance.id": "preserving"}))
        victim.start(point)
        site.wait(f"it gets to {point.name}", lambda: victim.crashed() == point)
        victim.start()
        flow.wait_for(flow.produce([]))
        site.stop(egress)
        victim.worker.stop()
        found = logs(site, flow)
        assert found[A] == found[B]
        assert found[f"{A} ends"] == found[f"{B} ends"]
