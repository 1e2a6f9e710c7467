"""Which partitions a turn of the loop visits: those with something to do, however many are assigned. That none of
those is left out is checked after each turn, by `tests.egress.world`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from egress.controller import POLL, QUIET_POLL
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import Fetched
from tests.egress.two_partitions import Make, P, joined
from tests.egress.world import AGE, Process, World

MANY = 100


def busy(process: Process) -> set[TopicPartition]:
    return {assigned.partition for assigned in process.controller._assignment.busy()}


def waits(process: Process) -> timedelta:
    """How long the next turn waits for records."""
    with pytest.MonkeyPatch.context() as patched:
        asked: list[timedelta] = []
        poll = process.consumer.poll

        def noted(timeout: timedelta) -> Sequence[Fetched]:
            asked.append(timeout)
            return poll(timeout)

        patched.setattr(process.consumer, "poll", noted)
        process.turn()
    (wait,) = asked
    return wait


def test_a_partition_is_busy_from_its_record_until_all_of_it_is_stored_and_committed(make: Make) -> None:
    world = make(partitions=MANY)
    process = joined(world)
    process.later(1)
    assert busy(process) == set()
    world.produce(P, 3)
    process.turn()
    assert busy(process) == {P}
    process.later(AGE / 2)
    assert busy(process) == {P}, "its segment is due by time"
    process.uploads.holding = True
    process.later(AGE)
    assert busy(process) == {P}, "its segment is being stored"
    process.uploads.holding = False
    process.uploads.run_all()
    process.turn(2)
    world.expect(P)
    assert busy(process) == set()


def test_a_partition_that_waits_for_its_start_or_for_an_operator_is_busy(world: World) -> None:
    world.produce(P, 3)
    world.broker.trim(P, 2)
    process = world.process()
    process.turn(2)
    process.pool.holding = True
    process.consumer.assign(P)
    process.turn()
    assert busy(process) == {P}, "its start is being looked up"
    process.pool.holding = False
    process.pool.run_all()
    process.turn(2)
    process.later()
    assert busy(process) == set()
    process.consumer.fail(P, "TOPIC_AUTHORIZATION_FAILED")
    process.turn()
    assert process.stopped
    assert busy(process) == {P}


def test_turns_wait_longer_for_records_while_nothing_else_is_to_be_done(world: World) -> None:
    process = joined(world)
    process.later(1)
    assert waits(process) == QUIET_POLL
    world.produce(P, 3)
    process.turn()
    assert waits(process) == POLL, "a segment is open"
    process.later()
    assert waits(process) == QUIET_POLL
