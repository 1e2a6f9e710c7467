"""Any read of any range has the same answer before, during and after compaction, in any order of all that goes on.

So it has after retention, for all that retention keeps; and for what it removed, the archive says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from compaction.planner import plan_partition
from compaction.run import JobSelection
from formats.coverage import Gap, next_step
from formats.errors import SegmentNotFound
from formats.segment import OffsetRange, Segment, format_key
from infra.runtime.crash_points import Step, observe
from replicator.config import CompactionJob, HeldOffsets, RetentionRule
from tests.compaction.archive import PREFIX, Archive, covered, job, retention
from tests.examples import machine
from tests.formats.json_lines import JsonLinesFormat
from tests.formats.sample_records import SOURCE, Row, rows_of, segment


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_at(step: int | None) -> Iterator[None]:
    """The process that runs in the body dies at the `step`-th moment before or after something durable."""
    left = step

    def observer(_step: Step, _when: str) -> None:
        nonlocal left
        if left is not None:
            left -= 1
            if left < 0:
                raise Killed

    observe(observer)
    try:
        yield
    except Killed:
        pass
    finally:
        observe(None)


def row(offset: int) -> Row:
    """The record that the log holds at an offset."""
    headers = [("h", b"%d" % offset)] if offset % 3 else None
    return {
        "offset": offset,
        "timestamp": 1_700_000_000_000 - offset % 7,
        "timestamp_type": 0,
        "key": None if offset % 5 else b"",
        "value": b"v%d" % offset,
        "headers": headers,
    }


settings = st.builds(
    lambda lowest, more, count, minutes: job(
        min_level=lowest, max_level=lowest + more, max_segment_count=count, delete_grace=timedelta(minutes=minutes)
    ),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(2, 8),
    st.integers(0, 2),
)


rules = st.builds(
    lambda minutes, size, count, held: RetentionRule(
        max_age=timedelta(minutes=minutes) if minutes else None, max_bytes=size, keep_segments=count, hold=held
    ),
    st.integers(0, 4),
    st.none() | st.integers(1, 20_000),
    st.integers(1, 3),
    st.lists(st.integers(0, 150).map(lambda at: HeldOffsets(None, OffsetRange(at, at + 5))), max_size=2).map(tuple),
)


class Machine(RuleBasedStateMachine):
    """One partition's log, its archive, compactions and removals that die anywhere, and readers that hold old
    listings."""

    @initialize(holes=st.sets(st.integers(0, 400), max_size=80))
    def begin(self, holes: set[int]) -> None:
        self.archive = Archive(JsonLinesFormat())
        self.holes = holes
        self.next_offset = 0  # of the egress
        self.missing: set[int] = set()  # offsets that egress never covered
        self.reader_at = 0
        self.seen: list[Segment] = []  # the reader's listing
        self.read: list[Row] = []
        self.passed: set[int] = set()  # offsets that the reader found removed
        self.stale: list[Any] = []  # plans made some time ago

    def rows(self, first: int, end: int) -> list[Row]:
        return [row(o) for o in range(first, end + 1) if o not in self.holes and o not in self.missing]

    @property
    def removed(self) -> set[int]:
        """Offsets recorded as removed, whether they are deleted yet or not."""
        return {o for gap in self.archive.control.gaps.ranges(SOURCE) for o in range(gap.start, gap.next_offset)}

    @property
    def expected(self) -> list[Row]:
        gone = self.removed - covered(self.archive.segments())
        return [one for one in self.rows(0, self.next_offset - 1) if one["offset"] not in gone]

    # --- egress

    @rule(length=st.integers(1, 12))
    def egress_stores(self, length: int) -> None:
        end = self.next_offset + length - 1
        self.archive.write(segment(self.next_offset, end), self.rows(self.next_offset, end))
        self.next_offset = end + 1

    @rule(length=st.integers(1, 5))
    def the_source_lost_some(self, length: int) -> None:
        self.missing |= set(range(self.next_offset, self.next_offset + length))
        self.next_offset += length

    @precondition(lambda self: self.next_offset > 2)
    @rule(data=st.data())
    def an_old_owner_finishes_late(self, data: st.DataObject) -> None:
        """Stores the same offsets with other segment bounds."""
        start = data.draw(st.integers(0, self.next_offset - 1))
        end = data.draw(st.integers(start, min(start + 15, self.next_offset - 1)))
        if not self.missing & set(range(start, end + 1)) and segment(start, end) not in self.archive.segments():
            self.archive.write(segment(start, end), self.rows(start, end))

    # --- compaction

    @rule(settings=settings, dies=st.none() | st.integers(0, 12))
    def compaction_runs(self, settings: CompactionJob, dies: int | None) -> None:
        with killed_at(dies):
            self.archive.compactor().run(settings, JobSelection())

    @rule(settings=settings)
    def somebody_plans(self, settings: CompactionJob) -> None:
        infos = self.archive.store.list(SOURCE)
        self.stale += plan_partition(infos, settings, self.archive.now())

    @precondition(lambda self: self.stale)
    @rule(data=st.data(), dies=st.none() | st.integers(0, 4))
    def carries_it_out_much_later(self, data: st.DataObject, dies: int | None) -> None:
        """A second scheduler, a task that Spark runs again, a process that was frozen."""
        plan = data.draw(st.sampled_from(self.stale))
        with killed_at(dies):
            self.archive.worker().execute(plan)

    # --- retention

    @rule(limits=rules, dies=st.none() | st.integers(0, 10))
    def gc_runs(self, limits: RetentionRule, dies: int | None) -> None:
        before, recorded = self.archive.store.list(SOURCE), self.removed
        with killed_at(dies):
            settings = retention({SOURCE.topic: limits}, max_delete_percent=100)
            self.archive.collector(settings).run(self.archive.lease())
        left = set(self.archive.segments())
        held = limits.held_offsets(SOURCE.partition)
        gone = [info for info in before if info.segment not in left]
        now = self.archive.now()
        for info in gone:
            assert not any(info.segment.offsets.overlaps(offsets) for offsets in held)
            if limits.max_bytes is None:
                assert limits.max_age is not None
                assert info.stored_at <= now - limits.max_age
        if before:
            newest = max(info.segment.offsets.end for info in before)
            assert any(newest in one.offsets for one in left), "one point to restore is always kept"
        assert covered([info.segment for info in gone]) - covered(left) <= self.removed
        if limits.max_age is None and limits.max_bytes is None:
            assert (gone, self.removed) == ([], recorded)

    @rule(minutes=st.integers(1, 3))
    def time_passes(self, minutes: int) -> None:
        self.archive.time += timedelta(minutes=minutes)

    # --- a reader that does not read in one go, such as ingress

    @rule()
    def reader_lists(self) -> None:
        self.seen = self.archive.segments()

    @rule()
    def reader_takes_the_next_segment(self) -> None:
        step = next_step(self.seen, self.reader_at)
        if step is None:
            return
        if isinstance(step, Gap):
            offsets = set(range(step.offsets.start, step.offsets.next_offset))
            assert offsets <= self.missing | self.removed, "nothing explains why these are not there"
            self.passed |= offsets
            self.reader_at = step.offsets.next_offset
            return
        try:
            file = self.archive.memory.open(format_key(PREFIX, step.segment))
        except SegmentNotFound:
            self.seen = self.archive.segments()
            assert step.segment not in self.seen
            return
        with closing(self.archive.format.open(file, step.segment)) as reader:
            self.read += rows_of(list(reader.batches(step.offsets.start)))
        self.reader_at = step.offsets.next_offset

    # --- what never changes

    @invariant()
    def everything_is_read_once_and_in_order(self) -> None:
        if hasattr(self, "archive"):
            assert self.archive.read() == self.expected
            assert self.read == [row for row in self.rows(0, self.reader_at - 1) if row["offset"] not in self.passed]

    def teardown(self) -> None:
        """Left alone, compaction ends with one segment for each stretch without a gap."""
        if not hasattr(self, "archive"):
            return
        self.archive.time += timedelta(hours=1)
        expected = self.expected
        self.archive.compactor().run(job(max_level=50), JobSelection())
        assert self.archive.read() == expected
        found = sorted(self.archive.segments(), key=lambda s: s.offsets)
        for one, other in pairwise(found):
            assert one.offsets.next_offset < other.offsets.start, "what adjoins is one segment, and nothing overlaps"


TestCompactionMachine = Machine.TestCase
TestCompactionMachine.settings = machine(100)
