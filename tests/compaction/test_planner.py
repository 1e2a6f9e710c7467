"""Which segments are merged, and which may be deleted."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as st

from compaction.planner import CleanPlan, MergePlan, plan_partition
from compaction.task_rows import decode_plan, encode_plan
from formats.coverage import steps
from formats.segment import Segment, SegmentInfo
from replicator.config import CompactionJob
from tests.compaction.archive import T0, covered, job
from tests.formats.sample_records import segment

HOUR = timedelta(hours=1)


def stored(*segments: Segment, size_bytes: int = 10, age: timedelta = HOUR) -> list[SegmentInfo]:
    return [SegmentInfo(s, size_bytes, T0 - age) for s in segments]


def merges(infos: list[SegmentInfo], **settings: Any) -> list[tuple[Segment, list[tuple[Segment, int]]]]:
    found = plan_partition(infos, job(delete=False, **settings), T0)
    assert all(isinstance(plan, MergePlan) for plan in found)
    return [(p.output, [(i.segment, i.offsets.start) for i in p.inputs]) for p in found if isinstance(p, MergePlan)]


def cleans(infos: list[SegmentInfo], **settings: Any) -> list[tuple[Segment, list[Segment]]]:
    found = plan_partition(infos, job(min_segment_count=1000, max_segment_count=1000, **settings), T0)
    return [(p.keeper, list(p.inside)) for p in found if isinstance(p, CleanPlan)]


class TestMerging:
    def test_adjoining_segments_become_one_of_the_next_level(self) -> None:
        a, b = segment(0, 4), segment(5, 9)
        assert merges(stored(b, a)) == [(segment(0, 9, 1), [(a, 0), (b, 5)])]

    def test_a_single_segment_is_never_rewritten(self) -> None:
        assert merges(stored(segment(0, 4)), min_segment_count=1) == []
        assert merges(stored(segment(0, 4), segment(6, 9)), min_segment_count=1) == []

    def test_a_gap_splits_a_row_and_blocks_nothing(self) -> None:
        a, b, c, d = segment(0, 4), segment(5, 9), segment(20, 24), segment(25, 29)
        assert [output for output, _ in merges(stored(a, b, c, d))] == [segment(0, 9, 1), segment(20, 29, 1)]

    def test_segments_of_exactly_the_largest_size_are_one_row_also_after_a_gap(self) -> None:
        a, b, c, d = segment(0, 4), segment(5, 9), segment(20, 24), segment(25, 29)
        found = merges(stored(a, b, c, d, size_bytes=5), max_segment_size=10)
        assert [output for output, _ in found] == [segment(0, 9, 1), segment(20, 29, 1)]

    def test_overlaps_are_resolved(self) -> None:
        short, long, after = segment(0, 9), segment(0, 14), segment(10, 30)
        assert merges(stored(short, long, after)) == [(segment(0, 30, 1), [(long, 0), (after, 15)])]

    def test_young_segments_and_other_levels_are_not_merged(self) -> None:
        a, b, c = segment(0, 4), segment(5, 9), segment(10, 14)
        infos = [*stored(a, b), *stored(c, age=timedelta(minutes=59))]
        assert [o for o, _ in merges(infos, min_segment_age=HOUR)] == [segment(0, 9, 1)]
        assert merges(stored(segment(0, 4, 2), segment(5, 9, 2)), max_level=1) == []

    def test_mixed_levels_end_above_the_highest(self) -> None:
        assert [o for o, _ in merges(stored(segment(0, 4, 1), segment(5, 9)), max_level=3)] == [segment(0, 9, 2)]

    def test_minimums_and_maximums(self) -> None:
        five = stored(*(segment(i * 10, i * 10 + 9) for i in range(5)))
        assert merges(five, min_segment_count=6) == []
        assert merges(five, min_segment_size=51) == []
        assert [o for o, _ in merges(five, min_segment_size=50)] == [segment(0, 49, 1)]
        assert [o for o, _ in merges(five, max_segment_count=2)] == [segment(0, 19, 1), segment(20, 39, 1)]
        assert [o for o, _ in merges(five, max_segment_size=30)] == [segment(0, 29, 1), segment(30, 49, 1)]

    def test_a_full_merge_needs_no_minimum(self) -> None:
        """The merged segment cannot grow any more."""
        five = stored(*(segment(i * 10, i * 10 + 9) for i in range(5)))
        assert [o for o, _ in merges(five, max_segment_count=4, min_segment_size=1_000)] == [segment(0, 39, 1)]

    def test_merged_segments_are_not_merged_again(self) -> None:
        assert merges(stored(segment(0, 4), segment(5, 9), segment(0, 9, 1))) == []


class TestCleaning:
    def test_inputs_are_deleted_after_the_grace(self) -> None:
        a, b, merged = segment(0, 4), segment(5, 9), segment(0, 9, 1)
        assert cleans(stored(a, b, merged), delete_grace=HOUR) == [(merged, [a, b])]
        assert cleans(stored(a, b, merged), delete_grace=HOUR + timedelta(seconds=1)) == []
        assert cleans(stored(a, b, merged), delete=False) == []

    def test_a_segment_that_extends_outside_stays(self) -> None:
        merged, beyond = segment(0, 9, 1), segment(5, 12)
        assert cleans(stored(merged, beyond)) == []

    def test_the_loser_of_an_overlap_goes_too(self) -> None:
        loser, winner = segment(0, 4), segment(0, 9)
        assert cleans(stored(loser, winner)) == [(winner, [loser])]
        assert cleans(stored(loser, segment(5, 9))) == []

    def test_a_smaller_merge_goes_with_the_larger(self) -> None:
        small, large = segment(0, 4, 1), segment(0, 9, 1)
        assert cleans(stored(small, large)) == [(large, [small])]

    def test_levels_of_other_jobs_stay(self) -> None:
        assert cleans(stored(segment(0, 4, 2), segment(0, 9, 3)), max_level=1) == []


segments = st.builds(
    lambda start, length, level: segment(start, start + length, level),
    st.integers(0, 60),
    st.integers(0, 15),
    st.integers(0, 3),
)


jobs = st.builds(
    lambda lowest, more, count, size_bytes: job(
        min_level=lowest, max_level=lowest + more, max_segment_count=count, max_segment_size=size_bytes
    ),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(2, 6),
    st.integers(10, 80),
)


@how(deadline=None)
@given(st.lists(segments, unique=True, max_size=25), jobs, st.randoms(use_true_random=False))
def test_plans_are_sound(listing: list[Segment], settings: CompactionJob, random: Any) -> None:
    infos = stored(*listing)
    plans = plan_partition(infos, settings, T0)
    shuffled = infos[:]
    random.shuffle(shuffled)
    assert plan_partition(shuffled, settings, T0) == plans, "same listing, same plans"
    read_by_all = {p.segment: p.offsets.start for p in steps(listing, 0) if hasattr(p, "segment")}
    taken: Counter[int] = Counter()
    for plan in plans:
        assert decode_plan(encode_plan(plan)) == plan
        if isinstance(plan, MergePlan):
            offsets = [o for one in plan.inputs for o in range(one.offsets.start, one.segment.offsets.next_offset)]
            assert offsets == list(range(plan.output.offsets.start, plan.output.offsets.next_offset))
            assert 2 <= len(plan.inputs) <= settings.max_segment_count
            assert plan.output.level == max(p.segment.level for p in plan.inputs) + 1
            assert all(settings.min_level <= p.segment.level <= settings.max_level for p in plan.inputs)
            assert all(read_by_all[p.segment] == p.offsets.start for p in plan.inputs)
            assert plan.output not in listing
            taken.update(offsets)
        else:
            assert plan.keeper not in plan.inside
            for inside in plan.inside:
                assert covered([inside]) <= covered([plan.keeper])
                assert inside.offsets != plan.keeper.offsets or inside.level < plan.keeper.level
    assert not taken or max(taken.values()) == 1, "no offset is merged twice"
    gone = {s for plan in plans if isinstance(plan, CleanPlan) for s in plan.inside}
    keepers = {plan.keeper for plan in plans if isinstance(plan, CleanPlan)}
    assert not gone & keepers, "nothing is deleted that keeps something"
    assert covered(set(listing) - gone) == covered(listing)
    merged = {one.segment for plan in plans if isinstance(plan, MergePlan) for one in plan.inputs}
    assert not gone & merged, "nothing is deleted that the same run reads"
