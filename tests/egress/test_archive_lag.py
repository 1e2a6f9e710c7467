"""How far the archive is behind its topics: every record that waits is counted, read by egress or not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from formats.records.milliseconds import ms_at_or_before
from infra.contracts.cluster import TopicPartition
from tests.egress.two_partitions import LABELS, P, Q, joined
from tests.egress.world import Process, World
from tests.fakes.kafka_consumer import FakeRecord


def at(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def lag(process: Process) -> float | None:
    return process.metrics.value("egress_lag_seconds", **LABELS)


def measured(process: Process, seconds: float = 30) -> float:
    """After so many seconds."""
    process.later(seconds, turns=4)
    found = lag(process)
    assert found is not None
    return found


# --- of a process -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("away", ["put_new", "list"])
def test_records_that_wait_since_before_the_start_are_counted_while_the_store_is_away(world: World, away: str) -> None:
    """Nothing is committed by this process, and without an answer of the store nothing is read."""
    joined(world).stop()
    world.broker.append(P, FakeRecord(timestamp_ms=ms_at_or_before(world.clock.at)))
    world.objects.away = {away}
    process = joined(world)
    grows = [measured(process) for _ in range(40)]
    assert grows == sorted(grows)
    assert grows[-1] > 1000, "ReplicatorArchiveBehind fires"
    world.objects.away = set()
    for _ in range(20):
        process.later(30)
    assert lag(process) == 0
    world.expect(P)


def test_records_behind_an_open_transaction_are_counted(world: World) -> None:
    process = world.process()
    process.join()
    transaction = world.broker.begin(P, b"open")
    assert measured(process) <= 30
    assert measured(process, 600) > 600
    transaction.abort()
    measured(process)
    assert measured(process) == 0


def test_records_of_an_earlier_time_wait_only_since_they_were_produced(world: World) -> None:
    process = joined(world)
    measured(process)
    world.produce(P, 1)  # their timestamps are years old
    process.uploads.holding = True
    assert 0 < measured(process) <= 60
    process.uploads.holding = False
    process.uploads.run_all()
    measured(process)
    assert measured(process) == 0


def test_the_age_of_what_egress_has_read_is_exact(world: World) -> None:
    process = joined(world)
    measured(process)
    process.later(20)
    world.broker.append(P, FakeRecord(timestamp_ms=ms_at_or_before(world.clock.at)))
    process.uploads.holding = True
    assert measured(process, 11) == pytest.approx(11, abs=0.01)


@pytest.mark.parametrize("timestamp_ms", [-1, 0])
def test_records_without_a_timestamp_are_not_as_old_as_1970(world: World, timestamp_ms: int) -> None:
    """Where they have waited since before the start, only what egress has seen of that counts."""
    joined(world).stop()
    world.broker.append(P, FakeRecord(timestamp_ms=timestamp_ms))
    process = world.process()
    process.uploads.holding = True
    process.join()
    assert 0 < measured(process, 60) <= 120


def test_a_clock_that_is_ahead_hides_nothing(world: World) -> None:
    process = joined(world)
    measured(process)
    world.broker.append(P, FakeRecord(timestamp_ms=ms_at_or_before(world.clock.at + timedelta(days=1))))
    process.uploads.holding = True
    assert measured(process, 600) >= 600


def test_while_the_source_does_not_answer_the_last_answer_is_not_repeated(world: World) -> None:
    """What was produced since is not known; `ReplicatorArchiveBehind` would be quiet, whatever waits."""
    process = joined(world)
    assert measured(process) == 0
    world.admin.away = world.ends.away = True
    assert measured(process, 600) >= 600
    assert measured(process, 600) >= 1200
    world.admin.away = world.ends.away = False
    measured(process)
    assert measured(process) == 0


def test_one_partition_without_a_leader_hides_the_lag_of_no_other(world: World) -> None:
    """The request for all of them fails as a whole."""
    process = joined(world, P, Q)
    measured(process)
    world.admin.away = True
    world.ends.refuses = {Q: "no leader"}
    for _ in range(20):
        measured(process)
    assert measured(process) == 0
    assert (process.metrics.value("egress_lag_seconds", topic="t", partition="1") or 0) >= 600
    transaction = world.broker.begin(P, b"open")
    measured(process)
    assert measured(process, 1000) > 900
    assert (process.metrics.value("stuck_transaction_seconds", **LABELS) or 0) > 600
    transaction.abort()
    world.admin.away = False
    measured(process)
    assert measured(process) == 0
    assert process.metrics.value("egress_lag_seconds", topic="t", partition="1") == 0


def test_a_source_that_has_never_answered_is_behind_since_it_was_asked(world: World) -> None:
    process = world.process()
    process.turn(2)
    process.consumer.assign_all()
    world.admin.away = world.ends.away = True
    process.turn(3)
    measured(process)
    assert measured(process, 1000) >= 1000


def test_a_partition_at_rest_has_no_lag_after_a_start(world: World) -> None:
    world.produce(P, 5)
    joined(world).stop()
    process = joined(world)
    assert measured(process) == 0
    assert process.metrics.value("egress_lag_records", **LABELS) == 0
    process.consumer.revoke(TopicPartition(P.topic, P.partition))
    process.turn()
    assert lag(process) is None
