"""Listing one partition from a position on: what a reader that stands there needs, in a few requests.

A partition may have a million segments, and nearly all of them lie before the position. The store lists a level by the
start of its segments, so those that start at or behind the position are one listing; but a segment may start before it
and reach beyond, and no store lists backwards. So a listing begins a little before the position: as far as the last
hundred segments there began the last time, and further back where fewer are found.

    level 0      …[────][────][──│──][────][────]
    level 1      …[──────────────│─────]
              begin ^            └ position

A segment with more than fifty others of its level inside of it, before the position, may stay hidden, and a reader sees
a gap where there is none. So nothing is given up as missing on the word of `ahead`: `all_ahead` looks at every key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from formats.coverage import Extent, join_to_last, joined
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from infra.archive.segments import SegmentStore

T = TypeVar("T")

MOST = 1_000  # segments of one level at and behind the position: as many as one request brings
BACK = 100  # segments of one level before the position
FIRST_REACH = 1 << 14  # offsets before the position where the first look begins
WIDER = 16  # times as far, where too few were found
PAGE = 2 * BACK  # segments before the position that are read at once


@dataclass(frozen=True, slots=True)
class Ahead:
    """What was found of one partition."""

    infos: Sequence[SegmentInfo]
    is_cut: bool = False  # some level has more behind the last one of it
    reach: Mapping[int, int] = field(default_factory=dict)  # by level: for the next call


def ahead(
    store: SegmentStore,
    source: SourcePartition,
    position: int,
    *,
    reach: Mapping[int, int] | None = None,
    most: int = MOST,
) -> Ahead:
    """Segments that end at or behind `position`: of each level the first `most` that start there, and of the last ones
    that start before what reaches there. `reach`: of an earlier answer about this partition, to save requests."""
    reaches = dict(reach or {})

    def look(level: int) -> _Found:
        found = _Level(store, source, level).look(position, reaches.get(level, FIRST_REACH), most)
        if found.before:
            reaches[level] = position - found.before[-BACK:][0].segment.offsets.start
        return found

    return _joined(_each_level(store, source, look), position, reaches)


def all_ahead(store: SegmentStore, source: SourcePartition, position: int, *, most: int | None = MOST) -> Ahead:
    """The same, certain: all that reaches `position` is found, and all that starts there up to the first `most` of each
    level, if that is not None. Looks at every key before the position, a request for each thousand, and keeps none of
    them."""

    def look(level: int) -> _Found:
        found = _Found([], [])
        for info in store.level_reaching(source, level, position):
            if info.segment.offsets.start < position:
                found.before.append(info)
            elif len(found.behind) == most:
                found.is_cut = True
                break
            else:
                found.behind.append(info)
        return found

    return _joined(_each_level(store, source, look), position, {})


def covered(store: SegmentStore, source: SourcePartition, *, before: int | None = None) -> Extent:
    """What segments cover that start before `before`; None: all of them. Of each level every key up to there is looked
    at, and a range is held for each stretch without a gap."""

    def look(level: int) -> list[OffsetRange]:
        found: list[OffsetRange] = []
        for info in store.level(source, level):
            if before is not None and info.segment.offsets.start >= before:
                break
            join_to_last(found, info.segment.offsets)
        return found

    return joined(run for found in _each_level(store, source, look) for run in found)


@dataclass(slots=True)
class _Found:
    """Of one level, in the order of starts."""

    before: list[SegmentInfo]  # start before the position; the last one is the last there is
    behind: list[SegmentInfo]  # start at or behind it
    is_cut: bool = False


def _each_level(store: SegmentStore, source: SourcePartition, look: Callable[[int], T]) -> Iterator[T]:
    """Each is asked for when the one before was looked at: what is merged meanwhile moves to a level still to come.
    Names of levels sort as text, so those of two digits may have been passed; they are looked at again."""
    highest = 0
    for level in store.each_level(source):
        yield look(level)
        highest = max(highest, level)
    if highest >= 9:
        yield from (look(level) for level in store.each_level(source) if level > 9)


def _joined(levels: Iterable[_Found], position: int, reach: Mapping[int, int]) -> Ahead:
    infos: dict[Segment, SegmentInfo] = {}
    is_cut = False
    for found in levels:
        reaching = (info for info in found.before if info.segment.offsets.end >= position)
        infos |= {info.segment: info for info in (*reaching, *found.behind)}
        is_cut |= found.is_cut
    return Ahead(list(infos.values()), is_cut, reach)


@dataclass(frozen=True, slots=True)
class _Level:
    store: SegmentStore
    source: SourcePartition
    level: int

    def look(self, position: int, reach: int, most: int) -> _Found:
        """`before` holds the last segments that start before `position`: BACK of them, if there are as many, or a few
        less where it was known how far to look."""
        begin = max(position - reach, 0)
        found = _Found([], [])
        for info in self._from(begin, PAGE + most + 1):
            if info.segment.offsets.start >= position:
                if len(found.behind) == most:
                    found.is_cut = True
                    break
                found.behind.append(info)
            elif len(found.before) == PAGE:  # many small ones: what is left of them is searched, not read
                last = self._last_in(info.segment.offsets.start, position)
                found.before = last if len(last) >= BACK / 2 else found.before + last  # few: all behind those read
                found.behind = list(self._from(position, most + 1))
                found.is_cut = len(found.behind) > most
                del found.behind[most:]
                break
            else:
                found.before.append(info)
        while len(found.before) < BACK / 2 and begin > 0:
            reach *= WIDER
            bound, begin = begin, max(position - reach, 0)
            if self._first(begin, bound) is not None:
                found.before = self._last_in(begin, bound) + found.before
        return found

    def _last_in(self, begin: int, bound: int) -> list[SegmentInfo]:
        """The last segments that start in [begin, bound), where there are some, and all behind the first of them: half
        of BACK at least, if there are as many, and no more than a page."""
        few: list[SegmentInfo] = []
        first, end = begin, bound  # a page from `first` may end before `bound`; one from `end` brings too few
        while True:
            page = list(self._from(first, PAGE))
            inside = [info for info in page if info.segment.offsets.start < bound]
            if len(inside) == PAGE:
                begin = inside[0].segment.offsets.start
            elif len(inside) >= BACK / 2 or first == begin:
                return inside
            else:
                few, end = inside, first
            if end - begin <= 1:  # more of the same start than a page holds
                return few or inside
            first = (begin + end) // 2

    def _first(self, begin: int, bound: int) -> int | None:
        """The first start in [begin, bound)."""
        for info in self._from(begin, 1):
            if info.segment.offsets.start < bound:
                return info.segment.offsets.start
        return None

    def _from(self, start_at: int, most: int) -> Iterator[SegmentInfo]:
        return self.store.level(self.source, self.level, start_at=start_at, most=most)
