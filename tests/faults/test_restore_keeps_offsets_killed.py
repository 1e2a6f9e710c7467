"""A restore that keeps the source's offsets is killed at each step of a record or a hole, or frozen until another one
has taken over: given again, each record is where it was, and each group where it stood."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from infra.contracts.cluster import TopicPartition
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from tests.faults.crash_points import KEEPING
from tests.faults.points import points_of
from tests.faults.restoring import PARTITIONS, SEGMENTS, SLOWEST, SLOWLY, Restoring
from tests.faults.victim import CrashPoint, Orders
from tests.replicator.restore.holes import AT, COMMITTED, fill_with_holes, judge
from tests.replicator.restore.large import ROWS, fill
from tests.replicator.restore.place import Place

pytestmark = [pytest.mark.integration, pytest.mark.long]


PATIENCE = timedelta(seconds=60)


@pytest.fixture
def names(unique: Callable[[str], str]) -> dict[str, str]:
    return {group: unique(group) for group in COMMITTED}


@pytest.fixture
def restoring(
    stack: LocalStack, unique: Callable[[str], str], tmp_path: Path, names: dict[str, str]
) -> Iterator[Restoring]:
    with closing(Place(stack, unique, tmp_path)) as place:
        fill_with_holes(place.objects, names)
        options = ("--at", AT.isoformat(), "--groups", "--preserve-offsets")
        yield Restoring(place, unique("restored"), Orders(tmp_path / "orders"), options=options)


@pytest.mark.parametrize("point", points_of(KEEPING))
def test_killed_at(restoring: Restoring, names: dict[str, str], point: CrashPoint) -> None:
    restoring.orders.give(point)
    with restoring.start() as process:
        output = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, output
    assert restoring.orders.carried_out(CrashPoint) == point
    restoring.finish()
    judge(restoring.place.cluster, restoring.topic, names)


def test_frozen_until_another_one_is_through(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> None:
    """Thawed, it sends nothing of what it had read before, and ends."""
    with closing(Place(stack, unique, tmp_path)) as place:
        fill(place.objects, "orders", PARTITIONS, SEGMENTS)
        orders = Orders(tmp_path / "orders")
        restoring = Restoring(place, unique("restored"), orders, rate=SLOWEST, options=("--preserve-offsets",))
        with restoring.start() as frozen:
            assert wait_until(lambda: restoring.restored() > 0, PATIENCE)
            frozen.send_signal(signal.SIGSTOP)
            assert frozen.poll() is None, "it was through before it could be frozen"
            restoring.rate = SLOWLY
            restoring.finish()
            frozen.send_signal(signal.SIGCONT)
            _, complaint = frozen.communicate(timeout=60)
        assert frozen.returncode == 1, complaint
        assert "another process has started the same work since" in complaint
        restoring.judge()
        for partition in range(PARTITIONS):
            messages = place.cluster.messages(TopicPartition(restoring.topic, partition))
            assert [message.offset() for message in messages] == list(range(SEGMENTS * ROWS))
