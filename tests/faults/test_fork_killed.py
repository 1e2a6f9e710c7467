"""kill -9 of an egress that writes down a fork of its source's log, before and after that: started again, it holds the
partition, has written it down once, and nothing of the new log is archived beside the old one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infra.contracts.cluster import TopicPartition
from infra.runtime.crash_points import AFTER, BEFORE
from tests.faults.crash_points import FORK
from tests.faults.hand import hand, member
from tests.faults.schedule import Membership
from tests.faults.victim import CrashPoint
from tests.infra.log_files import lose_tails
from tests.processes.flow import Flow
from tests.processes.harness import PREFIX, A
from tests.processes.traffic import EPOCH_MS, Draft, produce_all

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = pytest.mark.integration


def points() -> list[object]:
    return [
        pytest.param(
            CrashPoint(step=step, when=when, occurrence=occurrence), id=f"{when}-{step.value}", marks=pytest.mark.long
        )
        for step, occurrence in FORK.items()
        for when in (BEFORE, AFTER)
    ]


@pytest.mark.parametrize("point", points())
def test_killed_at(site: Site, point: CrashPoint) -> None:
    with Flow(site, partitions=1) as flow:
        stays = Membership(protocol="classic", static=True)
        victim = hand(site, site.egress("egress", {flow.topic: {}}, kafka={"consumer": member(stays, "egress")}))

        def produce(word: bytes, count: int) -> None:
            drafts = [Draft(0, None, word + b" %d" % n, (), EPOCH_MS + n) for n in range(count)]
            produce_all(site.bootstrap(A), flow.topic, drafts)

        def forks() -> list[str]:
            return [key for key in site.keys() if key.startswith(f"{PREFIX}/{A}/_control/v1/forks/")]  # noqa: SIM118

        produce(b"old", 50)
        produce(b"lost", 50)
        victim.start()
        flow.wait_for_archive()
        victim.worker.stop()
        archive = site.ranges(flow.topic)
        lose_tails(site.stack.brokers[A], {TopicPartition(flow.topic, 0): 50})
        produce(b"new", 80)
        victim.start(point)
        site.wait(f"it gets to {point.name}", lambda: victim.crashed() == point)
        assert len(forks()) == (0 if point.when == BEFORE else 1)
        assert site.ranges(flow.topic) == archive
        victim.start()
        site.wait("the hold", lambda: "has forked" in str(victim.worker.readiness().get("stopped")))
        assert len(forks()) == 1
        assert site.ranges(flow.topic) == archive
        assert site.committed(A, site.egress_group, flow.topic, 1) == {0: 100}
        victim.worker.stop()
