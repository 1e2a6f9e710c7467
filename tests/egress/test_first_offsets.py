"""The first offset that egress reads of a partition."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.egress.two_partitions import Make, P, Q, joined
from tests.egress.world import World, rule, source
from tests.fakes.kafka_consumer import FakeRecord


@pytest.mark.parametrize(("start", "begun"), [("earliest", 2), ("latest", 6), ("time", 4)])
def test_start_policy(make: Make, start: str, begun: int) -> None:
    world = make()
    stamp = int(world.clock.at.timestamp() * 1000)
    world.broker.append(P, *(FakeRecord(value=b"%d" % i, timestamp_ms=stamp + i * 1000) for i in range(6)))
    world.broker.trim(P, 2)
    world.rules = (rule("t", start=world.clock.at + timedelta(seconds=4) if start == "time" else start),)
    process = joined(world)
    assert world.position(P) == begun
    process.stop()
    world.produce(P, 1)  # an idle partition is not positioned anew
    joined(world).stop()
    world.expect(P, begun)


def test_partition_added_later_is_read_from_its_beginning(make: Make) -> None:
    world = make(rule("t", start="latest"))
    world.produce(P, 3)
    process = joined(world)
    assert world.position(P) == 3
    later = world.broker.create("t", partitions=4)[2:]
    for partition in later:
        world.produce(partition, 2)
    process.later(30)
    process.consumer.assign(later[0])
    process.turn(3)
    assert world.position(later[0]) == 0
    process.stop()
    second = joined(world)
    second.later()
    for partition in later:
        world.expect(partition)


def test_topic_that_appears_later_is_read_from_its_beginning(make: Make) -> None:
    world = make(rule("^.*", start="latest"))
    process = joined(world)
    [new] = world.broker.create("new")
    world.produce(new, 4)
    process.later(30)
    process.consumer.assign_all()
    process.turn(3)
    process.later()
    world.expect(new)


def test_crash_between_stored_and_committed_stores_nothing_twice(world: World) -> None:
    process = joined(world)
    process.consumer.fail_commits(P)
    world.produce(P, 5)
    process.turn(2)
    process.crash()
    assert (world.position(P), world.ranges(P)) == (0, [(0, 4)])
    joined(world).later()
    world.expect(P)
    assert world.ranges(P) == [(0, 4)]


def test_crash_anywhere_else_is_healed_by_the_next(world: World) -> None:
    process = joined(world)
    process.uploads.holding = True
    world.produce(P, 13)
    process.turn(2)
    process.uploads._jobs.rotate(-1)
    process.uploads.run_next()  # [5,9] is stored, [0,4] is not
    process.crash()
    second = joined(world)
    second.later()
    assert world.position(P) == 13
    world.agree(P)
    process.uploads.run_all()  # the zombie's
    world.agree(P)


def test_unknown_positions_are_requested_again(world: World) -> None:
    world.produce(P, 2)
    process = world.process()
    process.turn(2)
    process.consumer.unavailable = True
    process.consumer.assign_all()
    process.turn(5)
    assert world.position(P) == -1
    process.consumer.unavailable = False
    process.later(1)
    world.objects.away = {"list"}
    process.later()
    world.objects.away = set()
    process.later()
    world.expect(P)


def test_listing_that_fails_is_not_an_empty_archive(make: Make) -> None:
    world = make(rule("t", start="latest"))
    world.produce(P, 5)
    world.objects.away = {"list"}
    process = joined(world)
    assert world.position(P) == -1
    world.produce(P, 5)
    process.later(1)
    assert world.position(P) == -1


def test_topic_that_vanishes_while_its_position_is_asked(world: World) -> None:
    [other] = world.broker.create("other")
    process = joined(world, other)
    process.pool.holding = True
    process.consumer.assign(P, Q)
    process.turn(2)
    process.later(30, turns=1)  # the topics are requested after the positions
    process.pool.run_next()
    del world.broker.logs[P], world.broker.logs[Q]
    process.pool.run_all()
    process.turn()
    assert process.consumer.topics == {"other"}
    process.pool.holding = False
    world.produce(other, 1)
    process.turn()
    process.later()
    world.expect(other)


def test_partition_the_cluster_does_not_show_holds_up_no_other(world: World) -> None:
    world.produce(P, 2)
    world.admin.hidden.add(Q)
    process = joined(world)
    process.later()
    world.expect(P)
    assert "t/1" in process.stopped[str(source(Q))]
    world.admin.hidden.clear()
    process.later(30)
    assert process.stopped == {}


def test_segment_of_a_zombie_beyond_what_was_the_end_is_no_truncation(world: World) -> None:
    """The old owner stores while we ask where to begin: the log's end must be asked after the archive."""
    process = joined(world)
    process.uploads.holding = True
    process.turn(2)
    second = world.process()
    second.turn(2)

    def meanwhile(_: str) -> None:
        world.produce(P, 5)
        process.turn(2)
        process.uploads.run_all()

    world.objects.before["list"] = meanwhile
    second.consumer.assign(P)
    second.turn(3)
    assert second.stopped == {}
