"""Notes of parked partitions: what is written when, on a fake, and with one real thread."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from formats.messages.delivery_checkpoint import CheckpointKey, Parked, Waiting
from infra.kafka.internal_topics.parked_reporter import BackgroundParkedReporter
from infra.local.waiting import wait_until
from infra.runtime.lifecycle import Stop
from tests.contracts.checkpoints import AT, key
from tests.fakes.kafka_target import FakeEditor, FakeTarget

HOUR = timedelta(hours=1)


def parked(next_offset: int | None = 7, reason: str = "too large", since: timedelta = timedelta()) -> Parked:
    return Parked(next_offset, reason, AT + since)


@pytest.fixture
def target() -> FakeTarget:
    return FakeTarget()


@pytest.fixture
def notes(target: FakeTarget) -> BackgroundParkedReporter:
    return process(target)


def process(target: FakeTarget, editor: FakeEditor | None = None) -> BackgroundParkedReporter:
    return BackgroundParkedReporter(target.checkpoint_store(), editor or target.editor(), Stop())


def test_parked_then_going(target: FakeTarget, notes: BackgroundParkedReporter) -> None:
    notes.parked(key(0), parked())
    notes.parked(key(1), parked(None))
    assert notes.write()
    assert target.parked == {key(0): parked(), key(1): parked(None)}
    notes.progressed(key(0))
    assert notes.write()
    assert target.parked == {key(1): parked(None)}


def test_the_last_state_wins(target: FakeTarget, notes: BackgroundParkedReporter) -> None:
    notes.parked(key(0), parked(1))
    notes.progressed(key(0))
    notes.parked(key(0), parked(2))
    assert notes.write()
    assert target.parked == {key(0): parked(2)}
    assert target.edits == ["park"]


def test_reporting_it_with_every_attempt_writes_it_once(target: FakeTarget, notes: BackgroundParkedReporter) -> None:
    for attempt in range(3):
        notes.parked(key(0), parked(since=HOUR * attempt))
        assert notes.write()
    assert target.edits == ["park"]
    assert target.parked == {key(0): parked()}, "since the first attempt"


def test_since_is_the_first_attempt_at_this_record(target: FakeTarget, notes: BackgroundParkedReporter) -> None:
    notes.parked(key(0), parked(7))
    notes.write()
    notes.parked(key(0), parked(7, "another reason", since=HOUR))
    notes.write()
    assert target.parked == {key(0): parked(7, "another reason")}
    notes.parked(key(0), parked(9, since=HOUR))
    notes.write()
    assert target.parked == {key(0): parked(9, since=HOUR)}


def test_a_released_partition_that_still_cannot_continue_is_reported_again(
    target: FakeTarget, notes: BackgroundParkedReporter
) -> None:
    notes.parked(key(0), parked())
    notes.write()
    target.editor().park(key(0), None)  # an operator
    notes.parked(key(0), parked(since=HOUR))
    notes.write()
    assert target.parked == {key(0): parked(since=HOUR)}


def test_progress_of_a_new_owner_removes_the_note_of_the_old_one(
    target: FakeTarget, notes: BackgroundParkedReporter
) -> None:
    notes.parked(key(0), parked())
    notes.write()
    notes.revoked(key(0))
    assert target.parked == {key(0): parked()}, "a partition that moves keeps its record"
    owner = process(target)
    owner.progressed(key(0))
    owner.write()
    assert target.parked == {}


def test_progress_is_written_only_where_there_is_a_note(target: FakeTarget, notes: BackgroundParkedReporter) -> None:
    for _ in range(3):
        notes.progressed(key(0))
        assert notes.write()
    assert target.edits == []


def test_a_partition_that_comes_back_is_checked_again(target: FakeTarget, notes: BackgroundParkedReporter) -> None:
    notes.progressed(key(0))
    notes.write()
    notes.revoked(key(0))
    target.parked[key(0)] = parked()  # the intermediate owner
    notes.progressed(key(0))
    notes.write()
    assert target.parked == {}


def test_a_partition_that_has_a_position_is_not_parked_without_one(
    target: FakeTarget, notes: BackgroundParkedReporter
) -> None:
    target.parked = {key(0): parked(None), key(1): parked(7)}
    for partition in range(3):
        notes.started(key(partition))
    assert notes.write()
    assert target.parked == {key(1): parked(7)}
    notes.parked(key(0), parked(7))
    notes.started(key(0))
    notes.parked(key(1), parked(None))
    notes.started(key(1))
    assert notes.write()
    assert target.parked == {key(0): parked(7), key(1): parked(7)}


def test_unwritten_notes_of_a_revoked_partition_are_dropped(
    target: FakeTarget, notes: BackgroundParkedReporter
) -> None:
    target.away = True
    notes.parked(key(0), parked())
    assert not notes.write()
    notes.revoked(key(0))
    target.away = False
    assert notes.write()
    assert target.parked == {}


def test_a_wait_is_written_once_and_removed_by_progress(target: FakeTarget, notes: BackgroundParkedReporter) -> None:
    for _ in range(3):
        notes.waiting(key(0), Waiting(7, AT))
        notes.waiting(key(1), Waiting(0, AT, is_beginning=True))
        assert notes.write()
    assert target.waiting == {key(0): Waiting(7, AT), key(1): Waiting(0, AT, is_beginning=True)}
    assert target.edits == ["wait", "wait"]
    notes.progressed(key(0))
    assert notes.write()
    assert target.waiting == {key(1): Waiting(0, AT, is_beginning=True)}
    notes.waiting(key(0), Waiting(9, AT + HOUR))
    assert notes.write()
    assert target.waiting[key(0)] == Waiting(9, AT + HOUR)


def test_a_wait_that_ends_before_it_is_written_is_never_written(
    target: FakeTarget, notes: BackgroundParkedReporter
) -> None:
    target.away = True
    for partition in range(2):
        notes.waiting(key(partition), Waiting(7, AT))
    assert not notes.write()
    notes.progressed(key(0))
    notes.revoked(key(1))
    target.away = False
    assert notes.write()
    assert (target.waiting, target.edits) == ({}, [])


def test_the_next_owner_removes_the_wait_of_the_previous_one(
    target: FakeTarget, notes: BackgroundParkedReporter
) -> None:
    notes.waiting(key(0), Waiting(7, AT))
    notes.write()
    notes.revoked(key(0))
    assert target.waiting == {key(0): Waiting(7, AT)}
    owner = process(target)
    owner.progressed(key(0))
    owner.write()
    assert target.waiting == {}


def test_states_wait_while_the_target_is_unreachable(target: FakeTarget, notes: BackgroundParkedReporter) -> None:
    notes.parked(key(0), parked(1))
    target.away = True
    assert not notes.write()
    notes.parked(key(0), parked(2))
    assert not notes.write()
    target.away = False
    assert notes.write()
    assert target.parked == {key(0): parked(2)}


def test_a_state_reported_during_a_write_is_written_next(target: FakeTarget) -> None:
    class Slow(FakeEditor):
        reporter: BackgroundParkedReporter

        def park(self, key: CheckpointKey, parked: Parked | None) -> None:
            super().park(key, parked)
            if parked is not None:
                self.reporter.progressed(key)

    slow = Slow(target)
    slow.reporter = notes = process(target, slow)
    notes.parked(key(0), parked())
    notes.write()
    assert target.parked == {key(0): parked()}
    notes.write()
    assert target.parked == {}


def test_the_thread_writes_and_ends(target: FakeTarget) -> None:
    stop = Stop()
    notes = BackgroundParkedReporter(target.checkpoint_store(), target.editor(), stop, retry=timedelta(milliseconds=1))
    thread = threading.Thread(target=notes.run)
    thread.start()
    try:
        target.away = True
        notes.parked(key(0), parked())
        target.away = False
        assert wait_until(lambda: target.parked == {key(0): parked()}, timedelta(seconds=10))
        notes.progressed(key(0))
        assert wait_until(lambda: target.parked == {}, timedelta(seconds=10))
    finally:
        stop.set()
        thread.join(10)
    assert not thread.is_alive()
