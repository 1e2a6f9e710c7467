"""Segments that are stored beyond the commit and contradict the log, or agree with it."""

from __future__ import annotations

from contextlib import closing
from io import BytesIO

import pytest

from formats.control.keys import begins_prefix
from formats.segment import LEVEL_STREAMING, OffsetRange, Segment
from infra.contracts.cluster import Committed
from tests.egress.forked import (
    FORK1,
    accept,
    adopt,
    archived,
    forks,
    goes_on,
    settle,
    stop_reason,
    stored_beyond_the_commit,
    values_of_log,
)
from tests.egress.two_partitions import P, joined
from tests.egress.world import FORMAT, World, source
from tests.fakes.kafka_consumer import FakeSourceConsumer


@pytest.mark.parametrize("epochs", [True, False])
@pytest.mark.parametrize("more", [1, 2, 3])
def test_a_contradiction_is_noticed_whatever_its_key(world: World, epochs: bool, more: int) -> None:
    """The log forks below what is stored and not committed; the next segment ends before it, at it, after it."""
    stored_beyond_the_commit(world)
    (world.broker.truncate if epochs else world.broker.rewind)(P, 1)
    world.produce(P, more)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    assert world.ranges(P) == [(0, 2)], "a segment was stored that contradicts an overlapping one"
    reason = stop_reason(process)
    stored = Segment(source(P), LEVEL_STREAMING, OffsetRange(0, 2))
    # a log that is shorter than the archive is evidence enough
    assert ("the archive ends before 3, and the log at 2" if more == 1 else f"stored {stored} and new") in reason
    assert "replicator adopt --fork t" in reason
    assert "replicator gaps accept a/t/0 " in reason
    assert forks(world)[0][1] == 3
    # after a restart whose segment ends elsewhere the answer is the same
    world.produce(P, 9)
    process.stop()
    again = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(again)
    assert stop_reason(again) == reason
    assert (world.ranges(P), world.position(P)) == ([(0, 2)], 0)


def test_a_refusal_is_not_passed_by_a_restart(world: World) -> None:
    """The variant in which the first attempt ended at the same offset, and was refused by its key."""
    stored_beyond_the_commit(world)
    world.broker.rewind(P, 1)
    world.produce(P, 2)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    world.objects.away = {"put_new"}  # nothing can be recorded meanwhile
    for _ in range(3):
        settle(process)
    process.crash()
    world.objects.away = set()
    world.produce(P, 2)
    again = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(again)
    assert world.ranges(P) == [(0, 2)]
    assert "differ at offset 1" in stop_reason(again)


def test_a_snapshot_with_the_groups_offsets_is_seen_by_the_records(world: World) -> None:
    """No epoch shows it: the cluster has forgotten the later ones, and gives them again."""
    archived(world, 4)
    earlier = world.broker.committed("group")[P]
    world.broker.elect(P)
    world.produce(P, 6)
    joined(world, consumer=FakeSourceConsumer(world.broker)).stop()
    old = world.values(P)
    assert world.position(P) == 10
    world.broker.committed("group")[P] = earlier
    world.broker.rewind(P, 6)
    world.broker.elect(P, 1)
    world.produce(P, 9)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    assert forks(world) == [(6, 10)]
    assert "differ at offset 6" in stop_reason(process)
    assert set(world.values(P)) == set(old)
    assert adopt(world) == FORK1
    goes_on(process)
    world.expect(P, 6, incarnation=FORK1)


def test_a_snapshot_that_is_accepted(world: World) -> None:
    archived(world, 10)
    commits = world.broker.committed("group")
    commits[P] = Committed(4, commits[P].metadata, 0)
    world.broker.rewind(P, 6)
    world.produce(P, 9)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    accept(world, 6, 9)
    process.later(60)
    settle(process)
    assert process.stopped == {}
    assert world.position(P) == 15
    with_new = {o: v for s in world.segments(P) for o, v in world.read(s).items() if o >= 10}
    assert list(with_new.values()) == values_of_log(world, 10)


def test_segments_that_overlap_and_agree_are_stored(world: World) -> None:
    """As after every crash between an upload and its commit: no reason to stop."""
    stored_beyond_the_commit(world)
    world.produce(P, 9)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    settle(process)
    settle(process)
    assert process.stopped == {}
    world.agree(P)
    assert world.position(P) == 12
    assert world.ranges(P)[:2] == [(0, 2), (0, 4)]


def test_segments_merged_meanwhile_are_compared_all_the_same(world: World) -> None:
    """Between the listing and the comparison the segment is gone, and a larger one has its records."""
    stored_beyond_the_commit(world)
    world.broker.rewind(P, 1)
    world.produce(P, 3)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    process.uploads.holding = True
    settle(process)
    [old] = world.segments(P)
    merged = Segment(old.source, 1, old.offsets)
    with closing(FORMAT.open(world.peek.open(old), old)) as reader:
        batches, origin = list(reader.batches()), reader.footer.origin
    sink = BytesIO()
    writer = FORMAT.create(sink)
    writer.write(batches)
    writer.close(merged, origin)
    world.peek.store(merged, sink, sink.tell())
    world.peek.delete_many([old])
    process.uploads.holding = False
    process.uploads.run_all()
    for _ in range(3):
        settle(process)
    assert world.segments(P) == [merged]
    assert f"stored {merged}" in stop_reason(process)


def test_a_stray_object_is_no_fork_any_more_once_it_is_removed(world: World) -> None:
    stored_beyond_the_commit(world)
    world.broker.rewind(P, 0)
    world.produce(P, 7)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    assert "has forked" in stop_reason(process)
    world.peek.delete_many(world.segments(P))
    process.later(60)
    settle(process)
    assert process.stopped == {}
    world.expect(P)


def test_a_segment_that_the_owner_before_stores_while_the_archive_is_looked_up_is_no_fork(world: World) -> None:
    """The log's end is asked for after the archive's: it holds every record of a segment that is found."""
    joined(world).stop()
    looked_up: list[str] = []

    def is_stored() -> None:
        looked_up.append("begins")
        stored_beyond_the_commit(world)

    world.objects.after_listing[begins_prefix("data", "a", "t")] = is_stored
    process = joined(world)
    settle(process)
    assert looked_up
    assert process.stopped == {}
    world.expect(P)
