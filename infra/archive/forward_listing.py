"""List the segments of one partition from a position on, with a few requests.

A partition may have a million segments, most of them before the position. The store lists a level in order of segment
start, so the segments that start at or after the position take one listing; but a segment may start before the position
and extend past it, and no store lists backwards. So a listing begins a little before the position: where the last
hundred segments before it began at the previous call, and further back if it finds fewer.

    level 0      …[────][────][──│──][────][────]
    level 1      …[──────────────│─────]
              begin ^            └ position

A segment may be missed when more than fifty others of its level start between its start and the position; a reader then
sees a gap where there is none. So `ahead` alone never proves that offsets are missing: `all_ahead` checks every key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from formats.coverage import Extent, join_to_last, joined
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from infra.archive.segments import SegmentStore

T = TypeVar("T")

MAX_AFTER = 1_000  # segments of one level at and after the position: the size of one listing page
SEGMENTS_BEFORE = 100  # segments of one level before the position
FIRST_REACH = 1 << 14  # offsets before the position at which the first listing begins
REACH_FACTOR = 16  # factor for the reach when too few segments are found
PAGE = 2 * SEGMENTS_BEFORE  # segments before the position read in one listing


@dataclass(frozen=True, slots=True)
class Ahead:
    """Segments found in one partition."""

    infos: Sequence[SegmentInfo]
    is_cut: bool = False  # at least one level has more segments after its last one here
    reach: Mapping[int, int] = field(default_factory=dict)  # by level; pass it to the next call


def ahead(
    store: SegmentStore,
    source: SourcePartition,
    position: int,
    *,
    reach: Mapping[int, int] | None = None,
    limit: int = MAX_AFTER,
) -> Ahead:
    """Segments that end at or after `position`: of each level, the first `limit` that start at or after it, and those
    of the last ones before it that extend to it. `reach`: from an earlier result for this partition, to save
    requests."""
    reaches = dict(reach or {})

    def list_level(level: int) -> _Found:
        found = _Level(store, source, level).list_level(position, reaches.get(level, FIRST_REACH), limit)
        if found.before:
            reaches[level] = position - found.before[-SEGMENTS_BEFORE:][0].segment.offsets.start
        return found

    return _joined(_each_level(store, source, list_level), position, reaches)


def all_ahead(store: SegmentStore, source: SourcePartition, position: int, *, limit: int | None = MAX_AFTER) -> Ahead:
    """`ahead`, but complete: finds every segment that extends to `position`, and those that start at or after it, up to
    `limit` of each level if that is not None. Lists every key before the position, one request for each thousand, and
    holds none of them in memory."""

    def list_level(level: int) -> _Found:
        found = _Found([], [])
        for info in store.level_reaching(source, level, position):
            if info.segment.offsets.start < position:
                found.before.append(info)
            elif len(found.after) == limit:
                found.is_cut = True
                break
            else:
                found.after.append(info)
        return found

    return _joined(_each_level(store, source, list_level), position, {})


def all_of_each(
    store: SegmentStore, region: str, path: str, sources: Collection[SourcePartition], *, most: int
) -> Mapping[SourcePartition, Sequence[SegmentInfo]] | None:
    """Every segment of several partitions of one archive path, by one listing of all its objects; None when there are
    `most` of them or more.

    It reads the levels of a partition one after the other, as `_each_level` does, but none of two digits after the
    ninth: None, too, where there is a ninth.
    """
    found = store.few(region, path, most=most)
    if found is None or any(info.segment.level >= 9 for infos in found.values() for info in infos):
        return None
    return {source: found.get(source, ()) for source in sources}


def covered(store: SegmentStore, source: SourcePartition, *, before: int | None = None) -> Extent:
    """The offsets covered by segments that start before `before`; None: by all segments. Lists every key of each level
    up to there, and holds one range for each run without a gap."""

    def list_level(level: int) -> list[OffsetRange]:
        found: list[OffsetRange] = []
        for info in store.level(source, level):
            if before is not None and info.segment.offsets.start >= before:
                break
            join_to_last(found, info.segment.offsets)
        return found

    return joined(run for found in _each_level(store, source, list_level) for run in found)


@dataclass(slots=True)
class _Found:
    """Segments of one level, in order of start."""

    before: list[SegmentInfo]  # start before the position; the last such segment is included
    after: list[SegmentInfo]  # start at or after it
    is_cut: bool = False


def _each_level(store: SegmentStore, source: SourcePartition, list_level: Callable[[int], T]) -> Iterator[T]:
    """Lists each level after the one before it: segments that are merged meanwhile move to a level still to be listed.
    Level names sort as text, so a level of two digits may be listed too early; those are listed again."""
    highest = 0
    for level in store.each_level(source):
        yield list_level(level)
        highest = max(highest, level)
    if highest >= 9:
        yield from (list_level(level) for level in store.each_level(source) if level > 9)


def _joined(levels: Iterable[_Found], position: int, reach: Mapping[int, int]) -> Ahead:
    infos: dict[Segment, SegmentInfo] = {}
    is_cut = False
    for found in levels:
        reaching = (info for info in found.before if info.segment.offsets.end >= position)
        infos |= {info.segment: info for info in (*reaching, *found.after)}
        is_cut |= found.is_cut
    return Ahead(list(infos.values()), is_cut, reach)


@dataclass(frozen=True, slots=True)
class _Level:
    store: SegmentStore
    source: SourcePartition
    level: int

    def list_level(self, position: int, reach: int, limit: int) -> _Found:
        """`before` holds the last segments that start before `position`: SEGMENTS_BEFORE of them if there are as many,
        or a few less where `reach` came from an earlier call."""
        begin = max(position - reach, 0)
        found = _Found([], [])
        for info in self._from(begin, PAGE + limit + 1):
            if info.segment.offsets.start >= position:
                if len(found.after) == limit:
                    found.is_cut = True
                    break
                found.after.append(info)
            elif len(found.before) == PAGE:  # many small segments: bisect the rest instead of reading it
                last = self._last_in(info.segment.offsets.start, position)
                # few: they come after all those read
                found.before = last if len(last) >= SEGMENTS_BEFORE / 2 else found.before + last
                found.after = list(self._from(position, limit + 1))
                found.is_cut = len(found.after) > limit
                del found.after[limit:]
                break
            else:
                found.before.append(info)
        while len(found.before) < SEGMENTS_BEFORE / 2 and begin > 0:
            reach *= REACH_FACTOR
            bound, begin = begin, max(position - reach, 0)
            if self._first(begin, bound) is not None:
                found.before = self._last_in(begin, bound) + found.before
        return found

    def _last_in(self, begin: int, bound: int) -> list[SegmentInfo]:
        """The last segments that start in [begin, bound), which has some: a suffix without holes, of at least
        SEGMENTS_BEFORE / 2 segments if there are as many, and of at most a page."""
        few: list[SegmentInfo] = []
        first, end = begin, bound  # a page from `first` may end before `bound`; a page from `end` has too few
        while True:
            page = list(self._from(first, PAGE))
            inside = [info for info in page if info.segment.offsets.start < bound]
            if len(inside) == PAGE:
                begin = inside[0].segment.offsets.start
            elif len(inside) >= SEGMENTS_BEFORE / 2 or first == begin:
                return inside
            else:
                few, end = inside, first
            if end - begin <= 1:  # more segments with the same start than a page holds
                return few or inside
            first = (begin + end) // 2

    def _first(self, begin: int, bound: int) -> int | None:
        """The first segment start in [begin, bound)."""
        for info in self._from(begin, 1):
            if info.segment.offsets.start < bound:
                return info.segment.offsets.start
        return None

    def _from(self, start_at: int, limit: int) -> Iterator[SegmentInfo]:
        return self.store.level(self.source, self.level, start_at=start_at, limit=limit)
