"""Listing from a position on: compared with the full listing, and the number of requests."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import infra.archive.forward_listing as listing
from formats.coverage import Gap, joined, next_step, steps
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from infra.archive.forward_listing import Ahead, ahead, all_ahead, covered
from infra.archive.segments import SegmentStore
from infra.storage.memory_and_folder import MemoryObjectStore
from tests.examples import property_examples

SOURCE = SourcePartition("a", "t", 0)
LEVELS = (0, 1, 2, 10)

shape = st.tuples(st.integers(-3, 12), st.integers(0, 12))  # from the end of the one before, and length


def in_a_row(level: int, shapes: Sequence[tuple[int, int]], scale: int) -> list[Segment]:
    """There may be gaps and overlaps; and one may lie inside the one before, or the one before that."""
    found: list[Segment] = []
    start, end = 0, -1
    for distance, length in shapes:
        start = max(start + 1, end + 1 + distance * scale) if found else max(distance, 0) * scale
        end = start + length * scale
        found.append(Segment(SOURCE, level, OffsetRange(start, end)))
    return found


def is_hidden(segment: Segment, segments: Sequence[Segment], position: int) -> bool:
    """Behind so many others of its level that no listing goes so far back."""
    return sum(segment < other and other.offsets.start < position for other in of_level(segments, segment.level)) >= 2


def of_level(segments: Sequence[Segment], level: int) -> list[Segment]:
    return sorted(s for s in segments if s.level == level)


@st.composite
def archives(draw: st.DrawFn) -> list[Segment]:
    """Archives as egress and compaction leave them."""
    scale = draw(st.sampled_from([1, 1, 1000, 10**9]))
    levels = draw(st.lists(st.sampled_from(LEVELS), unique=True, max_size=3))
    return [s for level in levels for s in in_a_row(level, draw(st.lists(shape, max_size=12)), scale)]


any_segment = st.tuples(st.sampled_from(LEVELS), st.integers(0, 60), st.integers(0, 30)).map(
    lambda t: Segment(SOURCE, t[0], OffsetRange(t[1], t[1] + t[2]))
)
anything = st.lists(any_segment, max_size=25, unique=True)


def stored(segments: Sequence[Segment], *foreign: str) -> SegmentStore:
    objects = MemoryObjectStore()
    for key in [*(format_key("p", segment) for segment in segments), *foreign]:
        objects.put_new(key, BytesIO(b"x"), 1)
    other = Segment(SourcePartition("a", "t", 1), 0, OffsetRange(0, 10**6))
    objects.put_new(format_key("p", other), BytesIO(b"x"), 1)
    return SegmentStore(objects, "p")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of three, so that few segments are many."""
    monkeypatch.setattr(listing, "PAGE", 6)
    monkeypatch.setattr(listing, "SEGMENTS_BEFORE", 4)
    monkeypatch.setattr(listing, "FIRST_REACH", 2)


def near(segments: Sequence[Segment], data: st.DataObject) -> int:
    """A position: at an edge of a segment, or near it, or anywhere."""
    edges = [edge for s in segments for edge in (s.offsets.start, s.offsets.next_offset)] or [0]
    return max(data.draw(st.sampled_from(edges)) + data.draw(st.sampled_from([-1, 0, 0, 0, 1, 700])), 0)


def expected(segments: Sequence[Segment], position: int, limit: int) -> tuple[list[Segment], bool]:
    """All that reaches the position, and the first `limit` of each level that start there."""
    found: list[Segment] = []
    is_cut = False
    for level in sorted({s.level for s in segments}, key=str):
        all_ = of_level(segments, level)
        behind = [s for s in all_ if s.offsets.start >= position]
        found += [s for s in all_ if s.offsets.start < position <= s.offsets.end] + behind[:limit]
        is_cut |= len(behind) > limit
    return found, is_cut


def segments_of(found: Ahead) -> list[Segment]:
    return [info.segment for info in found.infos]


@pytest.mark.usefixtures("small")
class TestAgainstAll:
    @pytest.mark.parametrize("begin", [0, 100])
    def test_few_segments_after_a_page_do_not_hide_those_in_it(self, begin: int) -> None:
        """One more than a page before the position, of which the last but one reaches it."""
        ranges = [*((n, n) for n in range(5)), (5, 7), (6, 6)]
        segments = [Segment(SOURCE, 0, OffsetRange(begin + start, begin + end)) for start, end in ranges]
        found = ahead(stored(segments), SOURCE, begin + 7, reach={0: 7})
        assert segments_of(found) == [segments[5]]

    @property_examples()
    @given(archives(), st.data(), st.integers(1, 6), st.dictionaries(st.sampled_from(LEVELS), st.integers(1, 10**10)))
    def test_needed_segments_are_not_missed(
        self, segments: list[Segment], data: st.DataObject, limit: int, reach: dict[int, int]
    ) -> None:
        """Whatever was known of how far segments reach: a reader makes the same of what was found as of all there is,
        but for a segment that has too many others inside of it."""
        store, position = stored(segments), near(segments, data)
        wanted, is_cut = expected(segments, position, limit)
        first = ahead(store, SOURCE, position, reach=reach, limit=limit)
        for found in (first, ahead(store, SOURCE, position, reach=first.reach, limit=limit)):
            assert found.is_cut == is_cut
            assert set(segments_of(found)) <= set(wanted)
            assert len(segments_of(found)) == len(set(segments_of(found)))
            behind = [s for s in segments_of(found) if s.offsets.start >= position]
            assert behind == [s for s in wanted if s.offsets.start >= position]
            missed = set(wanted) - set(segments_of(found))
            assert all(is_hidden(one, segments, position) for one in missed)
            if missed:
                continue
            assert type(next_step(segments_of(found), position)) is type(next_step(segments, position))
            if not is_cut:
                assert list(steps(segments_of(found), position)) == list(steps(segments, position))

    @property_examples()
    @given(anything, st.data(), st.integers(1, 6))
    def test_ahead_finds_no_more_than_the_full_listing(
        self, segments: list[Segment], data: st.DataObject, limit: int
    ) -> None:
        """A hidden segment is a gap to the reader, which never uses another segment instead."""
        store, position = stored(segments), near(segments, data)
        found = segments_of(ahead(store, SOURCE, position, limit=limit))
        wanted, _ = expected(segments, position, limit)
        assert set(found) <= set(wanted)
        assert [s for s in found if s.offsets.start >= position] == [s for s in wanted if s.offsets.start >= position]

    @property_examples()
    @given(anything, st.data(), st.integers(1, 6))
    def test_all_ahead_finds_every_segment(self, segments: list[Segment], data: st.DataObject, limit: int) -> None:
        store, position = stored(segments), near(segments, data)
        found = all_ahead(store, SOURCE, position, limit=limit)
        assert (segments_of(found), found.is_cut) == expected(segments, position, limit)
        of_found, of_all = next_step(segments_of(found), position), next_step(segments, position)
        if not found.is_cut or isinstance(of_all, Gap):
            assert of_found == of_all
        else:  # a longer one of the same start may be left out: the next listing brings it
            assert type(of_found) is type(of_all)

    @property_examples()
    @given(anything)
    def test_offsets_covered_by_all_segments(self, segments: list[Segment]) -> None:
        assert covered(stored(segments), SOURCE) == joined(s.offsets for s in segments)

    @property_examples()
    @given(anything, st.data())
    def test_offsets_covered_by_segments_before_an_offset(self, segments: list[Segment], data: st.DataObject) -> None:
        before = near(segments, data)
        starting = joined(s.offsets for s in segments if s.offsets.start < before)
        assert covered(stored(segments), SOURCE, before=before) == starting

    def test_foreign_keys_are_left_out(self) -> None:
        segments = [Segment(SOURCE, 0, OffsetRange(n, n)) for n in range(0, 100, 10)]
        prefix = "p/a/t/0/0"
        foreign = [f"{prefix}/{n:020d}-{n:020d}.tmp" for n in range(0, 100, 5)]
        store = stored(segments, *foreign, "p/a/t/0/notes.txt", "p/a/t/0/x/y")
        for position in range(110):
            assert segments_of(ahead(store, SOURCE, position, limit=4)) == expected(segments, position, 4)[0]
            assert segments_of(all_ahead(store, SOURCE, position, limit=4)) == expected(segments, position, 4)[0]


def test_segments_merged_meanwhile_are_found_in_their_new_level() -> None:
    """The level did not exist when the first one was listed."""
    inputs = [Segment(SOURCE, 9, OffsetRange(n, n + 9)) for n in range(0, 40, 10)]
    merged = Segment(SOURCE, 10, OffsetRange(0, 39))

    class Merging(MemoryObjectStore):
        def list(self, prefix: str, **options: Any) -> Any:
            found = super().list(prefix, **options)
            if prefix.endswith("/9/") and self.stat(format_key("p", merged)) is None:
                self.put_new(format_key("p", merged), BytesIO(b"x"), 1)
                self.delete_many([format_key("p", one) for one in inputs])
            return found

    for list_from in (ahead, all_ahead):
        objects = Merging()
        for one in inputs:
            objects.put_new(format_key("p", one), BytesIO(b"x"), 1)
        found = list_from(SegmentStore(objects, "p"), SOURCE, 20)
        assert segments_of(found) == [merged]
