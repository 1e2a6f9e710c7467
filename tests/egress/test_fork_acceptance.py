"""A fork that an operator accepts: the partition continues in the same path, after what is archived."""

from __future__ import annotations

import pytest

from tests.egress.forked import FORK1, accept, adopt, archived, cut, forks, settle, stop_reason, values_of_log
from tests.egress.two_partitions import P, joined
from tests.egress.world import World
from tests.fakes.kafka_consumer import FakeSourceConsumer


@pytest.mark.parametrize("grown", [False, True])
def test_accepted_it_continues_after_what_is_archived(world: World, grown: bool) -> None:
    archived(world)
    old = world.values(P)
    cut(world, 5, 9 if grown else 2)
    process = joined(world)
    settle(process)
    accept(world, 5, 8)
    process.later(60)
    assert "5-9" in stop_reason(process), "not all of it is accepted"
    accept(world, 5, 9)
    process.later(120)
    if not grown:
        assert "waits until it has grown there" in stop_reason(process)
        world.produce(P, 7)
        process.later(300)
    settle(process)
    assert process.stopped == {}
    process.stop()
    world.produce(P, 3)
    joined(world, consumer=FakeSourceConsumer(world.broker)).stop()
    assert world.values(P) == [*old, *values_of_log(world, 10)]
    assert world.position(P) == world.broker.logs[P].high
    assert len(forks(world)) == 1


def test_accepted_and_forked_again(world: World) -> None:
    archived(world)
    cut(world, 5, 15)
    settle(process := joined(world))
    accept(world, 5, 9)
    process.later(60)
    settle(process)
    assert world.position(P) == 20
    cut(world, 15, 20)
    settle(process)
    assert forks(world) == [(5, 10), (15, 20)]
    assert "replicator gaps accept a/t/0 15-19" in stop_reason(process)
    accept(world, 15, 19)
    process.later(60)
    settle(process)
    assert process.stopped == {}
    assert world.position(P) == 35


def test_accepted_before_anything_more_was_archived_an_expired_offset_does_not_bring_it_back(world: World) -> None:
    """The archive's last footer is still of the old log."""
    archived(world)
    cut(world, 5, 5)
    settle(process := joined(world))
    accept(world, 5, 9)
    process.later(60)
    settle(process)
    process.stop()
    del world.broker.committed("group")[P]
    world.broker.elect(P)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    world.produce(P, 3)
    settle(process)
    assert process.stopped == {}
    assert world.values(P)[10:] == values_of_log(world, 10)


@pytest.mark.parametrize("when", ["while it waits", "before anything more is archived", "while it is away"])
def test_a_loss_that_goes_deeper_than_the_fork_that_was_accepted_stops_the_partition(world: World, when: str) -> None:
    """What is archived at 2-4 is another log's by now, and was not accepted."""
    archived(world)
    old = world.values(P)
    cut(world, 5, 7)
    settle(process := joined(world))
    if when == "while it waits":
        cut(world, 2, 30)
        process.later(60)
    accept(world, 5, 9)
    process.later(120, turns=5)
    if when != "while it waits":
        assert process.stopped == {}
        assert world.ranges(P)[-1] == (5, 9), "nothing is archived after it yet"
        if when == "while it is away":
            process.crash()
        cut(world, 2, 30)
        if when == "while it is away":
            process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(4):
        settle(process)
    assert "it reached offset 5 in leader epoch 0, which ends at 2 now" in stop_reason(process)
    assert "replicator gaps accept a/t/0 2-9" in stop_reason(process)
    assert sorted(forks(world)) == [(2, 10), (5, 10)]
    assert world.values(P) == old
    accept(world, 2, 9)
    process.later(120)
    for _ in range(3):
        settle(process)
    assert process.stopped == {}
    assert world.values(P) == [*old, *values_of_log(world, 10)]
    assert len(forks(world)) == 2


def test_adopted_a_loss_that_goes_deeper_than_the_fork_that_was_accepted_is_followed(world: World) -> None:
    archived(world)
    cut(world, 5, 7)
    settle(process := joined(world))
    cut(world, 2, 30)
    accept(world, 5, 9)
    process.later(60)
    settle(process)
    assert "2-9" in stop_reason(process)
    assert adopt(world) == FORK1
    process.later(120)
    for _ in range(3):
        settle(process)
    assert process.stopped == {}
    world.expect(P, 2, incarnation=FORK1)


def test_an_accepted_fork_waits_until_the_brokers_say_that_nothing_more_was_lost(world: World) -> None:
    archived(world)
    old = world.values(P)
    cut(world, 5, 20)
    settle(process := joined(world))
    world.probe.silent.add(P)
    accept(world, 5, 9)
    process.later(60)
    settle(process)
    assert "the brokers do not say whether the log has lost more" in stop_reason(process)
    assert world.values(P) == old
    world.probe.silent.clear()
    process.later(120)
    settle(process)
    assert process.stopped == {}
    assert world.values(P) == [*old, *values_of_log(world, 10)]


def test_a_log_that_is_cut_just_after_it_was_requested_is_noticed(world: World) -> None:
    """Its reader begins with the epoch in which the log had come there."""
    archived(world)
    cut(world, 5, 7)
    settle(process := joined(world))
    accept(world, 5, 9)
    world.probe.after_answer = lambda: cut(world, 2, 30)
    process.later(60)
    for _ in range(3):
        settle(process)
    assert "which ends at 2 now" in stop_reason(process)
    assert (2, 10) in forks(world)
    assert world.ranges(P)[-1] == (5, 9)
