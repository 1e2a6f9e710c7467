"""Where a consumer continues at the target that stood at an offset of the source, and the other way round.

    source      100 101 102  ·  ·  105 106          ·  no record: a hole
    target        7   8   9  m     11  12  m        m  transaction marker

    ──> target    100 is 7; 103, 104 and 105 are 11; 107 is 13, after the last record
    ──> source      7 is 100; 10 and 11 are 105; 13 is 107

1. An offset stands for the records that are yet to be read: those from it on. Its translation is the highest offset on
   the other side before which none of them lies. So no record is skipped, whatever happened to the partition.
2. A hole belongs to the next record of its page. Between two pages it belongs to the end of the earlier one: what was
   delivered in between without a map, by another program, is read again and not skipped.
3. Of records that are at the target twice, the first copies count that are still there.
4. `TRIMMED`: records from this offset on were at the target, below its log start. The translation is the log start, and
   what is left of them follows it. An offset of the target below its log start stands for the log start.
5. `CLAMPED`: the offset is beyond what is applied, or beyond the target's end. The translation is the end of the map.
6. `UNKNOWN`: the target has records from before the map, and the offset may be one of theirs. There is no translation.
7. `REPEATED`: some of the records after the translation were read before, since records were delivered twice, or a
   position was set by hand.

Pure but for the pages, which `PartitionPages` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from formats.records.offset_runs import OffsetRuns
from formats.records.run_index import IndexedRecord, RunIndex
from infra.contracts.internal_topics import PartitionPages

END_OF_OFFSETS = 2**63 - 1


class Exactness(Enum):
    EXACT = "exact"  # every record from the offset on follows, and no other
    REPEATED = "repeated"  # every record from the offset on follows, and some that were read before
    TRIMMED = "trimmed"  # records from the offset on were removed at the target; those that are left follow
    CLAMPED = "clamped"  # the offset lies beyond the end of the map, which is the translation
    UNKNOWN = "unknown"  # the map began after records that may lie there


@dataclass(frozen=True, slots=True)
class Translation:
    offset: int | None  # on the other side; None when it is unknown
    exactness: Exactness


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredRange:
    """Where the destination partition begins and ends, and how far it was delivered. Read in this order, and before the
    pages: so nothing that was applied then is missing from them."""

    log_start: int
    log_end: int
    applied: int = 0  # next offset of the checkpoint
    begun_at: int | None = (
        None  # of the checkpoint: lowest source offset that was ever to be delivered; None: not known
    )

    def __post_init__(self) -> None:
        if not 0 <= self.log_start <= self.log_end or self.applied < 0:
            raise ValueError(f"not a partition: {self.log_start}-{self.log_end}, delivered up to {self.applied}")


@dataclass(frozen=True, slots=True)
class _OpenPage:
    number: int
    runs: OffsetRuns  # up to where the next page begins, also below the log start
    there: RunIndex  # of those at the log start and after it


class _OpenPages:
    """Two pages that some lookups need again and again: the one with the log start, and the last one that was found."""

    def __init__(self, read: Callable[[int], _OpenPage]) -> None:
        self._read = read
        self._first: _OpenPage | None = None
        self._later: _OpenPage | None = None

    def first(self, number: int) -> _OpenPage:
        if self._first is None or self._first.number != number:
            self._first = self._read(number)
        return self._first

    def later(self, number: int) -> _OpenPage:
        if self._later is None or self._later.number != number:
            self._later = self._read(number)
        return self._later


class PartitionMap:
    """Translates the offsets of one source partition and one incarnation of its destination. A lookup bisects the pages
    and decodes one of them, or two. Lookups to the target in ascending order decode each page once."""

    def __init__(self, pages: PartitionPages, delivered: DeliveredRange) -> None:
        self._pages, self._index = pages, pages.index
        self._delivered, self._log_start = delivered, delivered.log_start

    @property
    def first_target(self) -> int | None:
        """Offset at the target of the first record of the map; None: it has none."""
        return self._index.start(0) if len(self._index) else None

    @property
    def first_position(self) -> int | None:
        """Source offset that the delivery stood at before it."""
        return self._index.position(0) if len(self._index) else None

    def target_of(self, source: int) -> Translation:
        """Where a consumer continues at the target that would read `source` next. Raises ValueError for what is no
        offset."""
        return self.targets_of((source,))[0]

    def targets_of(self, sources: Iterable[int]) -> Sequence[Translation]:
        """`target_of` each, in the order that is given; ascending is quickest by far."""
        pages = _OpenPages(self._open)
        return [self._within_log(self._target_of(source, pages)) for source in sources]

    def _within_log(self, found: Translation) -> Translation:
        if found.offset is not None and found.offset > self._delivered.log_end:
            return Translation(self._delivered.log_end, Exactness.CLAMPED)  # the target lost its tail, or is a new one
        return found

    def _target_of(self, source: int, pages: _OpenPages) -> Translation:
        check_offset(source)
        if not len(self._index):
            return self._without_a_page(source)
        page = self._reaching(source, pages)
        record = None if page is None else page.there.first_reaching(source)
        if page is None or record is None:
            return self._after_all(source)
        if record.source != source and (other := self._before_record(page, record, source)) is not None:
            return other
        lowest, later = page.there.lowest_from(record), self._index.lowest_from(page.number + 1)
        follows = source <= (lowest if later is None else min(lowest, later))
        return Translation(record.target, Exactness.EXACT if follows else Exactness.REPEATED)

    def source_of(self, target: int) -> Translation:
        """Where a consumer continues at the source that would read `target` next. Raises ValueError for what is no
        offset."""
        check_offset(target)
        if not len(self._index):
            return self._never_delivered(target)
        at = max(target, self._log_start)
        number = self._index.ending_after(at)
        if number == len(self._index):
            source = self._source_end(number - 1)
        else:
            runs = self._runs(number)
            source = _lowest(runs.within(at, END_OF_OFFSETS), self._index.lowest_from(number + 1))
            if at < runs.target_start:
                if number:
                    source = min(source, self._source_end(number - 1))
                elif not self._is_whole(number):
                    return Translation(None, Exactness.UNKNOWN)
        if target > self._delivered.log_end:
            return Translation(source, Exactness.CLAMPED)
        if target < self._log_start:
            return Translation(source, Exactness.TRIMMED)
        return Translation(source, Exactness.EXACT if self._read_before(number, at) <= source else Exactness.REPEATED)

    # --- to the target ---

    def _without_a_page(self, source: int) -> Translation:
        end, applied = self._delivered.log_end, self._delivered.applied
        if self._log_start < end:
            return Translation(None, Exactness.UNKNOWN)
        if source > applied:
            return Translation(end, Exactness.CLAMPED)
        return Translation(end, Exactness.TRIMMED if end and source < applied else Exactness.EXACT)

    def _after_all(self, source: int) -> Translation:
        """No record that is left has this source offset or a higher one."""
        last = len(self._index) - 1
        highest = self._index.highest_before(last + 1)
        offset = max(self._index.end(last), self._log_start)
        if source < highest:
            return Translation(offset, Exactness.TRIMMED)
        beyond = source > max(highest, self._delivered.applied)
        return Translation(offset, Exactness.CLAMPED if beyond else Exactness.EXACT)

    def _before_record(self, page: _OpenPage, record: IndexedRecord, source: int) -> Translation | None:
        """The translation of an offset without a record, of which `record` is the first one after it, when that is not
        where the record is: since the offset is no hole right before it."""
        before = page.there.end_before(record.run) or page.runs.source_end_before(record.target)
        if before is not None:  # the record before it is below the log start
            return Translation(self._log_start, Exactness.TRIMMED) if source < before else None
        if source >= self._index.position(page.number) or self._is_whole(page.number):
            return None
        if page.runs.target_start <= self._log_start:
            return Translation(self._log_start, Exactness.TRIMMED)
        if not page.number:
            return Translation(None, Exactness.UNKNOWN)
        offset = max(self._index.end(page.number - 1), self._log_start)
        if source < self._source_end(page.number - 1):
            return Translation(offset, Exactness.TRIMMED)
        later = self._index.lowest_from(page.number)
        return Translation(offset, Exactness.REPEATED if later is not None and later < source else Exactness.EXACT)

    def _reaching(self, source: int, pages: _OpenPages) -> _OpenPage | None:
        """The first page that has, at the log start or after it, a record at this source offset or a higher one."""
        number = self._index.ending_after(self._log_start)
        if number == len(self._index):
            return None
        page = pages.first(number)
        if page.there.first_reaching(source) is None:  # or below the log start only
            number = self._index.reaching(source, number + 1)
            return None if number == len(self._index) else pages.later(number)
        return page

    def _open(self, number: int) -> _OpenPage:
        runs = self._runs(number)
        return _OpenPage(number, runs, RunIndex(runs.within(self._log_start, END_OF_OFFSETS)))

    # --- to the source ---

    def _never_delivered(self, target: int) -> Translation:
        """Without a page."""
        begun_at = self._delivered.begun_at
        if self._delivered.log_end or begun_at is None:
            return Translation(None, Exactness.UNKNOWN)
        return Translation(begun_at, Exactness.CLAMPED if target else Exactness.EXACT)

    def _read_before(self, number: int, target: int) -> int:
        """After the highest source offset below this target offset, which is in page `number` or before it."""
        before = self._index.highest_before(number)
        if number == len(self._index):
            return before
        return max(before, self._runs(number).within(0, target).source_end)

    # --- pages ---

    def _is_whole(self, number: int) -> bool:
        """Whether nothing was delivered before this page."""
        begun_at = self._delivered.begun_at
        return not number and begun_at is not None and self._index.position(number) <= begun_at

    def _runs(self, number: int) -> OffsetRuns:
        runs, end = self._pages.page(number).runs, self._index.end(number)
        return runs if runs.target_end == end else runs.within(0, end)

    def _source_end(self, number: int) -> int:
        """Source offset after the last record of this page."""
        runs = self._runs(number)
        return int(runs.source[-1].as_py() + runs.count[-1].as_py())


def _lowest(runs: OffsetRuns, later: int | None) -> int:
    """Lowest source offset of these and of later ones."""
    return runs.lowest_source if later is None else min(runs.lowest_source, later)


def check_offset(offset: int) -> None:
    """Raises ValueError for what is no offset."""
    if not 0 <= offset < END_OF_OFFSETS:
        raise ValueError(f"not an offset: {offset}")
