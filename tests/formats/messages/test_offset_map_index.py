"""The index of a map's pages, against a list of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from formats.messages.offset_map import MapPage
from formats.messages.offset_map_index import PageIndex, PagePlace
from formats.records.offset_runs import offset_runs
from tests.examples import property_examples
from tests.formats.messages.test_offset_map import KEY

starts = st.integers(0, 40)
row = st.tuples(st.integers(0, 40), st.integers(0, 4), st.integers(1, 9))


@dataclass(frozen=True, slots=True)
class Put:
    page: MapPage
    place: PagePlace


@st.composite
def changes(draw: st.DrawFn) -> list[MapPage | int]:
    """Pages that are put, and starts of pages that are removed."""
    found: list[MapPage | int] = []
    for start in draw(st.lists(starts, max_size=15)):
        if draw(st.booleans()) and draw(st.booleans()):
            found.append(start)
            continue
        rows, target = [], start
        for source, gap, count in draw(st.lists(row, min_size=1, max_size=3)):
            rows.append((source, target, count))
            target += count + gap
        found.append(MapPage(KEY, draw(st.integers(0, 40)), offset_runs(rows)))
    return found


@property_examples()
@given(changes())
def test_lookups_are_those_of_a_list(some: list[MapPage | int]) -> None:
    index, known = PageIndex(), dict[int, Put]()

    def read(number: int) -> MapPage:
        return known[index.start(number)].page

    for number, change in enumerate(some):
        if isinstance(change, int):
            before = known.pop(change, None)
            assert index.remove(change, read) == (before.place if before else None)
        else:
            replaced = [known[start].place for start in lost(known, change)]
            place = PagePlace(number * 100, number)
            assert index.put(change, place, read) == replaced
            for start in lost(known, change):
                del known[start]
            known[change.start] = Put(change, place)
        check(index, [known[start] for start in sorted(known)])


def lost(known: Mapping[int, Put], page: MapPage) -> list[int]:
    """The page that this one replaces, and all from the first one on that has other records at one of its offsets."""
    there = targets(page)
    overlapped = (start for start in sorted(known) if start > page.start and there & targets(known[start].page))
    first = next(overlapped, 2**63)
    return [start for start in sorted(known) if start == page.start or start >= first]


def targets(page: MapPage) -> set[int]:
    return {target + n for _, target, count in page.runs.rows() for n in range(count)}


def check(index: PageIndex, put: list[Put]) -> None:
    """A page holds up to the start of the next one."""
    starts = [one.page.start for one in put]
    pages = [one.page.runs.within(0, later) for one, later in zip(put, [*starts, 2**63 - 1][1:], strict=False)]
    assert len(index) == len(put)
    assert list(index.starts) == starts
    for number, (one, runs) in enumerate(zip(put, pages, strict=True)):
        assert (index.start(number), index.end(number)) == (one.page.start, runs.target_end)
        assert (index.position(number), index.place(number)) == (one.page.position, one.place)
    for offset in range(0, 60, 3):
        assert index.starting_up_to(offset) == sum(start <= offset for start in starts)
        ending = (number for number, runs in enumerate(pages) if runs.target_end > offset)
        assert index.ending_after(offset) == next(ending, len(pages))
    for number in range(len(pages) + 1):
        assert index.highest_before(number) == max((runs.source_end for runs in pages[:number]), default=0)
        assert index.lowest_from(number) == min((runs.lowest_source for runs in pages[number:]), default=None)
        for source in range(0, 60, 3):
            reaching = (n for n, runs in enumerate(pages) if n >= number and runs.source_end > source)
            assert index.reaching(source, number) == next(reaching, len(pages))


def never(number: int) -> MapPage:
    raise AssertionError(number)


def test_a_page_may_be_kept_elsewhere() -> None:
    index = PageIndex()
    index.put(MapPage(KEY, 0, offset_runs([(0, 0, 1)])), PagePlace(0, 7), never)
    index.move(0, 300)
    assert index.place(0) == PagePlace(300, 7)


def test_what_was_written_after_the_target_lost_its_tail_holds() -> None:
    """1140 to 1302 were lost with the end of the first page, and 1100 to 1200 delivered again."""
    index, pages = PageIndex(), [page(1000, 140), page(1140, 100), page(1240, 62), page(1100, 100)]
    known = {one.start: one for one in pages}
    for number, one in enumerate(pages):
        index.put(one, PagePlace(number, 7), lambda number: known[index.start(number)])
    assert [(index.start(number), index.end(number)) for number in range(len(index))] == [(1000, 1100), (1100, 1200)]


def test_pages_between_whose_records_others_wrote_both_hold() -> None:
    """An owner that was frozen goes on beside the next one, at least once: each has its own offsets."""
    index, pages = PageIndex(), [page(0, 5), MapPage(KEY, 5, offset_runs([(5, 5, 2), (7, 9, 2)]))]
    pages.append(MapPage(KEY, 0, offset_runs([(0, 0, 5), (5, 7, 2)])))
    known = {one.start: one for one in pages}
    for one in pages:
        index.put(one, PagePlace(0, 7), lambda number: known[index.start(number)])
    assert [(index.start(number), index.end(number)) for number in range(len(index))] == [(0, 5), (5, 11)]


def test_a_page_holds_again_up_to_its_end_when_the_one_that_cut_it_is_lost() -> None:
    """What is known is the same after a restart, which finds only the pages that are left."""
    index, pages = PageIndex(), [page(13, 2), page(14, 2)]
    pages.append(MapPage(KEY, 0, offset_runs([(8, 8, 5), (15, 15, 1)])))
    known = {one.start: one for one in pages}
    for one in pages:
        index.put(one, PagePlace(0, 7), lambda number: known[index.start(number)])
    assert [(index.start(number), index.end(number)) for number in range(len(index))] == [(8, 13), (13, 15)]


def page(start: int, count: int) -> MapPage:
    return MapPage(KEY, start, offset_runs([(start, start, count)]))


def test_pages_in_order_are_never_read_again() -> None:
    index = PageIndex()
    for number in range(9):
        index.put(MapPage(KEY, 0, offset_runs([(number, number, 1)])), PagePlace(0, 7), never)
    assert len(index) == 9
