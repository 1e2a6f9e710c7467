"""A fork that an operator adopts: the partition continues in a new path, from where the logs differ."""

from __future__ import annotations

from contextlib import closing

import pytest

from egress.topics.fork_adoption import adopt_fork
from formats.control.claim import TopicClaim
from formats.coverage import joined as joined_ranges
from formats.errors import TargetError
from formats.segment import OffsetRange
from tests.egress.forked import (
    FORK1,
    FORK2,
    R,
    adopt,
    archived,
    cut,
    forks,
    goes_on,
    settle,
    stop_reason,
    values_of_log,
)
from tests.egress.two_partitions import P, Q, joined
from tests.egress.world import FORMAT, World, rule, source
from tests.fakes.kafka_consumer import FakeSourceConsumer
from tests.fakes.surroundings import T0


@pytest.mark.parametrize("running", [False, True])
def test_adopted_it_continues_in_a_new_path_from_where_the_logs_differ(world: World, running: bool) -> None:
    """So do partitions that did not fork, after their archived offsets: the two paths hold everything, once."""
    archived(world)
    old, others = world.values(P), world.values(Q)
    cut(world, 5, 20)
    process = joined(world)
    settle(process)
    assert adopt(world) == FORK1
    assert adopt(world) == FORK1, "repeating it changes nothing"
    if not running:
        process.stop()
        process = joined(world, consumer=FakeSourceConsumer(world.broker))
    process.later(31)
    world.produce(P, 3)
    world.produce(Q, 3)
    for _ in range(3):
        settle(process)
    assert process.stopped == {}
    assert world.values(P) == old
    assert world.values(P, FORK1) == values_of_log(world, 5)
    world.expect(P, 5, incarnation=FORK1)
    assert world.values(Q) + world.values(Q, FORK1) == [r.value for r in world.broker.logs[Q].records.values()]
    assert world.values(Q) == others
    world.expect(Q, 10, incarnation=FORK1)
    claims = {path: world.control_peek.claims.of("a", path) for path in world.control_peek.claims.paths("a")}
    assert {p: (c.number, c.fork, c.forked_from, c.topic_id) for p, c in claims.items() if c} == {
        "t": (0, 0, "", "id-t"),
        f"t@{FORK1}": (1, 1, "t", "id-t"),
    }
    begins = {p: world.control_peek.begins.of(source(p, FORK1)) for p in (P, Q)}
    assert {p: b.offset for p, b in begins.items() if b} == {P: 5, Q: 10}
    [segment, *_] = world.segments(P, FORK1)
    with closing(FORMAT.open(world.peek.open(segment), segment)) as reader:
        assert reader.footer.origin.topic_id == "id-t"


def test_records_read_for_the_previous_path_are_stored_there_first(world: World) -> None:
    """A partition that did not fork, with records that are not sealed, and others whose upload is slow."""
    archived(world)
    cut(world, 5, 20)
    process = joined(world)
    settle(process)
    process.uploads.holding = True
    world.produce(Q, 8)
    process.turn(2)
    adopt(world)
    process.later(31)
    settle(process)
    assert world.ranges(Q, FORK1) == []
    process.uploads.holding = False
    process.uploads.run_all()
    world.produce(Q, 2)
    for _ in range(3):
        settle(process)
    assert process.stopped == {}
    assert joined_ranges(s.offsets for s in world.segments(Q)).next_offset == 18
    world.expect(Q, 18, incarnation=FORK1)
    assert world.values(Q) + world.values(Q, FORK1) == [r.value for r in world.broker.logs[Q].records.values()]


def test_a_partition_without_a_record_begins_where_it_was_positioned(world: World) -> None:
    world.rules = (rule("t", start="latest"),)
    world.broker.hole(Q, 7)
    process = joined(world)
    world.produce(P, 10)
    settle(process)
    process.stop()
    cut(world, 5, 20)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    settle(process)
    adopt(world)
    process.later(31)
    settle(process)
    world.produce(Q, 2)
    for _ in range(3):
        settle(process)
    world.expect(Q, 7, incarnation=FORK1)
    world.expect(P, 5, incarnation=FORK1)


@pytest.mark.parametrize("forked", [False, True])
def test_a_partition_that_is_added_after_a_fork_is_read_from_its_beginning(world: World, forked: bool) -> None:
    """Whatever the start policy: what was written before egress noticed it is not to be lost."""
    world.rules = (rule("t", start="latest"),)
    process = joined(world)
    world.produce(P, 10)
    world.produce(Q, 10)
    settle(process)
    if forked:
        cut(world, 5, 20)
        settle(process)
        adopt(world)
        process.later(31)
        for _ in range(3):
            settle(process)
    assert process.stopped == {}
    world.broker.create("t", partitions=3)
    world.produce(R, 4)
    process.later(31)
    process.consumer.assign(R)
    for _ in range(3):
        settle(process)
    incarnation = FORK1 if forked else ""
    found = world.control_peek.begins.of(source(R, incarnation))
    assert found is not None
    assert found.offset == 0
    world.expect(R, incarnation=incarnation)


def test_offsets_removed_by_retention_before_the_new_path_began_are_a_recorded_gap(world: World) -> None:
    """Of a partition that did not fork, while egress was down."""
    world.rules = (rule("t", on_gap="record"),)
    archived(world)
    cut(world, 5, 20)
    process = joined(world)
    settle(process)
    adopt(world)
    process.stop()
    world.produce(Q, 10)
    world.broker.trim(Q, 15)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    assert process.stopped == {}
    assert list(world.control_peek.gaps.ranges(source(Q, FORK1))) == [OffsetRange(10, 14)]
    found = world.control_peek.begins.of(source(Q, FORK1))
    assert found is not None
    assert found.offset == 10
    world.expect(Q, 15, incarnation=FORK1)


def test_a_fork_of_the_fork(world: World) -> None:
    archived(world)
    cut(world, 5, 20)
    process = joined(world)
    settle(process)
    adopt(world)
    process.later(31)
    settle(process)
    settle(process)
    assert world.position(P) == 25
    cut(world, 3, 30)
    settle(process)
    assert forks(world, FORK1) == [(3, 25)]
    assert f"replicator gaps accept a/t@{FORK1}/0 3-24" in stop_reason(process, FORK1)
    assert adopt(world) == FORK2
    goes_on(process)
    world.expect(P, 3, incarnation=FORK2)
    assert [c and (c.number, c.forked_from) for c in (world.control_peek.claims.of("a", f"t@{FORK2}"),)] == [
        (2, f"t@{FORK1}")
    ]


def test_a_fork_of_the_fork_before_every_partition_continued_after_the_first_is_not_adopted(world: World) -> None:
    """The resolver reads one path before the current one, so it would read such a partition from its log start."""
    archived(world)
    cut(world, 5, 20)
    process = joined(world)
    settle(process)
    assert adopt(world) == FORK1
    process.stop()
    process = world.process()
    process.join(P)  # Q is assigned to no process
    settle(process)
    settle(process)
    cut(world, 3, 30)
    settle(process)
    assert forks(world, FORK1) == [(3, 25)]
    with pytest.raises(TargetError, match=r"where partitions \[1\] continue in a/t@.*-fork1") as caught:
        adopt(world)
    assert f"`replicator gaps accept a/t@{FORK1}/0 3-24 --reason TEXT --yes`" in str(caught.value)
    process.consumer.assign(Q)
    settle(process)
    settle(process)
    assert adopt(world) == FORK2
    goes_on(process)
    world.expect(P, 3, incarnation=FORK2)
    assert world.values(Q, FORK2) == [], "the first path holds it"


def test_a_loss_that_goes_deeper_while_the_first_one_waits(world: World) -> None:
    """The new path would begin at 5, and the log has lost more since: the offsets between are in neither path."""
    archived(world)
    cut(world, 5, 20)
    process = joined(world)
    settle(process)
    cut(world, 2, 30)
    adopt(world)
    process.later(31)
    settle(process)
    assert forks(world, FORK1) == [(2, 5)]
    assert adopt(world) == FORK2
    goes_on(process)
    world.expect(P, 2, incarnation=FORK2)


def test_crash_between_the_begin_of_the_new_path_and_its_first_commit(world: World) -> None:
    archived(world)
    cut(world, 5, 20)
    settle(process := joined(world))
    adopt(world)
    process.stop()
    process = world.process(consumer=FakeSourceConsumer(world.broker))
    process.turn(2)
    process.consumer.fail_commits(P, Q)
    process.consumer.assign(P, Q)
    process.turn(3)
    assert world.control_peek.begins.of(source(P, FORK1)) is not None
    process.crash()
    assert world.position(P) == 10
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    settle(process)
    settle(process)
    world.agree(P, FORK1)
    assert joined_ranges(s.offsets for s in world.segments(P, FORK1)).runs == (OffsetRange(5, 24),)
    assert world.position(P) == 25
    world.expect(Q, 10, incarnation=FORK1)


def test_a_snapshot_from_before_the_first_commit_is_seen_by_the_last_record(world: World) -> None:
    """Nothing of the group is there, and the epochs are given again: the archive alone knows better."""
    world.broker.elect(P, 3)
    archived(world)
    world.broker.committed("group").clear()
    world.broker.rewind(P, 6)
    world.broker.elect(P, 3)
    world.produce(P, 20)
    process = joined(world, consumer=FakeSourceConsumer(world.broker))
    for _ in range(3):
        settle(process)
    assert world.ranges(P) == [(0, 4), (5, 9)]
    assert forks(world) == [(9, 10)]
    assert "differ at offset 9" in stop_reason(process)


def test_brokers_without_topic_ids_continue_as_the_next_generated_id(world: World) -> None:
    world.admin.ids["t"] = ""
    archived(world)
    old = world.values(P)
    cut(world, 5, 20)
    process = joined(world)
    settle(process)
    for number, high in ((1, 5), (2, 4)):
        incarnation = f"cluster-{number}"
        assert adopt(world) == incarnation
        goes_on(process)
        world.expect(P, high, incarnation=incarnation)
        world.expect(Q, 10, incarnation=incarnation)
        claim = world.control_peek.claims.of("a", f"t@{incarnation}")
        assert claim is not None
        assert (claim.number, claim.fork) == (number, number)
        cut(world, 4, 30)
        settle(process)
    assert world.values(P) == old


def test_adopting_a_fork_that_is_not_there_is_refused(world: World) -> None:
    archived(world)
    with pytest.raises(TargetError, match="no fork of its log is recorded for a/t"):
        adopt(world)
    world.admin.cluster = "other"
    world.broker.create("u")
    world.control_peek.claims.record("a", "u", TopicClaim(topic_id="", cluster_id="cluster", number=0, claimed_at=T0))
    with pytest.raises(TargetError, match=r"adopt --fork u: .*other"):
        adopt_fork(world.peek, world.control_peek, world.admin, "a", "u", clock=world.clock)
    with pytest.raises(TargetError, match="no such topic"):
        adopt_fork(world.peek, world.control_peek, world.admin, "a", "absent", clock=world.clock)
