"""kill -9 at every durable step of a failover and of both halves of a failback: the same command goes on, the group
stands at its record, and once all is done it does nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra.contracts.cluster import Committed, TopicPartition
from infra.runtime.crash_points import Step
from tests.faults.crash_points import FAILOVER, HANDOVER, TAKE_BACK
from tests.faults.victim import WHENS, CrashPoint, Orders
from tests.infra.kafka_groups import commit
from tests.processes.flow import Flow
from tests.processes.harness import PATIENCE, A, B
from tests.processes.traffic import Draft

if TYPE_CHECKING:
    from tests.processes.harness import Site, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

DONE, KILLED = 0, -9


def points(steps: Mapping[Step, Sequence[int]], when: str) -> list[CrashPoint]:
    return [
        CrashPoint(step=step, when=when, occurrence=occurrence)
        for step, occurrences in steps.items()
        for occurrence in occurrences
    ]


def killed_then_done(site: Site, command: Worker, orders: Orders, point: CrashPoint) -> None:
    orders.give(point)
    code = command.start(module="tests.faults.victim", environment=orders.environment).wait(PATIENCE)
    assert code == KILLED, command.explain(f"was to be killed {point.name}, and ended with {code}")
    assert orders.carried_out(CrashPoint) == point
    for _ in range(2):
        code = command.start().wait(PATIENCE)
        assert code == DONE, command.explain(f"ended with {code} after it was killed {point}")


@pytest.mark.parametrize("when", WHENS)
def test_killed_at_each_step(site: Site, tmp_path: Path, when: str) -> None:
    orders = Orders(tmp_path / "given")
    with Flow(site, partitions=1) as flow:
        flow.target = f"{A}.{flow.topic}"
        source, here = TopicPartition(flow.topic, 0), TopicPartition(flow.target, 0)
        group = f"{site.name}.group"
        words = flow.produce([Draft(0, None, b"%d" % n, (), 1_700_000_000_000 + n) for n in range(30)])
        commit({"bootstrap.servers": site.bootstrap(A)}, group, {source: Committed(10, "")})
        egress = site.egress(
            "egress",
            {flow.topic: {}},
            heartbeat_interval="1s",
            watermark_interval="1s",
            groups=[group],
            group_interval="1s",
        ).start()
        ingress = site.ingress("ingress", {"topic": flow.topic, "replication_policy": "default"}).start()
        flow.wait_for(words)
        plan = site.command("plan", ingress, "failover", "plan")
        site.wait("a plan without a loss", lambda: plan.start().wait(PATIENCE) == DONE)
        egress.stop()
        there = {"region": A, "kafka": {"bootstrap.servers": site.bootstrap(A)}, "s3": site.s3()}
        over = site.command("over", ingress, "failover", "execute")
        hand = site.command("hand", ingress, "failback", "execute", "--to", A)
        hand.tables = {**ingress.tables, "egress": {**egress.tables["egress"], "topics": {"none": {}}}}
        back = site.command("back", ingress, "failback", "execute", "--from", B)
        back.tables = there
        assert site.committed(A, group, flow.topic, 1) == {0: 10}
        halves = zip(cycle(points(HANDOVER, when)), cycle(points(TAKE_BACK, when)), strict=False)
        for number, (point, (first, second)) in enumerate(zip(points(FAILOVER, when), halves, strict=False)):
            moved = 11 + number
            killed_then_done(site, over, orders, point)
            assert site.committed(B, group, flow.target, 1) == {0: 10}, point
            commit({"bootstrap.servers": site.bootstrap(B)}, group, {here: Committed(moved, "")})  # a consumer here
            killed_then_done(site, hand, orders, first)
            killed_then_done(site, back, orders, second)
            assert site.committed(A, group, flow.topic, 1) == {0: moved}, (first, second)
            # as if another group had never been here: the next failover has something to write
            commit({"bootstrap.servers": site.bootstrap(B)}, group, {here: Committed(0, "")})
            commit({"bootstrap.servers": site.bootstrap(A)}, group, {source: Committed(10, "")})
        ingress.stop()
