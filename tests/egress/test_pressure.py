"""Egress while its memory, spool or disk is full, or fails."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from tests.egress.two_partitions import LABELS, Make, P, Q, joined
from tests.egress.world import World, rule
from tests.fakes.small_disk import Quota


def test_lost_spool_is_read_again(world: World) -> None:
    process = joined(world, spool_memory_bytes=-1)
    process.uploads.holding = True
    world.produce(P, 12)
    process.turn(2)
    assert process.uploads.waiting == 2
    for path in process.spool.directory.iterdir():
        if path.name != "lock":
            path.unlink()
    process.uploads.run_all()
    process.uploads.holding = False
    process.turn()
    assert process.metrics.by_label("egress_rewinds", **LABELS) >= 1
    process.later(1)
    process.later()
    process.later()
    world.expect(P)
    assert process.stopped == {}


def test_spool_lost_after_a_stored_segment_keeps_that(world: World) -> None:
    process = joined(world, spool_memory_bytes=-1)
    process.uploads.holding = True
    world.produce(P, 10)
    process.turn(2)
    process.uploads.run_next()
    for path in process.spool.directory.iterdir():
        if path.name != "lock":
            path.unlink()
    process.uploads.run_all()
    process.uploads.holding = False
    process.turn()
    assert world.position(P) == 5
    process.later(1)
    assert world.ranges(P) == [(0, 4), (5, 9)]
    world.expect(P)


def test_store_that_is_slow_pauses_fetching_and_polling_continues(world: World) -> None:
    process = joined(world, memory_bytes=2000)
    process.uploads.holding = True
    for _ in range(200):
        world.broker.append(P, *[bytes(100)] * 5)
        process.turn()
    assert process.builder.spool_bytes < 40_000, "it continued to read"
    assert process.metrics.by_label("egress_pauses", **LABELS) == 1
    assert process.metrics.value("egress_spool_bytes") == process.builder.spool_bytes
    turned = process.health.snapshot().turns["main"]
    process.consumer.disturb()  # the seeks that follow must not end the pause
    process.later(1)
    before = process.builder.spool_bytes
    process.turn(5)
    assert process.builder.spool_bytes == before
    assert process.health.snapshot().turns["main"] > turned
    process.uploads.holding = False
    process.uploads.run_all()
    for _ in range(200):
        process.turn()
        process.uploads.run_all()
    process.later()
    world.expect(P)


@pytest.mark.parametrize("size_bytes", [0, 1000, 20_000])
def test_a_full_disk_is_waited_for_and_nothing_is_read_again(make: Make, size_bytes: int) -> None:
    """All segments are open for long, and together larger than disk and memory; so each is sealed when there is no
    room, and stored."""
    world = make(rule("^.*", max_segment_messages=10_000, max_segment_age=timedelta(hours=1)))
    disk = Quota(size_bytes)
    process = joined(world, P, Q, disk=disk, memory_bytes=4000, spool_memory_bytes=500)
    spooled = 0
    for _ in range(100):
        for partition in (P, Q):
            world.broker.append(partition, *[os.urandom(150) for _ in range(4)])
        process.turn()
        spooled = max(spooled, process.builder.spool_bytes)
    process.turn(50)
    process.later(3600)
    for partition in (P, Q):
        world.expect(partition)
    assert process.metrics.counts["egress_rewinds"] == 0
    assert process.metrics.counts["egress_pauses"] > 0, "it was never full"
    assert spooled < size_bytes + 8000, "it continued to read"
    limit = process.metrics.value("egress_spool_limit_bytes")
    assert limit is not None
    assert limit < 8 * 4000
    assert process.health.snapshot().is_ready


def test_a_disk_that_others_fill_while_fetching_is_paused_is_no_deadlock(make: Make) -> None:
    world = make(rule("^.*", max_segment_messages=10_000, max_segment_age=timedelta(hours=1)))
    disk = Quota()
    process = joined(world, P, Q, disk=disk, memory_bytes=4000, spool_memory_bytes=500)
    process.uploads.holding = True
    while not process.metrics.counts["egress_pauses"]:
        for partition in (P, Q):
            world.broker.append(partition, *[os.urandom(150) for _ in range(4)])
        process.turn()
    disk.size_bytes = 0
    process.uploads.holding = False
    process.uploads.run_all()
    process.turn(20)  # no time passes: nothing is sealed by its age
    world.produce(P, 1)
    process.turn(3)
    process.later(3600)
    for partition in (P, Q):
        world.expect(partition)
    assert process.metrics.counts["egress_rewinds"] == 0


def test_a_spool_that_fails_again_and_again_is_named_until_something_is_stored(world: World) -> None:
    process = joined(world, spool_memory_bytes=-1)
    world.produce(P, 12)
    (process.spool.directory / "lock").rename(world.directory / "lock")
    process.spool.directory.rmdir()  # a disk that is gone
    for _ in range(3):
        assert process.health.snapshot().problems == {}
        process.later(60)
    [(subject, problem)] = process.health.snapshot().problems.items()
    assert subject == "a/t/0 read again"
    assert "3 times in a row" in problem
    assert str(process.spool.directory) in problem
    assert "egress.spool_dir" in problem
    process.spool.directory.mkdir()
    (world.directory / "lock").rename(process.spool.directory / "lock")
    process.later(60)
    process.later()
    world.expect(P)
    assert process.health.snapshot().is_ready


def test_a_store_that_is_slow_gets_larger_segments_and_not_more_of_them(make: Make) -> None:
    """A trickle, in segments of a second: what waits to be stored is one segment of each partition."""
    world = make(rule("^.*", max_segment_messages=10_000, max_segment_age=timedelta(seconds=1)))
    process = joined(world)
    process.uploads.holding = True
    for _ in range(100):
        for partition in (P, Q):
            world.produce(partition, 1)
        process.later(1, turns=1)
        assert process.uploads.waiting <= 2
    process.uploads.holding = False
    process.uploads.run_all()
    process.later(1)
    process.later(1)
    for partition in (P, Q):
        world.expect(partition)
        assert len(world.ranges(partition)) <= 3


def test_partition_that_comes_while_fetching_is_paused_waits_too(world: World) -> None:
    process = joined(world, P, memory_bytes=2000)
    process.uploads.holding = True
    for _ in range(60):
        world.broker.append(P, *[bytes(100)] * 5)
        process.turn()
    before = process.builder.spool_bytes
    world.produce(Q, 50)
    process.consumer.assign(Q)
    process.turn(5)
    assert process.builder.spool_bytes == before
    process.uploads.holding = False
    process.uploads.run_all()
    process.turn(80)
    process.later()
    world.expect(P)
    world.expect(Q)


def test_open_segments_that_fill_the_spool_are_sealed_although_none_is_full_or_old(make: Make) -> None:
    world = make(rule("t", max_segment_messages=1_000_000))
    process = joined(world, memory_bytes=2000)
    for _ in range(100):
        for partition in (P, Q):
            world.broker.append(partition, *[bytes(200)] * 5)
        process.turn()
    process.turn(200)  # nothing waits for the clock
    assert process.metrics.by_label("egress_pauses", **LABELS) >= 1
    assert process.builder.spool_bytes <= 8 * 2000
    assert {s.offsets.start for s in world.segments(P)} >= {0}
    process.later()
    world.expect(P)
    world.expect(Q)


def test_memory_pressure_encodes_early_and_reading_continues(world: World) -> None:
    process = joined(world, memory_bytes=1000)
    process.encoders.holding = True
    for _ in range(6):
        world.broker.append(P, *[bytes(150)] * 2)
        process.turn()
    assert process.builder.must_pause
    before = process.builder.buffered_bytes
    world.broker.append(P, *[bytes(150)] * 2)
    process.turn(3)
    assert process.builder.buffered_bytes == before
    process.encoders.holding = False
    process.encoders.run_all()
    process.turn(3)
    process.later()
    world.expect(P)
