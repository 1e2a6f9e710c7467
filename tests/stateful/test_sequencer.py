"""The sequencer against a store whose notifications are late, lost, doubled and out of order, and whose objects are as
old as their originals elsewhere; while the partition moves from process to process."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from formats.coverage import SegmentSlice
from formats.messages.delivery_checkpoint import Waiting
from formats.segment import OffsetRange, Segment, SegmentInfo
from ingress.segment_view import SegmentView
from ingress.sequencer import Begin, Deliver, Effect, Finished, Late, Lost, Passed, Relist, Sequencer, Waits
from tests.examples import machine
from tests.stateful.sequenced import DELAY, T0, TIMEOUT, policy, segment

FIRST = 7  # offset at which an archive begins that does not begin at 0


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
