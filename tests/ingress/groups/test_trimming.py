"""Which pages of the offset map go, and what stays exact all the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from formats.messages.map_key import MapKey
from formats.messages.offset_map import MapPage
from formats.messages.offset_map_index import PageIndex, PagePlace
from infra.contracts.cluster import TopicPartition
from ingress.groups.translation import DeliveredRange, PartitionMap
from ingress.groups.trimming import MapTrim, pages_below, trims
from tests.examples import property_examples
from tests.ingress.groups.offset_maps import KEY, page, stored

OTHER = replace(KEY, destination_id="id-0")
WHERE = TopicPartition("us.orders", 3)


def index(*starts: int) -> PageIndex:
    """Pages of 5 records; offsets without a record may follow each."""
    made = PageIndex()
    for start in starts:
        made.put(page(start, [(start, start, 5)]), PagePlace(0, 0), made_up)
    return made


def made_up(number: int) -> MapPage:
    raise AssertionError(number)


def decided(
    log_starts: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str | None],
    maps: Mapping[MapKey, PageIndex] | None = None,
    known: tuple[MapKey, ...] = (KEY, OTHER),
) -> list[MapTrim]:
    return list(trims(maps or {KEY: index(0, 6, 12)}, log_starts, topic_ids, known))


def test_a_page_goes_when_the_next_one_begins_at_the_log_start() -> None:
    found = [pages_below(index(0, 6, 12), log_start) for log_start in (0, 4, 5, 6, 11, 12, 99)]
    assert found == [0, 0, 0, 1, 1, 2, 2]
    assert pages_below(index(), 99) == 0


def test_the_log_start_decides() -> None:
    assert decided({WHERE: 7}, {"us.orders": "id-1"}) == [MapTrim(KEY, (0,), 6)]
    assert decided({WHERE: 99}, {"us.orders": "id-1"}) == [MapTrim(KEY, (0, 6), 12)]
    assert decided({WHERE: 5}, {"us.orders": "id-1"}) == []


def test_the_map_of_a_destination_that_is_gone_goes_whole() -> None:
    maps = {KEY: index(0, 6), OTHER: index(0)}
    assert decided({WHERE: 6}, {"us.orders": "id-1"}, maps) == [MapTrim(KEY, (0,), 6), MapTrim(OTHER, (0,), None)]
    assert decided({}, {"us.orders": None}, maps) == [MapTrim(KEY, (0, 6), None), MapTrim(OTHER, (0,), None)]


def test_what_is_not_known_stays() -> None:
    assert decided({WHERE: 99}, {}) == []
    assert decided({}, {"us.orders": "id-1"}) == []
    assert decided({TopicPartition("us.orders", 4): 99}, {"us.orders": "id-1"}) == []


def test_a_map_that_is_newer_than_the_topic_ids_stays() -> None:
    """The destination was created again after it was described."""
    maps = {KEY: index(0), OTHER: index(0)}
    assert decided({WHERE: 0}, {"us.orders": "id-0"}, maps, known=(OTHER,)) == []
    assert decided({WHERE: 0}, {"us.orders": "id-0"}, maps) == [MapTrim(KEY, (0,), None)]


@property_examples()
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=8), st.integers(0, 40))
def test_no_translation_changes(shapes: list[tuple[int, int]], log_start: int) -> None:
    """By pages that the rule removes, of a delivery in order: neither an offset nor how exact it is."""
    pages, source, target = [], 0, 0
    for count, gap in shapes:
        pages.append(page(source, [(source, target, count)]))
        source, target = source + count + 1, target + count + gap
    end = max(target, log_start)
    facts = DeliveredRange(log_start=log_start, log_end=end, applied=source)
    with stored(*pages) as before, stored(*pages[pages_below(before.index, log_start) :]) as after:
        assert len(after.index) >= 1
        whole, rest = PartitionMap(before, facts), PartitionMap(after, facts)
        for offset in range(end + source + 3):
            assert whole.target_of(offset) == rest.target_of(offset), offset
            assert whole.source_of(offset) == rest.source_of(offset), offset
