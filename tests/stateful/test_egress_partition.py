"""The egress core against a model of a log: whatever happens, what is committed is stored, in order, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from egress.partition import Append, Commit, Discard, Effect, EgressPartition, Reason, Seal, SealPolicy, Seek
from formats.segment import OffsetRange
from tests.examples import machine

T0 = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = SealPolicy(max_messages=5, max_bytes=100, max_age=timedelta(seconds=10))
MOST = 9  # max_messages, whatever the limits are changed to


class EgressMachine(RuleBasedStateMachine):
    """The log only grows; some offsets hold records, the others are holes. The model's client fetches in order from its
    position, but what it already handed out before a seek can still arrive afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.now = T0
        self.records: set[int] = set()
        self.end = 7  # next offset the log will write
        self.core = EgressPartition(POLICY, next_offset=7)
        self.client: int | None = None  # position; None until started
        self.pending_epoch: tuple[int, int] | None = None  # requested seek: offset, epoch
        self.leftovers: list[tuple[int, int, int]] = []  # runs fetched before a seek
        self.open: list[int] = []
        self.sealing: dict[OffsetRange, list[int]] = {}
        self.abandoned: dict[OffsetRange, list[int]] = {}
        self.objects: dict[OffsetRange, list[int]] = {}
        self.committed = 7
        self.run(self.core.begin())

    def run(self, effects: Sequence[Effect], run: list[int] | None = None) -> None:
        for effect in effects:
            match effect:
                case Append():
                    assert run
                    self.open += run
                case Seal(offsets=offsets, count=count):
                    assert len(self.open) == count <= MOST
                    assert all(o in offsets for o in self.open)
                    self.sealing[offsets], self.open = self.open, []
                case Commit(next_offset=next_offset):
                    assert next_offset > self.committed
                    self.committed = next_offset
                case Discard(from_offset=start):
                    self.open = []
                    for offsets in [r for r in self.sealing if r.start >= start]:
                        self.abandoned[offsets] = self.sealing.pop(offsets)
                case Seek(next_offset=next_offset, epoch=epoch):
                    assert next_offset >= self.committed
                    self.client, self.pending_epoch = None, (next_offset, epoch)

    def fetch(self, limit: int) -> list[int]:
        assert self.client is not None
        return sorted(o for o in self.records if o >= self.client)[:limit]

    def give(self, run: list[int], size: int) -> None:
        self.run(self.core.consumed(run[0], run[-1], len(run), size, self.now), run)

    @initialize(segments=st.integers(0, 4))
    def begin(self, segments: int) -> None:
        """Some are sealed and wait to be stored: rules that are few or left out would seldom get there."""
        self.work([True, False, True, True] * 2 * segments or [False], [1] * 4 * segments or [1], limit=2)

    @rule(
        kinds=st.lists(st.sampled_from([True, True, True, False]), min_size=1, max_size=12),
        sizes=st.lists(st.integers(0, 60), min_size=1, max_size=4),
        limit=st.integers(1, 6),
    )
    def work(self, kinds: list[bool], sizes: list[int], limit: int) -> None:
        """Most of what happens: records come, and are read. Storing is another matter."""
        if self.pending_epoch is not None:
            self.seek_done(stale=False)
        self.produce(kinds)
        for size in sizes:
            if self.fetch(1):
                self.consume(limit, size)

    @rule(kinds=st.lists(st.booleans(), min_size=1, max_size=4))
    def produce(self, kinds: list[bool]) -> None:
        for is_record in kinds:
            if is_record:
                self.records.add(self.end)
            self.end += 1

    @precondition(lambda self: self.pending_epoch is not None)
    @rule(stale=st.booleans())
    def seek_done(self, stale: bool) -> None:
        assert self.pending_epoch is not None
        offset, epoch = self.pending_epoch
        if stale:
            self.core.started(epoch - 1)  # confirmation of an earlier seek: believes nothing
            return
        self.client, self.pending_epoch = offset, None
        self.core.started(epoch)

    @precondition(lambda self: self.client is not None and self.fetch(1))
    @rule(limit=st.integers(1, 6), size=st.integers(0, 60))
    def consume(self, limit: int, size: int) -> None:
        run = self.fetch(min(limit, self.core.room))
        self.client = run[-1] + 1
        self.give(run, size)

    @precondition(lambda self: self.client is not None and self.fetch(1))
    @rule(limit=st.integers(1, 3))
    def fetch_and_lose(self, limit: int) -> None:
        """`consume` raised: the records are gone, and may come later as leftovers, with higher offsets than wanted."""
        run = self.fetch(limit)
        self.client = run[-1] + 1
        rest = self.fetch(2)
        self.leftovers.append((run[0], run[-1], len(run)))
        if rest:
            self.leftovers.append((rest[0], rest[-1], len(rest)))
        self.run(self.core.disturbed())

    @precondition(lambda self: self.leftovers and self.pending_epoch)
    @rule(data=st.data())
    def leftover_before_the_seek_is_confirmed(self, data: st.DataObject) -> None:
        first, last, count = data.draw(st.sampled_from(self.leftovers))
        assert self.core.consumed(first, last, min(count, self.core.room), 1, self.now) == []
        assert self.core.reached(self.end + 5, self.now) == []

    @precondition(lambda self: self.client is not None and not self.fetch(1))
    @rule()
    def end_of_partition(self) -> None:
        self.client = self.end
        self.run(self.core.reached(self.end, self.now))

    @precondition(lambda self: self.client is not None and self.committed < self.core.next_offset)
    @rule()
    def old_end_of_partition(self) -> None:
        before = self.core.next_offset
        assert self.core.reached(self.committed, self.now) == []
        assert self.core.next_offset == before

    @rule(seconds=st.integers(0, 12))
    def tick(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.run(self.core.tick(self.now))
        assert self.core.deadline is None or self.core.deadline > self.now

    @rule(messages=st.integers(1, MOST), size=st.integers(1, 200))
    def limit(self, messages: int, size: int) -> None:
        self.run(self.core.limit(replace(self.core.policy, max_messages=messages, max_bytes=size)))
        assert self.core.room >= 1

    @precondition(lambda self: self.sealing)
    @rule(data=st.data())
    def store(self, data: st.DataObject) -> None:
        offsets = data.draw(st.sampled_from(sorted(self.sealing)))
        self.objects[offsets] = self.sealing.pop(offsets)
        self.run(self.core.stored(offsets))

    @precondition(lambda self: self.abandoned)
    @rule(data=st.data())
    def abandoned_upload_finishes_late(self, data: st.DataObject) -> None:
        offsets = data.draw(st.sampled_from(sorted(self.abandoned)))
        records = self.abandoned.pop(offsets)
        if offsets not in self.sealing:  # the same range may be under way again
            self.objects.setdefault(offsets, records)
            self.run(self.core.stored(offsets))

    @precondition(lambda self: self.sealing)
    @rule(data=st.data())
    def lose_a_sealed_spool(self, data: st.DataObject) -> None:
        self.run(self.core.spool_lost(data.draw(st.sampled_from(sorted(self.sealing))).start))

    @precondition(lambda self: self.open)
    @rule()
    def lose_the_open_spool(self) -> None:
        self.run(self.core.spool_lost(self.core.open_start))
        assert not self.open

    @rule()
    def lose_what_is_not_there(self) -> None:
        assert self.core.spool_lost(self.end + 100) == []

    @invariant()
    def committed_is_stored(self) -> None:
        stored = {o for run in self.objects.values() for o in run}
        assert {o for o in self.records if 7 <= o < self.committed} <= stored

    @invariant()
    def committed_range_is_tiled(self) -> None:
        at = 7
        while at < self.committed:
            at = max(r.end + 1 for r in self.objects if r.start <= at <= r.end)

    @invariant()
    def what_may_be_committed_again_is_what_was_committed(self) -> None:
        assert self.core.committable == self.committed

    @invariant()
    def objects_hold_exactly_their_records(self) -> None:
        for offsets, run in self.objects.items():
            assert run == sorted(o for o in self.records if o in offsets)

    def teardown(self) -> None:
        """With everything healthy again, all that was written gets committed."""
        for _ in range(100 + 4 * self.end):  # each record may be a segment of its own
            if self.pending_epoch:
                self.seek_done(stale=False)
            elif self.client is not None and self.fetch(1):
                self.consume(5, 1)
            elif self.client is not None and self.client < self.end:
                self.end_of_partition()
            elif self.sealing:
                offsets = min(self.sealing)
                self.objects[offsets] = self.sealing.pop(offsets)
                self.run(self.core.stored(offsets))
            elif self.committed < self.end:
                self.tick(12)
            else:
                break
        assert self.committed == self.end


TestEgressPartition = EgressMachine.TestCase
TestEgressPartition.settings = machine(100)


def started(next_offset: int = 0, policy: SealPolicy = POLICY) -> EgressPartition:
    core = EgressPartition(policy, next_offset=next_offset)
    core.begin()
    core.started(core.epoch)
    return core


def test_range_begins_where_reading_began_even_if_the_first_record_comes_later() -> None:
    core = started(10)
    assert core.consumed(14, 18, 5, 5, T0) == [Append(), Seal(OffsetRange(10, 18), 5, Reason.MESSAGES)]
    assert core.committable == 10
    assert core.stored(OffsetRange(10, 18)) == [Commit(19)]


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        ({"max_messages": 2}, [Seal(OffsetRange(0, 1), 2, Reason.MESSAGES)]),
        ({"max_bytes": 20}, [Seal(OffsetRange(0, 1), 2, Reason.SIZE)]),
        ({"max_messages": 3, "max_bytes": 21}, []),
    ],
)
def test_new_limits_seal_what_is_full_by_them(limits: dict[str, int], wanted: list[Effect]) -> None:
    core = started(0)
    core.consumed(0, 1, 2, 20, T0)
    assert core.limit(replace(POLICY, **limits)) == wanted  # type: ignore[arg-type]
    assert core.consumed(2, 2, 1, 1, T0)[0] == Append()


def test_a_shorter_age_counts_from_the_first_record() -> None:
    core = started(0)
    core.consumed(0, 1, 2, 2, T0)
    assert core.limit(replace(POLICY, max_age=timedelta(seconds=3))) == []
    assert core.tick(T0 + timedelta(seconds=3)) == [Seal(OffsetRange(0, 1), 2, Reason.AGE)]


def test_range_without_a_record_is_sealed_by_age() -> None:
    core = started(10)
    core.reached(13, T0)
    assert core.tick(T0 + timedelta(seconds=10)) == [Seal(OffsetRange(10, 12), 0, Reason.AGE)]


def test_age_seals_one_segment_at_a_time() -> None:
    """A slow store gets larger segments, not ever more small ones."""
    core = started(10)
    core.consumed(10, 11, 2, 2, T0)
    assert core.tick(T0 + timedelta(seconds=10)) == [Seal(OffsetRange(10, 11), 2, Reason.AGE)]
    core.consumed(12, 12, 1, 1, T0 + timedelta(seconds=11))
    assert core.deadline is None
    assert core.tick(T0 + timedelta(days=1)) == []
    core.consumed(13, 13, 1, 1, T0 + timedelta(days=1))
    assert core.stored(OffsetRange(10, 11)) == [Commit(12)]
    assert core.tick(T0 + timedelta(days=1)) == [Seal(OffsetRange(12, 13), 2, Reason.AGE)]


def test_idle_partition_seals_nothing() -> None:
    core = started(10)
    core.reached(10, T0)
    assert core.deadline is None
    assert core.tick(T0 + timedelta(days=1)) == []
    assert core.drain(Reason.STOPPED) == []


def test_run_that_repeats_and_continues_is_requested_again() -> None:
    core = started(0)
    core.consumed(0, 2, 3, 3, T0)
    assert core.consumed(2, 3, 2, 2, T0) == [Seek(3, core.epoch)]


def test_the_start_of_a_seek_that_another_one_followed_is_no_start() -> None:
    core = started(0)
    [first], [second] = core.disturbed(), core.disturbed()
    assert isinstance(first, Seek)
    assert isinstance(second, Seek)
    core.started(first.epoch)
    assert core.consumed(0, 1, 2, 2, T0) == [], "it may be left over from before the second one"
    core.started(second.epoch)
    assert core.consumed(0, 1, 2, 2, T0) == [Append()]


def test_run_larger_than_the_room_is_refused() -> None:
    core = started(0)
    core.consumed(0, 1, 2, 2, T0)
    with pytest.raises(ValueError, match="run of 4 records, room for 3"):
        core.consumed(2, 5, 4, 4, T0)


def test_relieved_of_its_open_segment_it_reads_on() -> None:
    core = started(0)
    assert core.seal_early() == []
    core.consumed(0, 1, 2, 2, T0)
    assert core.seal_early() == [Seal(OffsetRange(0, 1), 2, Reason.PRESSURE)]
    assert core.consumed(2, 3, 2, 2, T0) == [Append()]


def test_after_drain_nothing_is_taken() -> None:
    core = started(0)
    core.consumed(0, 1, 2, 2, T0)
    assert core.drain(Reason.MOVED) == [Seal(OffsetRange(0, 1), 2, Reason.MOVED)]
    assert core.consumed(2, 3, 2, 2, T0) == []
