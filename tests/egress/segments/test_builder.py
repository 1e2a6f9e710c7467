"""From runs to stored segments: order, budget, conflicts and lost spools, on the real format and an in-memory store."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pytest

from egress.partition import Reason, Seal
from egress.segments.builder import SegmentBuilder
from egress.segments.outcomes import SegmentStored, SpoolLost, UploadConflict, UploadOutcome
from egress.segments.spool import Spool
from formats.errors import SegmentsDiffer
from formats.footer import SegmentFooter, SegmentOrigin
from formats.parquet.writer import ParquetFormat
from formats.records.digest import digest_of
from formats.records.schema import SCHEMA
from formats.registry import SegmentFormat, SegmentReader, SegmentWriter
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.segments import SegmentStore
from infra.archive.upload import Uploader
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import Run
from infra.local.waiting import wait_until
from infra.storage.memory_and_folder import MemoryObjectStore
from tests.fakes.archive import archive_of

FORMAT = ParquetFormat()
ORIGIN = SegmentOrigin(created_at=datetime(2026, 1, 1, tzinfo=UTC), writer="test")
MIB = 1024 * 1024
PATIENCE = timedelta(seconds=20)


def run(first: int, count: int, *, value: bytes = b"v", step: int = 1, partition: int = 0) -> Run:
    offsets = list(range(first, first + count * step, step))
    batch = pa.record_batch(
        [
            pa.array(offsets, pa.int64()),
            pa.array(offsets, pa.int64()).cast(SCHEMA.field("timestamp").type),
            pa.array([0] * count, pa.int8()),
            pa.array([b"k"] * count, pa.binary()),
            pa.array([value] * count, pa.binary()),
            pa.nulls(count, SCHEMA.field("headers").type),
        ],
        schema=SCHEMA,
    )
    size = count * (1 + len(value))
    return Run(TopicPartition("t", partition), batch, offsets[0], offsets[-1], count, size, 3)


def source(partition: int = 0) -> SourcePartition:
    return SourcePartition("a", "t", partition)


class World:
    def __init__(
        self,
        tmp_path: Path,
        *,
        memory_bytes: int = 64 * MIB,
        on_disk: bool = False,
        thin: bool = False,
        format_: SegmentFormat = FORMAT,
    ) -> None:
        self.format = format_
        self.store = SegmentStore(MemoryObjectStore(), "data")
        self.spool = Spool(tmp_path, -1 if on_disk else memory_bytes // 4)
        uploader = Uploader(archive_of(self.store, FORMAT), source_compacted=lambda _: thin)
        self.builder = SegmentBuilder(
            format_of=lambda _: self.format,
            confirm=lambda topic, origin, answer: answer(True),
            uploader=uploader,
            spool=self.spool,
            memory_bytes=memory_bytes,
            encode_threads=2,
            upload_threads=2,
        )

    def seal(self, start: int, end: int, count: int = 1, partition: int = 0) -> None:
        self.builder.seal(source(partition), Seal(OffsetRange(start, end), count, Reason.SIZE), ORIGIN)

    def outcomes(self, count: int = 1) -> list[UploadOutcome]:
        found: list[UploadOutcome] = []
        while len(found) < count:
            got = self.builder.outcomes(timeout_seconds=20)
            assert got, f"only {found}"
            found += got
        return found

    def read(self, start: int, end: int, partition: int = 0) -> list[pa.RecordBatch]:
        segment = Segment(source(partition), 0, OffsetRange(start, end))
        with closing(FORMAT.open(self.store.open(segment), segment)) as reader:
            return list(reader.batches())

    def close(self) -> None:
        self.builder.close()
        self.spool.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    it = World(tmp_path)
    yield it
    it.close()


def test_runs_become_one_segment_with_its_covered_range(world: World) -> None:
    runs = [run(5, 10), run(15, 100), run(200, 3)]
    for r in runs:
        world.builder.append(source(), 2, r)
    world.seal(2, 210, 113)
    [stored] = world.outcomes()
    assert isinstance(stored, SegmentStored)
    assert stored.new
    assert (stored.footer.count, stored.footer.first_offset, stored.footer.last_offset) == (113, 5, 202)
    assert digest_of(world.read(2, 210)) == digest_of([r.batch for r in runs])
    assert world.builder.buffered_bytes == 0
    assert world.spool.size_bytes == 0


def test_range_without_a_record_is_a_segment(world: World) -> None:
    world.seal(7, 9, 0)
    [stored] = world.outcomes()
    assert isinstance(stored, SegmentStored)
    assert stored.footer.count == 0
    assert world.read(7, 9) == []


def test_a_segment_has_the_format_of_when_it_began(world: World) -> None:
    world.format = ParquetFormat(compression="none")
    world.builder.append(source(), 0, run(0, 100, value=bytes(100)))
    world.format = FORMAT  # the configuration is reloaded
    world.builder.append(source(), 0, run(100, 100, value=bytes(100)))
    world.seal(0, 199, 200)
    world.builder.append(source(), 200, run(200, 200, value=bytes(100)))
    world.seal(200, 399, 200)
    world.outcomes(2)
    sizes = [info.size_bytes for info in world.store.list(source())]
    assert sizes[0] > 200 * 100 > 4 * sizes[1]


def test_order_holds_over_many_row_groups_and_files(tmp_path: Path) -> None:
    world = World(tmp_path, memory_bytes=2 * MIB, on_disk=True)
    runs = {p: [run(i * 50, 50, value=bytes(2000), partition=p) for i in range(40)] for p in range(5)}
    has_to_pause = False
    for i in range(40):
        for p in range(5):
            world.builder.append(source(p), 0, runs[p][i])
            has_to_pause = has_to_pause or world.builder.must_pause
    for p in range(5):
        world.seal(0, 1999, 2000, p)
    outcomes = world.outcomes(5)
    assert all(isinstance(o, SegmentStored) for o in outcomes)
    for p in range(5):
        assert digest_of(world.read(0, 1999, p)) == digest_of([r.batch for r in runs[p]])
    assert has_to_pause, "20 MB of records never exceeded a budget of 2 MiB"
    assert world.builder.may_resume
    world.close()


def test_same_segment_again_is_success_and_changes_nothing(world: World) -> None:
    for new in (True, False):
        world.builder.append(source(), 0, run(0, 10))
        world.seal(0, 9, 10)
        [stored] = world.outcomes()
        assert isinstance(stored, SegmentStored)
        assert stored.new == new


def test_other_records_under_the_same_key_stop_the_partition(world: World) -> None:
    for value in (b"one", b"two"):
        world.builder.append(source(), 0, run(0, 10, value=value))
        world.seal(0, 9, 10)
        [outcome] = world.outcomes()
    assert isinstance(outcome, UploadConflict)
    assert isinstance(outcome.error, SegmentsDiffer)
    assert outcome.error.offset == 0
    assert world.read(0, 9)[0].column("value")[0].as_py() == b"one"


@pytest.mark.parametrize("compacted", [True, False])
def test_thinner_log_is_believed_only_of_a_compacted_topic(tmp_path: Path, *, compacted: bool) -> None:
    world = World(tmp_path, thin=compacted)
    for step, count in ((1, 10), (3, 4)):
        world.builder.append(source(), 0, run(0, count, step=step))
        world.seal(0, 9, count)
        [outcome] = world.outcomes()
    assert isinstance(outcome, SegmentStored if compacted else UploadConflict)
    assert sum(b.num_rows for b in world.read(0, 9)) == 10
    world.close()


def test_lost_spool_is_reported_and_the_range_can_be_built_again(tmp_path: Path) -> None:
    world = World(tmp_path, memory_bytes=MIB, on_disk=True)
    world.builder.append(source(), 0, run(0, 2000, value=bytes(2000)))  # over the budget: encoded at once
    world.seal(0, 1999, 2000)
    [stored] = world.outcomes()
    assert isinstance(stored, SegmentStored)
    for first in (2000, 4000):
        world.builder.append(source(), 2000, run(first, 2000, value=bytes(2000)))
        assert wait_until(lambda: world.builder.buffered_bytes <= MIB // 2, PATIENCE)
        for path in world.spool.directory.iterdir():
            if path.name != "lock":
                path.unlink()
    world.seal(2000, 5999, 4000)
    [lost] = world.outcomes()
    assert isinstance(lost, SpoolLost)
    assert lost.start == 2000
    world.builder.discard(source(), 2000)
    world.builder.append(source(), 2000, run(2000, 10))
    world.seal(2000, 2009, 10)
    [stored] = world.outcomes()
    assert isinstance(stored, SegmentStored)
    world.close()


def test_discarded_segments_leave_nothing_behind(world: World) -> None:
    for partition in range(3):
        world.builder.append(source(partition), 0, run(0, 10, partition=partition))
        world.builder.discard(source(partition))
    world.builder.close()
    assert world.builder.buffered_bytes == 0
    assert world.spool.size_bytes == 0


def test_damaged_object_in_the_way_is_named(world: World) -> None:
    segment = Segment(source(), 0, OffsetRange(0, 9))
    world.store.store(segment, BytesIO(b"rubbish"), 7)
    world.builder.append(source(), 0, run(0, 10))
    world.seal(0, 9, 10)
    [outcome] = world.outcomes()
    assert isinstance(outcome, UploadConflict)
    assert str(segment) in str(outcome.error)


def test_open_segments_that_fill_the_spool_are_named_heaviest_first(tmp_path: Path) -> None:
    """Nothing else would empty it: they are neither full nor old, and fetching is paused."""
    limit = 100_000
    world = World(tmp_path, memory_bytes=limit, on_disk=True)
    with closing(world):
        fill_and_relieve(world, limit)


def fill_and_relieve(world: World, limit: int) -> None:
    assert world.builder.heaviest_open() == []
    for partition, rounds in ((0, 1), (1, 9), (2, 5)):
        for n in range(rounds):  # each a row group of its own, of noise that does not compress
            world.builder.append(source(partition), 0, run(n, 1, value=os.urandom(limit), partition=partition))
    assert wait_until(lambda: world.spool.size_bytes > 15 * limit and world.builder.buffered_bytes == 0, PATIENCE)
    assert world.builder.must_pause
    assert world.builder.heaviest_open() == [source(1), source(2)]
    for partition, count in ((1, 9), (2, 5)):
        world.seal(0, count - 1, count, partition)
    assert all(isinstance(o, SegmentStored) for o in world.outcomes(2))
    assert wait_until(lambda: world.builder.may_resume, PATIENCE)
    assert world.builder.heaviest_open() == []


@dataclass(frozen=True, slots=True)
class Wrapped:
    """The format, with its writers inside others."""

    wrap: Callable[[SegmentWriter], SegmentWriter]

    @property
    def name(self) -> str:
        return FORMAT.name

    def create(self, sink: BinaryIO) -> SegmentWriter:
        return self.wrap(FORMAT.create(sink))

    def open(self, source: BinaryIO, segment: Segment) -> SegmentReader:
        return FORMAT.open(source, segment)


@dataclass(frozen=True, slots=True)
class Unclosable:
    """Fails when it is closed, as on a disk that is full."""

    writer: SegmentWriter

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        self.writer.write(batches)

    def close(self, segment: Segment, origin: SegmentOrigin) -> SegmentFooter:
        raise OSError(f"no room for the footer of {segment} by {origin.writer}")

    def abort(self) -> None:
        self.writer.abort()


def test_a_segment_that_cannot_be_closed_is_lost_and_named(tmp_path: Path) -> None:
    with closing(World(tmp_path, format_=Wrapped(Unclosable))) as world:
        world.builder.append(source(), 0, run(0, 10))
        world.seal(0, 9, 10)
        [lost] = world.outcomes()
        assert isinstance(lost, SpoolLost)
        assert (lost.source, lost.start) == (source(), 0)
        assert "no room for the footer" in lost.reason


@dataclass(frozen=True, slots=True)
class Held:
    """Writes once the test lets it, or after a moment."""

    writer: SegmentWriter
    let: threading.Event
    written: threading.Event

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        self.let.wait(0.5)
        self.writer.write(batches)
        self.written.set()

    def close(self, segment: Segment, origin: SegmentOrigin) -> SegmentFooter:
        return self.writer.close(segment, origin)

    def abort(self) -> None:
        self.writer.abort()


def test_closing_waits_for_what_is_being_encoded(tmp_path: Path) -> None:
    let, written = threading.Event(), threading.Event()
    world = World(tmp_path, format_=Wrapped(lambda writer: Held(writer, let, written)))
    world.builder.append(source(), 0, run(0, 10))
    world.seal(0, 9, 10)
    world.builder.close()
    was_written = written.is_set()
    let.set()
    world.spool.close()
    assert was_written, "nothing else let it write: close took as long"
