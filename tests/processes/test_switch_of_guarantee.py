"""The guarantee of delivery is changed by a rolling restart, under load: for a while the group has workers of both
kinds, and partitions of one that dies go to the other.

    old-0, old-1 ──> new-0, old-1, each killed in mid-round ──> new-0, new-1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infra.runtime.crash_points import AFTER, BEFORE, Step
from ingress.delivery.sizes import ROUND_RECORDS
from tests.faults.hand import Hand, hand
from tests.faults.victim import CrashPoint
from tests.processes.flow import Flow
from tests.processes.harness import B

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = pytest.mark.integration

SEED = 23
TO_EXACTLY_ONCE = ("at-least-once", "exactly-once")
BACK = ("exactly-once", "at-least-once")


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new"), [pytest.param(*TO_EXACTLY_ONCE, id="to-exactly-once"), pytest.param(*BACK, id="back")]
)
def test_both_guarantees_in_one_group(site: Site, old: str, new: str) -> None:
    with Flow(site) as flow:

        def worker(name: str, delivery: str) -> Hand:
            return hand(site, site.ingress(name, {"topic": flow.topic}, delivery=delivery))

        site.egress("egress", {flow.topic: {}}).start()
        outgoing, coming = [worker(f"old-{n}", old) for n in range(2)], [worker(f"new-{n}", new) for n in range(2)]
        for one in outgoing:
            one.start()
        with flow.traffic(seed=SEED) as traffic:
            share(site, flow, outgoing)
            replace(outgoing[0], coming[0])
            both = [coming[0], outgoing[1]]
            share(site, flow, both)
            # what the at-least-once worker delivered and did not checkpoint comes again, from the other kind
            die(site, outgoing[1], CrashPoint(step=Step.PRODUCE_CHECKPOINT, when=BEFORE))
            flow.wait_for_more()
            outgoing[1].start()
            share(site, flow, both)
            die(site, coming[0], CrashPoint(step=Step.PRODUCE_RECORDS, when=AFTER))
            flow.wait_for_more()
            coming[0].start()
            share(site, flow, both)
            replace(outgoing[1], coming[1])
            share(site, flow, coming)
            words = traffic.finish()
        flow.wait_for(words)
        flow.wait_for_archive()
        site.stop(*site.workers)
        verdicts = flow.judge_target(rewinds=1, run=ROUND_RECORDS)  # one at-least-once worker was killed, once
        flow.judge_archive()
    print(verdicts)
    assert any(verdict.repeated for verdict in verdicts.values()), "the killed round was not seen again"


def share(site: Site, flow: Flow, hands: list[Hand]) -> None:
    """They share the partitions, and each of them has delivered something since."""
    site.wait(
        f"{', '.join(one.name for one in hands)} share the partitions",
        lambda: site.holds(B, site.ingress_group, members=len(hands), partitions=flow.partitions),
    )
    before = {one.name: delivered(one) for one in hands}
    site.wait("each delivers", lambda: all(delivered(one) > before[one.name] for one in hands))


def delivered(one: Hand) -> float:
    return one.worker.metrics().value("record_count")


def replace(leaving: Hand, coming: Hand) -> None:
    leaving.worker.stop()
    coming.start()


def die(site: Site, one: Hand, point: CrashPoint) -> None:
    one.order(point)
    site.wait(f"{one.name} gets to {point.name}", lambda: one.crashed() is not None)
