"""How far a streaming query reads: what is missing is waited for, named, and left out only where that is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import BytesIO

import pytest

from formats.control.gap import RecordedGap
from formats.int_range import INT64_MAX
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from infra.archive.archive import Archive
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.spark_source.reach import ArchivedDataLost, ReachFinder

SOURCE = SourcePartition("a", "orders", 0)
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
TIMEOUT = timedelta(minutes=10)
BYTES = 100  # of each segment


@dataclass
class Stored:
    now: datetime = BEGAN
    objects: MemoryObjectStore = field(init=False)
    archive: Archive = field(init=False)

    def __post_init__(self) -> None:
        self.objects = MemoryObjectStore(now=lambda: self.now)
        self.archive = Archive.of(self.objects, "", ParquetFormat())

    def put(self, *ranges: tuple[int, int], level: int = 0) -> None:
        for start, end in ranges:
            segment = Segment(SOURCE, level, OffsetRange(start, end))
            self.objects.put_new(format_key("", segment), BytesIO(bytes(BYTES)), BYTES)

    def delete(self, *ranges: tuple[int, int]) -> None:
        self.objects.delete_many([format_key("", Segment(SOURCE, 0, OffsetRange(a, b))) for a, b in ranges])

    def gap(self, start: int, end: int) -> None:
        offsets = OffsetRange(start, end)
        self.archive.control.record_gap(
            RecordedGap(source=SOURCE, offsets=offsets, reason="retention", low=0, high=end, recorded_at=self.now)
        )

    def finder(self, *, fail: bool = True) -> ReachFinder:
        return ReachFinder(self.archive, fail, TIMEOUT)


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


def test_the_end_is_not_missing(stored: Stored) -> None:
    stored.put((0, 9))
    found = stored.finder().reach(SOURCE, 0, until=INT64_MAX, now=BEGAN + 10 * TIMEOUT)
    assert (found.advance.next_offset, found.advance.missing, found.lost) == (10, None, [])


def test_a_recorded_gap_is_passed_at_once(stored: Stored) -> None:
    stored.put((0, 9), (20, 29))
    stored.gap(10, 19)
    found = stored.finder().reach(SOURCE, 0, until=INT64_MAX, now=BEGAN)
    assert (found.advance.next_offset, found.advance.recorded) == (30, [OffsetRange(10, 19)])


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
