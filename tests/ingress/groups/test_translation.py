"""Each rule of the translation by an example; tests/stateful/test_offset_translation.py has their mixtures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from formats.messages.offset_map import MapPage
from formats.messages.offset_map_index import PageIndex
from infra.archive.map_pages import StoredPages
from ingress.groups.translation import DeliveredRange, Exactness, PartitionMap
from tests.ingress.groups.offset_maps import page, stored

EXACT, REPEATED, TRIMMED = Exactness.EXACT, Exactness.REPEATED, Exactness.TRIMMED
CLAMPED, UNKNOWN = Exactness.CLAMPED, Exactness.UNKNOWN

Expected = tuple[int | None, Exactness]

# Two pages, each of two transactions: markers at 3, 6, 9 and 12 of the target.
USUAL = (page(100, [(100, 0, 3), (105, 4, 2)]), page(110, [(110, 7, 2), (113, 10, 2)]))
USUAL_FACTS = DeliveredRange(log_start=0, log_end=13, applied=117, begun_at=100)


def to_target(pages: Sequence[MapPage], facts: DeliveredRange, *offsets: int) -> list[Expected]:
    with stored(*pages) as there:
        found = [PartitionMap(there, facts).target_of(offset) for offset in offsets]
    return [(one.offset, one.exactness) for one in found]


def to_source(pages: Sequence[MapPage], facts: DeliveredRange, *offsets: int) -> list[Expected]:
    with stored(*pages) as there:
        found = [PartitionMap(there, facts).source_of(offset) for offset in offsets]
    return [(one.offset, one.exactness) for one in found]


class TestToTheTarget:
    def test_a_record_is_where_it_was_delivered(self) -> None:
        assert to_target(USUAL, USUAL_FACTS, 100, 102, 105, 106, 110, 111, 113, 114) == [
            (target, EXACT) for target in (0, 2, 4, 5, 7, 8, 10, 11)
        ]

    def test_a_hole_belongs_to_the_next_record_of_its_page(self) -> None:
        assert to_target(USUAL, USUAL_FACTS, 103, 104, 112) == [(4, EXACT), (4, EXACT), (10, EXACT)]

    def test_a_hole_between_pages_belongs_to_the_end_of_the_earlier_one(self) -> None:
        assert to_target(USUAL, USUAL_FACTS, 107, 109) == [(6, EXACT), (6, EXACT)]

    def test_after_the_last_record_comes_the_end_of_the_map(self) -> None:
        assert to_target(USUAL, USUAL_FACTS, 115, 117) == [(12, EXACT), (12, EXACT)]

    def test_beyond_what_is_applied_it_is_clamped(self) -> None:
        assert to_target(USUAL, USUAL_FACTS, 118, 2**63 - 2) == [(12, CLAMPED), (12, CLAMPED)]

    def test_no_position_is_after_the_end_of_a_target_that_lost_its_tail(self) -> None:
        shorter = DeliveredRange(log_start=0, log_end=5, applied=117, begun_at=100)
        assert to_target(USUAL, shorter, 105, 106, 110, 113) == [(4, EXACT), (5, EXACT), (5, CLAMPED), (5, CLAMPED)]

    def test_before_the_first_record_that_was_ever_delivered_comes_that(self) -> None:
        assert to_target(USUAL, USUAL_FACTS, 0, 99) == [(0, EXACT), (0, EXACT)]
        late = (page(100, [(100, 5, 3)]),)  # after an aborted transaction
        facts = DeliveredRange(log_start=0, log_end=9, applied=103, begun_at=100)
        assert to_target(late, facts, 50, 100) == [(5, EXACT), (5, EXACT)]

    def test_what_was_delivered_before_the_map_is_unknown(self) -> None:
        late = (page(100, [(100, 5, 3)]),)
        for begun_at in (None, 40):
            facts = DeliveredRange(log_start=0, log_end=9, applied=103, begun_at=begun_at)
            assert to_target(late, facts, 50, 99, 100) == [(None, UNKNOWN), (None, UNKNOWN), (5, EXACT)]
            trimmed = DeliveredRange(log_start=5, log_end=9, applied=103, begun_at=begun_at)
            assert to_target(late, trimmed, 50, 99, 100) == [(5, TRIMMED), (5, TRIMMED), (5, EXACT)]

    @pytest.mark.parametrize(
        ("log_start", "expected"),
        [
            (1, [(1, TRIMMED), (1, EXACT), (4, EXACT)]),
            (3, [(3, TRIMMED), (3, TRIMMED), (4, EXACT)]),
            (5, [(5, TRIMMED), (5, TRIMMED), (5, TRIMMED)]),
            (9, [(9, TRIMMED), (9, TRIMMED), (9, TRIMMED)]),
            (13, [(13, TRIMMED), (13, TRIMMED), (13, TRIMMED)]),
        ],
    )
    def test_records_below_the_log_start_are_trimmed(self, log_start: int, expected: list[Expected]) -> None:
        facts = DeliveredRange(log_start=log_start, log_end=13, applied=117, begun_at=100)
        assert to_target(USUAL, facts, 100, 101, 104) == expected

    def test_when_nothing_is_left_the_end_is_still_exact(self) -> None:
        facts = DeliveredRange(log_start=13, log_end=13, applied=117)
        assert to_target(USUAL, facts, 114, 115, 118) == [(13, TRIMMED), (13, EXACT), (13, CLAMPED)]

    def test_of_two_copies_the_first_that_is_left_counts(self) -> None:
        twice = (page(0, [(0, 0, 10)]), page(5, [(5, 10, 10)]))
        whole = DeliveredRange(log_start=0, log_end=20, applied=15)
        assert to_target(twice, whole, 4, 5, 7, 12) == [(4, EXACT), (5, EXACT), (7, REPEATED), (17, EXACT)]
        cut = DeliveredRange(log_start=10, log_end=20, applied=15)
        assert to_target(twice, cut, 4, 7, 12) == [(10, TRIMMED), (12, EXACT), (17, EXACT)]
        between = DeliveredRange(log_start=8, log_end=20, applied=15)
        assert to_target(twice, between, 7, 8) == [(8, TRIMMED), (8, REPEATED)]

    def test_a_skipped_range_has_no_records(self) -> None:
        skipped = (page(0, [(0, 0, 10)]), page(500, [(500, 11, 10)]))
        facts = DeliveredRange(log_start=0, log_end=22, applied=510)
        assert to_target(skipped, facts, 10, 400, 500) == [(10, EXACT), (10, EXACT), (11, EXACT)]

    def test_records_that_were_filled_in_later_skip_nothing(self) -> None:
        """Passed over by a seed, and then delivered after all."""
        filled = (page(0, [(0, 0, 10)]), page(500, [(500, 11, 10)]), page(10, [(10, 22, 490)]))
        facts = DeliveredRange(log_start=0, log_end=513, applied=500)
        assert to_target(filled, facts, 5, 10, 300, 505) == [
            (5, EXACT),
            (10, EXACT),
            (10, REPEATED),  # the first record to be read is 500, and those from 10 on come after it
            (16, REPEATED),
        ]

    def test_a_target_that_lost_records_holds_a_page_up_to_the_next_one(self) -> None:
        """An election of a replica that had less: its offsets were given to others."""
        lost = (page(0, [(0, 0, 10)]), page(10, [(10, 6, 3)]))
        facts = DeliveredRange(log_start=0, log_end=9, applied=13)
        assert to_target(lost, facts, 5, 6, 9, 10, 12) == [(5, EXACT), (6, EXACT), (6, EXACT), (6, EXACT), (8, EXACT)]
        assert to_source(lost, facts, 5, 6, 9) == [(5, EXACT), (10, EXACT), (13, EXACT)]

    def test_an_owner_that_was_frozen_adds_nothing_to_the_page_that_it_left(self) -> None:
        """At least once: it delivers again what the next owner has delivered, and writes its own page longer."""
        late = (page(0, [(0, 0, 10), (10, 30, 5)]), page(10, [(10, 11, 10)]))
        facts = DeliveredRange(log_start=0, log_end=35, applied=20)
        assert to_target(late, facts, 5, 12, 20) == [(5, EXACT), (13, EXACT), (21, EXACT)]
        assert to_source(late, facts, 5, 13, 21, 32) == [(5, EXACT), (12, EXACT), (20, EXACT), (20, EXACT)]


class TestToTheSource:
    def test_a_record_is_where_it_came_from(self) -> None:
        assert to_source(USUAL, USUAL_FACTS, 0, 2, 4, 5, 7, 8, 10, 11) == [
            (source, EXACT) for source in (100, 102, 105, 106, 110, 111, 113, 114)
        ]

    def test_a_hole_belongs_to_the_next_record_or_to_the_end_of_the_earlier_page(self) -> None:
        assert to_source(USUAL, USUAL_FACTS, 3, 6, 9) == [(105, EXACT), (107, EXACT), (113, EXACT)]

    def test_after_the_last_record_comes_what_follows_at_the_source(self) -> None:
        assert to_source(USUAL, USUAL_FACTS, 12, 13) == [(115, EXACT), (115, EXACT)]

    def test_beyond_the_end_it_is_clamped(self) -> None:
        assert to_source(USUAL, USUAL_FACTS, 14, 999) == [(115, CLAMPED), (115, CLAMPED)]

    def test_below_the_log_start_it_is_the_first_that_is_left(self) -> None:
        facts = DeliveredRange(log_start=5, log_end=13, applied=117)
        assert to_source(USUAL, facts, 0, 4, 5) == [(106, TRIMMED), (106, TRIMMED), (106, EXACT)]

    def test_before_the_map_it_is_unknown(self) -> None:
        late = (page(100, [(100, 5, 3)]),)
        facts = DeliveredRange(log_start=2, log_end=9, applied=103)
        assert to_source(late, facts, 0, 4, 5) == [(None, UNKNOWN), (None, UNKNOWN), (100, EXACT)]
        whole = DeliveredRange(log_start=2, log_end=9, applied=103, begun_at=100)
        assert to_source(late, whole, 2, 4, 5) == [(100, EXACT), (100, EXACT), (100, EXACT)]

    def test_records_that_come_again_are_read_again_and_none_is_skipped(self) -> None:
        twice = (page(0, [(0, 0, 10)]), page(5, [(5, 10, 10)]))
        facts = DeliveredRange(log_start=0, log_end=20, applied=15)
        assert to_source(twice, facts, 3, 8, 12, 15) == [(3, EXACT), (5, REPEATED), (7, REPEATED), (10, EXACT)]

    def test_records_that_were_filled_in_later_are_not_skipped(self) -> None:
        filled = (page(0, [(0, 0, 10)]), page(500, [(500, 11, 10)]), page(10, [(10, 22, 490)]))
        facts = DeliveredRange(log_start=0, log_end=513, applied=500)
        assert to_source(filled, facts, 10, 11, 15, 30) == [(10, EXACT), (10, EXACT), (10, REPEATED), (18, REPEATED)]


class NoPages:
    """Of a partition without a page."""

    index = PageIndex()

    def page(self, number: int) -> MapPage:
        raise IndexError(number)

    def record(self, number: int) -> tuple[bytes, bytes]:
        raise IndexError(number)


class TestWithoutAPage:
    def test_an_empty_target_has_one_place(self) -> None:
        new = PartitionMap(NoPages(), DeliveredRange(log_start=0, log_end=0, applied=7, begun_at=5))
        assert [new.target_of(offset).exactness for offset in (0, 7, 8)] == [EXACT, EXACT, CLAMPED]
        assert {new.target_of(offset).offset for offset in (0, 7, 8)} == {0}
        assert (new.source_of(0).offset, new.source_of(0).exactness) == (5, EXACT)
        assert (new.source_of(1).offset, new.source_of(1).exactness) == (5, CLAMPED)

    def test_an_emptied_target_has_its_end(self) -> None:
        emptied = PartitionMap(NoPages(), DeliveredRange(log_start=9, log_end=9, applied=7, begun_at=0))
        found = [emptied.target_of(offset) for offset in (6, 7, 8)]
        assert [(one.offset, one.exactness) for one in found] == [(9, TRIMMED), (9, EXACT), (9, CLAMPED)]
        assert emptied.source_of(9).exactness is UNKNOWN

    def test_records_without_a_page_are_unknown(self) -> None:
        full = PartitionMap(NoPages(), DeliveredRange(log_start=0, log_end=9, applied=7, begun_at=0))
        assert {full.target_of(offset).exactness for offset in (0, 7, 8)} == {UNKNOWN}
        assert full.source_of(0).exactness is UNKNOWN


@pytest.fixture
def usual() -> Iterator[StoredPages]:
    with stored(*USUAL) as there:
        yield there


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1, 2**63])
def test_what_is_no_offset_is_refused(usual: StoredPages, offset: int) -> None:
    found = PartitionMap(usual, USUAL_FACTS)
    for translate in (found.target_of, found.source_of):
        with pytest.raises(ValueError, match=f"not an offset: {offset}"):
            translate(offset)


@pytest.mark.parametrize(("log_start", "log_end", "applied"), [(-1, 0, 0), (2, 1, 0), (0, 0, -1)])
def test_facts_that_cannot_be_are_refused(log_start: int, log_end: int, applied: int) -> None:
    with pytest.raises(ValueError, match="not a partition"):
        DeliveredRange(log_start=log_start, log_end=log_end, applied=applied)


def test_a_lookup_decodes_few_pages() -> None:
    many = [page(n * 10, [(n * 10, n * 11, 5)]) for n in range(1000)]

    class Counted(NoPages):
        def __init__(self, there: StoredPages) -> None:
            self.index, self.there, self.read = there.index, there, set[int]()

        def page(self, number: int) -> MapPage:
            self.read.add(number)
            return self.there.page(number)

    with stored(*many) as there:
        for log_start in (0, 5000):
            facts = DeliveredRange(log_start=log_start, log_end=11_000, applied=10_000, begun_at=0)
            for offset in range(0, 11_000, 7):
                for reverse in (False, True):
                    counted = Counted(there)
                    found = PartitionMap(counted, facts)
                    found.source_of(offset) if reverse else found.target_of(offset)
                    assert len(counted.read) <= 3
