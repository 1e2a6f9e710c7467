"""Processes are killed again and again while records flow: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.processes.flow import Flow
from tests.processes.harness import Site, Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.integration


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    egresses: int
    ingresses: int
    kills: int
    between: tuple[float, float]  # seconds from one kill to the next, at random
    timeout: timedelta  # to catch up at the end


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(
            Plan(egresses=2, ingresses=2, kills=6, between=(0.3, 2.5), timeout=timedelta(seconds=60)),
            id="six",
        ),
        pytest.param(
            Plan(egresses=3, ingresses=2, kills=20, between=(0.5, 8), timeout=timedelta(seconds=180)),
            id="twenty",
            marks=pytest.mark.long,
        ),
    ],
)
def test_processes_killed_at_random_times(site: Site, plan: Plan) -> None:
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}")
    random = Random(seed)
    with Flow(site) as flow:
        egresses = [site.egress(f"egress-{n}", {flow.topic: {}}).start() for n in range(plan.egresses)]
        ingresses = [site.ingress(f"ingress-{n}", {"topic": flow.topic}).start() for n in range(plan.ingresses)]
        with flow.traffic(seed=seed) as traffic:
            flow.wait_for_more()
            kill_at_random(site, [*egresses, *ingresses], plan, random)
            words = traffic.finish()
        flow.wait_for(words, plan.timeout)
        flow.wait_for_archive()
        site.stop(*site.workers)
        killed = sum(worker.kills for worker in ingresses)
        verdicts = flow.judge_target(rewinds=0)  # exactly once: a kill repeats nothing
        flow.judge_archive()
    print(f"{traffic.bursts} bursts, {killed} ingress kills, {verdicts}")
    assert sum(worker.kills for worker in site.workers) == plan.kills


def kill_at_random(site: Site, workers: Sequence[Worker], plan: Plan, random: Random) -> None:
    """One after the other; the victim is started again at once or with the next kill. Both kinds are hit."""
    never = threading.Event()
    down: Worker | None = None
    kinds = [[w for w in workers if w.name.startswith(kind)] for kind in ("egress", "ingress")]
    for number in range(plan.kills):
        never.wait(random.uniform(*plan.between))
        site.check()
        if down is not None:
            down.start()
            down = None
            never.wait(random.uniform(*plan.between))
        victim = random.choice(kinds[number % 2])
        victim.kill()
        if random.random() < 0.7:
            victim.start()
        else:
            down = victim
    if down is not None:
        down.start()
