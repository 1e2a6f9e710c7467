"""What a backfill writes, by examples, and against a model of log, egress and archive in which anything may be ended,
repeated or overtaken."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from formats.coverage import covered_count, end_of, joined, uncovered
from formats.segment import OffsetRange, SourcePartition
from replicator.backfill.plan import PartitionBackfill, PartitionFacts, Wanted, is_joined, plan_partition, split
from tests.examples import machine

SOURCE = SourcePartition("a", "t", 0)
ALL = Wanted(start=0, next_offset=1 << 62)


def facts(**changes: Any) -> PartitionFacts:
    given_facts: dict[str, Any] = {"source": SOURCE, "low": 0, "stable": 100, "begin": 60, "committed": 90}
    return PartitionFacts(**(given_facts | {"covered": [OffsetRange(60, 89)]} | changes))


def planned(wanted: Wanted = ALL, **changes: Any) -> PartitionBackfill:
    return plan_partition(facts(**changes), wanted)


def test_what_is_before_the_begin() -> None:
    plan = planned()
    assert (plan.ranges, plan.new_begin, plan.is_first) == ((OffsetRange(0, 59),), 0, False)


def test_nothing_from_the_commit_on() -> None:
    assert planned(begin=0, covered=[OffsetRange(0, 49)], committed=70).ranges == (OffsetRange(50, 69),)


def test_nothing_behind_the_begin_before_the_first_commit() -> None:
    """What has no segment there is being uploaded by egress."""
    assert planned(committed=None, covered=[OffsetRange(70, 79)]).ranges == (OffsetRange(0, 59),)


def test_nothing_was_archived() -> None:
    plan = planned(begin=None, committed=None, covered=(), is_begun=False, low=5)
    assert (plan.ranges, plan.new_begin, plan.is_first) == ((OffsetRange(5, 99),), 5, True)


def test_a_backfill_that_began_the_archive_goes_on() -> None:
    plan = planned(begin=5, committed=None, covered=[OffsetRange(20, 39)], is_begun=False, low=5)
    assert (plan.ranges, plan.is_empty, plan.is_first) == ((OffsetRange(5, 19), OffsetRange(40, 99)), False, False)


def test_an_empty_bucket_and_a_group_with_a_commit() -> None:
    plan = planned(begin=None, covered=(), committed=90)
    assert (plan.ranges, plan.is_first) == ((OffsetRange(0, 89),), True)


def test_nothing_behind_the_last_stable_offset() -> None:
    """The begin stays until the rest can be read."""
    plan = planned(stable=40, committed=None, covered=())
    assert (plan.ranges, plan.new_begin, bool(plan.notes)) == ((OffsetRange(0, 39),), None, True)


def test_what_retention_removed() -> None:
    plan = planned(Wanted(start=10, next_offset=1 << 62), low=30)
    assert (plan.ranges, plan.new_begin, len(plan.notes)) == ((OffsetRange(30, 59),), 30, 1)


def test_a_hole_before_the_begin() -> None:
    short = Wanted(start=10, next_offset=20)
    assert "20-59 would be missing" in planned(short).conflict
    assert planned(short).is_empty
    left = planned(Wanted(start=10, next_offset=20, leave_gap=True))
    assert (left.left_out, left.new_begin) == ((OffsetRange(20, 59),), 10)
    assert planned(short, covered=[OffsetRange(20, 89)]).new_begin == 10
    assert planned(short, recorded=[OffsetRange(20, 59)]).new_begin == 10


def test_recorded_gaps() -> None:
    recorded: dict[str, Any] = {
        "recorded": [OffsetRange(70, 79)],
        "covered": [OffsetRange(60, 69), OffsetRange(80, 89)],
        "low": 60,
    }
    assert planned(**recorded).is_empty
    assert planned(Wanted(start=0, next_offset=1000, fill_gaps=True), **recorded).ranges == (OffsetRange(70, 79),)


def test_a_refused_partition() -> None:
    plan = planned(refused="forked")
    assert (plan.conflict, plan.is_empty) == ("forked", True)


def test_everything_is_stored_but_the_begin_is_not_lowered() -> None:
    plan = planned(covered=[OffsetRange(0, 89)])
    assert (plan.ranges, plan.new_begin, plan.is_empty) == ((), 0, False)


RANGES = st.lists(st.builds(lambda a, n: OffsetRange(a, a + n), st.integers(0, 500), st.integers(0, 80)), max_size=6)


@given(RANGES, st.integers(1, 100))
def test_tasks_tile_their_ranges(ranges: list[OffsetRange], size: int) -> None:
    runs = joined(ranges).runs
    tasks = list(split(runs, size))
    assert joined(tasks).runs == runs
    assert sum(one.next_offset - one.start for one in tasks) == sum(one.next_offset - one.start for one in runs)
    assert all(one.start // size == one.end // size for one in tasks)


def test_a_task_has_offsets() -> None:
    with pytest.raises(ValueError, match="at least one"):
        list(split([OffsetRange(0, 1)], 0))


class BackfillMachine(RuleBasedStateMachine):
    """One partition. Egress archives from its position in order; tasks of the last plan end in any order, or never, or
    twice; a plan may be given up at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = 0, 20
        self.open_from: int | None = None  # first offset of an open transaction
        self.stored: list[OffsetRange] = []
        self.gaps: list[OffsetRange] = []
        self.first: int | None = None  # recorded first
        self.begins: list[int] = []  # all recorded ones
        self.by_backfill = False  # the first one is a backfill's
        self.position: int | None = None  # of egress
        self.has_committed = False
        self.plan: PartitionBackfill | None = None
        self.tasks: list[OffsetRange] = []
        self.undone: list[OffsetRange] = []

    @property
    def stable(self) -> int:
        return self.high if self.open_from is None else self.open_from

    @property
    def begin(self) -> int | None:
        return min(self.begins, default=None)

    @property
    def explained(self) -> list[OffsetRange]:
        return [*self.stored, *self.gaps]

    def record(self, offset: int) -> None:
        if self.begin is None or offset < self.begin:
            self.begins.append(offset)

    @rule(count=st.integers(1, 30))
    def written(self, count: int) -> None:
        self.high += count

    @rule()
    def transaction_begins(self) -> None:
        self.open_from = self.high if self.open_from is None else self.open_from

    @rule()
    def transaction_ends(self) -> None:
        self.open_from = None

    @rule(count=st.integers(1, 10))
    def retention(self, count: int) -> None:
        """Never overtakes egress here: what follows then is egress's matter."""
        self.low = max(self.low, min(self.low + count, self.stable if self.position is None else self.position))

    @precondition(lambda self: self.position is None)
    @rule(is_latest=st.booleans())
    def egress_begins(self, is_latest: bool) -> None:
        if self.begin is None:
            self.position = self.first = self.high if is_latest else self.low
            self.begins.append(self.position)
            return
        end = max(end_of(self.explained), self.begin)
        holes = uncovered(self.explained, OffsetRange(max(self.begin, self.low), end)) if self.low <= end else []
        self.position = max(holes[0].start if holes else end, self.low)
        if self.position > self.begin:  # what is gone at the source is a recorded gap
            lost = uncovered(self.explained, OffsetRange(self.begin, self.position - 1))
            self.gaps += lost

    @precondition(lambda self: self.position is not None and self.position < self.stable)
    @rule(count=st.integers(1, 20))
    def egress_archives(self, count: int) -> None:
        assert self.position is not None
        end = min(self.position + count, self.stable)
        self.stored.append(OffsetRange(self.position, end - 1))
        self.position, self.has_committed = end, True

    @precondition(lambda self: self.plan is None)
    @rule(start=st.integers(0, 60), length=st.sampled_from((3, 10, 25, 10_000)), gap=st.booleans(), fill=st.booleans())
    def plans(self, start: int, length: int, gap: bool, fill: bool) -> None:
        known = PartitionFacts(
            source=SOURCE,
            low=self.low,
            stable=self.stable,
            begin=self.begin,
            committed=self.position if self.has_committed else None,
            is_begun=self.has_committed or (self.begin is not None and not self.by_backfill),
            covered=joined(self.stored).runs,
            recorded=self.gaps,
        )
        self.plan = plan_partition(
            known, Wanted(start=start, next_offset=start + length, leave_gap=gap, fill_gaps=fill)
        )
        assert not self.plan.ranges or self.plan.ranges[0].start >= self.low
        assert all(one.next_offset <= self.stable for one in self.plan.ranges)
        assert covered_count(self.stored, OffsetRange(0, 10_000)) + self.plan.offset_count == covered_count(
            [*self.stored, *self.plan.ranges], OffsetRange(0, 10_000)
        ), "what is stored is not written again"
        if known.is_begun and self.position is not None:
            assert all(one.next_offset <= max(self.position, self.begin or 0) for one in self.plan.ranges)
        if self.plan.is_first and self.plan.new_begin is not None:
            self.first, self.by_backfill = self.plan.new_begin, True
            self.begins.append(self.plan.new_begin)
        self.tasks = list(split(self.plan.ranges, 8))
        self.undone = list(self.tasks)

    @precondition(lambda self: bool(self.tasks))
    @rule(data=st.data())
    def task_ends(self, data: st.DataObject) -> None:
        """Also one that ended before. It skips what is stored by now."""
        task = data.draw(st.sampled_from(self.tasks))
        left = uncovered(joined(self.stored).runs, task)
        if left and left[0].start < self.low:
            return  # fails: the log has lost it
        self.stored += left
        if task in self.undone:
            self.undone.remove(task)

    @precondition(lambda self: self.plan is not None)
    @rule()
    def gives_up(self) -> None:
        self.plan, self.tasks, self.undone = None, [], []

    @precondition(lambda self: self.plan is not None and not self.undone)
    @rule()
    def finishes(self) -> None:
        assert self.plan is not None
        plan = self.plan
        if plan.new_begin is not None and not plan.is_first:
            self.gaps += plan.left_out
            if is_joined(plan, self.stored, self.gaps):
                self.record(plan.new_begin)
            else:
                raise AssertionError("all tasks have ended")
        self.gives_up()

    @invariant()
    def nothing_is_missing_behind_a_lowered_begin(self) -> None:
        if self.begin is not None and self.first is not None and self.begin < self.first:
            assert uncovered(self.explained, OffsetRange(self.begin, self.first - 1)) == []

    @invariant()
    def nothing_is_stored_that_was_not_committed(self) -> None:
        assert end_of(self.stored) <= self.high

    @invariant()
    def egress_leaves_nothing_behind(self) -> None:
        """From the begin that it found, or wrote, to where it is."""
        if self.position is not None and self.first is not None and self.first < self.position:
            assert uncovered(self.explained, OffsetRange(self.first, self.position - 1)) == []


TestBackfillMachine = BackfillMachine.TestCase
TestBackfillMachine.settings = machine(100)
