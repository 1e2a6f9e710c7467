"""Processes are killed again and again while records flow through all of them: nothing is lost, nothing changes its
order, and with exactly-once delivery nothing comes twice.

    2 egress ──> bucket ──sync──> other bucket ──> queue ──> 2 ingress, one with a static membership
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

import pytest

from infra.local.aws import create_bucket_with_queue
from ingress.delivery.sizes import ROUND_RECORDS
from tests.processes.flow import Flow
from tests.processes.harness import A, Site, Worker
from tests.processes.log_cleaner import quick_cleaner
from tests.processes.traffic import COMPACTED

if TYPE_CHECKING:
    from tests.processes.harness import Tables

pytestmark = [pytest.mark.integration, pytest.mark.long]

SESSION = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "500"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    kills: int  # of each process
    between: tuple[float, float]  # seconds from one kill to the next, at random
    timeout: timedelta  # to catch up at the end


ONCE = Plan(kills=1, between=(0.3, 2), timeout=timedelta(seconds=60))
TWENTY = Plan(kills=20, between=(0.5, 4), timeout=timedelta(seconds=240))


@pytest.mark.parametrize("plan", [pytest.param(ONCE, id="once"), pytest.param(TWENTY, id="20")])
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_m01_each_process_killed(site: Site, delivery: str, plan: Plan) -> None:
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}")
    with (
        quick_cleaner(site.bootstrap(A)),
        Flow(site) as flow,
        Flow(site, "compacted", partitions=2, config=COMPACTED) as compacted,
    ):
        workers = five_processes(site, [flow, compacted], delivery)
        with flow.traffic(seed=seed) as traffic, compacted.traffic(seed=seed, keyed=True, most=60) as keyed:
            flow.wait_for_more()
            compacted.wait_for_more()
            moved = kill_each(site, flow, workers, plan, Random(seed))
            words, keyed_words = traffic.finish(), keyed.finish()
        for one, last in ((flow, words), (compacted, keyed_words)):
            one.wait_for(last, plan.timeout)
            one.wait_for_archive()
        site.stop(*site.workers)
        # a kill repeats nothing, or what one partition had in the round under way
        ingress_kills = sum(worker.kills for worker in workers if worker.name.startswith("ingress"))
        rewinds = 0 if delivery == "exactly-once" else ingress_kills
        verdicts = flow.judge_target(rewinds=rewinds, run=ROUND_RECORDS)
        compacted_verdicts = compacted.judge_compacted(keyed.sent, rewinds=rewinds, run=ROUND_RECORDS)
        for one in (flow, compacted):
            one.judge_archive()
        print(
            f"{traffic.bursts} + {keyed.bursts} bursts, progress before {moved} kills, {verdicts}, {compacted_verdicts}"
        )
        assert {worker.kills for worker in workers} == {plan.kills}
        assert len(compacted.source()[0].records) < sum(each.partition == 0 for each in keyed.sent), (
            "nothing was compacted"
        )


def five_processes(site: Site, flows: Sequence[Flow], delivery: str) -> Sequence[Worker]:
    """Started, in the order of the flow."""
    other, queue = f"{site.name}-other", f"{site.name}-other-queue"
    create_bucket_with_queue(site.stack.moto.endpoint_url, other, queue)
    topics: dict[str, Tables] = {flow.topic: {} for flow in flows}
    sources = [{"topic": flow.topic} for flow in flows]
    there: Tables = {"bucket": other, "queue": queue, "delivery": delivery}
    static = {"consumer": {**SESSION, "group.instance.id": f"{site.name}-static"}}
    workers = [
        site.egress("egress-0", topics),
        site.egress("egress-1", topics),
        site.sync("sync", other),
        site.ingress("ingress-0", *sources, **there),
        site.ingress("ingress-1", *sources, **there, kafka=static),
    ]
    for worker in workers:
        worker.start()
    return workers


def kill_each(site: Site, flow: Flow, workers: Sequence[Worker], plan: Plan, random: Random) -> int:
    """In any order; the victim is started again at once, or with the next kill. How many kills came after records had
    been delivered since the kill before."""
    never = threading.Event()
    victims = [worker for worker in workers for _ in range(plan.kills)]
    random.shuffle(victims)
    down: Worker | None = None
    moved, delivered = 0, flow.delivered()
    for victim in victims:
        never.wait(random.uniform(*plan.between))
        site.check()
        if down is not None:
            down.start()
            down = None
            never.wait(random.uniform(*plan.between))
        now = flow.delivered()
        moved, delivered = moved + (now > delivered), now
        victim.kill()
        if random.random() < 0.7:
            victim.start()
        else:
            down = victim
    if down is not None:
        down.start()
    return moved
