"""Copies of offset maps in the bucket: read back they are the topic's pages, whatever died, and however often."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.thinning import GenerationThinner, ThinnedKind
from formats.control.keys import OFFSET_MAPS, offset_map_prefix, offset_maps_prefix
from formats.errors import MalformedEvent, SegmentNotFound, StoreUnavailable
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.messages.map_key import MapKey
from formats.messages.offset_map import MapPage
from formats.segment import OffsetRange
from infra.archive import offset_maps
from infra.archive.map_pages import PagedMaps
from infra.archive.offset_maps import OffsetMapCopier, OffsetMapCopies
from infra.runtime.lifecycle import Stop
from ingress.groups.translation import DeliveredRange, PartitionMap
from tests.contracts.offset_map_log import pages_of
from tests.examples import property_examples
from tests.fakes.kafka_offset_map import FakeOffsetMap
from tests.fakes.surroundings import T0, FailingStore, HandClock
from tests.ingress.catalog.test_killed_applier import dies_at
from tests.ingress.groups.offset_maps import KEY, page

REGION = "eu"
OTHER = replace(KEY, destination_id="id-2")
SECOND_REGION = MapKey(CheckpointKey(replace(KEY.delivery.source, region="ap"), "ap.orders"), "id-7")


@dataclass(slots=True)
class Region:
    """A map's topic and the bucket of its region."""

    topic: FakeOffsetMap = field(default_factory=FakeOffsetMap)
    store: FailingStore = field(default_factory=lambda: FailingStore(HandClock()))

    @property
    def copies(self) -> OffsetMapCopies:
        return OffsetMapCopies(self.store, "data", REGION)

    def copier(self) -> OffsetMapCopier:
        return OffsetMapCopier(self.copies)

    def names(self, key: MapKey = KEY) -> list[str]:
        folder = offset_map_prefix("data", REGION, key)
        return [
            "-".join(str(int(part)) if part.isdecimal() else part for part in one.key[len(folder) :].split("-"))
            for one in self.store.memory.list(folder)
        ]

    def read_back(self, source_region: str = "") -> dict[MapKey, list[MapPage]]:
        with closing(PagedMaps()) as maps:
            self.copies.read(maps, source_region)
            return pages_of(maps.maps)

    def thin(self) -> int:
        return self.thinner().remove(T0, None).get(OFFSET_MAPS, 0)

    def thinner(self) -> GenerationThinner:
        return GenerationThinner(self.store, "data", REGION, Stop())


@pytest.fixture
def region() -> Iterator[Region]:
    made = Region()
    yield made
    made.topic.close()


def some_pages(count: int, key: MapKey = KEY, first: int = 0) -> list[MapPage]:
    """Of 5 records and a marker each."""
    return [page(n * 5, [(n * 5, n * 6, 5)], key) for n in range(first, first + count)]


def test_what_is_read_back_is_what_is_in_the_topic(region: Region) -> None:
    region.topic.put(*some_pages(3), *some_pages(2, OTHER), *some_pages(1, SECOND_REGION))
    copier = region.copier()
    assert copier.copy(region.topic.read()) == 3
    assert region.names() == ["0-16"]
    assert region.read_back() == pages_of(region.topic.read())
    assert region.read_back("ap").keys() == {SECOND_REGION}
    assert copier.copy(region.topic.read()) == 0
    assert region.copier().copy(region.topic.read()) == 0, "another process finds what is copied"


def test_a_copy_has_what_is_new_or_longer(region: Region) -> None:
    copier = region.copier()
    region.topic.put(*some_pages(8))
    copier.copy(region.topic.read())
    longer = page(35, [(35, 42, 6)])
    region.topic.put(longer)
    copier.copy(region.topic.read())
    assert region.names() == ["0-46", "42-47"]
    region.topic.put(page(41, [(41, 49, 5)]))
    copier.copy(region.topic.read())
    assert region.names() == ["0-46", "42-47", "42-53"]
    assert region.read_back() == pages_of(region.topic.read())
    assert region.thin() == 1
    assert region.names() == ["0-46", "42-53"]
    assert region.read_back() == pages_of(region.topic.read())


def test_few_copies_are_needed_however_many_were_made(region: Region) -> None:
    copier, most = region.copier(), 0
    for number in range(300):
        region.topic.put(*some_pages(1, first=number))
        copier = region.copier() if number % 7 == 0 else copier
        assert copier.copy(region.topic.read()) == 1
        region.thin()
        most = max(most, len(region.names()))
    assert most <= 12
    assert region.read_back() == pages_of(region.topic.read())


def test_large_maps_are_copied_in_parts(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_maps, "COPY_BYTES", 1000)
    region.topic.put(*some_pages(20))
    copier = region.copier()
    assert copier.copy(region.topic.read()) >= 4
    region.topic.put(*some_pages(1, first=20))
    assert copier.copy(region.topic.read()) == 1
    assert region.thin() == 0, "nothing is copied twice that would be too large together"
    assert region.read_back() == pages_of(region.topic.read())


def test_only_maps_that_are_wanted_are_read(region: Region) -> None:
    region.topic.put(*some_pages(3), *some_pages(2, OTHER))
    region.copier().copy(region.topic.read())
    with closing(PagedMaps()) as maps:
        region.store.calls.clear()
        region.copies.read(maps, is_wanted=lambda key: key == OTHER)
        assert maps.maps.keys() == {OTHER}
        assert region.store.calls["open"] == 1


def test_the_bucket_alone_translates(region: Region) -> None:
    region.topic.put(*some_pages(9))
    region.copier().copy(region.topic.read())
    facts = DeliveredRange(log_start=8, log_end=54, applied=45)
    with closing(PagedMaps()) as maps:
        region.copies.read(maps)
        here, there = PartitionMap(region.topic.read()[KEY], facts), PartitionMap(maps.maps[KEY], facts)
        for offset in range(60):
            assert here.target_of(offset) == there.target_of(offset)
            assert here.source_of(offset) == there.source_of(offset)


class TestTrimmed:
    def test_pages_are_not_read_any_more_and_their_copies_go(self, region: Region) -> None:
        copier = region.copier()
        for first, count in ((0, 8), (8, 2)):
            region.topic.put(*some_pages(count, first=first))
            copier.copy(region.topic.read())
        assert region.names() == ["0-46", "48-58"]
        for first_start in (12, 48):
            region.topic.remove(KEY, [start for start in region.topic.starts(KEY) if start < first_start])
            region.copies.trimmed(KEY, first_start)
            assert region.read_back() == pages_of(region.topic.read())
        assert region.names() == ["0-46", "48-58", "from-12", "from-48"]
        assert region.thin() == 2
        assert region.names() == ["48-58", "from-48"]
        assert region.read_back() == pages_of(region.topic.read())
        copier.copy(region.topic.read())
        assert region.names() == ["48-58", "from-48"]

    def test_pages_that_stay_are_not_joined_with_those_that_went(self, region: Region) -> None:
        """A copy that has more than the topic is not superseded."""
        region.topic.put(*some_pages(2))
        region.copier().copy(region.topic.read())
        region.topic.remove(KEY, [0])
        region.topic.put(*some_pages(9, first=2))
        region.copier().copy(region.topic.read())
        assert region.names() == ["0-10", "12-64"]
        assert region.thin() == 0

    def test_nor_with_those_that_are_missing(self, region: Region) -> None:
        copier = region.copier()
        for first, count in ((0, 2), (2, 1)):
            region.topic.put(*some_pages(count, first=first))
            copier.copy(region.topic.read())
        region.topic.remove(KEY, [12])
        region.topic.put(*some_pages(9, first=3))
        copier.copy(region.topic.read())
        assert region.names() == ["0-10", "12-16", "18-70"]

    def test_a_map_that_is_gone_leaves_nothing(self, region: Region) -> None:
        region.topic.put(*some_pages(3), *some_pages(2, OTHER))
        region.copier().copy(region.topic.read())
        region.copies.trimmed(KEY, None)
        assert region.read_back().keys() == {OTHER}
        assert (region.thin(), region.thin(), region.names()) == (1, 1, [])
        assert region.names(OTHER) == ["0-10"]

    def test_a_topic_that_was_lost_takes_no_copy_along(self, region: Region) -> None:
        """Its pages were not trimmed: they are in the bucket alone."""
        region.topic.put(*some_pages(6))
        region.copier().copy(region.topic.read())
        lost = FakeOffsetMap()
        with closing(lost):
            lost.put(*some_pages(2, first=6))
            region.copier().copy(lost.read())
            assert region.thin() == 0
            assert region.read_back() == {KEY: some_pages(8)}


class TestFaults:
    def test_a_store_that_is_away_is_asked_again(self, region: Region) -> None:
        region.topic.put(*some_pages(3))
        copier = region.copier()
        for operation in ("list", "put_new"):
            region.store.away = {operation}
            with pytest.raises(StoreUnavailable):
                copier.copy(region.topic.read())
        region.store.away = set()
        assert copier.copy(region.topic.read()) == 1
        assert region.read_back() == pages_of(region.topic.read())

    @pytest.mark.parametrize("death", range(6))
    def test_after_each_step_the_next_process_copies_the_rest(
        self, region: Region, monkeypatch: pytest.MonkeyPatch, death: int
    ) -> None:
        monkeypatch.setattr(offset_maps, "COPY_BYTES", 1000)
        region.topic.put(*some_pages(12), *some_pages(1, OTHER))
        with dies_at(death) as died:
            region.copier().copy(region.topic.read())
        assert died
        region.topic.put(*some_pages(1, first=12))
        region.copier().copy(region.topic.read())
        assert region.read_back() == pages_of(region.topic.read())
        region.thin()
        assert region.read_back() == pages_of(region.topic.read())

    def test_two_processes_that_copy_the_same_agree(self, region: Region) -> None:
        one, other = region.copier(), region.copier()
        region.topic.put(*some_pages(3))
        assert (one.copy(region.topic.read()), other.copy(region.topic.read())) == (1, 0)
        region.topic.put(*some_pages(3, first=3))
        assert (one.copy(region.topic.read()), other.copy(region.topic.read())) == (1, 1)
        assert region.read_back() == pages_of(region.topic.read())

    def test_copies_that_are_superseded_while_they_are_read(self, region: Region) -> None:
        region.topic.put(*some_pages(2))
        copier = region.copier()
        copier.copy(region.topic.read())

        def supersede() -> None:
            region.topic.put(*some_pages(3, first=2))
            copier.copy(region.topic.read())
            region.thin()

        region.store.after_listing[offset_maps_prefix("data", REGION)] = supersede
        assert region.read_back() == {KEY: some_pages(5)}

    def test_copies_that_never_are_there(self, region: Region) -> None:
        region.topic.put(*some_pages(2))
        region.copier().copy(region.topic.read())

        def gone(_: str) -> None:
            region.store.before["open"] = gone
            raise SegmentNotFound("planned")

        region.store.before["open"] = gone
        with pytest.raises(SegmentNotFound):
            region.read_back()
        assert region.store.calls["open"] == offset_maps.LIST_ATTEMPTS

    def test_a_damaged_copy_is_an_error(self, region: Region) -> None:
        region.topic.put(*some_pages(2))
        region.copier().copy(region.topic.read())
        (copy,) = region.store.memory.list(offset_maps_prefix("data", REGION))
        region.store.memory.delete_many([copy.key])
        region.copies.put(KEY, OffsetRange(0, 10), b"x")
        with pytest.raises(MalformedEvent, match="not a copy"):
            region.read_back()

    def test_foreign_objects_are_left_alone(self, region: Region) -> None:
        region.topic.put(*some_pages(2))
        region.copier().copy(region.topic.read())
        head = offset_maps_prefix("data", REGION)
        for name in (f"{head}x", f"{offset_map_prefix('data', REGION, KEY)}notes.txt"):
            region.store.put_new(name, io.BytesIO(b"x"), 1)
        assert region.read_back() == pages_of(region.topic.read())
        assert region.thin() == 0


def test_a_plan_says_what_goes(region: Region) -> None:
    copier = region.copier()
    for number in range(3):
        region.topic.put(page(0, [(0, 0, number + 1)]))
        copier.copy(region.topic.read())
    found = region.thinner().plan(T0, None)[OFFSET_MAPS]
    assert (found.stored, found.superseded) == (3, 2)
    assert isinstance(found, ThinnedKind)
    assert found.superseded_bytes > 0
    assert len(region.names()) == 3


steps = st.lists(
    st.tuples(st.sampled_from(["grow", "grow", "new", "copy", "copy", "restart", "trim", "thin"]), st.integers(0, 3)),
    max_size=30,
)


@property_examples()
@given(steps)
def test_whatever_happens_what_was_copied_is_read_back(some: Sequence[tuple[str, int]]) -> None:
    region = Region()
    copier, tail = region.copier(), page(0, [(0, 0, 1)])
    region.topic.put(tail)
    for step, number in [*some, ("copy", 0)]:
        last = tail.runs
        match step:
            case "grow":
                rows = [*last.rows(), (last.source_end + 1, last.target_end + number, number + 1)]
                tail = page(tail.position, rows)
                region.topic.put(tail)
            case "new":
                tail = page(last.source_end, [(last.source_end, last.target_end + number, number + 1)])
                region.topic.put(tail)
            case "copy":
                copier.copy(region.topic.read())
                assert region.read_back() == pages_of(region.topic.read())
            case "restart":
                copier = region.copier()
            case "trim":
                starts = region.topic.starts(KEY)
                count = min(number, len(starts) - 1)
                region.copies.trimmed(KEY, starts[count])
                region.topic.remove(KEY, starts[:count])
            case "thin":
                region.thin()
    region.topic.close()
