"""How far a streaming query reads: what is missing is waited for, named, and left out only where that is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import BytesIO

import pytest

from formats.control.gap import RETENTION, RecordedGap
from formats.int_range import INT64_MAX
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from infra.archive.archive import Archive
from infra.archive.forward_listing import MAX_AFTER
from infra.contracts.storage import ObjectInfo
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.spark_source.missing import MissingSegments
from replicator.spark_source.reach import ArchivedDataLost, ReachFinder

SOURCE = SourcePartition("a", "orders", 0)
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
TIMEOUT = timedelta(minutes=10)
BYTES = 100  # of each segment


class CountingStore(MemoryObjectStore):
    """Counts the keys that it lists."""

    listed = 0

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        for info in super().list(prefix, start_after=start_after, limit=limit):
            self.listed += 1
            yield info


@dataclass
class Stored:
    now: datetime = BEGAN
    objects: CountingStore = field(init=False)
    archive: Archive = field(init=False)

    def __post_init__(self) -> None:
        self.objects = CountingStore(now=lambda: self.now)
        self.archive = Archive.of(self.objects, "", ParquetFormat())

    def put(self, *ranges: tuple[int, int], level: int = 0) -> None:
        for start, end in ranges:
            segment = Segment(SOURCE, level, OffsetRange(start, end))
            self.objects.put_new(format_key("", segment), BytesIO(bytes(BYTES)), BYTES)

    def delete(self, *ranges: tuple[int, int]) -> None:
        self.objects.delete_many([format_key("", Segment(SOURCE, 0, OffsetRange(a, b))) for a, b in ranges])

    def gap(self, start: int, end: int, reason: str = "the source dropped them") -> None:
        offsets = OffsetRange(start, end)
        self.archive.control.gaps.record(
            RecordedGap(source=SOURCE, offsets=offsets, reason=reason, low=0, high=end, recorded_at=self.now)
        )

    def finder(self, *, fail: bool = True, missing: MissingSegments | None = None) -> ReachFinder:
        """Of a query that ends with what is there, unless `missing` says otherwise."""
        return ReachFinder(self.archive, fail, missing or MissingSegments(TIMEOUT, is_bounded=True))


@pytest.fixture
def stored() -> Stored:
    return Stored()


def test_what_is_missing_is_waited_for_and_then_named(stored: Stored) -> None:
    stored.put((0, 9), (20, 29))
    early = stored.finder().reach(SOURCE, 0, until=INT64_MAX, now=BEGAN + TIMEOUT - timedelta(seconds=1))
    assert (early.advance.next_offset, early.advance.missing, early.lost) == (10, OffsetRange(10, 19), [])
    with pytest.raises(ArchivedDataLost, match=r"a/orders/0: offsets \[10,19\]"):
        stored.finder().reach(SOURCE, 0, until=INT64_MAX, now=BEGAN + TIMEOUT)
    late = stored.finder(fail=False).reach(SOURCE, 0, until=INT64_MAX, now=BEGAN + TIMEOUT)
    assert (late.advance.next_offset, late.lost) == (30, [OffsetRange(10, 19)])


def test_the_oldest_segment_behind_what_is_missing_counts(stored: Stored) -> None:
    stored.put((0, 9), (20, 29))
    stored.now += TIMEOUT - timedelta(seconds=1)
    stored.put((30, 39))
    with pytest.raises(ArchivedDataLost):
        stored.finder().reach(SOURCE, 0, until=INT64_MAX, now=BEGAN + TIMEOUT)


def test_a_query_that_goes_on_counts_from_when_it_noticed(stored: Stored) -> None:
    """A replica has the time of its original: it is days old when it arrives, perhaps before those that precede it."""
    stored.put((0, 9), (20, 29))
    missing = MissingSegments(TIMEOUT)
    noticed = BEGAN + 100 * TIMEOUT
    for now in (noticed, noticed + TIMEOUT - timedelta(seconds=1)):
        assert stored.finder(missing=missing).reach(SOURCE, 0, until=INT64_MAX, now=now).advance.next_offset == 10
    with pytest.raises(ArchivedDataLost, match=r"\[10,19\]"):
        stored.finder(missing=missing).reach(SOURCE, 0, until=INT64_MAX, now=noticed + TIMEOUT)
    stored.put((10, 14))
    found = stored.finder(missing=missing).reach(SOURCE, 0, until=INT64_MAX, now=noticed + TIMEOUT)
    assert found.advance.next_offset == 15, "another hole has a wait of its own"


def test_what_retention_deleted_unread_is_lost_at_once(stored: Stored) -> None:
    stored.put((0, 9), (10, 19), (20, 29), (40, 49))
    stored.gap(30, 39)
    stored.gap(0, 29, RETENTION)
    stored.delete((0, 9), (10, 19), (20, 29))
    for now in (BEGAN, None):
        with pytest.raises(ArchivedDataLost, match=r"\[5,29\]"):
            stored.finder(missing=MissingSegments(TIMEOUT)).reach(SOURCE, 5, until=50, now=now)
        found = stored.finder(fail=False).reach(SOURCE, 5, until=50, now=now)
        assert (found.advance.next_offset, found.lost) == (50, [OffsetRange(5, 29)])
        assert found.advance.recorded == [OffsetRange(30, 39)]


def test_the_end_is_not_missing(stored: Stored) -> None:
    stored.put((0, 9))
    found = stored.finder().reach(SOURCE, 0, until=INT64_MAX, now=BEGAN + 10 * TIMEOUT)
    assert (found.advance.next_offset, found.advance.missing, found.lost) == (10, None, [])


def test_a_recorded_gap_is_passed_at_once(stored: Stored) -> None:
    stored.put((0, 9), (20, 29))
    stored.gap(10, 19)
    found = stored.finder().reach(SOURCE, 0, until=INT64_MAX, now=BEGAN)
    assert (found.advance.next_offset, found.advance.recorded) == (30, [OffsetRange(10, 19)])


def test_a_gap_that_is_recorded_in_part_is_passed_so_far(stored: Stored) -> None:
    stored.put((0, 9), (20, 29))
    stored.gap(10, 14)
    found = stored.finder().reach(SOURCE, 0, until=INT64_MAX, now=BEGAN)
    assert (found.advance.next_offset, found.advance.recorded) == (15, [OffsetRange(10, 14)])
    assert (found.advance.missing, found.lost) == (OffsetRange(15, 19), [])


@pytest.mark.parametrize(
    ("deleted", "lost"),
    [((10, 19), OffsetRange(10, 19)), ((20, 29), OffsetRange(20, 29))],
    ids=["inside", "at the end"],
)
def test_a_batch_that_was_deleted_before_it_was_read(
    stored: Stored, deleted: tuple[int, int], lost: OffsetRange
) -> None:
    """The position is in the checkpoint: nothing is waited for."""
    stored.put((0, 9), (10, 19), (20, 29))
    stored.delete(deleted)
    with pytest.raises(ArchivedDataLost, match=str(lost.start)):
        stored.finder().reach(SOURCE, 0, until=30, now=None)
    found = stored.finder(fail=False).reach(SOURCE, 0, until=30, now=None)
    assert list(found.lost) == [lost]


def test_a_batch_is_the_same_after_a_merge(stored: Stored) -> None:
    def read() -> Mapping[int, int]:
        reached = stored.finder().reach(SOURCE, 5, until=25, now=None)
        return {part.offsets.start: part.offsets.end for part in reached.advance.slices}

    stored.put((0, 9), (10, 19), (20, 29))
    assert read() == {5: 9, 10: 19, 20: 24}
    stored.put((0, 29), level=1)
    stored.delete((0, 9), (10, 19), (20, 29))
    assert read() == {5: 24}


def test_a_trigger_lists_no_further_than_its_bytes(stored: Stored) -> None:
    stored.put(*((start, start + 9) for start in range(0, 50_000, 10)))
    reached = stored.finder().reach(SOURCE, 0, until=INT64_MAX, now=BEGAN, max_bytes=3 * BYTES)
    assert 30 <= reached.advance.next_offset < 50_000
    everything = stored.finder().reach(SOURCE, 0, until=INT64_MAX, now=BEGAN)
    assert everything.advance.next_offset == 50_000, "more than a page of a listing"


def test_a_trigger_of_one_byte_goes_on(stored: Stored) -> None:
    stored.put((0, 9))
    assert stored.finder().reach(SOURCE, 0, until=INT64_MAX, now=BEGAN, max_bytes=1).advance.next_offset > 0


def test_a_page_of_a_listing_that_has_enough_is_the_last(stored: Stored) -> None:
    stored.put(*((start, start + 9) for start in range(0, 2 * MAX_AFTER * 10, 10)))
    reached = stored.finder().reach(SOURCE, 0, until=INT64_MAX, now=BEGAN, max_bytes=MAX_AFTER * BYTES)
    assert reached.advance.next_offset == MAX_AFTER * 10


def test_what_lies_behind_the_position_is_listed_in_full_only_to_prove_a_loss(stored: Stored) -> None:
    stored.put(*((start, start + 9) for start in range(0, 50_000, 10)))
    stored.objects.listed = 0
    for position in (49_900, 50_000):  # at the end nothing is new
        assert stored.finder().reach(SOURCE, position, until=INT64_MAX, now=BEGAN).advance.next_offset == 50_000
    assert stored.objects.listed < 5_000
    stored.put((50_010, 50_019))
    stored.objects.listed = 0
    assert stored.finder().reach(SOURCE, 49_900, until=INT64_MAX, now=BEGAN).advance.next_offset == 50_000
    assert stored.objects.listed > 5_000
