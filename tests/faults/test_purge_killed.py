"""kill -9 of a restore that empties its destination first: given again, it goes on, and deletes nothing of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from infra.contracts.cluster import TopicPartition
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.runtime.crash_points import AFTER, BEFORE, Step
from tests.faults.crash_points import PURGE
from tests.faults.restoring import PARTITIONS, SEGMENTS, Restoring
from tests.faults.test_restore_killed import PATIENCE
from tests.faults.victim import CrashPoint, Orders
from tests.replicator.restore.large import ROWS, fill
from tests.replicator.restore.place import Place

pytestmark = [pytest.mark.integration, pytest.mark.long]

THEIRS = 40  # records of each partition
PARTITION_OF_THEIRS = PARTITIONS  # one that the archive does not have


@pytest.fixture
def restoring(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Restoring]:
    """Into a topic that holds records of somebody else."""
    with closing(Place(stack, unique, tmp_path)) as place:
        fill(place.objects, "orders", PARTITIONS, SEGMENTS)
        topic = unique("owned")
        place.cluster.create(topic, PARTITIONS + 1, {"retention.ms": "-1"})
        with place.cluster.producer() as producer:
            for partition in range(PARTITIONS + 1):
                for number in range(THEIRS):
                    producer.produce(topic, b"theirs %d" % number, partition=partition)
        yield Restoring(place, topic, Orders(tmp_path / "orders"), options=("--purge", "--yes"))


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(CrashPoint(step=step, when=when, occurrence=n), id=f"{when}-{step.value}-{n}")
        for step, occurrences in PURGE.items()
        for n in occurrences
        for when in (BEFORE, AFTER)
    ],
)
def test_killed_at(restoring: Restoring, point: CrashPoint) -> None:
    restoring.orders.give(point)
    with restoring.start() as process:
        found = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, found
    assert restoring.orders.carried_out(CrashPoint) == point
    left = len(restoring.place.restored(restoring.topic, PARTITION_OF_THEIRS))
    assert left == (THEIRS if (point.step, point.when) == (Step.DELETE_RECORDS, BEFORE) else 0)
    firsts = _firsts(restoring)
    restoring.finish()
    restoring.judge()
    if point.step is Step.COMMIT_TRANSACTION:
        assert firsts or point.occurrence == 1, "nothing was restored yet, so nothing is proved"
        assert firsts.items() <= _firsts(restoring).items(), "what the first one restored was deleted"
    assert restoring.place.restored(restoring.topic, PARTITION_OF_THEIRS) == []


def test_frozen_while_another_one_finishes(restoring: Restoring) -> None:
    """It comes back when everything is done, and must not delete what the other one restored."""
    restoring.rate = "500KiB"
    with restoring.start() as frozen:
        try:
            assert wait_until(lambda: _is_begun(restoring), PATIENCE)
            os.killpg(frozen.pid, signal.SIGSTOP)
            restoring.finish()
        finally:
            os.killpg(frozen.pid, signal.SIGCONT)
        _, complaint = frozen.communicate(timeout=120)
    assert frozen.returncode == 1, complaint
    restoring.judge()


def _is_begun(restoring: Restoring) -> bool:
    """Whether records of the restore are there, and none of somebody else."""
    return 0 < restoring.restored() < PARTITIONS * SEGMENTS * ROWS and not restoring.place.restored(
        restoring.topic, PARTITION_OF_THEIRS
    )


def _firsts(restoring: Restoring) -> dict[int, int | None]:
    """The offset of the first record that consumers see, by partition that has one."""
    found = {
        partition: restoring.place.cluster.messages(TopicPartition(restoring.topic, partition))
        for partition in range(PARTITIONS)
    }
    return {partition: messages[0].offset() for partition, messages in found.items() if messages}
