"""kill -9 of a restore, at each of its durable steps and at any moment: given again, it goes on, and every record is
there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from infra.local.stack import LocalStack
from replicator.durable import Step
from tests.fakes.kafka_target import target_records
from tests.faults.victim import AFTER, BEFORE, CrashPoint, Orders
from tests.restore.large import fill, rows
from tests.restore.place import Place

pytestmark = pytest.mark.integration

PARTITIONS, SEGMENTS = 2, 3
SLOWLY = "3MiB"  # a second: so that there are many rounds
OCCURRENCES: Mapping[Step, int] = {
    Step.CREATE_TOPIC: 1,
    Step.BEGIN_TRANSACTION: 3,  # the first is that of the checkpoints which say that it begins
    Step.PRODUCE_RECORDS: 3,
    Step.PRODUCE_CHECKPOINT: 1,
    Step.COMMIT_TRANSACTION: 3,
}
SAMPLE = {(Step.COMMIT_TRANSACTION, BEFORE), (Step.COMMIT_TRANSACTION, AFTER)}  # what `make test` has time for
KILLS = 50


def points() -> list[object]:
    return [
        pytest.param(
            CrashPoint(step=step, when=when, occurrence=occurrence),
            id=f"{when}-{step.value}",
            marks=() if (step, when) in SAMPLE else pytest.mark.long,
        )
        for step, occurrence in OCCURRENCES.items()
        for when in (BEFORE, AFTER)
    ]


@dataclass
class Restoring:
    """One restore of one archive, given again and again."""

    place: Place
    topic: str
    orders: Orders

    @property
    def command(self) -> list[str]:
        return ["restore", "orders", "--rename", f"orders={self.topic}", "--max-rate", SLOWLY, "--json"]

    def start(self) -> subprocess.Popen[str]:
        module = [sys.executable, "-m", "tests.faults.victim"]
        return subprocess.Popen(
            [*module, *self.command, "--config", str(self.place.file)],
            env={**os.environ, **self.orders.environment, "SECRET": "test"},
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> None:
        with self.start() as process:
            said, complaint = process.communicate(timeout=120)
            assert process.returncode == 0, complaint + said

    def judge(self) -> None:
        for partition in range(PARTITIONS):
            wanted = target_records(rows(0, SEGMENTS))
            found = self.place.restored(self.topic, partition)
            assert len(found) == len(wanted)
            assert found == wanted


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
def test_killed_at_any_moment(restoring: Restoring, unique: Callable[[str], str]) -> None:
    random, kills, seen = Random(KILLS), 0, []
    while kills < KILLS:
        with restoring.start() as process:
            try:
                process.communicate(timeout=random.uniform(1.0, 4.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
        if process.returncode == 0:
            restoring.judge()
            seen.append(restoring.topic)
            restoring.topic = unique("restored")
    restoring.finish()
    restoring.judge()
    print(f"{kills} kills, {len(seen) + 1} restores")
