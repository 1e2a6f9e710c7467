from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.gap import RETENTION, RecordedGap
from formats.coverage import joined, uncovered
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from replicator.console.segment_map import MOST_BLOCKS, MOST_HOLES, blocks, incarnation_map

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SOURCE = SourcePartition("us", "t", 0)


def info(start: int, end: int, level: int = 0) -> SegmentInfo:
    return SegmentInfo(Segment(SOURCE, level, OffsetRange(start, end)), 10, NOW + timedelta(seconds=start))


def gap(start: int, end: int, reason: str = "lost", *, is_accepted: bool = False) -> RecordedGap:
    offsets = OffsetRange(start, end)
    return RecordedGap(
        source=SOURCE, offsets=offsets, reason=reason, low=0, high=0, recorded_at=NOW, is_accepted=is_accepted
    )


def test_levels_are_highest_first_and_small_ones_are_exact() -> None:
    found = incarnation_map("t", "", [info(0, 9), info(10, 19), info(0, 19, 1)], [], damaged={})
    assert [(level.level, level.segments, level.size_bytes) for level in found.levels] == [(1, 1, 10), (0, 2, 20)]
    assert [block.offsets for block in found.levels[1].blocks] == [OffsetRange(0, 9), OffsetRange(10, 19)]
    assert (found.start, found.next_offset, found.holes) == (0, 20, ())


@pytest.mark.parametrize(
    ("recorded", "kind"),
    [
        (gap(10, 19), "loss"),
        (gap(10, 19, RETENTION), "retention"),
        (gap(10, 19, is_accepted=True), "accepted"),
        (OffsetRange(10, 19), "recorded"),
        (None, "unrecorded"),
    ],
)
def test_each_kind_of_hole(recorded: RecordedGap | OffsetRange | None, kind: str) -> None:
    found = incarnation_map("t", "", [info(0, 9), info(20, 29)], [] if recorded is None else [recorded], damaged={})
    assert [(hole.offsets, hole.kind) for hole in found.holes] == [(OffsetRange(10, 19), kind)]


def test_a_segment_takes_precedence_over_a_recorded_gap() -> None:
    found = incarnation_map("t", "", [info(0, 14)], [gap(10, 19)], damaged={})
    assert [hole.offsets for hole in found.holes] == [OffsetRange(15, 19)]
    assert found.next_offset == 20


@pytest.mark.parametrize(
    ("settled", "missing"),
    [
        (None, [OffsetRange(10, 19), OffsetRange(30, 39)]),
        (40, [OffsetRange(10, 19), OffsetRange(30, 39)]),
        (35, [OffsetRange(10, 19), OffsetRange(30, 34)]),
        (20, [OffsetRange(10, 19)]),
        (10, []),
        (0, []),
    ],
)
def test_what_may_be_on_its_way_is_not_missing(settled: int | None, missing: list[OffsetRange]) -> None:
    """Segments are stored in any order, and committed in that of their offsets."""
    stored = [info(0, 9), info(20, 29), info(40, 49)]
    found = incarnation_map("t", "", stored, [], damaged={}, settled=settled)
    assert [(hole.offsets, hole.kind) for hole in found.holes] == [(one, "unrecorded") for one in missing]
    assert found.next_offset == 50


def test_nothing_is_missing_of_a_listing_that_is_cut() -> None:
    """Higher levels are listed after lower ones."""
    found = incarnation_map("t", "", [info(0, 9), info(30, 39)], [gap(10, 19)], damaged={}, is_cut=True)
    assert [(hole.offsets, hole.kind) for hole in found.holes] == [(OffsetRange(10, 19), "loss")]


def test_more_holes_than_are_shown_are_counted() -> None:
    found = incarnation_map("t", "", [info(n * 10, n * 10 + 4) for n in range(MOST_HOLES + 6)], [], damaged={})
    assert (len(found.holes), found.more_holes) == (MOST_HOLES, 5)


def test_nothing_is_stored() -> None:
    found = incarnation_map("t", "", [], [], damaged={})
    assert (found.levels, found.start, found.next_offset, found.holes) == ((), None, None, ())


ENDS = st.lists(st.integers(0, 60), min_size=2, max_size=40, unique=True).map(sorted)


@given(ENDS, st.integers(1, 30))
def test_blocks_keep_every_segment_and_cover_no_less(ends: list[int], width: int) -> None:
    infos = [info(start, end - 1) for start, end in zip(ends[::2], ends[1::2], strict=False)]
    found = list(blocks(infos, width))
    assert sum(block.segments for block in found) == len(infos)
    assert sum(block.size_bytes for block in found) == 10 * len(infos)
    assert [block.offsets for block in found] == sorted(block.offsets for block in found)
    for one in infos:
        assert not uncovered([block.offsets for block in found], one.segment.offsets)
    span = infos[-1].segment.offsets.next_offset - infos[0].segment.offsets.start
    assert len(found) <= 2 * (span // width + 1)


@given(ENDS, ENDS)
def test_holes_are_what_no_segment_has(ends: list[int], gap_ends: list[int]) -> None:
    infos = [info(start, end - 1) for start, end in zip(ends[::2], ends[1::2], strict=False)]
    gaps = [gap(start, end - 1) for start, end in zip(gap_ends[::2], gap_ends[1::2], strict=False)]
    found = incarnation_map("t", "", infos, gaps, damaged={})
    covered = joined([one.segment.offsets for one in infos])
    assert found.start is not None
    assert found.next_offset is not None
    holes = joined([hole.offsets for hole in found.holes])
    assert list(holes.runs) == uncovered(covered.runs, OffsetRange(found.start, found.next_offset - 1))
    lost = joined([hole.offsets for hole in found.holes if hole.kind == "loss"])
    for run in lost.runs:
        assert not uncovered([one.offsets for one in gaps], run)


def test_a_large_partition_has_few_blocks() -> None:
    infos = [info(n * 100, n * 100 + (99 if n % 2 else 49)) for n in range(20_000)]
    found = incarnation_map("t", "", infos, [], damaged={})
    (level,) = found.levels
    assert level.segments == 20_000
    assert len(level.blocks) <= 2 * MOST_BLOCKS + 2
    assert len(found.holes) + found.more_holes == 10_000
