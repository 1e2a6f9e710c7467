"""Where a streaming query begins to read a source partition, and what it waits for before it does."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import BytesIO

import pytest

from formats.control.archive_begin import ArchiveBegin
from formats.control.gap import RETENTION, RecordedGap
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.archive import Archive
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.spark_source.missing import MissingSegments
from replicator.spark_source.options import StreamOptions
from replicator.spark_source.start import StartFinder
from tests.fakes.surroundings import HandClock
from tests.formats.sample_records import ORIGIN, batch_of, sample_rows

SOURCE = SourcePartition("a", "orders", 0)
STAMPED_MS = 1_700_000_000_000  # of offset 0; a record a second
TIMEOUT = timedelta(minutes=10)
EARLIEST = StreamOptions()
LATEST = StreamOptions(from_latest=True)


def stamped(offset: int) -> StreamOptions:
    """From the time of this offset on."""
    return StreamOptions(from_time=datetime.fromtimestamp(STAMPED_MS / 1_000 + offset, UTC))


@dataclass
class Stored:
    pool: ThreadPoolExecutor
    clock: HandClock = field(default_factory=HandClock)
    archive: Archive = field(init=False)
    missing: MissingSegments = field(default_factory=lambda: MissingSegments(TIMEOUT))

    def __post_init__(self) -> None:
        self.archive = Archive.of(MemoryObjectStore(now=self.clock.now), "data", ParquetFormat())

    def put(self, *ranges: tuple[int, int], level: int = 0) -> None:
        for start, end in ranges:
            rows = [{**row, "timestamp": STAMPED_MS + row["offset"] * 1_000} for row in sample_rows(end + 1, seed=0)]
            segment, body = Segment(SOURCE, level, OffsetRange(start, end)), BytesIO()
            writer = ParquetFormat().create(body)
            writer.write([batch_of(rows[start:])])
            writer.close(segment, ORIGIN)
            size_bytes = body.tell()
            body.seek(0)
            self.archive.segments.store(segment, body, size_bytes)

    def begins(self, offset: int) -> None:
        begin = ArchiveBegin(offset=offset, reason="log start", recorded_at=self.clock.now())
        self.archive.control.begins.record(SOURCE, begin)

    def gap(self, start: int, end: int, reason: str) -> None:
        gap = RecordedGap(
            source=SOURCE, offsets=OffsetRange(start, end), reason=reason, low=0, high=end, recorded_at=self.clock.now()
        )
        self.archive.control.gaps.record(gap)

    def initial(self, options: StreamOptions) -> int | None:
        return self._finder(options).initial(SOURCE)

    def appeared(self, options: StreamOptions) -> int | None:
        return self._finder(options).appeared(SOURCE)

    def _finder(self, options: StreamOptions) -> StartFinder:
        return StartFinder(self.archive, self.pool, options, self.missing, self.clock.now())


@pytest.fixture
def stored() -> Iterator[Stored]:
    with ThreadPoolExecutor(2) as pool:
        yield Stored(pool)


# ---------- earliest


@pytest.mark.parametrize("begin", [0, 10, 20, 25])
def test_a_recorded_begin_however_late_the_segment_there_arrives(stored: Stored, begin: int) -> None:
    stored.begins(begin)
    stored.put((20, 29))
    stored.put((20, 39), level=1)
    stored.clock.at += 2 * TIMEOUT
    assert stored.initial(EARLIEST) == min(begin, 20), "an earlier segment is there than the begin of 25"


def test_without_a_recorded_begin_nothing_comes_before_offset_zero(stored: Stored) -> None:
    stored.put((0, 9))
    assert stored.initial(EARLIEST) == 0


def test_an_earlier_segment_has_a_wait_of_its_own(stored: Stored) -> None:
    stored.put((20, 29))
    assert stored.initial(EARLIEST) is None
    stored.clock.at += TIMEOUT - timedelta(seconds=1)
    stored.put((10, 19), level=1)
    assert stored.appeared(EARLIEST) is None
    stored.clock.at += TIMEOUT - timedelta(seconds=1)
    assert stored.appeared(EARLIEST) is None
    stored.clock.at += timedelta(seconds=1)
    assert stored.appeared(EARLIEST) == 10


def test_a_query_that_ends_with_what_is_there_goes_by_the_age_of_the_segments(stored: Stored) -> None:
    stored.missing.is_bounded = True
    stored.put((20, 29))
    assert stored.initial(EARLIEST) is None, "its next run may find an earlier one"
    stored.clock.at += TIMEOUT
    stored.put((30, 39))
    assert stored.initial(EARLIEST) == 20


def test_of_which_nothing_is_stored(stored: Stored) -> None:
    for options in (EARLIEST, stamped(0)):
        assert stored.initial(options) is None
    stored.begins(7)
    for options in (EARLIEST, stamped(0)):
        assert stored.initial(options) == 7


def test_what_retention_deleted_is_not_the_beginning(stored: Stored) -> None:
    stored.begins(0)
    stored.gap(0, 19, RETENTION)
    stored.put((20, 29))
    assert stored.initial(EARLIEST) == 20


def test_the_wait_is_logged_once(stored: Stored, caplog: pytest.LogCaptureFixture) -> None:
    stored.put((20, 29))
    for _ in range(2):
        assert stored.initial(EARLIEST) is None
    assert [(one.getMessage(), vars(one)["start"], vars(one)["end"]) for one in caplog.records] == [
        ("stream_start_waits", 0, 19)
    ]


# ---------- latest, or a time


def test_the_end_of_what_is_stored_and_the_begin_of_what_appears_later(stored: Stored) -> None:
    stored.put((0, 9), (10, 19))
    assert stored.initial(LATEST) == 20
    assert stored.appeared(LATEST) == 0


def test_a_time(stored: Stored) -> None:
    stored.put((0, 9), (10, 19))
    assert stored.initial(stamped(12)) == 12
    assert stored.appeared(stamped(12)) == 12, "also of a partition that appears later"
    assert stored.initial(stamped(100)) == 20


@pytest.mark.parametrize("begin", [None, 0])
def test_a_record_of_the_time_may_come_before_the_first_stored_segment(
    stored: Stored, begin: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    if begin is not None:
        stored.begins(begin)
    stored.put((10, 19))
    assert stored.initial(stamped(5)) is None
    stored.clock.at += TIMEOUT
    caplog.clear()
    assert stored.appeared(stamped(5)) == 10, "it never came"
    assert [one.getMessage() for one in caplog.records] == ["archived_data_lost"] * (begin is not None)
    stored.put((0, 9))
    assert stored.appeared(stamped(5)) == 5


def test_a_record_of_the_time_may_come_between_stored_segments(
    stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    stored.put((0, 9), (20, 29), (40, 49))
    stored.gap(30, 39, "the source dropped them")
    assert stored.initial(stamped(5)) == 5, "nothing is missing before"
    assert stored.initial(stamped(12)) is None
    stored.put((12, 14))
    stored.clock.at += TIMEOUT
    assert stored.appeared(stamped(42)) is None, "of other holes the wait begins anew"
    stored.clock.at += TIMEOUT
    caplog.clear()
    assert stored.appeared(stamped(42)) == 42
    assert [(one.getMessage(), vars(one)["start"], vars(one)["end"]) for one in caplog.records] == [
        ("archived_data_lost", 10, 19)
    ]


def test_a_recorded_gap_before_the_time_is_not_waited_for(stored: Stored) -> None:
    stored.begins(0)
    stored.gap(0, 9, "the source dropped them")
    stored.put((10, 19))
    assert stored.initial(stamped(12)) == 12
