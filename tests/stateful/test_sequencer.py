"""The sequencer against a store whose notifications are late, lost, doubled and out of order, and whose objects are as
old as their originals elsewhere; while the partition moves from process to process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from formats.coverage import SegmentSlice
from formats.messages.delivery_checkpoint import Waiting
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from ingress.segment_view import SegmentView
from ingress.sequencer import (
    CHAIN_BYTES,
    CHAIN_SLICES,
    Begin,
    Deliver,
    Effect,
    Finished,
    Late,
    LatePolicy,
    Lost,
    Passed,
    Relist,
    Sequencer,
    Waits,
)
from tests.examples import machine

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = SourcePartition("a", "t", 0)
FIRST = 7  # offset at which an archive begins that does not begin at 0
DELAY, TIMEOUT = timedelta(seconds=5), timedelta(seconds=20)


def segment(start: int, end: int, level: int = 0) -> Segment:
    return Segment(SOURCE, level, OffsetRange(start, end))


def policy(*, skip: bool) -> LatePolicy:
    return LatePolicy(
        first_segment_delay=DELAY,
        late_retries=3,
        lost_timeout=TIMEOUT,
        skip_lost=skip,
    )


class SequencerMachine(RuleBasedStateMachine):
    """Segments are cut from a log in order but arrive in any order, with any age; some are merged away, some never
    arrive. Of those, gaps are recorded at any moment, and too generously: also over what is stored. The record of where
    the archive begins arrives at any moment, too, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.now = T0
        self.store: dict[Segment, SegmentInfo] = {}
        self.ever: dict[Segment, SegmentInfo] = {}  # all that was stored at any time
        self.missing: list[Segment] = []  # cut, not stored yet
        self.recorded: list[OffsetRange] = []
        self.passed: set[int] = set()
        self.shown: set[int] = set()  # offsets stored when the last listing was begun that shows all there was
        self.end = 0
        self.delivered: list[int] = []
        self.finished: list[int] = []  # offsets of the slices that were reported as finished
        self.at: int | None = None  # target's position by the model
        self.slices: list[SegmentSlice] = []  # being delivered
        self.listing: tuple[Relist, int] | None = None
        self.listed_recorded: list[OffsetRange] = []
        self.noticed: dict[int, datetime] = {}  # gaps by their first offset: when any owner saw them first
        self.known_first: dict[int, datetime] = {}  # first segments by their start: when any owner knew of them first
        self.last_wait: Waiting | None = None  # of the last `Waits`
        self.beginning = False  # the first checkpoint is being written
        self.begun_at: int | None = None
        self.begin: int | None = None  # the record of it, once it is there
        self.lost: list[Lost] = []

    @initialize(
        skip=st.booleans(), known=st.booleans(), cap=st.sampled_from([2, 1000]), first=st.sampled_from([0, FIRST])
    )
    def start(self, skip: bool, known: bool, cap: int, first: int) -> None:
        self.skip, self.cap, self.first = skip, cap, first
        self.end = first
        self.at = self.begun_at = first if known else None
        self.assign()

    def assign(self) -> None:
        """A process begins to work on it, with what the one before it has left."""
        self.view = SegmentView(limit=self.cap)
        self.slices, self.beginning, self.listing = [], False, None
        if self.begun_at is None:
            self.at = None
        self.core = Sequencer(
            policy(skip=self.skip), self.view, self.at, is_begun=self.begun_at is not None, waited=self.last_wait
        )

    def run(self, effects: list[Effect]) -> None:
        if self.core.gap is not None:
            self.noticed.setdefault(self.core.gap.start, self.now)
        for effect in effects:
            match effect:
                case Begin(offset=offset):
                    assert self.begun_at is None, "begun twice"
                    assert not self.slices
                    assert offset == self.core.next_offset
                    self.check_begin(offset)
                    self.at, self.beginning = offset, True
                case Deliver(slices=slices):
                    assert not self.slices, "two deliveries at once"
                    assert slices
                    assert self.begun_at is not None, "a record before the first checkpoint"
                    assert self.at is not None
                    next_offset = self.at
                    for segment_slice in slices:
                        assert segment_slice.offsets.start == next_offset, "out of order"
                        assert segment_slice.offsets.start in segment_slice.segment.offsets
                        next_offset = segment_slice.offsets.next_offset
                    self.slices = list(slices)
                case Finished(segment_slice=segment_slice):
                    self.finished += range(segment_slice.offsets.start, segment_slice.offsets.next_offset)
                case Relist():
                    assert self.listing is None, "two listings at once"
                    self.begin_listing(effect)
                case Passed(offsets=offsets):
                    self.at = offsets.start if self.at is None else self.at
                    assert offsets.start == self.at, "passed over elsewhere"
                    passed = set(range(offsets.start, offsets.next_offset))
                    assert passed <= {o for r in self.recorded for o in range(r.start, r.next_offset)}, "unexplained"
                    assert not any(s.offsets.overlaps(offsets) for s in self.store), "passed over what is stored"
                    assert any(s.offsets.start > offsets.end for s in self.ever), "nothing lies after it"
                    self.passed |= passed
                    self.at = offsets.next_offset
                case Late(offsets=offsets):
                    assert self.at is None or offsets.start == self.at
                case Waits(waiting=waiting):
                    self.waits(waiting)
                case Lost(offsets=offsets, skipped=skipped):
                    assert skipped == self.skip
                    assert not any(s.offsets.overlaps(offsets) for s in self.listed_store), "lost while stored"
                    assert self.listing_started - self.noticed[offsets.start] >= TIMEOUT, "given up early"
                    self.lost.append(effect)
                    if skipped:
                        self.at = offsets.next_offset

    def begin_listing(self, effect: Relist) -> None:
        self.listing = (effect, self.view.listing_begun())
        self.listing_started, self.listed_store = self.now, dict(self.store)
        self.listed_recorded, self.listed_begin = list(self.recorded), self.begin

    def check_begin(self, offset: int) -> None:
        """Delivery begins at the recorded begin, or after a gap that is explained there, or at the first segment once
        it is known long enough."""
        explained = self.passed | {o for lost in self.lost for o in range(lost.offsets.start, lost.offsets.next_offset)}
        if self.view.begin is not None:
            assert self.view.begin <= offset
            assert set(range(self.view.begin, offset)) <= explained, "begun in the middle"
        elif offset and not explained:
            assert self.now - self.known_first[offset] >= DELAY, "begun early"

    def waits(self, waiting: Waiting) -> None:
        first = self.known_first if waiting.is_beginning else self.noticed
        assert first[waiting.offset] <= waiting.since <= self.now
        if self.last_wait and (self.last_wait.offset, self.last_wait.is_beginning) == (
            waiting.offset,
            waiting.is_beginning,
        ):
            assert waiting.since <= self.last_wait.since, "the wait began anew"
        self.last_wait = waiting

    def remember(self) -> None:
        """What the process at work knows now."""
        if self.core.next_offset is None and len(self.view):
            self.known_first.setdefault(min(s.offsets.start for s in self.view.segments), self.now)

    @rule(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3))
    def cut(self, lengths: list[int]) -> None:
        for length in lengths:
            self.missing.append(segment(self.end, self.end + length - 1))
            self.end += length

    @precondition(lambda self: self.missing)
    @rule(data=st.data(), notify=st.booleans(), hours=st.sampled_from([0, 100]))
    def put(self, data: st.DataObject, notify: bool, hours: int) -> None:
        """A replica is as old as its original."""
        new = self.missing.pop(data.draw(st.integers(0, len(self.missing) - 1)))
        self.store[new] = self.ever[new] = SegmentInfo(new, 1, self.now - timedelta(hours=hours))
        if notify:
            self.notify(new)

    @precondition(lambda self: self.begin is None)
    @rule()
    def record_begin(self) -> None:
        self.begin = self.first

    @rule(lists=st.booleans())
    def moves(self, lists: bool) -> None:
        """To another process, which reads the last checkpoint and the wait, and lists everything, sooner or later."""
        self.assign()
        if lists:
            self.timer_listing()

    @precondition(lambda self: self.missing)
    @rule(data=st.data(), before=st.integers(0, 6), after=st.integers(0, 6))
    def record_gap(self, data: st.DataObject, before: int, after: int) -> None:
        """The egress proved that a segment will never be, and perhaps some around it."""
        lost = data.draw(st.sampled_from(self.missing)).offsets
        start, end = max(lost.start - before, 0), min(lost.end + after, self.end - 1)
        for other in [s for s in self.missing if s.offsets.overlaps(OffsetRange(start, end))]:
            start, end = min(start, other.offsets.start), max(end, other.offsets.end)
            self.missing.remove(other)
        self.recorded.append(OffsetRange(start, end))

    def notify(self, new: Segment) -> None:
        self.view.created(self.store[new])
        self.remember()
        self.run(self.core.changed(self.now))

    @precondition(lambda self: self.store)
    @rule(data=st.data())
    def notify_late_or_again(self, data: st.DataObject) -> None:
        self.notify(data.draw(st.sampled_from(sorted(self.store))))

    @precondition(lambda self: len(self.store) > 1)
    @rule(data=st.data(), published=st.sampled_from(["both", "removed", "created", "neither"]))
    def merge(self, data: st.DataObject, published: str) -> None:
        """Two neighbours become one of a higher level; the inputs go."""
        first = data.draw(st.sampled_from(sorted(self.store)))
        second = next((s for s in sorted(self.store) if s.offsets.start == first.offsets.next_offset), None)
        if second is None:
            return
        merged = segment(first.offsets.start, second.offsets.end, max(first.level, second.level) + 1)
        self.store[merged] = self.ever[merged] = SegmentInfo(merged, 1, self.now)
        del self.store[first], self.store[second]
        if published in ("both", "removed"):
            self.view.removed(first)
            self.run(self.core.changed(self.now))
        if published in ("both", "created"):
            self.notify(merged)

    @precondition(lambda self: self.beginning)
    @rule(done=st.booleans())
    def first_checkpoint(self, done: bool) -> None:
        self.beginning = False
        if done:
            self.begun_at = self.at
            self.run(self.core.delivered(self.now))
        else:
            self.run(self.core.failed(self.now))

    @precondition(lambda self: self.slices)
    @rule(cut=st.integers(0, 6), outcome=st.sampled_from(["done", "done", "failed", "progress"]))
    def delivery(self, cut: int, outcome: str) -> None:
        """Delivered as far as its segments exist; progress of a round is reported before the failure that ended it."""
        assert self.at is not None
        gone = next((p for p in self.slices if p.segment not in self.store and p.offsets.end >= self.at), None)
        end = self.slices[-1].offsets.next_offset if gone is None else max(gone.offsets.start, self.at)
        if outcome == "done" and gone is None:
            self.advance_to(end)
            self.slices = []
            self.run(self.core.delivered(self.now))
            return
        reached = end if gone is not None and outcome == "done" else min(self.at + cut, end - (gone is None))
        if reached > self.at:
            self.advance_to(reached)
            self.run(self.core.progressed(self.at))
        if gone is not None and self.at == end:
            self.slices = []
            self.run(self.core.vanished(gone.segment, self.now))
        elif outcome == "failed":
            self.slices = []
            self.run(self.core.failed(self.now))

    def advance_to(self, next_offset: int) -> None:
        assert self.at is not None
        self.delivered += range(self.at, next_offset)
        self.at = next_offset

    @precondition(lambda self: self.slices)
    @rule()
    def corrupt(self) -> None:
        """The object is damaged, and is replaced by a good one of the same key before it is read again."""
        assert self.at is not None
        segment_slice, self.slices = next(p for p in self.slices if self.at in p.offsets), []
        self.run(self.core.corrupt(segment_slice.segment, self.now))

    @precondition(lambda self: self.listing)
    @rule(outcome=st.sampled_from(["ok", "begun", "between", "error"]))
    def listing_answers(self, outcome: str) -> None:
        """As of when it was begun, of now, or the gaps as of then and the segments as of now; never the reverse."""
        assert self.listing
        effect, token = self.listing
        self.listing = None
        if outcome == "error":
            self.view.listing_failed(token)
            self.run(self.core.listing_failed(self.now))
            return
        stored = self.listed_store if outcome == "begun" else self.store
        recorded = self.recorded if outcome == "ok" else self.listed_recorded
        begin = self.listed_begin if outcome == "begun" else self.begin
        found, is_cut = self.found(stored, full=effect.full)
        wants_begin = self.core.next_offset is None
        self.view.listed(
            token, found, recorded, begin=begin if wants_begin else None, complete=effect.full, is_cut=is_cut
        )
        self.listed(full=effect.full, is_cut=is_cut)

    def found(self, stored: Mapping[Segment, SegmentInfo], *, full: bool) -> tuple[list[SegmentInfo], bool]:
        """As `forward_listing` finds it: of each level what reaches the position (if not in full, only the last one
        that starts before it is seen for certain), and the first two that start there."""
        at, found, is_cut = self.core.next_offset or 0, [], False
        for level in sorted({s.level for s in stored}):
            of_level = sorted(s for s in stored if s.level == level)
            before = [s for s in of_level if s.offsets.start < at]
            from_position = [s for s in of_level if s.offsets.start >= at]
            found += [stored[s] for s in (before if full else before[-1:]) if s.offsets.end >= at]
            found += [stored[s] for s in from_position[:2]]
            is_cut |= len(from_position) > 2
        return found, is_cut

    def listed(self, *, full: bool, is_cut: bool) -> None:
        self.remember()
        if full and not is_cut and not self.view.disturbed:
            self.shown = {o for s in self.listed_store for o in range(s.offsets.start, s.offsets.next_offset)}
        self.run(self.core.listed(self.now, full=full, begun_at=self.listing_started))

    @precondition(lambda self: self.listing is None)
    @rule()
    def timer_listing(self) -> None:
        token = self.view.listing_begun()
        self.listing_started, self.listed_store = self.now, dict(self.store)
        found, is_cut = self.found(self.store, full=False)
        wants_begin = self.core.next_offset is None
        self.view.listed(
            token, found, self.recorded, begin=self.begin if wants_begin else None, complete=False, is_cut=is_cut
        )
        self.listed(full=False, is_cut=is_cut)

    @rule(seconds=st.integers(0, 12))
    def tick(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.run(self.core.tick(self.now))

    @invariant()
    def delivered_in_order_once(self) -> None:
        assert self.delivered == sorted(set(self.delivered))

    @invariant()
    def what_is_finished_was_delivered(self) -> None:
        assert self.finished == sorted(set(self.finished))
        assert set(self.finished) <= set(self.delivered)

    @invariant()
    def positions_agree(self) -> None:
        if hasattr(self, "core") and self.core.next_offset is not None and self.at is not None:
            assert self.core.next_offset == self.at

    @invariant()
    def exhausted_is_everything_that_was_shown(self) -> None:
        if hasattr(self, "core") and self.core.exhausted and self.core.listed_at is not None:
            assert max(self.shown, default=-1) < (self.at or 0)

    def teardown(self) -> None:
        """Everything gets stored, no more notifications (the last one is lost too): the timer's listing mends it."""
        if not hasattr(self, "core"):
            return
        for new in self.missing:
            self.store[new] = self.ever[new] = SegmentInfo(new, 1, self.now)
        self.missing = []
        end = max((s.offsets.next_offset for s in self.ever), default=0)  # what was lost after it costs nothing
        for _ in range(300):
            if self.beginning:
                self.first_checkpoint(True)
            elif self.slices:
                self.delivery(0, "done")
            elif self.listing:
                self.listing_answers("ok")
            elif self.at == end or not self.store:
                break
            else:
                self.timer_listing()
                self.tick(6)
        skipped = {o for lost in self.lost if lost.skipped for o in range(lost.offsets.start, lost.offsets.end + 1)}
        begun = self.end if self.begun_at is None else self.begun_at
        if self.begin is not None and self.begun_at is not None and self.view.begin is not None:
            assert set(range(self.first, begun)) <= skipped | self.passed
        wanted = {o for s in self.store for o in range(s.offsets.start, s.offsets.end + 1) if o >= begun}
        assert wanted - skipped <= set(self.delivered)
        assert not self.passed & wanted
        if self.store:
            assert self.at == end


TestSequencer = SequencerMachine.TestCase
TestSequencer.settings = machine(100)


def core(next_offset: int | None = 0, *, skip: bool = False, waited: Waiting | None = None) -> Sequencer:
    return Sequencer(policy(skip=skip), SegmentView(), next_offset, is_begun=next_offset is not None, waited=waited)


def stored(seq: Sequencer, *segments: Segment, at: datetime = T0) -> list[Effect]:
    for s in segments:
        seq.view.created(SegmentInfo(s, 1, at))
    return seq.changed(at)


def list_again(
    seq: Sequencer,
    now: datetime,
    *segments: Segment,
    recorded: Sequence[tuple[int, int]] = (),
    begin: int | None = None,
    full: bool = True,
) -> list[Effect]:
    infos, ranges = [SegmentInfo(s, 1, T0) for s in segments], [OffsetRange(*r) for r in recorded]
    seq.view.listed(seq.view.listing_begun(), infos, ranges, begin=begin, complete=full)
    return seq.listed(now, full=full, begun_at=now)


def with_gap(*segments: Segment, skip: bool = False) -> Sequencer:
    """Listed, and neither stored nor recorded."""
    seq = core(skip=skip)
    assert stored(seq, *segments) == [Relist(False, "gap")]
    assert [type(e) for e in list_again(seq, T0, *segments, full=False)] == [Late, Waits]
    return seq


def test_gap_is_reported_once_relisted_with_growing_pauses_and_then_lost() -> None:
    later = segment(10, 19)
    seq, now, relists = with_gap(later), T0, []
    while not seq.stopped:
        assert seq.wake_at is not None
        now = max(now, seq.wake_at)
        effects = seq.tick(now)
        assert [type(e) for e in effects] == [Relist]
        relists.append((now - T0).total_seconds())
        effects = list_again(seq, now, later)
    assert effects == [Lost(OffsetRange(0, 9), skipped=False)]
    assert relists == [1, 3, 7, 20]


def test_gap_is_reported_once_though_an_old_notification_hides_it_for_a_while() -> None:
    gone, later = segment(0, 9), segment(10, 19)
    seq = with_gap(later)
    assert [type(e) for e in stored(seq, gone)] == [Deliver]
    assert seq.vanished(gone, T0) == [Relist(False, "missing")]
    assert list_again(seq, T0, later, full=False) == [Relist(False, "gap")]
    assert list_again(seq, T0, later, full=False) == [Waits(Waiting(0, T0))]


def test_lost_gap_is_left_as_soon_as_its_segment_appears() -> None:
    later = segment(10, 19)
    seq, now = with_gap(later), T0 + timedelta(seconds=60)
    seq.tick(now)
    assert list_again(seq, now, later) == [Lost(OffsetRange(0, 9), skipped=False)]
    [effect] = stored(seq, segment(0, 9), at=now)
    assert isinstance(effect, Deliver)
    assert not seq.stopped


def test_gap_lost_during_a_back_off_is_still_left_when_its_segment_appears() -> None:
    later = segment(10, 19)
    seq, now = with_gap(later), T0 + timedelta(seconds=20)
    assert [type(e) for e in seq.tick(now)] == [Relist]
    seq.listing_failed(now)
    assert list_again(seq, now, later) == [Lost(OffsetRange(0, 9), skipped=False)]
    assert [type(e) for e in stored(seq, segment(0, 9), at=now)] == [Deliver]


def test_the_age_of_a_gap_counts_from_its_first_sighting_by_any_owner() -> None:
    later = segment(10, 19)
    now = T0 + timedelta(seconds=30)
    seq = core(waited=Waiting(0, T0))  # another process wrote that down
    assert stored(seq, later, at=now) == [Relist(False, "gap")]
    assert list_again(seq, now, later, full=False) == [Late(OffsetRange(0, 9)), Waits(Waiting(0, T0))]
    assert [type(e) for e in seq.tick(now)] == [Relist]
    assert list_again(seq, now, later) == [Lost(OffsetRange(0, 9), skipped=False)]


@pytest.mark.parametrize("waited", [None, Waiting(5, T0), Waiting(0, T0, is_beginning=True)])
def test_a_gap_is_not_as_old_as_the_objects_after_it(waited: Waiting | None) -> None:
    """A replica has the time of its original, whenever it arrives; and what was waited for elsewhere is over."""
    seq, later = core(skip=True, waited=waited), segment(10, 19)
    now = T0 + timedelta(hours=25)
    seq.view.created(SegmentInfo(later, 1, T0))
    assert seq.changed(now) == [Relist(False, "gap")]
    assert list_again(seq, now, later) == [Late(OffsetRange(0, 9)), Waits(Waiting(0, now))]
    assert seq.wake_at == now + timedelta(seconds=1)
    assert seq.next_offset == 0


def test_store_that_lists_what_it_does_not_have_is_given_time() -> None:
    seq = core()
    stored(seq, segment(0, 9))
    assert [type(e) for e in seq.vanished(segment(0, 9), T0)] == [Relist]
    assert [type(e) for e in list_again(seq, T0, segment(0, 9))] == [Deliver]
    assert seq.vanished(segment(0, 9), T0) == []
    assert seq.wake_at is not None
    assert seq.wake_at > T0


def test_failed_listing_never_counts_as_an_absence() -> None:
    seq = with_gap(segment(10, 19), skip=True)
    now = T0 + timedelta(days=2)
    for _ in range(50):
        effects = seq.tick(now)
        if effects:
            seq.listing_failed(now)
        now += timedelta(minutes=1)
    assert seq.next_offset == 0


def test_listing_disturbed_by_a_removal_proves_no_absence() -> None:
    """The removed one was merged; the listing was past that level when the merged one was stored."""
    seq, later = with_gap(segment(10, 19), skip=True), segment(10, 19)
    now = T0 + timedelta(seconds=60)
    assert [type(e) for e in seq.tick(now)] == [Relist]
    token = seq.view.listing_begun()
    seq.view.removed(segment(0, 9))
    seq.view.listed(token, [SegmentInfo(s, 1, T0) for s in (segment(0, 9), later)], [OffsetRange(0, 9)])
    assert seq.listed(now, full=True, begun_at=now) == [Relist(True, "gap")]
    [effect] = list_again(seq, now, segment(0, 19, level=1), recorded=[(0, 9)])
    assert isinstance(effect, Deliver)


# --- slices that are delivered together -------------------------------------------------------------------------------


def test_what_adjoins_is_delivered_together() -> None:
    seq = core()
    slices = SegmentSlice.rest(segment(0, 4), 0), SegmentSlice.rest(segment(5, 9), 5)
    assert stored(seq, segment(0, 4), segment(5, 9), segment(11, 12)) == [Deliver(slices)]
    assert seq.progressed(3) == []
    assert seq.progressed(7) == [Finished(slices[0])]
    assert seq.delivered(T0) == [Finished(slices[1]), Relist(False, "gap")]


def test_large_segments_are_delivered_one_by_one() -> None:
    """Each is enough for many runs, and others wait for capacity."""
    seq = core()
    for start in range(0, 30, 10):
        seq.view.created(SegmentInfo(segment(start, start + 9), CHAIN_BYTES // 2 + 1, T0))
    assert seq.changed(T0) == [Deliver((SegmentSlice.rest(segment(0, 9), 0),))]
    assert seq.delivered(T0)[1:] == [Deliver((SegmentSlice.rest(segment(10, 19), 10),))]


def test_no_more_than_so_many_are_delivered_together() -> None:
    seq = core()
    [effect] = stored(seq, *(segment(n, n) for n in range(CHAIN_SLICES + 5)))
    assert isinstance(effect, Deliver)
    assert len(effect.slices) == CHAIN_SLICES


def test_one_that_vanished_in_the_middle_is_replaced_from_there() -> None:
    seq = core()
    stored(seq, segment(0, 4), segment(5, 9), segment(10, 14))
    seq.progressed(5)
    seq.view.created(SegmentInfo(segment(5, 14, level=1), 1, T0))
    assert seq.vanished(segment(5, 9), T0) == [Deliver((SegmentSlice.rest(segment(5, 14, level=1), 5),))]


# --- recorded gaps ----------------------------------------------------------------------------------------------------


def test_recorded_gap_is_passed_over_at_once() -> None:
    seq, later = core(), segment(10, 19)
    assert stored(seq, later) == [Relist(False, "gap")]
    assert list_again(seq, T0, later, recorded=[(0, 9)], full=False) == [Relist(True, "gap")]
    passed, effect = list_again(seq, T0, later, recorded=[(0, 9)])
    assert passed == Passed(OffsetRange(0, 9))
    assert isinstance(effect, Deliver)
    assert effect.slices[0].offsets.start == 10


def test_recorded_gap_that_a_full_listing_shows_needs_no_other() -> None:
    seq, later = core(), segment(10, 19)
    assert [type(e) for e in list_again(seq, T0, later, recorded=[(0, 9)])] == [Passed, Deliver]


def test_adjoining_and_overlapping_records_are_passed_over_together() -> None:
    seq, later = core(), segment(10, 19)
    recorded = [(4, 7), (0, 3), (2, 5), (8, 30)]
    assert list_again(seq, T0, later, recorded=recorded)[:-1] == [Passed(OffsetRange(0, 9))]


def test_beginning_that_is_recorded_is_passed_over_and_the_rest_waited_for() -> None:
    seq, later = core(), segment(10, 19)
    assert list_again(seq, T0, later, recorded=[(0, 3), (6, 9)]) == [
        Passed(OffsetRange(0, 3)),
        Relist(False, "gap"),
    ]
    assert list_again(seq, T0, later, recorded=[(0, 3), (6, 9)], full=False) == [
        Late(OffsetRange(4, 9)),
        Waits(Waiting(4, T0)),
    ]


def test_segment_inside_a_recorded_gap_is_delivered() -> None:
    seq = core()
    first, effect = list_again(seq, T0, segment(4, 5), segment(10, 19), recorded=[(0, 9)])
    assert first == Passed(OffsetRange(0, 3))
    assert isinstance(effect, Deliver)
    assert effect.slices == (SegmentSlice.rest(segment(4, 5), 4),)
    assert seq.delivered(T0) == [Finished(effect.slices[0]), Relist(True, "gap")]


def test_gap_recorded_after_it_was_given_up_is_passed_over_by_the_next_listing() -> None:
    seq, later = with_gap(segment(10, 19)), segment(10, 19)
    now = T0 + timedelta(seconds=60)
    seq.tick(now)
    assert list_again(seq, now, later) == [Lost(OffsetRange(0, 9), skipped=False)]
    assert [type(e) for e in list_again(seq, now, later, recorded=[(0, 9)])] == [Passed, Deliver]


def test_recorded_gap_at_the_end_costs_nothing() -> None:
    seq = core()
    assert list_again(seq, T0, recorded=[(0, 9)]) == []
    assert seq.wake_at is None
    assert seq.next_offset == 0


def test_listing_that_began_before_the_gap_was_noticed_is_repeated() -> None:
    seq, later = core(), segment(10, 19)
    noticed_at = T0 + timedelta(seconds=5)
    stored(seq, later, at=noticed_at)
    seq.view.listed(seq.view.listing_begun(), [], complete=False)
    assert seq.listed(noticed_at, full=False, begun_at=T0) == [Relist(False, "gap")]


def test_gap_whose_listings_all_failed_is_late_when_it_is_lost() -> None:
    seq, later = core(), segment(10, 19)
    stored(seq, later)
    now = T0 + timedelta(seconds=60)
    assert seq.listing_failed(T0) == []
    seq.tick(now)
    gap = OffsetRange(0, 9)
    assert list_again(seq, now, later) == [Late(gap), Waits(Waiting(0, T0)), Lost(gap, skipped=False)]


def test_failed_listing_is_repeated() -> None:
    seq, later = core(), segment(10, 19)
    stored(seq, later)
    assert seq.listing_failed(T0) == []
    assert seq.wake_at is not None
    assert seq.tick(seq.wake_at) == [Relist(False, "gap")]


# --- where to begin, and what goes wrong ------------------------------------------------------------------------------


def begun(seq: Sequencer, effects: list[Effect], at: int, now: datetime = T0) -> list[Effect]:
    """`effects` begin delivery there, and the first checkpoint is written."""
    assert effects == [Begin(at)]
    assert seq.changed(now) == [], "nothing before the first checkpoint"
    return seq.delivered(now)


def test_first_segment_at_offset_zero_needs_no_delay() -> None:
    seq = core(None)
    [effect] = begun(seq, stored(seq, segment(0, 9)), 0)
    assert isinstance(effect, Deliver)


def test_first_segment_elsewhere_waits_and_lists_before_choosing() -> None:
    seq = core(None)
    assert stored(seq, segment(10, 19)) == []
    assert seq.wake_at == T0 + timedelta(seconds=5)
    assert stored(seq, segment(5, 9), at=T0 + timedelta(seconds=3)) == []
    assert seq.tick(T0 + timedelta(seconds=5)) == []  # the earlier one came later: settle anew
    now = T0 + timedelta(seconds=8)
    assert [type(e) for e in seq.tick(now)] == [Relist]
    [effect] = begun(seq, list_again(seq, now, segment(5, 9), segment(10, 19)), 5, now)
    assert isinstance(effect, Deliver)
    assert effect.slices[0].offsets.start == 5


def test_the_delay_counts_from_the_first_sight_here_whatever_the_objects_age() -> None:
    seq, now = core(None), T0 + timedelta(days=3)
    assert list_again(seq, now, segment(200, 299)) == [Waits(Waiting(200, now, is_beginning=True))]
    assert seq.wake_at == now + DELAY


def test_the_delay_continues_where_another_process_waited() -> None:
    since, now = T0, T0 + timedelta(seconds=4)
    seq = core(None, waited=Waiting(200, since, is_beginning=True))
    assert list_again(seq, now, segment(200, 299)) == [Waits(Waiting(200, since, is_beginning=True))]
    assert seq.wake_at == T0 + DELAY
    seq = core(None, waited=Waiting(200, since, is_beginning=True))
    assert list_again(seq, now, segment(100, 199)) == [Waits(Waiting(100, now, is_beginning=True))], "an earlier one"


def test_where_the_archive_begins_is_recorded_and_needs_no_delay() -> None:
    seq = core(None)
    [effect] = begun(seq, list_again(seq, T0, segment(200, 299), begin=200), 200)
    assert isinstance(effect, Deliver)


def test_what_is_missing_at_the_begin_is_a_gap_like_any_other() -> None:
    seq, later = core(None), segment(200, 299)
    assert list_again(seq, T0, later, begin=0) == [Relist(False, "gap")]
    assert [type(e) for e in list_again(seq, T0, later, full=False)] == [Late, Waits]
    [effect] = begun(seq, stored(seq, segment(0, 99)), 0)
    assert isinstance(effect, Deliver)


def test_delivery_begins_after_a_recorded_gap() -> None:
    seq = core(None)
    passed, *effects = list_again(seq, T0, segment(200, 299), recorded=[(0, 199)], begin=0)
    assert passed == Passed(OffsetRange(0, 199))
    [effect] = begun(seq, effects, 200)
    assert isinstance(effect, Deliver)


def test_a_begin_that_arrives_while_the_first_segment_is_waited_for_ends_the_wait() -> None:
    seq, first = core(None), segment(200, 299)
    assert stored(seq, first) == []
    assert list_again(seq, T0, first, begin=200) == [Begin(200)]


def test_a_begin_that_arrives_while_a_failed_listing_is_paused_for_is_delivered_from() -> None:
    seq, first = core(None), segment(200, 299)
    assert seq.listing_failed(T0) == []
    assert list_again(seq, T0, first, begin=200, full=False) == []
    assert seq.wake_at is not None, "nothing but a tick ends the pause"
    assert seq.tick(seq.wake_at) == [Begin(200)]


def test_a_first_checkpoint_that_fails_is_written_again() -> None:
    seq = core(None)
    assert stored(seq, segment(0, 9)) == [Begin(0)]
    assert seq.failed(T0) == []
    assert seq.wake_at is not None
    assert seq.tick(seq.wake_at) == [Begin(0)]


def test_a_listing_moves_no_position_while_the_first_checkpoint_is_written() -> None:
    seq = core(None)
    assert stored(seq, segment(0, 9)) == [Begin(0)]
    assert list_again(seq, T0, segment(20, 29), recorded=[(0, 19)]) == []
    assert seq.next_offset == 0
    assert seq.delivered(T0) == [Relist(True, "gap")]
    passed, effect = list_again(seq, T0, segment(20, 29), recorded=[(0, 19)])
    assert passed == Passed(OffsetRange(0, 19))
    assert isinstance(effect, Deliver)


def test_vanished_segment_is_replaced_by_the_merged_one() -> None:
    seq = core()
    stored(seq, segment(0, 4))
    assert [type(e) for e in seq.vanished(segment(0, 4), T0)] == [Relist]
    [effect] = list_again(seq, T0, segment(0, 9, level=1))
    assert isinstance(effect, Deliver)
    assert effect.slices[0].segment.level == 1


def test_after_a_failed_listing_the_wanted_listing_is_requested_again() -> None:
    seq = core()
    stored(seq, segment(0, 4))
    seq.vanished(segment(0, 4), T0)
    assert seq.listing_failed(T0) == []
    assert seq.wake_at is not None
    assert [type(e) for e in seq.tick(seq.wake_at)] == [Relist]


def test_damaged_segment_gives_way_to_another_that_covers_it() -> None:
    seq, bogus = core(), segment(0, 1000)
    assert [type(e) for e in stored(seq, segment(0, 9), bogus)] == [Deliver]
    [effect] = seq.corrupt(bogus, T0)
    assert isinstance(effect, Deliver)
    assert effect.slices == (SegmentSlice.rest(segment(0, 9), 0),)


def test_damaged_segment_without_another_is_listed_again_after_a_pause() -> None:
    seq = core()
    stored(seq, segment(0, 9))
    assert seq.corrupt(segment(0, 9), T0) == []
    assert seq.wake_at == T0 + timedelta(seconds=30)
    assert [type(e) for e in seq.tick(seq.wake_at)] == [Relist]
    assert [type(e) for e in list_again(seq, seq.wake_at or T0, segment(0, 9))] == [Deliver]
