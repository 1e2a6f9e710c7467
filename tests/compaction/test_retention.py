"""What retention removes, and what it never removes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compaction.retention import Expiry, ExpiryRefused, plan_expiry
from formats.control.lease import SKEW
from formats.coverage import Extent, SegmentSlice, steps
from formats.segment import OffsetRange, Segment, SegmentInfo
from replicator.config import HeldOffsets, RetentionRule
from tests.compaction.archive import T0, covered, ranges
from tests.examples import property_examples
from tests.formats.sample_records import SOURCE, segment

DAY = timedelta(days=1)


def stored(*segments: tuple[Segment, int], size_bytes: int = 10) -> list[SegmentInfo]:
    """Segments, each with its age in days."""
    return [SegmentInfo(s, size_bytes, T0 - age * DAY) for s, age in segments]


def row(*ages: int) -> list[SegmentInfo]:
    """Adjoining segments of ten offsets each."""
    return stored(*((segment(10 * n, 10 * n + 9), age) for n, age in enumerate(ages)))


def planned(
    infos: list[SegmentInfo], quarantined: tuple[Segment, ...] = (), **rule: Any
) -> Expiry | ExpiryRefused | None:
    return plan_expiry(infos, RetentionRule(**rule), T0, quarantined)


def removed(infos: list[SegmentInfo], **rule: Any) -> list[Segment]:
    plan = planned(infos, **rule)
    assert not isinstance(plan, ExpiryRefused)
    return [] if plan is None else plan.segments


def hold(*texts: str) -> tuple[HeldOffsets, ...]:
    return tuple(HeldOffsets.parse(text) for text in texts)


class TestLimits:
    def test_without_limits_everything_is_kept(self) -> None:
        assert removed(row(3000, 2000)) == []
        assert removed([]) == []

    def test_age(self) -> None:
        assert removed(row(9, 8, 7, 1), max_age=7 * DAY) == [segment(0, 9), segment(10, 19), segment(20, 29)]
        assert removed(row(6, 5, 1), max_age=7 * DAY) == []

    def test_bytes_keep_the_newest(self) -> None:
        assert removed(row(4, 3, 2, 1), max_bytes=25) == [segment(0, 9), segment(10, 19)]
        assert removed(row(4, 3, 2, 1), max_bytes=40) == []

    def test_either_limit_removes(self) -> None:
        assert removed(row(9, 3, 2, 1), max_age=7 * DAY, max_bytes=100) == [segment(0, 9)]
        assert removed(row(9, 3, 2, 1), max_age=7 * DAY, max_bytes=20) == [segment(0, 9), segment(10, 19)]

    def test_the_newest_stay_whatever_the_limits(self) -> None:
        assert removed(row(9, 9, 9), max_age=DAY, max_bytes=1) == [segment(0, 9), segment(10, 19)]
        assert removed(row(9, 9, 9), max_age=DAY, keep_segments=2) == [segment(0, 9)]
        assert removed(row(9, 9, 9), max_age=DAY, keep_segments=4) == []

    def test_an_old_one_behind_a_young_one_stays(self) -> None:
        """A hole in the middle would be no prefix."""
        assert removed(row(9, 1, 9, 9), max_age=7 * DAY) == [segment(0, 9)]

    def test_bytes_are_those_that_readers_read(self) -> None:
        merged = stored((segment(0, 19, 1), 1))
        assert removed(row(3, 3, 1) + merged, max_bytes=20) == []

    def test_each_has_its_reason(self) -> None:
        plan = planned(row(9, 3, 1), max_age=7 * DAY, max_bytes=15)
        assert isinstance(plan, Expiry)
        assert [one.reason for one in plan.deletions] == [
            "stored 2026-02-24T00:00:00+00:00, 9d ago; max_age is 7d",
            "newer segments fill max_bytes, 15, without it",
        ]


class TestOverlaps:
    def test_segments_below_the_cut_are_removed(self) -> None:
        assert removed([*row(9, 9, 1), *stored((segment(3, 12), 9))], max_age=7 * DAY) == [
            segment(0, 9),
            segment(3, 12),
            segment(10, 19),
        ]

    def test_a_segment_that_extends_past_the_cut_stays(self) -> None:
        infos = [*row(9, 1, 1), *stored((segment(5, 14), 9))]
        plan = planned(infos, max_age=7 * DAY)
        assert isinstance(plan, Expiry)
        assert plan.segments == [segment(0, 9)]
        assert plan.unexplained([]) == ranges((0, 4))

    def test_a_young_copy_of_old_offsets_keeps_them(self) -> None:
        """For example a merged segment: only compaction deletes its inputs, with proof."""
        assert removed([*row(9, 9, 9, 1), *stored((segment(10, 29, 1), 1))], max_age=7 * DAY) == [segment(0, 9)]


class TestHolds:
    def test_held_offsets_stay_and_older_ones_go(self) -> None:
        plan = planned(row(9, 9, 9, 1), max_age=7 * DAY, hold=hold("3:12-13"))
        assert isinstance(plan, Expiry)
        assert plan.segments == [segment(0, 9), segment(20, 29)]
        assert plan.unexplained([]) == ranges((0, 9), (20, 29))
        assert plan.unexplained(ranges((0, 9), (25, 40))) == ranges((20, 24))

    def test_held_offsets_of_one_or_every_partition(self) -> None:
        assert SOURCE.partition == 3
        infos = row(9, 9, 9, 1)
        assert removed(infos, max_age=7 * DAY, hold=hold("4:0-99")) == [s.segment for s in infos[:3]]
        assert removed(infos, max_age=7 * DAY, hold=hold("4:0-99", "*:19-20")) == [segment(0, 9)]

    def test_a_merged_segment_with_held_offsets_stays_whole(self) -> None:
        infos = stored((segment(0, 99, 1), 9), (segment(100, 199), 1))
        assert removed(infos, max_age=7 * DAY, hold=hold("*:50-50")) == []


class TestUnsure:
    def test_a_segment_from_the_future(self) -> None:
        infos = [*row(9, 1), SegmentInfo(segment(20, 29), 10, T0 + SKEW + timedelta(seconds=1))]
        plan = planned(infos, max_age=7 * DAY)
        assert isinstance(plan, ExpiryRefused)
        assert "set this machine's clock" in plan.reason
        infos[-1] = SegmentInfo(segment(20, 29), 10, T0 + SKEW)
        assert removed(infos, max_age=7 * DAY) == [segment(0, 9)]

    def test_a_quarantined_segment_is_never_deleted(self) -> None:
        plan = planned(row(9, 9, 1), (segment(10, 19),), max_age=7 * DAY)
        assert isinstance(plan, ExpiryRefused)
        assert f"{segment(10, 19)} is quarantined:" in plan.reason

    def test_a_quarantined_segment_does_not_count_as_kept(self) -> None:
        assert planned(row(9, 9), (segment(10, 19),), max_age=7 * DAY) is None
        assert planned(row(9), (segment(0, 9),), max_age=7 * DAY) is None


class TestWithout:
    def test_an_uncopied_segment_keeps_later_ones(self) -> None:
        plan = planned(row(9, 9, 9, 1), max_age=7 * DAY)
        assert isinstance(plan, Expiry)
        rest = plan.without([segment(10, 19)])
        assert rest is not None
        assert rest.segments == [segment(0, 9)]
        assert rest.remaining == Extent(tuple(ranges((10, 39))))
        assert plan.without([segment(0, 9)]) is None
        assert plan.without([]) == plan


# --- properties


segments = st.builds(
    lambda start, length, level: segment(start, start + length, level),
    st.integers(0, 80),
    st.integers(0, 30),
    st.integers(0, 2),
)
archives = st.dictionaries(segments, st.tuples(st.integers(0, 20), st.integers(0, 50)), min_size=1, max_size=14).map(
    lambda found: [SegmentInfo(s, size, T0 - age * DAY) for s, (age, size) in found.items()]
)
held_ranges = st.builds(
    lambda partition, start, length: HeldOffsets(partition, OffsetRange(start, start + length)),
    st.sampled_from([None, SOURCE.partition, 7]),
    st.integers(0, 110),
    st.integers(0, 20),
)
rules = st.builds(
    RetentionRule,
    max_age=st.none() | st.integers(1, 20).map(lambda days: days * DAY),
    max_bytes=st.none() | st.integers(1, 300),
    keep_segments=st.integers(1, 4),
    hold=st.lists(held_ranges, max_size=2).map(tuple),
)


def read(infos: list[SegmentInfo]) -> list[SegmentSlice]:
    known = [info.segment for info in infos]
    first = min(s.offsets.start for s in known)
    return [step for step in steps(known, first) if isinstance(step, SegmentSlice)]


@property_examples()
@given(archives, rules)
def test_the_kept_suffix_and_held_offsets_stay(infos: list[SegmentInfo], rule: RetentionRule) -> None:
    plan = plan_expiry(infos, rule, T0)
    if plan is None:
        return
    assert isinstance(plan, Expiry)
    gone = {one.info for one in plan.deletions}
    left = [info for info in infos if info not in gone]
    held = rule.held_offsets(SOURCE.partition)
    # the newest so many of what was read are there, and nothing that they hold is missing
    assert {one.segment for one in read(infos)[-rule.keep_segments :]} <= {info.segment for info in left}
    assert len(read(left)) >= min(rule.keep_segments, len(read(infos)))
    assert plan.newest in {info.segment for info in left}
    # one cut: what is not held goes when, and only when, it ends below it
    cut = max(info.segment.offsets.next_offset for info in gone)
    for info in left:
        is_held = any(info.segment.offsets.overlaps(one) for one in held)
        assert is_held or info.segment.offsets.end >= cut
    assert not any(info.segment.offsets.overlaps(one) for info in gone for one in held)
    # every limit that is set is a reason, and nothing goes without one
    for info in gone:
        old = rule.max_age is not None and info.stored_at <= T0 - rule.max_age
        behind = [p for p in read(infos) if p.offsets.end > info.segment.offsets.end]
        sizes = {one.segment: one.size_bytes for one in infos}
        holding = [p for p in read(infos) if info.segment.offsets.end in p.offsets]
        much = rule.max_bytes is not None and sum(sizes[p.segment] for p in [*holding, *behind]) > rule.max_bytes
        assert old or much
    # what is missing afterwards is explained, and nothing else is
    lost = covered([info.segment for info in infos]) - covered([info.segment for info in left])
    assert {o for r in plan.unexplained([]) for o in range(r.start, r.next_offset)} == lost
    # where segments overlap, readers of what is left may read others, which a next run removes; it ends, and what the
    # newest held is there
    while plan is not None:
        left = [info for info in left if info.segment not in set(plan.segments)]
        plan = plan_expiry(left, rule, T0)
        assert not isinstance(plan, ExpiryRefused)
    newest = read(infos)[-rule.keep_segments :]
    assert {one.segment for one in newest[-1:]} <= {info.segment for info in left}


@property_examples()
@given(archives, rules, st.data())
def test_an_uncopied_segment_leaves_no_hole(infos: list[SegmentInfo], rule: RetentionRule, data: st.DataObject) -> None:
    plan = plan_expiry(infos, rule, T0)
    if plan is None:
        return
    assert isinstance(plan, Expiry)
    kept = data.draw(st.sets(st.sampled_from(plan.segments)))
    rest = plan.without(kept)
    gone = set() if rest is None else set(rest.segments)
    assert not gone & kept
    assert all(s.offsets.end < k.offsets.start for s in gone for k in kept)
    if rest is not None:
        left = covered([i.segment for i in infos if i.segment not in gone])
        assert {o for r in rest.unexplained([]) for o in range(r.start, r.next_offset)} == covered(gone) - left
