"""Rounds by hand: what is delivered together, what a failure ends, and what a released partition gets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from queue import SimpleQueue
from threading import Timer
from typing import BinaryIO

import pytest

from formats.coverage import SegmentSlice
from formats.messages.delivery_checkpoint import Author
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.run_reader import SegmentRunReader
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind, RunFailed, TargetRun, TargetWriter
from infra.runtime.lifecycle import Deadline
from ingress.delivery.events import Corrupt, DeliveryFailed, DeliveryTarget, Progressed, Vanished
from ingress.delivery.pace import Pace
from tests.ingress.delivery.hand import C, D, Hand
from tests.ingress.world import World, numbers


def test_piece_is_delivered_run_by_run() -> None:
    world = World()
    hand = Hand(world)
    given = hand.begin(world.put(0, 9))
    while hand.delivery.run_round():
        pass
    assert hand.reports() == [Progressed(given, 4, False), Progressed(given, 8, False), Progressed(given, 10, True)]
    assert world.offsets(C) == numbers((0, 9))


def test_reports_count_the_bytes_of_their_records() -> None:
    world = World()
    hand = Hand(world)
    segment = world.put(0, 9)
    hand.begin(segment)
    while hand.delivery.run_round():
        pass
    runs = SegmentRunReader(world.archive, 4, 1 << 20).runs([SegmentSlice.rest(segment, 0)])
    reports = [report for report in hand.reports() if isinstance(report, Progressed)]
    assert [(report.count, report.size_bytes) for report in reports] == [(run.count, run.size_bytes) for run in runs]


def test_checkpoint_follows_every_run() -> None:
    world = World()
    hand = Hand(world)
    hand.begin(world.put(0, 9))
    seen = []
    while hand.delivery.run_round():
        seen.append((world.offsets(C)[-1], world.checkpoint()))
    assert seen == [(3, 4), (7, 8), (9, 10)]


def test_round_takes_one_run_of_every_available_slice() -> None:
    world = World()
    hand = Hand(world)
    for partition in range(3):
        hand.begin(world.put(0, 9, partition=partition), epoch=partition)
    hand.delivery.run_round()
    assert [len(world.offsets(TopicPartition("copy", p))) for p in range(3)] == [4, 4, 4]


def test_piece_that_is_still_being_read_does_not_hold_up_the_others() -> None:
    world = World()
    hand = Hand(world)
    hand.pool.holding = True
    hand.begin(world.put(0, 3), epoch=1)
    hand.begin(world.put(0, 3, partition=1), epoch=2)
    assert not hand.delivery.run_round()
    assert not hand.delivery._read_ahead.has_available, "its loop waits"
    hand.pool.run_next()
    assert hand.delivery._read_ahead.has_available, "and does not, when one of them was read before it began to"
    assert hand.delivery.run_round()
    assert (world.offsets(C), world.offsets(D)) == ([0, 1, 2, 3], [])
    assert not hand.delivery.run_round()


def test_a_round_waits_for_runs_that_are_still_being_read() -> None:
    """A commit for each run would take most of the time."""
    world = World()
    hand = Hand(world, round_records=8, linger=timedelta(minutes=1))
    hand.pool.holding = True
    hand.begin(world.put(0, 7))
    assert not hand.delivery.run_round()
    hand.pool.run_next()
    read_later = Timer(0.05, hand.pool.run_all)
    read_later.start()
    assert hand.delivery.run_round()
    read_later.join()
    assert world.target.rounds == [8]


def test_failed_run_ends_its_piece_only() -> None:
    world = World()
    hand = Hand(world)
    first = hand.begin(world.put(0, 9), epoch=1)
    second = hand.begin(world.put(0, 3, partition=1), epoch=2)
    world.target.fail_next(C, code="NOPE")
    while hand.delivery.run_round():
        pass
    reports = hand.reports()
    assert Progressed(second, 4, True) in reports
    assert [r for r in reports if r.delivery_target is first] == [
        DeliveryFailed(first, "NOPE: injected by the test", FailureKind.RETRY_LATER)
    ]
    assert world.checkpoint() is None


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize("poison", [0, 3, 4, 6, 9])
def test_refused_record_is_found_and_nothing_else_waits(exactly_once: bool, poison: int) -> None:
    world = World()
    world.target.exactly_once = exactly_once
    world.target.poison[C] = {poison}
    hand = Hand(world)
    first = hand.begin(world.put(0, 9), epoch=1)
    second = hand.begin(world.put(0, 9, partition=1), epoch=2)
    while hand.delivery.run_round():
        pass
    reports = hand.reports()
    assert [r for r in reports if isinstance(r, DeliveryFailed)] == [
        DeliveryFailed(
            first,
            f"the record at offset {poison} is refused: POISON: planted by the test",
            FailureKind.REJECTED,
            poison,
        )
    ]
    assert Progressed(second, 10, True) in reports
    assert world.offsets(D) == numbers((0, 9))
    assert sorted(set(world.offsets(C))) == [*range(poison)]
    assert world.checkpoint() == (poison or None)
    if exactly_once:
        assert world.offsets(C) == [*range(poison)]


@pytest.mark.parametrize(("kind", "shared"), [(FailureKind.STALLED, False), (FailureKind.RETRY_LATER, True)])
def test_only_a_partition_that_stalls_gets_separate_rounds_until_it_continues(kind: FailureKind, shared: bool) -> None:
    world = World()
    hand = Hand(world)
    hand.begin(world.put(0, 3), epoch=1)
    world.target.fail_next(C, kind=kind)
    hand.delivery.run_round()
    assert [r.kind for r in hand.reports() if isinstance(r, DeliveryFailed)] == [kind]
    hand.begin(world.put(0, 3, partition=1), epoch=2)
    hand.begin(world.put(4, 7), epoch=3)
    before = len(world.target.rounds)
    while hand.delivery.run_round():
        pass
    assert len(world.target.rounds) - before == (1 if shared else 2)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_topic_that_is_denied_stops_its_own_partitions_only(exactly_once: bool) -> None:
    world = World()
    world.target.exactly_once = exactly_once
    world.target.denied = {"copy"}
    hand = Hand(world)
    world.broker.create("other", partitions=1)
    bad = [hand.begin(world.put(0, 9, partition=p), epoch=p) for p in range(2)]
    good = hand.begin(world.put(0, 9, partition=2), epoch=2, target=TopicPartition("other", 0))
    while hand.delivery.run_round():
        pass
    reports = hand.reports()
    denied = "DENIED: by the test"
    assert {r for r in reports if r.delivery_target in bad} == {
        DeliveryFailed(b, denied, FailureKind.DENIED) for b in bad
    }
    assert Progressed(good, 10, True) in reports
    assert world.offsets(TopicPartition("other", 0)) == numbers((0, 9))
    assert world.offsets(C) == []
    assert len(world.target.rounds) <= 5, "no record is searched for: it is none that is refused"

    # tried again it spoils no round of others, until it is allowed
    again = hand.begin(world.put(0, 9, partition=3), epoch=3, target=C)
    hand.begin(world.put(0, 9, partition=4), epoch=4, target=TopicPartition("other", 0))
    while hand.delivery.run_round():
        pass
    assert [r.kind for r in hand.reports() if isinstance(r, DeliveryFailed)] == [FailureKind.DENIED]
    world.target.denied.clear()
    hand.begin(world.put(10, 19, partition=3), epoch=5, target=C)
    while hand.delivery.run_round():
        pass
    assert not [r for r in hand.reports() if isinstance(r, DeliveryFailed)]
    assert again.target == C


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_writer_that_is_refused_halts_and_drops_nothing(exactly_once: bool) -> None:
    world = World()
    world.target.exactly_once = exactly_once
    world.target.refusing = "no right; allow it"
    hand = Hand(world)
    given = [hand.begin(world.put(0, 9, partition=p), epoch=p) for p in range(3)]
    tries = 0
    for _ in range(200):
        tries += hand.delivery.run_round()
        world.clock.advance(0.1)
    assert tries <= 5, "of 20 s"
    assert hand.delivery.halted == "no right; allow it"
    assert hand.reports() == [], "no record is at fault, and no partition has to be positioned again"
    assert set(world.target.rounds[1:]) == {4}, "one run at a time is tried"
    world.target.refusing = ""
    world.clock.advance(60)
    while hand.delivery.run_round():
        pass
    assert hand.delivery.halted == ""
    assert {r.delivery_target for r in hand.reports() if isinstance(r, Progressed) and r.done} == set(given)
    assert all(world.offsets(TopicPartition("copy", p)) == numbers((0, 9)) for p in range(3))


def test_a_partition_may_leave_while_the_writer_is_refused() -> None:
    world = World()
    world.target.refusing = "no right"
    hand = Hand(world)
    first, second = (hand.begin(world.put(0, 9, partition=p), epoch=p) for p in range(2))
    hand.delivery.run_round()
    assert hand.delivery.release([first.epoch], timedelta(seconds=5))
    world.target.refusing = ""
    world.clock.advance(60)
    while hand.delivery.run_round():
        pass
    assert {r.delivery_target for r in hand.reports()} == {second}
    assert world.offsets(C) == []


def test_refused_only_together_with_others_continues_as_before() -> None:
    world = World()
    hand = Hand(world)
    given = hand.begin(world.put(0, 9), epoch=1)
    world.target.fail_next(C, kind=FailureKind.REJECTED)
    while hand.delivery.run_round():
        pass
    assert Progressed(given, 10, True) in hand.reports()
    assert world.offsets(C) == numbers((0, 9))


def test_stamp_that_the_target_refuses_is_found_the_same_way() -> None:
    world = World()
    hand = Hand(world)
    given = hand.begin(world.put(0, 3), epoch=1)
    while hand.delivery.run_round():
        pass
    given = hand.begin(world.put(4, 9, stamp=0), epoch=2)
    while hand.delivery.run_round():
        pass
    failed = [r for r in hand.reports() if isinstance(r, DeliveryFailed)]
    assert [(f.delivery_target, f.kind, f.offset) for f in failed] == [(given, FailureKind.REJECTED, 4)]
    assert world.offsets(C) == [0, 1, 2, 3]


def test_round_continues_until_it_is_large_enough() -> None:
    world = World()
    hand = Hand(world)
    hand.delivery._pace = Pace(8)
    hand.begin(world.put(0, 9))
    assert hand.delivery.run_round()
    assert world.offsets(C) == numbers((0, 7))
    assert [r.next_offset for r in hand.reports() if isinstance(r, Progressed)] == [8]


def test_rounds_of_a_slow_target_shrink_and_leave_no_partition_out() -> None:
    world = World()
    hand = Hand(world)
    hand.delivery._pace = pace = Pace(100)
    pace.took(6, 8)
    assert pace.limit == 4
    hand.begin(world.put(0, 7), epoch=1)
    hand.begin(world.put(0, 7, partition=1), epoch=2)
    seen = []
    while hand.delivery.run_round():
        seen.append((len(world.offsets(C)), len(world.offsets(D))))
        pace.limit = 4  # it stays slow
    assert sorted(a + b for a, b in seen) == [4, 8, 12, 16]
    assert all(abs(a - b) <= 4 for a, b in seen)


def test_a_round_ends_at_its_bytes() -> None:
    world = World()
    hand = Hand(world, round_records=100)
    hand.delivery.round_bytes = 1
    hand.begin(world.put(0, 9))
    assert hand.delivery.run_round()
    assert world.offsets(C) == numbers((0, 3))


def test_unknown_outcome_is_reported() -> None:
    world = World()
    hand = Hand(world)
    hand.begin(world.put(0, 9))
    world.target.stop_next(keep=1)
    hand.delivery.run_round()
    assert [r.kind for r in hand.reports() if isinstance(r, DeliveryFailed)] == [FailureKind.UNKNOWN]
    assert world.checkpoint() == 4  # it was committed, in fact


def test_target_that_does_not_answer_fails_all_and_is_transient() -> None:
    world = World()
    hand = Hand(world)
    hand.begin(world.put(0, 9), epoch=1)
    hand.begin(world.put(0, 3, partition=1), epoch=2)
    world.target.away = True
    hand.delivery.run_round()
    reports = hand.reports()
    assert len(reports) == 2
    assert all(isinstance(r, DeliveryFailed) and r.kind is FailureKind.UNKNOWN for r in reports)
    world.target.away = False
    assert not hand.delivery.run_round()


def test_vanished_and_corrupt_and_unavailable_are_distinguished() -> None:
    world = World()
    hand = Hand(world)
    gone = hand.begin(Segment(SourcePartition("a", "t", 0), 0, OffsetRange(0, 9)), epoch=1)
    broken = world.put(0, 3, partition=1)
    world.damage(broken)
    bad = hand.begin(broken, epoch=2)
    hand.delivery.run_round()
    reports = {r.delivery_target: r for r in hand.reports()}
    assert isinstance(reports[gone], Vanished)
    corrupt = reports[bad]
    assert isinstance(corrupt, Corrupt)
    assert corrupt.segment == broken
    world.objects.away = {"open"}
    given = hand.begin(world.put(0, 3), epoch=3)
    hand.delivery.run_round()
    [report] = hand.reports()
    assert isinstance(report, DeliveryFailed)
    assert report == DeliveryFailed(given, report.reason, FailureKind.RETRY_LATER)


def test_destination_that_is_gone_is_a_refusal() -> None:
    world = World()
    hand = Hand(world)
    for p in range(8):
        del world.broker.logs[TopicPartition("copy", p)]
    given = hand.begin(world.put(0, 3))
    hand.delivery.run_round()
    assert hand.reports() == [DeliveryFailed(given, "no topic copy", FailureKind.REJECTED)]


def test_released_before_it_began() -> None:
    world = World()
    hand = Hand(world)
    given = hand.begin(world.put(0, 3))
    assert hand.delivery.release([given.epoch], timedelta())
    assert not hand.delivery.run_round()
    assert world.offsets(C) == []


def test_released_between_two_runs() -> None:
    world = World()
    hand = Hand(world)
    given = hand.begin(world.put(0, 9))
    hand.delivery.run_round()
    assert hand.delivery.release([given.epoch], timedelta())
    assert not hand.delivery.run_round()
    assert world.offsets(C) == [0, 1, 2, 3]


def test_next_ownership_continues_although_the_first_was_released() -> None:
    world = World()
    hand = Hand(world)
    segment = world.put(0, 9)
    hand.begin(segment, epoch=1)
    hand.delivery.run_round()
    hand.delivery.release([1], timedelta())
    hand.begin(segment, epoch=2, from_offset=4)
    while hand.delivery.run_round():
        pass
    assert world.offsets(C) == numbers((0, 9))


def test_given_up_pieces_close_what_they_opened() -> None:
    world = World()
    opened: list[BinaryIO] = []
    real = world.objects.open

    def counted(key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        opened.append(body := real(key, tail_bytes=tail_bytes))
        return body

    world.objects.open = counted  # type: ignore[method-assign]
    hand = Hand(world, records=1)
    hand.begin(world.put(0, 9), epoch=1)
    hand.begin(world.put(0, 9, partition=1, stamp=0), epoch=2)  # refused for its stamps
    hand.begin(world.put(0, 9, partition=2), epoch=3)
    world.target.fail_next(TopicPartition("copy", 2))
    hand.delivery.run_round()
    hand.delivery.release([1], timedelta())
    hand.delivery.run_round()
    assert len(opened) == 3
    assert [body.closed for body in opened] == [True, True, True]


class SlowWriter:
    """Waits in the middle of a round until it is released."""

    def __init__(self, inner: TargetWriter) -> None:
        self.inner, self.inside, self.go = inner, threading.Event(), threading.Event()

    author = Author.EXACTLY_ONCE

    def batch_size_class(self, topic: str) -> int:
        return 0

    def deliver(
        self, runs: Iterable[TargetRun], *, should_stop: Callable[[], bool], fence: object = None
    ) -> Sequence[RunFailed]:
        self.inside.set()
        assert self.go.wait(20)
        return self.inner.deliver(runs, should_stop=should_stop)

    def close(self, timeout: timedelta) -> None: ...


@contextmanager
def round_under_way(hand: Hand) -> Iterator[SlowWriter]:
    """The delivery thread is inside the target's writer."""
    writer = hand.delivery.writer = SlowWriter(hand.delivery.writer)
    loop = threading.Thread(target=hand.delivery.run)
    loop.start()
    try:
        assert writer.inside.wait(20)
        yield writer
    finally:
        hand.delivery.stop.set()
        writer.go.set()
        loop.join(20)


class FencedWriter(SlowWriter):
    """Records the generation that it should deliver under."""

    def __init__(self, inner: TargetWriter) -> None:
        super().__init__(inner)
        self.fences: list[object] = []
        self.go.set()

    def deliver(
        self, runs: Iterable[TargetRun], *, should_stop: Callable[[], bool], fence: object = None
    ) -> Sequence[RunFailed]:
        self.fences.append(fence)
        return super().deliver(runs, should_stop=should_stop)


def test_the_fence_is_read_together_with_the_ownership() -> None:
    """A member that loses a partition meanwhile learns of it only after the read, so the fence is of before the loss,
    too: a later fence would let it write to another owner's partition."""
    world = World()
    hand = Hand(world)
    given = hand.begin(world.put(0, 3))
    writer = hand.delivery.writer = FencedWriter(hand.delivery.writer)
    generation = ["before"]
    losing: list[threading.Thread] = []

    def lose() -> None:
        hand.delivery.release([given.epoch], timedelta())
        generation[0] = "after"

    def fence() -> object:
        losing.append(threading.Thread(target=lose))
        losing[-1].start()
        losing[-1].join(0.3)  # more than it takes when nothing holds it up
        return generation[0]

    hand.delivery.fence = fence
    hand.delivery.run_round()
    for each in losing:
        each.join(20)
    assert (writer.fences, generation) == (["before"], ["after"])


def test_no_round_begins_without_a_fence() -> None:
    """A member in no generation has no fence, but may still have assigned partitions until the next poll."""
    world = World()
    hand = Hand(world)
    given = hand.begin(world.put(0, 3))
    hand.delivery.fence = lambda: None
    assert not hand.delivery.run_round()
    assert (world.offsets(C), hand.reports()) == ([], [])
    hand.delivery.fence = object
    assert hand.delivery.run_round()
    assert hand.reports() == [Progressed(given, 4, True)]


def test_release_waits_for_the_round_under_way() -> None:
    world = World()
    hand = Hand(world)
    given = hand.begin(world.put(0, 9))
    with round_under_way(hand) as writer:
        released: SimpleQueue[tuple[bool, list[int]]] = SimpleQueue()

        def release() -> None:
            answer = hand.delivery.release([given.epoch], timedelta(seconds=20))
            released.put((answer, world.offsets(C)))

        waiter = threading.Thread(target=release)
        waiter.start()
        assert released.empty()
        writer.go.set()
        assert released.get(timeout=20) == (True, [0, 1, 2, 3])
        waiter.join()
    assert world.offsets(C) == [0, 1, 2, 3]


def test_round_that_outlives_its_release_is_given_up() -> None:
    world = World()
    hand = Hand(world)
    given = hand.begin(world.put(0, 9))
    with round_under_way(hand) as writer:
        assert not hand.delivery.release([given.epoch], timedelta(milliseconds=20)), "it reports that"
        assert hand.delivery.release([given.epoch + 1], timedelta()), "which has nothing to do with others"
        writer.go.set()
    assert world.offsets(C) == []
    assert world.checkpoint() is None


def test_round_after_one_that_was_given_up_is_as_any_other() -> None:
    world = World()
    hand = Hand(world)
    given = hand.begin(world.put(0, 9), epoch=1)
    with round_under_way(hand) as writer:
        hand.delivery.release([given.epoch], timedelta())
        writer.go.set()
        hand.begin(world.put(0, 3, partition=1), epoch=2)
        assert isinstance(hand.delivery.reports.get(timeout=20), DeliveryFailed)
        report = hand.delivery.reports.get(timeout=20)
        assert isinstance(report, Progressed)
        assert report.done
    assert world.offsets(D) == [0, 1, 2, 3]


def test_its_own_thread_delivers_everything_and_ends_when_stopped() -> None:
    world = World()
    hand = Hand(world, records=3)
    with ThreadPoolExecutor(2) as pool:
        hand.delivery.pool = pool
        loop = threading.Thread(target=hand.delivery.run)
        loop.start()
        given = [hand.begin(world.put(0, 30, partition=p), epoch=p) for p in range(8)]
        done: set[DeliveryTarget] = set()
        deadline = Deadline(timedelta(seconds=20))
        while len(done) < len(given) and not deadline.expired:
            report = hand.delivery.reports.get(timeout=20)
            assert isinstance(report, Progressed)
            if report.done:
                done.add(report.delivery_target)
        hand.delivery.stop.set()
        loop.join(20)
        assert not loop.is_alive()
    assert all(world.offsets(TopicPartition("copy", p)) == numbers((0, 30)) for p in range(8))
