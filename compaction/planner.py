"""Plans the compaction of one source partition. Pure: a listing, settings and a time in, plans out.

    what readers read    [──a──][──b──][──c──]      [──d──][──e──]
    merged                [────────A────────]   gap  [─────B──────]

1. The plan uses the same steps as every reader (`formats.coverage`), which resolves overlaps: of two copies of an
   offset, only the one that readers use is merged.
2. Adjoining slices of segments that may be merged (by level and age) form a row; a gap, recorded or not, ends it.
3. A row is cut from its beginning into merges that are full by count or size; the rest at its end is merged if it
   reaches the minimums. A single input is never rewritten.
4. A segment inside another one that readers use, and smaller or of a lower level, may be deleted after the grace
   period; the proof that the larger one holds its records is not part of planning.

Same listing, same plans: processes that plan at the same time plan the same keys, and one writer of each key wins.
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
    """Write `output` from `inputs`, which adjoin in this order; each slice reaches its segment's end."""

    output: Segment
    inputs: tuple[SegmentSlice, ...]
    size_bytes: int  # of the inputs as stored


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPlan:
    """Delete the segments of `inside` whose records `keeper` is proved to hold."""

    keeper: Segment
    inside: Mapping[Segment, int]  # stored bytes of each, in key order


CompactionPlan = MergePlan | CleanPlan


def segments_of(plan: CompactionPlan) -> frozenset[Segment]:
    """The stored segments that it reads."""
    match plan:
        case MergePlan():
            return frozenset(one.segment for one in plan.inputs)
        case CleanPlan():
            return frozenset({plan.keeper, *plan.inside})


def plan_partition(stored: Collection[SegmentInfo], job: CompactionJob, now: datetime) -> Sequence[CompactionPlan]:
    """`stored` is the listing of one source partition, all levels, without quarantined segments."""
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
    level = max(one.segment.level for one in row) + 1
    offsets = OffsetRange(row[0].offsets.start, row[-1].offsets.end)
    output = Segment(row[0].segment.source, level, offsets)
    yield MergePlan(output=output, inputs=tuple(row), size_bytes=size_bytes)


def plan_cleaning(stored: Collection[SegmentInfo], job: CompactionJob, now: datetime) -> Iterator[CleanPlan]:
    """Only a segment that readers use can be a keeper: a merged segment inside another one is deleted with the rest,
    and so is the loser of an overlap that is not merged yet."""
    old_enough = {
        info.segment
        for info in stored
        if info.segment.level <= job.max_level + 1 and info.stored_at <= now - job.delete_grace
    }
    if not old_enough:
        return
    candidates = sorted(
        (info for info in stored if job.min_level <= info.segment.level <= job.max_level + 1),
        key=lambda info: info.segment.offsets.start,
    )
    starts = [info.segment.offsets.start for info in candidates]
    for step in from_first(info.segment for info in stored):
        if isinstance(step, Gap) or step.segment not in old_enough:
            continue
        keeper = step.segment
        first = bisect_left(starts, keeper.offsets.start)
        inside = [
            info
            for info in candidates[first : bisect_left(starts, keeper.offsets.next_offset)]
            if info.segment.offsets.end <= keeper.offsets.end and _is_replaceable(info.segment, keeper)
        ]
        if inside:
            yield CleanPlan(keeper=keeper, inside=dict(sorted((i.segment, i.size_bytes) for i in inside)))


def _is_replaceable(inside: Segment, keeper: Segment) -> bool:
    """Whether `inside` has a smaller range or a lower level. Never true in both directions."""
    return inside.offsets != keeper.offsets or inside.level < keeper.level
