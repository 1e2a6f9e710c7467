"""What a streaming query plans and reads, without Spark: its start, its triggers, its batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from formats.control.archive_begin import ArchiveBegin
from formats.control.gap import RETENTION, RecordedGap
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.archive import Archive
from infra.settings.units import MIB
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.config import Config
from replicator.spark_source.options import OF_A_READ, parse_options
from replicator.spark_source.reach import ArchivedDataLost
from replicator.spark_source.rows import KAFKA, TABLE
from replicator.spark_source.stream import FIND_EVERY, SegmentsStreamReader
from tests.fakes.surroundings import HandClock
from tests.formats.sample_records import ORIGIN, batch_of, sample_rows

PLAIN, OTHER = SourcePartition("a", "orders", 0), SourcePartition("a", "orders", 1)
LATER = SourcePartition("a", "orders", 0, "a1b2c3")
BEGUN_MS = 1_700_000_000_000
TIMEOUT = timedelta(minutes=10)
EVERYTHING = ReadAllAvailable()

Batch = Mapping[SourcePartition, tuple[int, int]]
"""First and last offset of each source partition."""


@dataclass
class Stored:
    """An archive in memory, on whose clock segments are stored and queries run. A record a second."""

    file: Path
    clock: HandClock = field(default_factory=HandClock)
    objects: MemoryObjectStore = field(init=False)
    archive: Archive = field(init=False)

    def __post_init__(self) -> None:
        self.file.write_text('region = "a"\n[s3]\nbucket = "archive"\n', encoding="utf-8")
        self.objects = MemoryObjectStore(now=self.clock.now)
        self.archive = Archive.of(self.objects, "data", ParquetFormat())

    def put(self, source: SourcePartition, *ranges: tuple[int, int], level: int = 0) -> None:
        for start, end in ranges:
            rows = [{**row, "timestamp": BEGUN_MS + row["offset"] * 1_000} for row in sample_rows(end + 1, seed=0)]
            segment, body = Segment(source, level, OffsetRange(start, end)), BytesIO()
            writer = ParquetFormat().create(body)
            writer.write([batch_of(rows[start:])])
            writer.close(segment, ORIGIN)
            size_bytes = body.tell()
            body.seek(0)
            self.archive.segments.store(segment, body, size_bytes)

    def delete(self, source: SourcePartition, *ranges: tuple[int, int]) -> None:
        self.archive.segments.delete_many([Segment(source, 0, OffsetRange(a, b)) for a, b in ranges])

    def begins(self, source: SourcePartition, offset: int) -> None:
        begin = ArchiveBegin(offset=offset, reason="log start", recorded_at=self.clock.now())
        self.archive.control.begins.record(source, begin)

    def size(self, source: SourcePartition) -> int:
        """The bytes of its segments."""
        return sum(info.size_bytes for info in self.archive.segments.list(source))

    def reader(self, columns: Any = TABLE, **options: str) -> SegmentsStreamReader:
        @contextmanager
        def opened(_: Config) -> Iterator[Archive]:
            yield self.archive

        given = parse_options({"config": str(self.file), "topic": "orders", **options}, refused=OF_A_READ)
        return SegmentsStreamReader(given, columns, open_archive=opened, clock=self.clock)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path / "replicator.toml")


def at(**partitions: tuple[int, int]) -> dict[str, Any]:
    """Of the first incarnation: where the query began to read each partition, and its next offset."""
    found = {name.removeprefix("p"): {"first": first, "next": after} for name, (first, after) in partitions.items()}
    return {"@region": "a", "orders": found}


def later(first: int, after: int) -> dict[str, Any]:
    return {LATER.path: {"0": {"first": first, "next": after}}}


def ends(positions: Mapping[str, Any]) -> list[int]:
    found = [partitions for path, partitions in positions.items() if path != "@region"]
    return [one["next"] for partitions in found for one in partitions.values()]


def batch_between(reader: SegmentsStreamReader, start: Mapping[str, Any], end: Mapping[str, Any]) -> Batch:
    """As its splits have them, in order and without a hole."""
    found: dict[SourcePartition, tuple[int, int]] = {}
    for one in reader.partitions(dict(start), dict(end)):
        for part in one.value.parts:
            first, last = found.get(one.value.source, (part.offsets.start, part.offsets.start - 1))
            assert part.offsets.start == last + 1
            found[one.value.source] = (first, part.offsets.end)
    return found


# ---------- where it starts


def test_it_starts_at_the_begin_of_each_partition(stored: Stored) -> None:
    stored.begins(PLAIN, 10)
    stored.begins(LATER, 5)
    stored.put(PLAIN, (20, 29), (30, 39))
    stored.put(PLAIN, (10, 19), level=1)
    stored.put(OTHER, (0, 9))
    stored.put(LATER, (5, 9))
    assert stored.reader().initialOffset() == at(p0=(10, 10), p1=(0, 0)) | later(5, 5)


def test_it_starts_at_a_time_or_at_the_end(stored: Stored) -> None:
    stored.put(PLAIN, (0, 9), (10, 19))
    stored.put(OTHER, (0, 4))
    time = datetime.fromtimestamp(BEGUN_MS / 1_000 + 12, UTC).isoformat()
    assert stored.reader(startingTimestamp=time).initialOffset() == at(p0=(12, 12), p1=(5, 5))
    assert stored.reader(startingOffsets="latest").initialOffset() == at(p0=(20, 20), p1=(5, 5))
    both = stored.reader(startingTimestamp=time, startingOffsets="latest")
    assert both.initialOffset() == at(p0=(12, 12), p1=(5, 5))


def test_a_partition_whose_begin_is_not_known_is_left_out_until_it_is(stored: Stored) -> None:
    """Its first segment need not be the beginning: copies arrive in any order."""
    stored.put(PLAIN, (20, 29))
    stored.put(OTHER, (0, 9))
    reader = stored.reader()
    start = reader.initialOffset()
    assert start == at(p1=(0, 0))
    stored.begins(PLAIN, 10)
    first = reader.latestOffset(start, EVERYTHING)
    assert first == at(p0=(10, 10), p1=(0, 10))
    stored.put(PLAIN, (10, 19))
    assert reader.latestOffset(first, EVERYTHING) == at(p0=(10, 30), p1=(0, 10))


def test_a_begin_that_is_never_recorded_is_the_first_segment_that_stayed(stored: Stored) -> None:
    """An archive of the ancestor has none."""
    stored.put(PLAIN, (20, 29))
    stored.clock.at += timedelta(days=1)  # which says nothing: a replica has the time of its original
    reader = stored.reader()
    start = reader.initialOffset()
    stored.clock.at += TIMEOUT
    assert reader.latestOffset(start, EVERYTHING) == at(p0=(20, 30))


def test_it_starts_behind_what_retention_deleted(stored: Stored) -> None:
    stored.begins(PLAIN, 0)
    stored.put(PLAIN, (20, 29))
    stored.archive.control.gaps.record(
        RecordedGap(
            source=PLAIN, offsets=OffsetRange(0, 19), reason=RETENTION, low=0, high=19, recorded_at=stored.clock.now()
        )
    )
    reader = stored.reader()
    assert reader.latestOffset(reader.initialOffset(), EVERYTHING) == at(p0=(20, 30))


# ---------- what a trigger reads


def test_a_trigger_reads_what_there_is(stored: Stored) -> None:
    stored.put(PLAIN, (0, 9))
    reader = stored.reader()
    assert reader.getDefaultReadLimit() == EVERYTHING
    start = reader.initialOffset()
    stored.put(PLAIN, (10, 19))
    end = reader.latestOffset(start, EVERYTHING)
    assert end == at(p0=(0, 20))
    assert reader.latestOffset(end, EVERYTHING) == end


def test_new_partitions_are_listed_now_and_then(stored: Stored) -> None:
    stored.put(PLAIN, (0, 9))
    reader = stored.reader()
    start = reader.initialOffset()
    stored.begins(OTHER, 5)
    stored.put(OTHER, (5, 9))
    first = reader.latestOffset(start, EVERYTHING)
    assert first == at(p0=(0, 10), p1=(5, 10)), "at the first trigger: it may be that of a query that goes on"
    stored.put(LATER, (0, 9))
    stored.clock.at += FIND_EVERY - timedelta(seconds=1)
    assert reader.latestOffset(first, EVERYTHING) == first
    stored.clock.at += timedelta(seconds=1)
    second = reader.latestOffset(first, EVERYTHING)
    assert second == first | later(0, 10)
    stored.put(SourcePartition("a", "orders", 2), (0, 9))
    assert reader.latestOffset(second, EVERYTHING) == second, "they were listed just now"


def test_a_trigger_is_limited_by_bytes_which_partitions_share(stored: Stored) -> None:
    stored.put(PLAIN, *((n, n + 9) for n in range(0, 40, 10)))
    stored.put(OTHER, *((n, n + 9) for n in range(0, 40, 10)))
    stored.put(LATER, (0, 9))
    limit = 2 * stored.archive.segments.list(PLAIN)[0].size_bytes
    reader = stored.reader(maxBytesPerTrigger=str(limit))
    assert reader.getDefaultReadLimit() == ReadMaxBytes(limit)
    start = at(p0=(0, 0), p1=(0, 0)) | later(0, 10)  # of which nothing is left, so it takes no share
    first = reader.latestOffset(start, ReadMaxBytes(limit))
    assert first == at(p0=(0, 10), p1=(0, 10)) | later(0, 10)
    assert reader.latestOffset(first, EVERYTHING) == at(p0=(0, 40), p1=(0, 40)) | later(0, 10)


@pytest.mark.parametrize("narrower", [{"topic": "payments"}, {"partition": "1"}, {"incarnation": "a1b2c3"}])
def test_what_a_query_selects_no_more_stays_where_it_is(stored: Stored, narrower: dict[str, str]) -> None:
    stored.put(PLAIN, (0, 9))
    stored.put(OTHER, (0, 9))
    for incarnation in ("", "a1b2c3"):
        stored.put(SourcePartition("a", "payments", 0, incarnation), (0, 9))
    start = stored.reader().initialOffset()
    stored.put(LATER, (0, 9))
    end = stored.reader(**narrower).latestOffset(start, EVERYTHING)
    assert end["orders"]["0"] == {"first": 0, "next": 0}
    again = stored.reader().latestOffset(end, EVERYTHING)
    assert again["orders"]["0"] == {"first": 0, "next": 10}, "selected again, it goes on there"


def test_what_is_there_now_and_no_more(stored: Stored) -> None:
    """The trigger availableNow, in several batches."""
    stored.put(PLAIN, (0, 9), (10, 19))
    stored.put(OTHER, (0, 9))
    limit = ReadMaxBytes(stored.size(OTHER) // 2)
    reader = stored.reader()
    start = reader.initialOffset()
    stored.begins(LATER, 5)
    stored.put(LATER, (5, 9))
    reader.prepareForTriggerAvailableNow()
    bound = at(p0=(0, 20), p1=(0, 10)) | later(5, 10)
    seen, position = [start], reader.latestOffset(start, limit)
    while position != seen[-1]:
        seen.append(position)
        if len(seen) == 2:
            stored.put(PLAIN, (20, 29))
            stored.put(SourcePartition("a", "orders", 2), (0, 9))
            stored.clock.at += FIND_EVERY
        position = reader.latestOffset(position, limit)
    assert position == bound
    assert len(seen) > 3
    assert all(ends(one) <= ends(other) for one, other in pairwise(seen[1:]))
    again = stored.reader()
    again.prepareForTriggerAvailableNow()
    assert again.latestOffset(position, EVERYTHING) == at(p0=(0, 30), p1=(0, 10), p2=(0, 10)) | later(5, 10)


def test_without_the_trigger_it_is_not_bounded(stored: Stored) -> None:
    stored.put(PLAIN, (0, 9))
    reader = stored.reader()
    first = reader.latestOffset(at(p0=(0, 0)), EVERYTHING)
    stored.put(PLAIN, (10, 19))
    assert reader.latestOffset(first, EVERYTHING) == at(p0=(0, 20))


def test_what_is_missing_is_waited_for_as_long_as_asked(stored: Stored) -> None:
    stored.put(PLAIN, (0, 9), (20, 29))
    start = at(p0=(0, 0))
    strict = stored.reader(lostSegmentTimeout="30s")
    lossy = stored.reader(lostSegmentTimeout="30s", failOnDataLoss="false")
    stored.clock.at += timedelta(days=1)  # which says nothing: a replica has the time of its original
    for reader in (strict, lossy):
        assert reader.latestOffset(start, EVERYTHING) == at(p0=(0, 10))
    stored.clock.at += timedelta(seconds=30)
    with pytest.raises(ArchivedDataLost):
        strict.latestOffset(start, EVERYTHING)
    assert lossy.latestOffset(start, EVERYTHING) == at(p0=(0, 30))


def test_a_query_that_ends_with_what_is_there_waits_for_nothing(stored: Stored) -> None:
    stored.put(PLAIN, (0, 9), (20, 29))
    stored.clock.at += TIMEOUT
    reader = stored.reader()
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(ArchivedDataLost):
        reader.latestOffset(at(p0=(0, 0)), EVERYTHING)


def test_a_partition_that_appears_is_read_from_its_begin_however_late_that_arrives(stored: Stored) -> None:
    stored.put(PLAIN, (0, 9))
    reader = stored.reader()
    start = reader.latestOffset(reader.initialOffset(), EVERYTHING)
    stored.begins(OTHER, 0)
    stored.put(OTHER, (10, 19))
    stored.clock.at += TIMEOUT + FIND_EVERY
    first = reader.latestOffset(start, EVERYTHING)
    assert first == at(p0=(0, 10), p1=(0, 0))
    stored.put(OTHER, (0, 9))
    assert reader.latestOffset(first, EVERYTHING) == at(p0=(0, 10), p1=(0, 20))


# ---------- a batch


def test_a_batch_is_what_lies_between_two_positions(stored: Stored) -> None:
    stored.put(PLAIN, (0, 9), (10, 19), (20, 29))
    stored.put(OTHER, (0, 9))
    stored.put(LATER, (0, 9))
    reader = stored.reader()
    start, end = at(p0=(0, 5), p1=(0, 10)), at(p0=(0, 25), p1=(0, 10)) | later(0, 10)
    assert batch_between(reader, start, end) == {PLAIN: (5, 24), LATER: (0, 9)}
    stored.put(PLAIN, (0, 29), level=1)
    stored.delete(PLAIN, (0, 9), (10, 19), (20, 29))
    assert batch_between(reader, start, end) == {PLAIN: (5, 24), LATER: (0, 9)}


def test_the_first_batch_is_the_same_whatever_the_initial_offsets_are_by_then(stored: Stored) -> None:
    """Spark asks for them again when it plans that batch, and the end is in its checkpoint."""
    stored.put(PLAIN, (0, 9))
    reader = stored.reader(startingOffsets="latest")
    start = reader.initialOffset()
    stored.put(PLAIN, (10, 19))
    end = reader.latestOffset(start, EVERYTHING)
    assert batch_between(reader, start, end) == {PLAIN: (10, 19)}
    assert batch_between(reader, reader.initialOffset(), end) == {PLAIN: (10, 19)}


def test_a_batch_is_split_by_size(stored: Stored) -> None:
    stored.put(PLAIN, *((n, n + 9) for n in range(0, 40, 10)))
    splits = stored.reader(maxPartitionBytes=str(stored.size(PLAIN) // 2)).partitions(at(p0=(0, 0)), at(p0=(0, 40)))
    assert len(splits) > 1
    assert len(stored.reader(maxPartitionBytes=str(MIB)).partitions(at(p0=(0, 0)), at(p0=(0, 40)))) == 1


def test_what_a_batch_leaves_out_is_logged(stored: Stored, caplog: pytest.LogCaptureFixture) -> None:
    stored.put(PLAIN, (0, 9), (20, 29), (40, 49))
    offsets = OffsetRange(10, 19)
    stored.archive.control.gaps.record(
        RecordedGap(
            source=PLAIN, offsets=offsets, reason="lost at the source", low=0, high=19, recorded_at=stored.clock.now()
        )
    )
    reader = stored.reader(failOnDataLoss="false")
    reader.partitions(at(p0=(0, 0)), at(p0=(0, 50)))
    logged = {(one.getMessage(), getattr(one, "start", None), getattr(one, "end", None)) for one in caplog.records}
    assert logged == {("recorded_gap_passed", 10, 19), ("archived_data_lost", 30, 39)}
    with pytest.raises(ArchivedDataLost, match=r"\[30,39\]"):
        stored.reader().partitions(at(p0=(0, 0)), at(p0=(0, 50)))


@pytest.mark.parametrize("columns", [TABLE, KAFKA], ids=["ours", "kafka"])
def test_records_of_a_batch(stored: Stored, columns: Any) -> None:
    stored.put(LATER, (0, 9), (10, 19))
    reader = stored.reader(columns)
    (split,) = reader.partitions(later(0, 4), later(0, 16))
    batches = list(reader.read(split))
    assert all(batch.schema == columns for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [("orders", 0, n) for n in range(4, 16)]
    wanted = sample_rows(20, seed=0)
    assert [(row["key"], row["value"]) for row in rows] == [
        (wanted[n]["key"], wanted[n]["value"]) for n in range(4, 16)
    ]
    assert list(reader.read(InputPartition(None))) == [], "Spark plans one where there are none"


def test_positions_are_json(stored: Stored) -> None:
    stored.put(PLAIN, (0, 9))
    reader = stored.reader()
    position = reader.latestOffset(json.loads(json.dumps(reader.initialOffset())), EVERYTHING)
    assert json.loads(json.dumps(position)) == position
    reader.commit(position)
