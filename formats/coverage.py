"""Which segments to read, in which order, to see every stored offset exactly once; and what ranges cover together.

No other module compares offset ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from formats.segment import OffsetRange, Segment


@dataclass(frozen=True, slots=True)
class SegmentSlice:
    """Read these offsets of `segment`, no others."""

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

    Of the segments that cover it, the one reaching furthest wins, then the higher level, then the later start: fewer
    objects to read, a merged copy rather than the pieces it replaced, and less of it to skip.
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
    """`next_step` over and over, to the end; each slice reaches its segment's end. Sorts once: O(n log n) in segments
    of one partition."""
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
    """`steps` of a reader of everything: from where the archive begins."""
    known = list(segments)
    return steps(known, min((segment.offsets.start for segment in known), default=0))


def parts(segments: Iterable[Segment], within: OffsetRange) -> Iterator[SegmentSlice | Gap]:
    """`steps`, cut to `within`. What lies before the first segment is no gap: there the archive begins."""
    segments = list(segments)
    first = min((segment.offsets.start for segment in segments), default=0)
    for step in steps(segments, max(first, within.start)):
        if step.offsets.start > within.end:
            return
        offsets = OffsetRange(step.offsets.start, min(step.offsets.end, within.end))
        yield SegmentSlice(step.segment, offsets) if isinstance(step, SegmentSlice) else Gap(offsets)


def remaining(pieces: Sequence[SegmentSlice], next_offset: int) -> tuple[SegmentSlice, ...]:
    """Of adjoining pieces, in order: what lies at and behind `next_offset`."""
    left = [piece for piece in pieces if piece.offsets.end >= next_offset]
    return tuple(
        SegmentSlice(piece.segment, OffsetRange(max(piece.offsets.start, next_offset), piece.offsets.end))
        for piece in left
    )


def explained_until(recorded: Iterable[OffsetRange], next_offset: int) -> int:
    """First offset at or after `next_offset` that the unbroken run of recorded gaps from there does not hold. What a
    segment covers is for the caller to look at first: the segment wins."""
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
    """The parts of `within` that none of `covered` holds, in order. O(n log n)."""
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
    """How many offsets of `within` any of `covered` holds. O(n log n)."""
    holes = uncovered(covered, within)
    return within.next_offset - within.start - sum(hole.next_offset - hole.start for hole in holes)


def end_of(ranges: Iterable[OffsetRange]) -> int:
    """Next offset behind the one that reaches furthest; 0 without any."""
    return max((offsets.next_offset for offsets in ranges), default=0)


@dataclass(frozen=True, slots=True)
class Extent:
    """Covered offsets as runs: in order, none touching the next. Empty when nothing is stored."""

    runs: tuple[OffsetRange, ...] = ()

    @property
    def start(self) -> int | None:
        return self.runs[0].start if self.runs else None

    @property
    def next_offset(self) -> int | None:
        """Behind the last covered one."""
        return self.runs[-1].next_offset if self.runs else None

    def missing_at(self, offset: int) -> OffsetRange | None:
        """The uncovered offsets that begin at `offset`, when something behind them is covered."""
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
    """Of any ranges; O(n log n)."""
    runs: list[OffsetRange] = []
    for one in sorted(ranges):
        join_to_last(runs, one)
    return Extent(tuple(runs))


def join_to_last(runs: list[OffsetRange], offsets: OffsetRange) -> None:
    """Grows the last of `runs` when `offsets` begin in it or right behind it; else adds them."""
    if runs and runs[-1].start <= offsets.start <= runs[-1].next_offset:
        runs[-1] = OffsetRange(runs[-1].start, max(runs[-1].end, offsets.end))
    else:
        runs.append(offsets)
