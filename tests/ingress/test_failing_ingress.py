"""Failures that continue: pauses that grow, no listing for each of them, and a report to the operator in time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import TargetError
from formats.messages.delivery_checkpoint import Author, Checkpoint
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind
from infra.runtime.failures import ALARM, Attempt, Failures
from tests.fakes.surroundings import T0
from tests.ingress.process import Process, joined
from tests.ingress.world import LOST, RELIST, World, key, numbers, source_settings

C = TopicPartition("copy", 0)
NAME = "a/t/0"


def relists(process: Process) -> float:
    return process.metrics.counts["relists"]


def delivered(world: World) -> Process:
    """A process that has delivered something, and has more to deliver."""
    world.put(0, 4)
    process = joined(world)
    assert world.offsets(C) == numbers((0, 4))
    return process


def test_an_outcome_that_is_never_known_is_requested_less_and_less_often() -> None:
    world = World()
    process = delivered(world)
    rounds, listed = len(world.target.rounds), relists(process)
    world.put(5, 9)
    for _ in range(400):  # 20 s
        world.target.stop_next()
        process.turn()
        world.clock.advance(0.05)
    assert 3 <= len(world.target.rounds) - rounds <= 8
    assert relists(process) == listed, "what is known to be stored is known still"
    assert process.ready
    for _ in range(60):
        world.target.stop_next()
        process.later(1, turns=1)
    assert "in the middle" in process.stopped[NAME]
    assert world.target.parked[key()].blames_target
    world.target._stopping = None
    process.later(20)
    assert world.offsets(C) == numbers((0, 9))
    assert process.ready
    assert world.target.parked == {}


@pytest.mark.parametrize("kind", [FailureKind.RETRY_LATER, FailureKind.UNKNOWN])
def test_any_failure_that_lasts_makes_the_process_unready(kind: FailureKind) -> None:
    world = World()
    process = delivered(world)
    world.put(5, 9)
    for second in range(80):
        world.target.fail_next(C, code="NOPE", kind=kind)
        process.later(1, turns=1)
        if second < 50:
            assert process.ready
    assert "NOPE" in process.stopped[NAME]
    world.target._failing.clear()
    process.later(20)
    assert (world.offsets(C), process.ready) == (numbers((0, 9)), True)


def test_the_last_failure_is_the_one_that_is_named() -> None:
    """The operator has to mend what fails now, not what failed at first."""
    world = World()
    process = delivered(world)
    world.put(5, 9)
    for second in range(160):
        world.target.fail_next(C, code="TIMED_OUT" if second < 80 else "NO_RIGHT")
        process.later(1, turns=1)
        if second == 79:
            assert "TIMED_OUT" in process.stopped[NAME]
    assert "NO_RIGHT" in process.stopped[NAME]
    assert "TIMED_OUT" not in process.stopped[NAME]
    assert world.target.edits.count("park") == 1


def test_what_failed_and_is_gone_is_no_failure_any_more() -> None:
    world = World()
    process = delivered(world)
    gone = world.put(5, 9)
    for _ in range(80):
        world.target.fail_next(C)
        process.later(1, turns=1)
    assert not process.ready
    world.target._failing.clear()
    world.remove(gone)
    process.later(600, turns=20)
    assert process.ready


def test_listings_that_fail_for_long_are_reported() -> None:
    world = World()
    process = delivered(world)
    world.objects.away = {"list"}
    process.later(400, turns=2)
    for _ in range(80):
        process.later(1, turns=1)
    assert "to list the archive" in process.stopped[NAME]
    assert "to find the archived topics" in process.health.snapshot().problems["destinations"]
    world.objects.away = set()
    process.later(400)
    process.later(5)
    assert process.ready


def test_a_topic_that_is_denied_parks_without_blaming_a_record() -> None:
    world = World()
    process = delivered(world)
    world.target.denied = {"copy"}
    world.put(5, 9)
    process.turn(4)
    assert "DENIED" in process.stopped[NAME]
    parked = world.target.parked[key()]
    assert (parked.next_offset, parked.blames_target) == (5, True)
    tried = len(world.target.rounds)
    process.later(20)
    assert len(world.target.rounds) == tried
    world.target.denied.clear()
    process.later(30, turns=8)
    assert (world.offsets(C), process.ready) == (numbers((0, 9)), True)


def test_a_writer_that_is_refused_stops_what_waits_for_it_and_says_why() -> None:
    world = World()
    process = delivered(world)
    world.target.refusing = "no right on the id; allow it"
    world.put(5, 9)
    tried, listed = len(world.target.rounds), relists(process)
    for _ in range(200):
        process.later(0.1, turns=1)
    assert len(world.target.rounds) - tried <= 5
    assert relists(process) == listed
    assert process.stopped == {"delivery": "no right on the id; allow it", NAME: "no right on the id; allow it"}
    assert world.target.parked.keys() == {key()}, "and not of the partition that waits for nothing"
    assert world.target.parked[key()].blames_target
    world.target.refusing = ""
    process.later(60, turns=8)
    process.later(5)
    assert (world.offsets(C), process.stopped, world.target.parked) == (numbers((0, 9)), {}, {})
    assert process.ready


def test_positions_that_are_refused_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.put(0, 4)
    process = Process(world)
    asked = 0

    def refuse(_: object) -> None:
        nonlocal asked
        asked += 1
        raise TargetError("GROUP_AUTHORIZATION_FAILED: allow it")

    with monkeypatch.context() as refusing:
        refusing.setattr(
            process.placement.__class__, "wait_until_settled", lambda _self, partitions: refuse(partitions)
        )
        process.join(C)
        for _ in range(200):
            process.later(0.1, turns=1)
        assert "GROUP_AUTHORIZATION_FAILED" in process.stopped[NAME]
        assert asked <= 3, "of 20 s"
    process.later(60, turns=8)
    process.later(5)
    assert (world.offsets(C), process.ready) == (numbers((0, 4)), True)


def test_a_checkpoint_that_is_gone_is_not_taken_for_one_that_never_was() -> None:
    """Somebody deleted the checkpoint topic: to begin anew would deliver everything twice."""
    world = World()
    process = delivered(world)
    world.target.checkpoints.clear()
    world.target.stop_next()
    world.put(5, 9)
    process.later(1)
    process.later(1)
    assert world.offsets(C) == numbers((0, 4))
    assert "its checkpoint is gone, the last one known is 5" in process.stopped[NAME]
    assert "as `replicator verify t --target FILE` says" in process.stopped[NAME], "where N comes from"
    assert "checkpoints seed" in process.stopped[NAME]
    world.set_checkpoint(5)
    process.later(40, turns=8)
    assert (world.offsets(C), process.ready) == (numbers((0, 9)), True)


def test_a_partition_that_never_had_a_checkpoint_begins_again() -> None:
    world = World(source_settings(first_segment_delay=timedelta()))
    world.put(0, 4)
    world.target.stop_next()
    process = joined(world)
    process.later(1, turns=8)
    assert (world.offsets(C), process.ready) == (numbers((0, 4)), True)


@given(st.lists(st.tuples(st.sampled_from(Attempt), st.booleans(), st.integers(0, 40)), max_size=50))
def test_an_alarm_is_a_row_without_a_success_that_lasts(history: list[tuple[Attempt, bool, int]]) -> None:
    failures, now, since = Failures(), T0, dict[Attempt, object]()
    for attempt, works, seconds in history:
        now += timedelta(seconds=seconds)
        if works:
            failures.succeeded(attempt)
            since.pop(attempt, None)
        else:
            before = failures.failed(attempt, f"{attempt} {now}", now)
            assert (before == 0) == (attempt not in since)
            since.setdefault(attempt, now)
        late = [a for a, begun in since.items() if now - begun >= ALARM]  # type: ignore[operator]
        assert bool(failures.alarm(now)) == bool(late)


# --- a failure that ends hides nothing --------------------------------------------------------------------------------


def test_a_gap_that_is_lost_after_an_outage_of_the_archive_stays_stopped() -> None:
    """Listings fail for longer than a minute; the first one after that proves the loss, once."""
    world = World()
    world.put(0, 9)
    process = joined(world, C)
    world.put(20, 29)
    process.turn(6)
    process.later(LOST / 2)
    world.objects.away = {"list"}
    for _ in range(40):
        process.later(LOST / 40)
    assert "list the archive" in process.stopped[NAME]
    world.objects.away = set()
    for _ in range(20):
        process.later(10)
    assert "[10,19]" in process.stopped[NAME]
    assert key() in world.target.parked
    assert not process.ready


def test_a_record_that_is_refused_after_an_outage_of_the_archive_stays_named() -> None:
    world = World()
    world.put(0, 3)
    process = joined(world, C)
    world.put(4, 9, notify=False)
    world.target.poison[C] = {4}
    world.objects.away = {"list"}
    for _ in range(20):
        process.later(RELIST / 10)
    assert "list the archive" in process.stopped[NAME]
    world.objects.away = set()
    process.later(10, turns=10)
    for _ in range(6):
        process.later(5, turns=8)
        assert "POISON" in process.stopped[NAME]


def test_a_record_that_was_skipped_is_not_reported_while_the_next_segment_is_waited_for() -> None:
    """No delivery fails any more: the segment behind it is missing, which is a problem of its own."""
    world = World()
    world.put(0, 3)
    process = joined(world, C)
    world.target.poison[C] = {9}
    world.put(4, 9)
    for _ in range(10):
        process.later(10)
    assert "POISON" in process.stopped[NAME]
    world.put(20, 29)
    world.skip(9, 9)
    world.target.editor().seed(key(), Checkpoint(10, "id-copy", world.clock.at, Author.SEED, given_at=9, begun_at=0))
    process.later(40, turns=8)
    for _ in range(10):
        process.later(10)
        assert process.stopped == {}
    assert world.target.parked == {}


def problems(process: Process) -> dict[str, str]:
    return dict(process.health.snapshot().problems)


def waiting_for_a_segment(world: World) -> Process:
    """It knows of what lies after offsets [5,9]."""
    process = delivered(world)
    world.put(10, 14)
    process.later(1)
    return process


def test_a_segment_that_is_waited_for_is_a_problem_after_some_minutes_until_it_comes() -> None:
    world = World()
    process = waiting_for_a_segment(world)
    since = world.clock.at
    process.later(290)
    assert process.ready, "replication brings segments out of order, for a while"
    process.later(15)
    assert not process.ready
    assert process.stopped == {}
    ((subject, what),) = problems(process).items()
    assert subject == f"{NAME} waits"
    assert what.startswith("offsets [5,9] are in no segment, and no gap was recorded for them; delivery waits since")
    assert f"and stops at {(since + timedelta(seconds=LOST)).isoformat(timespec='minutes')[:16]}" in what
    assert f"replicator gaps accept {NAME} 5-9 --reason TEXT --yes" in what
    world.put(5, 9, notify=False)
    process.later(RELIST)
    process.later(5)
    assert world.offsets(C) == numbers((0, 14))
    assert (problems(process), process.ready) == ({}, True)


def test_a_segment_that_never_came_stops_its_partition_instead() -> None:
    world = World()
    process = waiting_for_a_segment(world)
    process.later(310)
    assert problems(process) != {}
    process.later(LOST)
    process.later(5)
    assert problems(process) == {}
    assert "offsets [5,9] are in no segment, and did not appear" in process.stopped[NAME]


def test_a_wait_is_no_problem_of_a_process_that_gave_the_partition_away() -> None:
    world = World()
    process = waiting_for_a_segment(world)
    process.later(310)
    assert problems(process) != {}
    process.placement.revoke(C)
    process.turn(2)
    assert problems(process) == {}


def test_an_accepted_loss_is_seen_by_the_next_listing() -> None:
    world = World()
    process = waiting_for_a_segment(world)
    process.later(310)
    world.record_gap(5, 9)
    process.later(RELIST)
    process.later(5)
    assert world.offsets(C) == numbers((0, 4), (10, 14))
    assert (problems(process), process.ready) == ({}, True)


# --- destinations that cannot be described ----------------------------------------------------------------------------


def test_destinations_that_cannot_be_described_are_reported_until_they_can() -> None:
    world = World()
    process = delivered(world)
    process.placement.revoke(C)
    world.admin.away = True
    process.placement.assign(C)
    for _ in range(10):
        process.later(10)
    assert "to describe the destination topics" in problems(process)["destinations"]
    world.admin.away = False
    process.later(40)
    process.later(10)
    assert (problems(process), process.ready) == ({}, True)


def test_a_destination_that_is_not_kept_any_more_is_not_reported_as_one_that_cannot_be_described() -> None:
    """A rebalance that a broker's failure leads to gives a partition for a moment only."""
    world = World()
    process = delivered(world)
    world.admin.away = True
    process.placement.assign(TopicPartition("copy", 2))
    process.turn(2)
    process.placement.revoke(TopicPartition("copy", 2))
    world.admin.away = False
    for _ in range(30):
        process.later(10)
        assert (problems(process), process.ready) == ({}, True)
