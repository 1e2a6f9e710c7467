"""Which page of a partition's offset map has the answer to a lookup, without a page being decoded.

    start       1000  1140  1302     first offset at the target of each page; pages lie in this order
    lowest        40    95   130     lowest offset at the source, and the offset after the highest one
    highest       96   130   211
    ─────────────────────────────────────────────────────────────────────────────────────────────
    running maximum of `highest`     ascends: the first page with a source offset, by bisection
    minimum of `lowest` from there   says whether a later page goes back behind an offset

Arrays of integers, 72 bytes for each page: a million pages take 72 MB, and ten million runs have fewer than eighty
thousand. What is derived from the columns is computed by the first lookup after a change. Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from formats.messages.offset_map import MapPage


@dataclass(frozen=True, slots=True)
class PagePlace:
    """Where the bytes of a page are kept."""

    at: int
    size_bytes: int


class PageIndex:
    """The pages of one partition, numbered from 0 in order of their start at the target, put in the order in which they
    were written. A page that goes beyond the start of the next one holds up to there: the next one was written after
    the target had lost records of this one, or this one goes on with what an owner that was frozen delivered again. A
    page with other records at offsets of later pages was written after the target had lost theirs, and what followed
    them: those pages are dropped."""

    def __init__(self) -> None:
        self._starts, self._ends, self._positions, self._lowest, self._highest, self._at, self._sizes = (
            _offsets() for _ in range(7)
        )
        self._reach: tuple[int, array[int]] | None = None  # from which page on, and the running maximum of `highest`
        self._before: array[int] | None = None  # the running maximum of `highest` over all pages
        self._from: array[int] | None = None  # the minimum of `lowest` over a page and all later ones

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def starts(self) -> Iterator[int]:
        return iter(self._starts)

    def put(self, page: MapPage, place: PagePlace, read: Callable[[int], MapPage]) -> Sequence[PagePlace]:
        """Add a page, or replace the one with its start. Returns the places of those it replaces. `read`: a page by its
        number, as it was written; rarely called."""
        replaced = []
        number = bisect_left(self._starts, page.start)
        if number < len(self) and self._starts[number] == page.start:
            replaced.append(self.place(number))
        else:
            for column in self._columns:
                column.insert(number, 0)
        first_lost = next(
            (later for later in self._within(number, page.runs.target_end) if read(later).runs.overlaps(page.runs)),
            len(self),
        )
        lost = range(first_lost, len(self))
        replaced += map(self.place, lost)
        for column in self._columns:
            del column[first_lost:]
        self._set(number, page, place)
        if lost and number < first_lost - 1:
            self._reread(first_lost - 1, read)
        if number and self._ends[number - 1] > page.start:
            self._reread(number - 1, read)
        return replaced

    def remove(self, start: int, read: Callable[[int], MapPage]) -> PagePlace | None:
        """Remove the page with this start. Returns its place; None when there is none."""
        number = bisect_left(self._starts, start)
        if number == len(self) or self._starts[number] != start:
            return None
        removed = self.place(number)
        for column in self._columns:
            del column[number]
        self._changed()
        if number:
            self._reread(number - 1, read)
        return removed

    def start(self, number: int) -> int:
        return self._starts[number]

    def end(self, number: int) -> int:
        """After the last offset at the target."""
        return self._ends[number]

    def position(self, number: int) -> int:
        """Source offset that the delivery stood at before the page."""
        return self._positions[number]

    def place(self, number: int) -> PagePlace:
        return PagePlace(self._at[number], self._sizes[number])

    def move(self, number: int, at: int) -> None:
        """The page's bytes are kept elsewhere."""
        self._at[number] = at

    def starting_up_to(self, target: int) -> int:
        """How many pages start at this offset or below it."""
        return bisect_right(self._starts, target)

    def ending_after(self, target: int) -> int:
        """The first page that ends after this offset; the number of pages when there is none."""
        number = self.starting_up_to(target)
        return number - 1 if number and self._ends[number - 1] > target else number

    def reaching(self, source: int, since: int) -> int:
        """The first page, of number `since` or higher, that has a record at this source offset or a higher one; the
        number of pages when there is none."""
        if since >= len(self):
            return len(self)
        if self._reach is None or self._reach[0] != since:
            self._reach = since, _offsets(accumulate(self._highest[since:], max))
        return since + bisect_right(self._reach[1], source)

    def highest_before(self, number: int) -> int:
        """After the highest source offset of the pages before this one; 0 when there is none."""
        if self._before is None:
            self._before = _offsets(accumulate(self._highest, max))
        return self._before[number - 1] if number else 0

    def lowest_from(self, number: int) -> int | None:
        """Lowest source offset of this page and all later ones; None when there is none."""
        if self._from is None:
            self._from = _offsets(accumulate(reversed(self._lowest), min))
            self._from.reverse()
        return self._from[number] if number < len(self) else None

    def _within(self, number: int, end: int) -> range:
        """Pages after this one that start below this offset of the target."""
        return range(number + 1, bisect_left(self._starts, end, lo=number + 1))

    @property
    def _columns(self) -> tuple[array[int], ...]:
        return self._starts, self._ends, self._positions, self._lowest, self._highest, self._at, self._sizes

    def _set(self, number: int, page: MapPage, place: PagePlace) -> None:
        runs = page.runs
        if number + 1 < len(self) and runs.target_end > self._starts[number + 1]:
            runs = runs.within(page.start, self._starts[number + 1])
        row = (page.start, runs.target_end, page.position, runs.lowest_source, runs.source_end)
        for column, value in zip(self._columns, (*row, place.at, place.size_bytes), strict=True):
            column[number] = value
        self._changed()

    def _reread(self, number: int, read: Callable[[int], MapPage]) -> None:
        """Where the next page is another one by now: this one was cut there, or may be now, and may end in a hole
        before it."""
        self._set(number, read(number), self.place(number))

    def _changed(self) -> None:
        self._reach = self._before = self._from = None


def _offsets(values: Iterable[int] = ()) -> array[int]:
    return array("q", values)
