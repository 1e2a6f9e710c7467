"""Which segments to read, in which order, to see every stored offset exactly once; and unions of offset ranges.

No other module compares offset ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from formats.segment import OffsetRange, Segment


@dataclass(frozen=True, slots=True)
class SegmentSlice:
    """The offsets to read of `segment`."""

    segment: Segment
    offsets: OffsetRange

    @classmethod
    def rest(cls, segment: Segment, from_offset: int) -> SegmentSlice:
        """From `from_offset` to the segment's end."""
        return cls(segment, OffsetRange(from_offset, segment.offsets.end))


@dataclass(frozen=True, slots=True)
class Gap:
    """No known segment covers these offsets, but a later one exists."""

    offsets: OffsetRange


def next_step(segments: Iterable[Segment], next_offset: int) -> SegmentSlice | Gap | None:
    """The step that starts at `next_offset`, or None when nothing is stored at or after it. O(n).

    Of the segments that cover it, the one with the highest end wins, then the higher level, then the later start: fewer
    objects to read, a merged segment rather than its inputs, and fewer records to skip.
    """
    here: Segment | None = None
    later: int | None = None
    for segment in segments:
        if next_offset in segment.offsets:
            if here is None or _reach(segment) > _reach(here):
                here = segment
        elif segment.offsets.start > next_offset and (later is None or segment.offsets.start < later):
            later = segment.offsets.start
    if here is not None:
        return SegmentSlice.rest(here, next_offset)
    return None if later is None else Gap(OffsetRange(next_offset, later - 1))


def _reach(segment: Segment) -> tuple[int, int, int]:
    return segment.offsets.end, segment.level, segment.offsets.start


def steps(segments: Iterable[Segment], next_offset: int) -> Iterator[SegmentSlice | Gap]:
    """`next_step`, repeated to the end; each slice reaches its segment's end. Sorts once: O(n log n) in the segments of
    one partition."""
    waiting = sorted(segments, key=lambda s: s.offsets.start, reverse=True)
    best: Segment | None = None
    while True:
        while waiting and waiting[-1].offsets.start <= next_offset:
            segment = waiting.pop()
            if best is None or _reach(segment) > _reach(best):
                best = segment
        if best is not None and best.offsets.end >= next_offset:
            step: SegmentSlice | Gap = SegmentSlice.rest(best, next_offset)
        elif waiting:
            step = Gap(OffsetRange(next_offset, waiting[-1].offsets.start - 1))
        else:
            return
        yield step
        next_offset = step.offsets.next_offset


def from_first(segments: Iterable[Segment]) -> Iterator[SegmentSlice | Gap]:
    """`steps` from the first archived offset."""
    known = list(segments)
    return steps(known, min((segment.offsets.start for segment in known), default=0))


def parts(segments: Iterable[Segment], within: OffsetRange) -> Iterator[SegmentSlice | Gap]:
    """`steps`, cut to `within`. Offsets before the first segment are no gap: the archive begins there."""
    segments = list(segments)
    first = min((segment.offsets.start for segment in segments), default=0)
    for step in steps(segments, max(first, within.start)):
        if step.offsets.start > within.end:
            return
        offsets = OffsetRange(step.offsets.start, min(step.offsets.end, within.end))
        yield SegmentSlice(step.segment, offsets) if isinstance(step, SegmentSlice) else Gap(offsets)


def remaining(slices: Sequence[SegmentSlice], next_offset: int) -> tuple[SegmentSlice, ...]:
    """The parts of `slices`, which adjoin and are in order, at and after `next_offset`."""
    return tuple(
        SegmentSlice(one.segment, OffsetRange(max(one.offsets.start, next_offset), one.offsets.end))
        for one in slices
        if one.offsets.end >= next_offset
    )


def explained_until(recorded: Iterable[OffsetRange], next_offset: int) -> int:
    """First offset at or after `next_offset` that the unbroken run of recorded gaps from there does not contain. The
    caller checks segments first: a segment takes precedence over a recorded gap."""
    for offsets in sorted(recorded):
        if offsets.start > next_offset:
            break
        next_offset = max(next_offset, offsets.next_offset)
    return next_offset


def covered_until(segments: Iterable[Segment], next_offset: int) -> int:
    """First offset at or after `next_offset` that the unbroken run of segments from there does not cover."""
    for step in steps(segments, next_offset):
        if isinstance(step, Gap):
            break
        next_offset = step.offsets.next_offset
    return next_offset


def uncovered(covered: Iterable[OffsetRange], within: OffsetRange) -> list[OffsetRange]:
    """The parts of `within` that no range of `covered` contains, in order. O(n log n)."""
    found: list[OffsetRange] = []
    at = within.start
    for offsets in sorted(covered):
        if offsets.start > within.end:
            break
        if offsets.start > at:
            found.append(OffsetRange(at, offsets.start - 1))
        at = max(at, offsets.next_offset)
    if at <= within.end:
        found.append(OffsetRange(at, within.end))
    return found


def covered_count(covered: Iterable[OffsetRange], within: OffsetRange) -> int:
    """How many offsets of `within` at least one range of `covered` contains. O(n log n)."""
    holes = uncovered(covered, within)
    return within.count - sum(hole.count for hole in holes)


def end_of(ranges: Iterable[OffsetRange]) -> int:
    """The highest next offset of `ranges`; 0 when there are none."""
    return max((offsets.next_offset for offsets in ranges), default=0)


@dataclass(frozen=True, slots=True)
class Extent:
    """Covered offsets as runs, in order; no run adjoins the next. Empty when nothing is stored."""

    runs: tuple[OffsetRange, ...] = ()

    @property
    def start(self) -> int | None:
        return self.runs[0].start if self.runs else None

    @property
    def next_offset(self) -> int | None:
        """The offset after the last covered one."""
        return self.runs[-1].next_offset if self.runs else None

    def missing_at(self, offset: int) -> OffsetRange | None:
        """The uncovered offsets that begin at `offset`; None when `offset` is covered, or nothing after it is."""
        for run in self.runs:
            if offset in run:
                return None
            if run.start > offset:
                return OffsetRange(offset, run.start - 1)
        return None


def adjoining(ranges: Iterable[OffsetRange]) -> list[list[OffsetRange]]:
    """Groups of ranges that overlap or adjoin each other, in order of their starts; O(n log n)."""
    groups: list[list[OffsetRange]] = []
    next_offset = -1
    for one in sorted(ranges):
        if groups and one.start <= next_offset:
            groups[-1].append(one)
        else:
            groups.append([one])
        next_offset = max(next_offset, one.next_offset)
    return groups


def joined(ranges: Iterable[OffsetRange]) -> Extent:
    """The union of `ranges`, in any order. O(n log n)."""
    runs: list[OffsetRange] = []
    for one in sorted(ranges):
        join_to_last(runs, one)
    return Extent(tuple(runs))


def join_to_last(runs: list[OffsetRange], offsets: OffsetRange) -> None:
    """Extend the last of `runs` when `offsets` begin inside it or right after it; else append `offsets`."""
    if runs and runs[-1].start <= offsets.start <= runs[-1].next_offset:
        runs[-1] = OffsetRange(runs[-1].start, max(runs[-1].end, offsets.end))
    else:
        runs.append(offsets)
