"""A whole restore on fakes, up to its first transaction: refused plans, topics that others create, and markers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from formats.errors import SegmentNotFound, TargetError
from formats.segment import format_key
from formats.topic_selection import TopicPattern
from infra.contracts.cluster import LogEnds, TopicPartition
from infra.contracts.storage import ObjectInfo, Thaw
from replicator.config import from_mapping
from replicator.restore.conflicts import Conflict, ConflictKind
from replicator.restore.restore import Restore
from replicator.selection import Selection
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.ingress.world import REGION, World
from tests.replicator.restore.restoring import without_clients

CONFIG = from_mapping({"region": REGION, "kafka": {"bootstrap.servers": "b:9092"}, "s3": {"bucket": "b"}})
TARGETS = [TopicPartition("t", number) for number in range(2)]


@pytest.fixture
def world() -> World:
    """Two partitions of `t` are stored; the target has no such topic."""
    made = World()
    for partition in range(2):
        made.put(0, 9, partition=partition)
    return made


def restore_of(
    world: World, monkeypatch: pytest.MonkeyPatch, admin: FakeAdmin | None = None, **selected: Any
) -> Restore:
    without_clients(world, monkeypatch, admin)
    return Restore(CONFIG, Selection(region=REGION, topics=[TopicPattern("t")], **selected))


def test_a_plan_with_conflicts_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with restore_of(world, monkeypatch) as restore:
        plan = replace(restore.plan(), conflicts=[Conflict(kind=ConflictKind.MISSING, reason="offsets are missing")])
        world.admin.away = True  # any request to the cluster fails
        with pytest.raises(TargetError, match=r"(?s)this restore has conflicts:.*offsets are missing"):
            restore.run(plan)
    assert TARGETS[0] not in world.broker.logs


def test_one_partition_with_records_of_another_client_is_enough_to_refuse(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with restore_of(world, monkeypatch, partitions=frozenset({0, 1})) as restore:
        plan = restore.plan()
        world.broker.create("t", partitions=2)
        world.broker.append(TARGETS[0], b"of another client")
        monkeypatch.setattr(restore._worker, "take_over", lambda: pytest.fail("the restore began"))
        with pytest.raises(TargetError, match="t was created by another client in the meantime: plan again"):
            restore.run(plan)


class LateMarkers(FakeAdmin):
    """The marker of an open transaction is in the log after `late` requests."""

    late = 2

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        self._ask("ends")
        stable = 9 if self.asked["ends"] <= self.late else 10
        return {p: LogEnds(low=0, stable=stable, high=10) for p in partitions}


def test_a_restore_waits_for_the_markers_of_its_transactions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = LateMarkers(FakeBroker())
    with restore_of(world, monkeypatch, admin) as restore:
        restore._wait_for_markers(TARGETS)
        assert admin.asked["ends"] == admin.late + 1
        restore.stop.set()
        restore._wait_for_markers(TARGETS)
        assert admin.asked["ends"] == admin.late + 1, "a stopped restore does not wait"


def test_archived_objects_that_are_merged_away_meanwhile_are_not_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the listing and the question, or between the plan and the request."""
    objects = world.objects
    gone, later = objects.keys()
    listed = objects.list

    class Cold:
        def __init__(self) -> None:
            self.asked: list[str] = []

        def state(self, key: str) -> Thaw:
            if key == gone:
                objects.memory.delete_many([gone])
                raise SegmentNotFound(key)
            return Thaw.FROZEN

        def thaw(self, key: str, days: int) -> None:
            if objects.memory.stat(key) is None:
                raise SegmentNotFound(key)
            self.asked.append(key)

    def frozen(prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        found = listed(prefix, start_after=start_after, limit=limit)
        return (replace(info, storage_class="GLACIER") for info in found)

    cold = Cold()
    monkeypatch.setattr(objects, "list", frozen)
    with restore_of(world, monkeypatch) as restore:
        monkeypatch.setattr(restore, "_cold", cold)
        plan = restore.plan()
        assert [format_key("data", info.segment) for topic in plan.topics for info in topic.frozen] == [later]
        assert (restore.thaw(plan, 7), cold.asked) == (1, [later])
        objects.memory.delete_many([later])
        assert restore.thaw(plan, 7) == 0
