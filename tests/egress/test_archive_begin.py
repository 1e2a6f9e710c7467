"""The recorded begin of a partition's archive: written first, kept, and requested without holding up others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from io import BytesIO
from typing import BinaryIO

import pytest

from formats.control.archive_begin import ArchiveBegin
from formats.control.claim import TopicClaim
from formats.segment import OffsetRange, Segment
from infra.contracts.cluster import Committed, TopicPartition, Watermarks
from infra.contracts.storage import ObjectInfo
from tests.egress.forked import accept, archived, cut, settle, stop_reason
from tests.egress.two_partitions import P, Q, joined
from tests.egress.world import World, rule, source
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeSourceConsumer
from tests.fakes.surroundings import T0


def begin(world: World, partition: TopicPartition = P) -> ArchiveBegin | None:
    return world.control_peek.begins.of(source(partition))


def test_the_begin_is_written_before_anything_is_stored_or_committed(world: World) -> None:
    world.rules = (rule("t", start="latest"),)
    world.broker.hole(P, 7)
    world.control.claims.record("a", "t", TopicClaim(topic_id="id-t", cluster_id="cluster", number=0, claimed_at=T0))
    world.objects.away = {"put_new"}
    process = joined(world)
    assert (begin(world), world.position(P)) == (None, -1)
    world.objects.away = set()
    order: list[str] = []
    put, commit = world.objects.put_new, process.consumer.commit

    def put_new(key: str, body: BinaryIO, size_bytes: int) -> None:
        order.append("begin" if "/begins/t/0" in key else "segment" if "/t/0/0/" in key else "other")
        put(key, body, size_bytes)

    def committed(offsets: Mapping[TopicPartition, Committed], *, wait: timedelta | None = None) -> None:
        order.extend(["commit"] if P in offsets else [])
        commit(offsets, wait=wait)

    world.objects.put_new, process.consumer.commit = put_new, committed  # type: ignore[method-assign]
    process.later(1)
    world.produce(P, 3)
    settle(process)
    assert [step for step in order if step != "other"] == ["begin", "commit", "segment", "commit"]
    found = begin(world)
    assert found is not None
    assert (found.offset, found.reason) == (7, "start policy")
    world.expect(P, 7)


@pytest.mark.parametrize("start", ["latest", "time"])
def test_a_start_outlives_the_groups_offsets(world: World, start: str) -> None:
    """A partition that never had a record: after a week its commit is gone, and the policy would decide anew."""
    world.broker.hole(P, 7)
    world.rules = (rule("t", start="latest" if start == "latest" else T0),)
    joined(world).stop()
    del world.broker.committed("group")[P]
    world.produce(P, 3)
    world.rules = (rule("t", start="latest"),)
    joined(world, consumer=FakeSourceConsumer(world.broker)).stop()
    world.expect(P, 7)


def test_offsets_that_the_source_lost_since_are_a_gap(world: World) -> None:
    world.rules = (rule("t", start="latest", on_gap="record"),)
    joined(world).stop()
    del world.broker.committed("group")[P]
    world.produce(P, 5)
    world.broker.trim(P, 3)
    joined(world, consumer=FakeSourceConsumer(world.broker)).stop()
    assert list(world.control.gaps.ranges(source(P))) == [OffsetRange(0, 2)]
    assert world.ranges(P) == [(3, 4)]


def test_the_first_begin_stands(world: World) -> None:
    """Two processes position one partition at once: the second agrees with the first."""
    world.rules = (rule("t", start="latest"),)
    process = world.process()
    process.turn(2)
    first = ArchiveBegin(offset=0, reason="another process", recorded_at=T0)
    world.produce(P, 4)
    real = world.control_peek.begins.record(source(P), first)
    world.objects.memory.delete_many(["data/a/_control/v1/begins/t/0"])
    fast = {"done": False}

    def other(key: str) -> None:
        if "/begins/t/0" in key and not fast["done"]:
            fast["done"] = True
            world.control_peek.begins.record(source(P), real)
        elif not fast["done"]:
            world.objects.before["put_new"] = other

    world.objects.before["put_new"] = other
    process.consumer.assign(P)
    process.turn(3)
    settle(process)
    world.expect(P)
    assert begin(world) == first


def test_from_commit_metadata_then_archive_then_policy(world: World) -> None:
    world.broker.hole(P, 4)
    world.produce(P, 6)
    world.rules = (rule("t", start="latest"),)
    joined(world).stop()
    assert begin(world) is not None
    world.produce(P, 5)
    joined(world, consumer=FakeSourceConsumer(world.broker)).stop()
    for keep_commit in (True, False):
        world.objects.memory.delete_many(["data/a/_control/v1/begins/t/0"])
        if not keep_commit:
            del world.broker.committed("group")[P]
        joined(world, consumer=FakeSourceConsumer(world.broker)).stop()
        found = begin(world)
        assert found is not None
        assert found.offset == 10


def test_a_begin_that_cannot_be_read_is_not_the_absence_of_one(world: World) -> None:
    joined(world).stop()
    del world.broker.committed("group")[P]
    key = "data/a/_control/v1/begins/t/0"
    world.objects.memory.delete_many([key])
    world.objects.memory.put_new(key, BytesIO(b"{}"), 2)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    assert "_control/v1/begins/" in stop_reason(process)


@pytest.mark.parametrize("kind", ["forks", "gaps", "begins"])
def test_a_control_object_that_cannot_be_read_holds_up_its_own_partition_only(world: World, kind: str) -> None:
    archived(world)
    world.broker.create("other")
    other = TopicPartition("other", 0)
    keys = {name: f"data/a/_control/v1/{name}/t/0" for name in ("forks", "gaps", "begins")}
    key = keys["begins"]
    if kind != "begins":
        cut(world, 5, 9)
        settle(process := joined(world, P))
        accept(world, 5, 9)
        process.crash()
        [key] = [item.key for item in world.objects.memory.list(keys[kind])]
    content = world.objects.memory.open(key).read()
    del world.broker.committed("group")[P]
    replaced(world, key, b'{"v":2}')
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    world.produce(other, 5)
    world.produce(Q, 5)
    for _ in range(3):
        settle(process)
    assert list(process.stopped) == [str(source(P))]
    assert "Restore that object" in stop_reason(process)
    assert ("[5,9]" if kind == "gaps" else key) in stop_reason(process)
    assert world.ranges(other) == [(0, 4)]
    world.expect(Q)
    replaced(world, key, content)
    process.later(120)
    settle(process)
    assert process.stopped == {}


def replaced(world: World, key: str, content: bytes) -> None:
    world.objects.memory.delete_many([key])
    world.objects.memory.put_new(key, BytesIO(content), len(content))


@pytest.mark.parametrize("leaderless", [(P,), (P, Q)])
def test_partitions_without_a_leader_hold_up_no_other(world: World, leaderless: tuple[TopicPartition, ...]) -> None:
    world.broker.create("other")
    other = TopicPartition("other", 0)
    world.admin.leaderless.update(leaderless)
    process = joined(world)
    world.produce(other, 5)
    world.produce(P, 5)
    for _ in range(3):
        settle(process)
    assert world.ranges(other) == [(0, 4)]
    assert process.stopped == {}, "a leader may be elected within seconds"
    for _ in range(7):
        process.later(10)
    problems = process.health.snapshot().problems
    assert set(problems) == {f"{source(p)} attempts" for p in leaderless}
    assert all("LEADER_NOT_AVAILABLE" in what for what in problems.values())
    world.admin.leaderless.clear()
    process.later(2)
    settle(process)
    assert process.health.snapshot().is_ready
    world.expect(P)


def test_a_partition_without_a_leader_is_requested_again_after_a_second(world: World) -> None:
    """And not in each turn of the loop, with another partition that has one."""
    world.admin.leaderless.add(P)
    process = joined(world)
    process.turn(10)
    asked = world.admin.asked["watermarks"]
    assert asked == 3, "of both at once, then of each"
    process.later(1, turns=10)
    assert world.admin.asked["watermarks"] == asked + 1


def test_an_unavailable_cluster_gets_no_request_for_each_partition(world: World) -> None:
    world.broker.create("many", partitions=50)
    world.rules = (rule("many"),)

    class Vanishing(FakeAdmin):
        def watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
            self.away = True
            return super().watermarks(partitions)

    world.admin = Vanishing(world.broker)
    process = world.process()
    process.turn(2)
    process.consumer.assign_all()
    process.turn(2)
    assert world.admin.asked["watermarks"] == 1
    assert process.stopped == {}


def test_empty_partitions_take_a_request_each(world: World) -> None:
    """And a handful for the topic; a restart takes none for those that have a commit."""
    world.broker.create("many", partitions=200)
    world.rules = (rule("many"),)
    world.objects.calls.clear()
    process = joined(world)
    assert len(world.broker.committed("group")) == 200
    assert sum(world.objects.calls.values()) <= 200 + 20, world.objects.calls
    process.stop()
    world.objects.calls.clear()
    joined(world, consumer=FakeSourceConsumer(world.broker)).stop()
    assert sum(world.objects.calls.values()) <= 20, world.objects.calls


def test_a_large_archive_is_not_listed_for_a_few_of_its_partitions(world: World) -> None:
    joined(world).stop()
    for offset in range(1500):
        world.peek.store(Segment(source(Q), 0, OffsetRange(offset, offset)), BytesIO(), 0)
    listed: list[str] = []
    listing = world.objects.list

    def counted(prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        for item in listing(prefix, start_after=start_after, limit=limit):
            listed.append(item.key)
            yield item

    world.objects.list = counted  # type: ignore[method-assign]
    process = joined(world, P, consumer=FakeSourceConsumer(world.broker))
    world.produce(P, 2)
    settle(process)
    assert len([key for key in listed if "/t/1/" in key and "_control" not in key]) <= 1000
    world.expect(P)
