"""Forks where the archive holds recorded gaps instead of segments, and new paths that begin behind what the path before
holds of the old log."""

from __future__ import annotations

import pytest

from formats.control.gap import RecordedGap
from formats.segment import OffsetRange
from tests.egress.forked import FORK1, FORK2, accept, adopt, archived, cut, forks, goes_on, settle, stop_reason
from tests.egress.two_partitions import P, Q, joined
from tests.egress.world import Process, World, rule, source
from tests.fakes.kafka_consumer import FakeSourceConsumer
from tests.fakes.surroundings import T0


@pytest.fixture
def recording(world: World) -> World:
    """Retention may overtake the egress: what is gone becomes a recorded gap."""
    world.rules = (rule("t", on_gap="record"),)
    return world


def again(world: World, process: Process) -> Process:
    """Another process in place of this one, which dies."""
    process.crash()
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    return process


def gaps(world: World, incarnation: str) -> list[OffsetRange]:
    return list(world.control_peek.gaps.ranges(source(P, incarnation)))


def gap_after_a_fork(world: World) -> Process:
    """The new path holds no segment: offsets 2 to 4 are a recorded gap, and the log is empty behind them."""
    archived(world)
    cut(world, 2, 3)
    settle(process := joined(world))
    world.broker.trim(P, 5)
    assert adopt(world) == FORK1
    goes_on(process)
    assert gaps(world, FORK1) == [OffsetRange(2, 4)]
    assert (world.ranges(P, FORK1), world.position(P)) == ([], 5)
    return process


@pytest.mark.parametrize("restarted", [False, True])
def test_what_the_path_before_holds_of_the_old_log_makes_no_fork_of_the_new_path(
    recording: World, restarted: bool
) -> None:
    """Retention takes the first contested offsets before the new path begins, up to the end of an old segment."""
    world = recording
    process = gap_after_a_fork(world)
    assert forks(world, FORK1) == []
    if restarted:
        process = again(world, process)
    world.produce(P, 10)
    settle(process)
    assert process.stopped == {}
    world.expect(P, 5, incarnation=FORK1)


def test_of_two_forks_that_wait_the_deeper_one_is_where_the_new_path_begins(recording: World) -> None:
    """Retention takes what lies between the two before the new path begins."""
    world = recording
    archived(world)
    cut(world, 5, 20)
    settle(process := joined(world))
    accept(world, 5, 8)  # of the operator's hand, and too little
    cut(world, 2, 20)
    accept(world, 9, 9)
    process.later(60)
    settle(process)
    assert sorted(forks(world)) == [(2, 10), (5, 10)]
    world.broker.trim(P, 5)
    assert adopt(world) == FORK1
    goes_on(process)
    assert (forks(world, FORK1), gaps(world, FORK1)) == ([], [OffsetRange(2, 4)])
    world.expect(P, 5, incarnation=FORK1)


def moved_by_the_other_partition(world: World, holes: int = 0) -> None:
    """P's fork is accepted, and no record is archived behind it; Q's fork is adopted while no process runs."""
    archived(world)
    cut(world, 5, 5)
    settle(process := joined(world))
    accept(world, 5, 9)
    goes_on(process)
    world.broker.hole(P, holes)
    cut(world, 5, 5, Q)
    settle(process)
    process.stop()
    assert adopt(world) == FORK1
    assert (world.position(P), world.ranges(P)[-1][1]) == (10 + holes, 9 + holes)


@pytest.mark.parametrize("holes", [0, 3])
@pytest.mark.parametrize("forgotten", [False, True])
def test_an_accepted_fork_makes_no_fork_of_the_path_that_another_partition_needs(
    world: World, forgotten: bool, holes: int
) -> None:
    moved_by_the_other_partition(world, holes)
    if forgotten:
        world.broker.committed("group").clear()
    world.produce(P, 10)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    assert process.stopped == {}
    assert forks(world, FORK1) == []
    world.expect(P, 10 + holes, incarnation=FORK1)


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_loss_below_holes_behind_an_accepted_fork_is_found_in_the_path_that_another_partition_needs(
    world: World, forgotten: bool
) -> None:
    """By the commit of the path before, or by the point at which the accepted fork's logs were the same."""
    moved_by_the_other_partition(world, holes=3)
    if forgotten:
        world.broker.committed("group").clear()
    cut(world, 2, 30)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    assert f"gaps accept a/t@{FORK1}/0 2-12" in stop_reason(process, FORK1)
    assert world.ranges(P, FORK1) == []


def test_a_path_that_began_behind_an_accepted_fork_waits_until_the_log_has_grown_there(world: World) -> None:
    """The log is cut within the accepted offsets before the begin is committed."""
    moved_by_the_other_partition(world)
    process = world.process(consumer=FakeSourceConsumer(world.broker))
    process.consumer.fail_commits(P)
    process.join()
    process.crash()
    begin = world.control_peek.begins.of(source(P, FORK1))
    assert begin is not None
    assert (begin.offset, world.position(P)) == (10, 10)
    cut(world, 6, 2)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    settle(process)
    assert "accepted up to 10, where the archive continues; the log ends at 8 now" in stop_reason(process)
    world.produce(P, 12)
    process.later(400)
    goes_on(process)
    assert forks(world, FORK1) == []
    world.expect(P, 10, incarnation=FORK1)


@pytest.mark.parametrize("commits", [True, False])
def test_a_deeper_loss_behind_an_accepted_fork_is_found_in_the_path_that_another_partition_needs(
    world: World, commits: bool
) -> None:
    """The old path's 2-4 are another log's by now, which was not accepted."""
    moved_by_the_other_partition(world)
    cut(world, 2, 30)
    world.probe.silent.add(P)
    process = world.process(consumer=FakeSourceConsumer(world.broker))
    if not commits:
        process.consumer.fail_commits(P)
    process.join()
    settle(process)
    assert "the brokers do not say whether the log has lost more" in stop_reason(process)
    assert world.ranges(P, FORK1) == []
    world.probe.silent.clear()
    process.later(120)
    for _ in range(3):
        if not commits:
            process.consumer.fail_commits(P)
        settle(process)
    assert "it reached offset 5 in leader epoch 0, which ends at 2 now" in stop_reason(process, FORK1)
    assert forks(world, FORK1) == [(2, 10)]
    assert world.ranges(P, FORK1) == []
    assert adopt(world) == FORK2
    process.later(120)
    goes_on(process)
    world.expect(P, 2, incarnation=FORK2)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("adopted", [False, True])
def test_a_fork_that_contests_exactly_a_recorded_gap_ends_by_either_choice(
    recording: World, adopted: bool, restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A replica that missed retention, too, is elected: its log begins at 0 and ends before the gap."""
    world = recording
    process = gap_after_a_fork(world)
    caplog.clear()
    world.broker.trim(P, 0)
    cut(world, 2, 20)
    for _ in range(3):
        settle(process)
        process.later(400)
    reason = stop_reason(process, FORK1)
    assert "replicator adopt --fork t" in reason
    assert f"replicator gaps accept a/t@{FORK1}/0 2-4 --reason TEXT --yes" in reason
    assert forks(world, FORK1) == [(2, 5)]
    assert [r.message for r in caplog.records].count("log_forked") == 1, "however often it is looked up"
    if adopted:
        assert adopt(world) == FORK2
    else:
        accept(world, 2, 4, FORK1)
        accept(world, 2, 4, FORK1)
    if restarted:
        process = again(world, process)
    process.later(400)
    goes_on(process)
    incarnation, begun = (FORK2, 2) if adopted else (FORK1, 5)
    world.expect(P, begun, incarnation=incarnation)
    assert forks(world, FORK2) == []
    assert gaps(world, FORK1) == [OffsetRange(2, 4)]


def test_a_fork_that_contests_exactly_what_the_archives_retention_removed_can_be_accepted(world: World) -> None:
    archived(world)
    for segment in world.segments(P):
        world.peek.delete_many([segment])
    removed = RecordedGap(
        source=source(P), offsets=OffsetRange(0, 9), reason="retention of the archive", low=0, high=10, recorded_at=T0
    )
    world.control_peek.gaps.record(removed)
    cut(world, 0, 20)
    settle(process := joined(world))
    assert "gaps accept a/t/0 0-9" in stop_reason(process)
    accept(world, 0, 9)
    goes_on(process)
    world.expect(P, 10)


@pytest.mark.parametrize("adopted", [False, True])
def test_a_fork_in_a_new_path_that_holds_nothing_but_an_accepted_gap(recording: World, adopted: bool) -> None:
    """Cut again within the gap, then below it: each time the operator is asked, and each choice holds."""
    world = recording
    process = gap_after_a_fork(world)
    world.broker.trim(P, 0)
    cut(world, 2, 1)
    settle(process)
    accept(world, 2, 4, FORK1)
    process.later(400)
    settle(process)
    assert "waits until it has grown there" in stop_reason(process, FORK1)
    cut(world, 1, 1)
    process.later(400)
    settle(process)
    assert f"gaps accept a/t@{FORK1}/0 1-4" in stop_reason(process, FORK1)
    assert sorted(forks(world, FORK1)) == [(1, 5), (2, 5)]
    if adopted:
        assert adopt(world) == FORK2
    else:
        accept(world, 1, 4, FORK1)
    process.later(400)
    world.produce(P, 10)
    process.later(400)
    goes_on(process)
    world.expect(P, *((1,) if adopted else (5,)), incarnation=FORK2 if adopted else FORK1)
    assert forks(world, FORK2) == []
