from __future__ import annotations

from formats.coverage import Extent
from formats.segment import OffsetRange, SourcePartition
from replicator.status.archive import archived, stored_incarnations
from tests.fakes.executors import HandExecutor
from tests.ingress.world import World


def test_each_archive_path_is_listed_once() -> None:
    world = World()
    for partition in range(5):
        world.put(0, 4, partition=partition)
        world.put(5, 9, partition=partition)
        world.put(0, 9, partition=partition, level=1)
        world.put(20, 24, partition=partition)
    world.put(7, 8, topic="other")
    world.objects.calls.clear()
    found_there = stored_incarnations(world.store, ["a"], HandExecutor())
    assert [(region, str(one)) for region, one in found_there] == [("a", "other"), ("a", "t")]
    world.objects.calls.clear()
    paths = [(region, one.path) for region, one in found_there]
    found = {source: one.extent for source, one in archived(world.store, paths, {}, HandExecutor()).items()}
    assert world.objects.calls["list"] == 2
    runs = Extent((OffsetRange(0, 9), OffsetRange(20, 24)))
    assert found == {SourcePartition("a", "t", p): runs for p in range(5)} | {
        SourcePartition("a", "other", 0): Extent((OffsetRange(7, 8),))
    }
