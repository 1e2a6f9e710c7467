"""kill -9 of a restore to a moment: given again when its watermarks are thinned, it ends at the same offsets, and sets
every group."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from formats.control.keys import watermarks_prefix
from infra.archive.generations import Generations
from infra.contracts.cluster import TopicPartition
from infra.kafka.cluster.groups import KafkaGroups
from infra.local.stack import LocalStack
from infra.runtime.crash_points import BEFORE, Step
from tests.fakes.kafka_target import target_records
from tests.faults.crash_points import MOMENT
from tests.faults.points import points_of
from tests.faults.restoring import PARTITIONS, SEGMENTS, SLOWEST, Restoring
from tests.faults.victim import CrashPoint, Orders
from tests.replicator.restore.history import REGION
from tests.replicator.restore.large import ROWS, fill, rows
from tests.replicator.restore.place import Place
from tests.replicator.restore.published import publish_groups, publish_watermarks, snapshot, watermarks

pytestmark = [pytest.mark.integration, pytest.mark.long]

AT = datetime(2026, 3, 4, 12, tzinfo=UTC)
ENDS = (2 * ROWS + 100, ROWS)
COMMITTED = {"billing": {0: 2 * ROWS + 7, 1: 5}, "mails": {0: 0}}


@pytest.fixture
def names(unique: Callable[[str], str]) -> dict[str, str]:
    return {group: unique(group) for group in COMMITTED}


@pytest.fixture
def restoring(
    stack: LocalStack, unique: Callable[[str], str], tmp_path: Path, names: dict[str, str]
) -> Iterator[Restoring]:
    with closing(Place(stack, unique, tmp_path)) as place:
        fill(place.objects, "orders", PARTITIONS, SEGMENTS)
        for number, ends in enumerate(((ROWS, ROWS), ENDS, (SEGMENTS * ROWS,) * 2), start=1):
            at = AT + (number - 2) * timedelta(minutes=1)
            publish_watermarks(place.objects, number, watermarks(at, {"orders": ends}, settled=True))
        groups = {names[group]: {"orders": offsets} for group, offsets in COMMITTED.items()}
        publish_groups(place.objects, 1, snapshot(AT, **groups))
        options = ("--at", (AT + timedelta(seconds=30)).isoformat(), "--groups")
        orders = Orders(tmp_path / "orders")
        yield Restoring(place, unique("restored"), orders, rate=SLOWEST, options=options)  # in several transactions


@pytest.mark.parametrize("point", points_of(MOMENT))
def test_killed_at(restoring: Restoring, names: dict[str, str], point: CrashPoint) -> None:
    restoring.orders.give(point)
    with restoring.start() as process:
        output = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, output
    assert restoring.orders.carried_out(CrashPoint) == point
    is_begun = (point.step, point.when) != (Step.RECORD_CUT, BEFORE)
    if is_begun:  # before that, nothing is restored that another cut could contradict
        stored = Generations(restoring.place.objects, watermarks_prefix("data", REGION))
        restoring.place.objects.delete_many([stored.key(2)])
    with restoring.start() as process:
        output = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert json.loads(output[0])["groups"], "those that were set before are named, too"
    judge(restoring, names)


def judge(restoring: Restoring, names: dict[str, str]) -> None:
    wanted = target_records(rows(0, SEGMENTS))
    for partition, end in enumerate(ENDS):
        assert restoring.place.restored(restoring.topic, partition) == wanted[:end]
    groups = KafkaGroups(restoring.place.cluster.properties, restoring.place.cluster.properties)
    targets = [TopicPartition(restoring.topic, partition) for partition in range(PARTITIONS)]
    for group, offsets in COMMITTED.items():
        found = groups.committed(names[group], targets)
        after = {p.partition: _number(restoring, p, one.next_offset) for p, one in found.items()}
        assert after == offsets


def _number(restoring: Restoring, partition: TopicPartition, offset: int) -> int:
    """How many records lie before this offset of the target: the source's offset, as it has no holes."""
    messages = restoring.place.cluster.messages(partition)
    return sum((message.offset() or 0) < offset for message in messages)
