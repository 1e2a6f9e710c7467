"""The sequencer against a store whose notifications are late, lost, doubled and out of order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ingress.sequencer import (
    CHAIN_BYTES,
    CHAIN_PIECES,
    Deliver,
    Effect,
    Finished,
    Late,
    LatePolicy,
    Lost,
    Passed,
    Relist,
    Sequencer,
)
from replicator.coverage import Piece
from replicator.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from replicator.view import SegmentView
from tests.examples import machine

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = SourcePartition("a", "t", 0)


def segment(start: int, end: int, level: int = 0) -> Segment:
    return Segment(SOURCE, level, OffsetRange(start, end))


def policy(*, skip: bool) -> LatePolicy:
    return LatePolicy(
        first_segment_delay=timedelta(seconds=5),
        late_retries=3,
        lost_timeout=timedelta(seconds=20),
        skip_lost=skip,
    )


class SequencerMachine(RuleBasedStateMachine):
    """Segments are cut from a log in order but stored in any order; some are merged away, some never stored. Of those,
    gaps are recorded at any moment, and too generously: also over what is stored."""

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
        self.finished: list[int] = []  # offsets of the pieces that were told as finished
        self.at: int | None = None  # target's position by the model
        self.pieces: list[Piece] = []  # being delivered
        self.listing: tuple[Relist, int] | None = None
        self.listed_recorded: list[OffsetRange] = []
        self.gap_seen: dict[int, datetime] = {}
        self.lost: list[Lost] = []
        self.full_listing_after: datetime | None = None

    @initialize(skip=st.booleans(), known=st.booleans(), cap=st.sampled_from([2, 1000]))
    def start(self, skip: bool, known: bool, cap: int) -> None:
        self.skip = skip
        self.at = 0 if known else None
        self.view = SegmentView(limit=cap)
        self.core = Sequencer(policy(skip=skip), self.view, self.at)

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Deliver(pieces=pieces):
                    assert not self.pieces, "two deliveries at once"
                    assert pieces
                    if self.at is None:
                        self.at = pieces[0].from_offset
                    next_offset = self.at
                    for piece in pieces:
                        assert piece.from_offset == next_offset, "out of order"
                        assert piece.from_offset in piece.segment.offsets
                        next_offset = piece.offsets.next_offset
                    self.pieces = list(pieces)
                case Finished(piece=piece):
                    self.finished += range(piece.from_offset, piece.offsets.next_offset)
                case Relist():
                    assert self.listing is None, "two listings at once"
                    token = self.view.listing_begun()
                    self.listing = (effect, token)
                    self.listing_started, self.listed_store = self.now, dict(self.store)
                    self.listed_recorded = list(self.recorded)
                case Passed(offsets=offsets):
                    assert offsets.start == self.at, "passed over elsewhere"
                    passed = set(range(offsets.start, offsets.next_offset))
                    assert passed <= {o for r in self.recorded for o in range(r.start, r.next_offset)}, "unexplained"
                    assert not any(s.offsets.overlaps(offsets) for s in self.store), "passed over what is stored"
                    assert any(s.offsets.start > offsets.end for s in self.ever), "nothing lies behind it"
                    self.passed |= passed
                    self.at = offsets.next_offset
                case Late(offsets=offsets):
                    assert offsets.start == self.at
                    self.gap_seen[offsets.start] = self.now
                case Lost(offsets=offsets, skipped=skipped):
                    assert skipped == self.skip
                    assert not any(s.offsets.overlaps(offsets) for s in self.listed_store), "lost while stored"
                    behind = [i.stored_at for s, i in self.ever.items() if s.offsets.start > offsets.start]
                    since = min([self.gap_seen[offsets.start], *behind])
                    assert self.listing_started - since >= timedelta(seconds=20), "given up early"
                    self.lost.append(effect)
                    if skipped:
                        self.at = offsets.next_offset

    @rule(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3))
    def cut(self, lengths: list[int]) -> None:
        for length in lengths:
            self.missing.append(segment(self.end, self.end + length - 1))
            self.end += length

    @precondition(lambda self: self.missing)
    @rule(data=st.data(), notify=st.booleans())
    def put(self, data: st.DataObject, notify: bool) -> None:
        new = self.missing.pop(data.draw(st.integers(0, len(self.missing) - 1)))
        self.store[new] = self.ever[new] = SegmentInfo(new, 1, self.now)
        if notify:
            self.notify(new)

    @precondition(lambda self: self.missing)
    @rule(data=st.data(), before=st.integers(0, 6), behind=st.integers(0, 6))
    def record_gap(self, data: st.DataObject, before: int, behind: int) -> None:
        """The egress proved that a segment will never be, and perhaps some around it."""
        lost = data.draw(st.sampled_from(self.missing)).offsets
        start, end = max(lost.start - before, 0), min(lost.end + behind, self.end - 1)
        for other in [s for s in self.missing if s.offsets.overlaps(OffsetRange(start, end))]:
            start, end = min(start, other.offsets.start), max(end, other.offsets.end)
            self.missing.remove(other)
        self.recorded.append(OffsetRange(start, end))

    def notify(self, new: Segment) -> None:
        self.view.created(self.store[new])
        self.run(self.core.changed(self.now))

    @precondition(lambda self: self.store)
    @rule(data=st.data())
    def notify_late_or_again(self, data: st.DataObject) -> None:
        self.notify(data.draw(st.sampled_from(sorted(self.store))))

    @precondition(lambda self: len(self.store) > 1)
    @rule(data=st.data(), told=st.sampled_from(["both", "removed", "created", "neither"]))
    def merge(self, data: st.DataObject, told: str) -> None:
        """Two neighbours become one of a higher level; the inputs go."""
        first = data.draw(st.sampled_from(sorted(self.store)))
        second = next((s for s in sorted(self.store) if s.offsets.start == first.offsets.next_offset), None)
        if second is None:
            return
        merged = segment(first.offsets.start, second.offsets.end, max(first.level, second.level) + 1)
        self.store[merged] = self.ever[merged] = SegmentInfo(merged, 1, self.now)
        del self.store[first], self.store[second]
        if told in ("both", "removed"):
            self.view.removed(first)
            self.run(self.core.changed(self.now))
        if told in ("both", "created"):
            self.notify(merged)

    @precondition(lambda self: self.pieces)
    @rule(cut=st.integers(0, 6), outcome=st.sampled_from(["done", "done", "failed", "progress"]))
    def delivery(self, cut: int, outcome: str) -> None:
        """As far as what it is made of is there; a part of a round's work is told before what ended it."""
        assert self.at is not None
        gone = next((p for p in self.pieces if p.segment not in self.store and p.offsets.end >= self.at), None)
        end = self.pieces[-1].offsets.next_offset if gone is None else max(gone.from_offset, self.at)
        if outcome == "done" and gone is None:
            self.advance_to(end)
            self.pieces = []
            self.run(self.core.delivered(self.now))
            return
        reached = end if gone is not None and outcome == "done" else min(self.at + cut, end - (gone is None))
        if reached > self.at:
            self.advance_to(reached)
            self.run(self.core.progressed(self.at))
        if gone is not None and self.at == end:
            self.pieces = []
            self.run(self.core.vanished(gone.segment, self.now))
        elif outcome == "failed":
            self.pieces = []
            self.run(self.core.failed(self.now))

    def advance_to(self, next_offset: int) -> None:
        assert self.at is not None
        self.delivered += range(self.at, next_offset)
        self.at = next_offset

    @precondition(lambda self: self.pieces)
    @rule()
    def corrupt(self) -> None:
        """The object turns out damaged, and is replaced by a good one of the same key before it is looked at again."""
        piece, self.pieces = next(p for p in self.pieces if self.at in p.offsets), []
        self.run(self.core.corrupt(piece.segment, self.now))

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
        found = list((self.listed_store if outcome == "begun" else self.store).values())
        recorded = self.recorded if outcome == "ok" else self.listed_recorded
        if not effect.full:
            at = self.core.next_offset or 0
            found = [i for i in found if i.segment.level == 0 and i.segment.offsets.start >= at]
        self.view.listed(token, found, recorded, complete=effect.full)
        self.listed(full=effect.full)

    def listed(self, *, full: bool) -> None:
        if full and not self.view.disturbed:
            self.shown = {o for s in self.listed_store for o in range(s.offsets.start, s.offsets.next_offset)}
        self.run(self.core.listed(self.now, full=full, begun_at=self.listing_started))

    @precondition(lambda self: self.listing is None)
    @rule()
    def timer_listing(self) -> None:
        token = self.view.listing_begun()
        self.listing_started, self.listed_store = self.now, dict(self.store)
        self.view.listed(token, list(self.store.values()), self.recorded)
        self.listed(full=True)

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
        if hasattr(self, "core") and self.core.next_offset is not None:
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
        end = max((s.offsets.next_offset for s in self.ever), default=0)  # what was lost behind it costs nothing
        for _ in range(300):
            if self.pieces:
                self.delivery(0, "done")
            elif self.listing:
                self.listing_answers("ok")
            elif self.at == end or not self.store:
                break
            else:
                self.timer_listing()
                self.tick(6)
        skipped = {o for lost in self.lost if lost.skipped for o in range(lost.offsets.start, lost.offsets.end + 1)}
        begun = self.delivered[0] if self.delivered else self.end
        wanted = {o for s in self.store for o in range(s.offsets.start, s.offsets.end + 1) if o >= begun}
        assert wanted - skipped <= set(self.delivered)
        assert not self.passed & wanted
        if self.store:
            assert self.at == end


TestSequencer = SequencerMachine.TestCase
TestSequencer.settings = machine(200)


def core(next_offset: int | None = 0, *, skip: bool = False) -> Sequencer:
    return Sequencer(policy(skip=skip), SegmentView(), next_offset)


def stored(seq: Sequencer, *segments: Segment, at: datetime = T0) -> list[Effect]:
    for s in segments:
        seq.view.created(SegmentInfo(s, 1, at))
    return seq.changed(at)


def list_again(
    seq: Sequencer, now: datetime, *segments: Segment, recorded: Sequence[tuple[int, int]] = (), full: bool = True
) -> list[Effect]:
    infos, ranges = [SegmentInfo(s, 1, T0) for s in segments], [OffsetRange(*r) for r in recorded]
    seq.view.listed(seq.view.listing_begun(), infos, ranges, complete=full)
    return seq.listed(now, full=full, begun_at=now)


def with_gap(*segments: Segment, skip: bool = False) -> Sequencer:
    """Looked at, and neither stored nor recorded."""
    seq = core(skip=skip)
    assert stored(seq, *segments) == [Relist(False, "gap")]
    assert [type(e) for e in list_again(seq, T0, *segments, full=False)] == [Late]
    return seq


def test_gap_is_told_once_relisted_with_growing_pauses_and_then_lost() -> None:
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


def test_gap_is_as_old_as_what_lies_behind_it_whoever_owns_the_partition() -> None:
    later = segment(10, 19)
    now = T0 + timedelta(seconds=30)  # another process takes over, long after the later segment was stored
    seq = core()
    seq.view.created(SegmentInfo(later, 1, T0))
    assert seq.changed(now) == [Relist(False, "gap")]
    assert list_again(seq, now, later, full=False) == [Late(OffsetRange(0, 9))]
    assert [type(e) for e in seq.tick(now)] == [Relist]
    assert list_again(seq, now, later) == [Lost(OffsetRange(0, 9), skipped=False)]


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


# --- pieces that are delivered together -------------------------------------------------------------------------------


def test_what_adjoins_is_delivered_together() -> None:
    seq = core()
    pieces = Piece(segment(0, 4), 0), Piece(segment(5, 9), 5)
    assert stored(seq, segment(0, 4), segment(5, 9), segment(11, 12)) == [Deliver(pieces)]
    assert seq.progressed(3) == []
    assert seq.progressed(7) == [Finished(pieces[0])]
    assert seq.delivered(T0) == [Finished(pieces[1]), Relist(False, "gap")]


def test_large_segments_are_delivered_one_by_one() -> None:
    """Each is enough for many runs, and others wait for the place."""
    seq = core()
    for start in range(0, 30, 10):
        seq.view.created(SegmentInfo(segment(start, start + 9), CHAIN_BYTES // 2 + 1, T0))
    assert seq.changed(T0) == [Deliver((Piece(segment(0, 9), 0),))]
    assert seq.delivered(T0)[1:] == [Deliver((Piece(segment(10, 19), 10),))]


def test_no_more_than_so_many_are_delivered_together() -> None:
    seq = core()
    [effect] = stored(seq, *(segment(n, n) for n in range(CHAIN_PIECES + 5)))
    assert isinstance(effect, Deliver)
    assert len(effect.pieces) == CHAIN_PIECES


def test_one_that_vanished_in_the_midst_is_replaced_from_there() -> None:
    seq = core()
    stored(seq, segment(0, 4), segment(5, 9), segment(10, 14))
    seq.progressed(5)
    seq.view.created(SegmentInfo(segment(5, 14, level=1), 1, T0))
    assert seq.vanished(segment(5, 9), T0) == [Deliver((Piece(segment(5, 14, level=1), 5),))]


# --- recorded gaps ----------------------------------------------------------------------------------------------------


def test_recorded_gap_is_passed_over_at_once() -> None:
    seq, later = core(), segment(10, 19)
    assert stored(seq, later) == [Relist(False, "gap")]
    assert list_again(seq, T0, later, recorded=[(0, 9)], full=False) == [Relist(True, "gap")]
    passed, effect = list_again(seq, T0, later, recorded=[(0, 9)])
    assert passed == Passed(OffsetRange(0, 9))
    assert isinstance(effect, Deliver)
    assert effect.pieces[0].from_offset == 10


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
    assert list_again(seq, T0, later, recorded=[(0, 3), (6, 9)], full=False) == [Late(OffsetRange(4, 9))]


def test_segment_inside_a_recorded_gap_is_delivered() -> None:
    seq = core()
    first, effect = list_again(seq, T0, segment(4, 5), segment(10, 19), recorded=[(0, 9)])
    assert first == Passed(OffsetRange(0, 3))
    assert isinstance(effect, Deliver)
    assert effect.pieces == (Piece(segment(4, 5), 4),)
    assert seq.delivered(T0) == [Finished(effect.pieces[0]), Relist(True, "gap")]


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


def test_look_that_began_before_the_gap_was_noticed_is_made_again() -> None:
    seq, later = core(), segment(10, 19)
    noticed_at = T0 + timedelta(seconds=5)
    stored(seq, later, at=noticed_at)
    seq.view.listed(seq.view.listing_begun(), [], complete=False)
    assert seq.listed(noticed_at, full=False, begun_at=T0) == [Relist(False, "gap")]


def test_gap_whose_looks_all_failed_is_late_when_it_is_lost() -> None:
    seq, later = core(), segment(10, 19)
    stored(seq, later)
    now = T0 + timedelta(seconds=60)
    assert seq.listing_failed(T0) == []
    seq.tick(now)
    gap = OffsetRange(0, 9)
    assert list_again(seq, now, later) == [Late(gap), Lost(gap, skipped=False)]


def test_failed_look_is_made_again() -> None:
    seq, later = core(), segment(10, 19)
    stored(seq, later)
    assert seq.listing_failed(T0) == []
    assert seq.wake_at is not None
    assert seq.tick(seq.wake_at) == [Relist(True, "gap")]


# --- where to begin, and what goes wrong ------------------------------------------------------------------------------


def test_first_segment_at_offset_zero_needs_no_delay() -> None:
    seq = core(None)
    [effect] = stored(seq, segment(0, 9))
    assert isinstance(effect, Deliver)


def test_first_segment_elsewhere_waits_and_lists_before_choosing() -> None:
    seq = core(None)
    assert stored(seq, segment(10, 19)) == []
    assert seq.wake_at == T0 + timedelta(seconds=5)
    assert stored(seq, segment(5, 9), at=T0 + timedelta(seconds=3)) == []
    assert seq.tick(T0 + timedelta(seconds=5)) == []  # the earlier one was stored later: settle anew
    now = T0 + timedelta(seconds=8)
    assert [type(e) for e in seq.tick(now)] == [Relist]
    [effect] = list_again(seq, now, segment(5, 9), segment(10, 19))
    assert isinstance(effect, Deliver)
    assert effect.pieces[0].from_offset == 5


def test_vanished_segment_is_replaced_by_the_merged_one() -> None:
    seq = core()
    stored(seq, segment(0, 4))
    assert [type(e) for e in seq.vanished(segment(0, 4), T0)] == [Relist]
    [effect] = list_again(seq, T0, segment(0, 9, level=1))
    assert isinstance(effect, Deliver)
    assert effect.pieces[0].segment.level == 1


def test_after_a_failed_listing_the_wanted_listing_is_asked_for_again() -> None:
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
    assert effect.pieces == (Piece(segment(0, 9), 0),)


def test_damaged_segment_without_another_is_listed_again_after_a_pause() -> None:
    seq = core()
    stored(seq, segment(0, 9))
    assert seq.corrupt(segment(0, 9), T0) == []
    assert seq.wake_at == T0 + timedelta(seconds=30)
    assert [type(e) for e in seq.tick(seq.wake_at)] == [Relist]
    assert [type(e) for e in list_again(seq, seq.wake_at or T0, segment(0, 9))] == [Deliver]
