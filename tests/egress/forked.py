"""A topic whose log forks: what the tests of forks do to it, and what they find."""

from __future__ import annotations

from egress.topics.fork_adoption import adopt_fork
from formats.control.gap import RecordedGap
from formats.segment import OffsetRange
from infra.contracts.cluster import TopicPartition
from tests.egress.two_partitions import P, Q, joined
from tests.egress.world import Process, World, source
from tests.fakes.surroundings import T0

R = TopicPartition("t", 2)
FORK1, FORK2 = "id-t-fork1", "id-t-fork2"


def archived(world: World, count: int = 10) -> None:
    """`count` records of each partition, by a process that ended in order."""
    world.produce(P, count)
    world.produce(Q, count)
    joined(world).stop()


def cut(world: World, high: int, more: int, partition: TopicPartition = P) -> None:
    world.broker.truncate(partition, high)
    world.produce(partition, more)


def settle(process: Process, turns: int = 10) -> None:
    process.turn(turns)
    process.later()
    process.turn(2)


def forks(world: World, incarnation: str = "") -> list[tuple[int | None, int]]:
    return [(f.end_offset, f.next_offset) for f in world.control_peek.forks.of(source(P, incarnation))]


def accept(world: World, start: int, end: int, incarnation: str = "") -> None:
    world.control_peek.gaps.record(
        RecordedGap(
            source=source(P, incarnation),
            offsets=OffsetRange(start, end),
            reason="lost for good",
            low=0,
            high=0,
            recorded_at=T0,
            is_accepted=True,
        )
    )


def adopt(world: World) -> str:
    return adopt_fork(world.peek, world.control_peek, world.admin, "a", "t", clock=world.clock).incarnation.id


def goes_on(process: Process) -> None:
    """The process finds the operator's decision, and archives the records that the log has by then."""
    process.later(31)
    for _ in range(3):
        settle(process)
    assert process.stopped == {}


def stop_reason(process: Process, incarnation: str = "") -> str:
    return process.stopped[str(source(P, incarnation))]


def values_of_log(world: World, start: int = 0) -> list[bytes | None]:
    return [r.value for o, r in sorted(world.broker.logs[P].records.items()) if o >= start]


def stored_beyond_the_commit(world: World, count: int = 3) -> None:
    """Its owner died before the commit."""
    world.produce(P, count)
    process = joined(world)
    process.consumer.fail_commits(P)
    process.turn()
    world.clock.advance(10)
    process.consumer.fail_commits(P)
    process.turn(2)
    process.crash()
    assert (world.ranges(P), world.position(P)) == ([(0, count - 1)], 0)
