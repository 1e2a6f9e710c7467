"""Chooses what a compaction run does with one source partition. Pure: a listing, settings and a time in, plans out.

    what readers read    [──a──][──b──][──c──]      [──d──][──e──]
    merged                [────────A────────]   gap  [─────B──────]

1. The archive is seen as every reader sees it (`formats.coverage`), so overlaps are planned away: of two copies of
   an offset, only the one that readers take is merged.
2. Adjoining pieces of segments that may be merged (their level, their age) make a row; a gap, recorded or not, ends it.
3. A row is cut from its beginning into merges that are full by count or size; what is left at its end is merged if the
   minimums say that it is worth it. One input alone is never rewritten.
4. What lies inside one segment that readers take, and is smaller or of a lower level, may be deleted when the grace is
   over; proving that the larger one holds its records is not done here.

Same listing, same plans: whoever plans at the same time plans the same keys, of which one writer wins.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from compaction.settings import CompactionJob
from formats.coverage import Gap, SegmentSlice, from_first
from formats.segment import OffsetRange, Segment, SegmentInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """Write `output` from `inputs`, which adjoin in this order; each reaches its segment's end."""

    output: Segment
    inputs: tuple[SegmentSlice, ...]
    size_bytes: int  # of the inputs as stored


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPlan:
    """Delete those of `inside` whose records `keeper` is proved to hold."""

    keeper: Segment
    inside: Mapping[Segment, int]  # stored bytes of each, in key order


CompactionPlan = MergePlan | CleanPlan


def plan_partition(stored: Collection[SegmentInfo], job: CompactionJob, now: datetime) -> Sequence[CompactionPlan]:
    """`stored` is everything known of one source partition, all levels, without quarantined segments."""
    cleaning = plan_cleaning(stored, job, now) if job.delete else ()
    return [*_merge(stored, job, now), *cleaning]


def _merge(stored: Collection[SegmentInfo], job: CompactionJob, now: datetime) -> Iterator[MergePlan]:
    sizes = {
        info.segment: info.size_bytes
        for info in stored
        if job.min_level <= info.segment.level <= job.max_level and info.stored_at <= now - job.min_segment_age
    }
    if len(sizes) < 2:
        return
    row: list[SegmentSlice] = []
    row_bytes = 0
    for step in from_first(info.segment for info in stored):
        size_bytes = None if isinstance(step, Gap) else sizes.get(step.segment)
        if isinstance(step, Gap) or size_bytes is None:
            yield from _plan(row, row_bytes, job, full=False)
            row, row_bytes = [], 0
            continue
        if len(row) == job.max_segment_count or row_bytes + size_bytes > job.max_segment_size:
            yield from _plan(row, row_bytes, job, full=True)
            row, row_bytes = [], 0
        row.append(step)
        row_bytes += size_bytes
    yield from _plan(row, row_bytes, job, full=False)


def _plan(row: Sequence[SegmentSlice], size_bytes: int, job: CompactionJob, *, full: bool) -> Iterator[MergePlan]:
    enough = len(row) >= job.min_segment_count and size_bytes >= job.min_segment_size
    if len(row) < 2 or not (full or enough):
        return
    level = max(piece.segment.level for piece in row) + 1
    offsets = OffsetRange(row[0].offsets.start, row[-1].offsets.end)
    output = Segment(row[0].segment.source, level, offsets)
    yield MergePlan(output=output, inputs=tuple(row), size_bytes=size_bytes)


def plan_cleaning(stored: Collection[SegmentInfo], job: CompactionJob, now: datetime) -> Iterator[CleanPlan]:
    """Only what readers take keeps anything: a merged segment that lies inside another goes with the rest, and so does
    the loser of an overlap that nobody has merged yet."""
    grown_up = {
        info.segment
        for info in stored
        if info.segment.level <= job.max_level + 1 and info.stored_at <= now - job.delete_grace
    }
    if not grown_up:
        return
    candidates = sorted(
        (info for info in stored if job.min_level <= info.segment.level <= job.max_level + 1),
        key=lambda info: info.segment.offsets.start,
    )
    starts = [info.segment.offsets.start for info in candidates]
    for step in from_first(info.segment for info in stored):
        if isinstance(step, Gap) or step.segment not in grown_up:
            continue
        keeper = step.segment
        first = bisect_left(starts, keeper.offsets.start)
        inside = [
            info
            for info in candidates[first : bisect_left(starts, keeper.offsets.next_offset)]
            if info.segment.offsets.end <= keeper.offsets.end and _gives_way(info.segment, keeper)
        ]
        if inside:
            yield CleanPlan(keeper=keeper, inside=dict(sorted((i.segment, i.size_bytes) for i in inside)))


def _gives_way(inside: Segment, keeper: Segment) -> bool:
    """A smaller range or a lower level: never both of two segments to each other."""
    return inside.offsets != keeper.offsets or inside.level < keeper.level
