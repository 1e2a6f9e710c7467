"""The index of a map's pages, against a list of them."""

from __future__ import annotations

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
class Page:
    start: int
    end: int
    lowest: int
    highest: int
    position: int
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
    index, known = PageIndex(), dict[int, Page]()
    for number, change in enumerate(some):
        if isinstance(change, int):
            before = known.pop(change, None)
            assert index.remove(change) == (before.place if before else None)
        else:
            runs, place = change.runs, PagePlace(number * 100, number)
            before = known.get(change.start)
            assert index.put(change, place) == (before.place if before else None)
            known[change.start] = Page(
                change.start, runs.target_end, runs.lowest_source, runs.source_end, change.position, place
            )
        check(index, [known[start] for start in sorted(known)])


def check(index: PageIndex, pages: list[Page]) -> None:
    next_starts = [*(one.start for one in pages), 2**63][1:]
    ends = [min(one.end, later) for one, later in zip(pages, next_starts, strict=False)]
    assert len(index) == len(pages)
    assert list(index.starts) == [one.start for one in pages]
    for number, one in enumerate(pages):
        assert (index.start(number), index.end(number)) == (one.start, ends[number])
        assert (index.position(number), index.place(number)) == (one.position, one.place)
    for offset in range(0, 60, 3):
        assert index.starting_up_to(offset) == sum(one.start <= offset for one in pages)
        assert index.ending_after(offset) == next((n for n, end in enumerate(ends) if end > offset), len(pages))
    for number in range(len(pages) + 1):
        assert index.highest_before(number) == max((one.highest for one in pages[:number]), default=0)
        assert index.lowest_from(number) == min((one.lowest for one in pages[number:]), default=None)
        for source in range(0, 60, 3):
            reaching = (n for n, one in enumerate(pages) if n >= number and one.highest > source)
            assert index.reaching(source, number) == next(reaching, len(pages))


def test_a_page_may_be_kept_elsewhere() -> None:
    index = PageIndex()
    index.put(MapPage(KEY, 0, offset_runs([(0, 0, 1)])), PagePlace(0, 7))
    index.move(0, 300)
    assert index.place(0) == PagePlace(300, 7)
