"""kill -9 of a restore, at each of its durable steps and at any moment: given again, it goes on, and every record is
there once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.runtime.crash_points import AFTER, BEFORE, Step
from tests.faults.crash_points import RESTORE
from tests.faults.restoring import PARTITIONS, SEGMENTS, SLOWER, SLOWEST, SLOWLY, Restoring
from tests.faults.victim import CrashPoint, Orders
from tests.replicator.restore.large import ROWS, fill
from tests.replicator.restore.place import Place

pytestmark = pytest.mark.integration


SAMPLE = {(Step.COMMIT_TRANSACTION, AFTER)}  # what `make test` has time for
KILLS = 50
PATIENCE = timedelta(seconds=60)
LIVES: Mapping[str, tuple[Sequence[str], tuple[float, float]]] = {  # options, and how many seconds a life lasts
    "here": ((), (1.0, 4.0)),
    "follow": (("--follow", "--every", "200ms"), (1.0, 4.0)),
    "spark": (("--spark",), (5.0, 14.0)),
}


def points() -> list[object]:
    return [
        pytest.param(
            CrashPoint(step=step, when=when, occurrence=occurrence),
            id=f"{when}-{step.value}",
            marks=() if (step, when) in SAMPLE else pytest.mark.long,
        )
        for step, occurrence in RESTORE.items()
        for when in (BEFORE, AFTER)
    ]


@pytest.fixture
def restoring(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Restoring]:
    with closing(Place(stack, unique, tmp_path)) as place:
        fill(place.objects, "orders", PARTITIONS, SEGMENTS)
        yield Restoring(place, unique("restored"), Orders(tmp_path / "orders"))


@pytest.mark.parametrize("point", points())
def test_killed_at(restoring: Restoring, point: CrashPoint) -> None:
    restoring.orders.give(point)
    with restoring.start() as process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert restoring.orders.carried_out(CrashPoint) == point
    restoring.finish()
    restoring.judge()


@pytest.mark.long
@pytest.mark.parametrize("mode", ["here", "spark"])
def test_frozen_while_another_one_finishes(restoring: Restoring, mode: str) -> None:
    """It comes back when everything is done, and must not do the rest of its own again."""
    options, _ = LIVES[mode]
    restoring.rate = SLOWEST
    with restoring.start(*options) as frozen:
        try:
            assert wait_until(lambda: restoring.restored() > 0, PATIENCE)
            os.killpg(frozen.pid, signal.SIGSTOP)
            assert restoring.restored() < PARTITIONS * SEGMENTS * ROWS, "it was through before it could be frozen"
            restoring.rate = SLOWLY
            restoring.finish(*options)
        finally:
            os.killpg(frozen.pid, signal.SIGCONT)
        _, complaint = frozen.communicate(timeout=120)
    # a task of Spark is tried again, and finds that nothing is left to do
    assert frozen.returncode == (0 if mode == "spark" else 1), complaint
    restoring.judge()


@pytest.mark.long
@pytest.mark.longest
@pytest.mark.parametrize("mode", LIVES)
def test_killed_at_any_moment(restoring: Restoring, unique: Callable[[str], str], mode: str) -> None:
    options, (shortest, longest) = LIVES[mode]
    restoring.rate = SLOWER
    random, kills, in_flight, restores = Random(KILLS), 0, 0, 1
    while kills < KILLS:
        kills += restoring.killed_after(random.uniform(shortest, longest), *options)
        count = restoring.restored()
        in_flight += 0 < count < PARTITIONS * SEGMENTS * ROWS
        if count >= PARTITIONS * SEGMENTS * ROWS:
            restoring.judge()
            restoring.topic, restores = unique("restored"), restores + 1
    restoring.finish(*(() if mode == "follow" else options))
    restoring.judge()
    print(f"{mode}: {kills} kills, {in_flight} of them in mid-restore, {restores} restores")
    assert in_flight >= KILLS // 4
