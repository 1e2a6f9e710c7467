"""Single steps of the sequencer: gaps, slices, begins, and what goes wrong."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from formats.coverage import SegmentSlice
from formats.messages.delivery_checkpoint import Waiting
from formats.segment import OffsetRange, Segment, SegmentInfo
from ingress.segment_view import SegmentView
from ingress.sequencer import (
    CHAIN_BYTES,
    CHAIN_SLICES,
    Begin,
    Deliver,
    Effect,
    Finished,
    Late,
    Lost,
    Passed,
    Relist,
    Sequencer,
    Waits,
)
from tests.stateful.sequenced import DELAY, T0, policy, segment


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
