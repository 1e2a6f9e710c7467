"""One range of one partition, on a broker and a bucket in memory."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from random import Random

import pytest

from egress.segments.builder import SegmentBuilder
from egress.segments.spool import Spool
from egress.topics.incarnation_check import Confirmations
from formats.errors import SegmentsDiffer, TargetError
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, SourcePartition
from infra.archive.archive import Archive
from infra.archive.upload import Uploader
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import Run
from infra.runtime.lifecycle import Stop
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.backfill.range_writer import BackfillStopped, RangeWriter
from replicator.backfill.request import RangeOutcome, RangeTask
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker, FakeRecord, run_of
from tests.fakes.surroundings import HandClock

SOURCE, P = SourcePartition("a", "t", 0), TopicPartition("t", 0)
MIB = 1 << 20


class Bench:
    """`batch`: records that the reader hands out at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.broker = folder, HandClock(), FakeBroker()
        self.broker.create("t")
        self.admin, self.opened, self.stop = FakeAdmin(self.broker), ExitStack(), Stop()
        self.objects = MemoryObjectStore(now=self.clock.now)
        self.archive = Archive.of(self.objects, "data", ParquetFormat())
        self.batch = 4
        self.while_reading: Callable[[int], None] = lambda _: None  # called with the first offset of each run
        self.is_compacted = False

    def fill(self, count: int, size: int = 10) -> None:
        random = Random(count)
        for n in range(count):
            self.broker.append(P, FakeRecord(value=random.randbytes(random.randrange(size)), key=b"%d" % n))
            if n % 5 == 4:
                self.broker.hole(P, 2)

    def read(self, partition: TopicPartition, start: int, next_offset: int) -> Iterator[Run]:
        log = self.broker.logs[partition]
        if start < log.low:
            raise TargetError(f"{partition} does not hold offset {start} any more")
        wanted = [o for o in sorted(log.records) if start <= o < next_offset]
        for epoch, offsets in groupby(wanted, log.epoch_at):
            left = list(offsets)
            while left:
                some, left = left[: self.batch], left[self.batch :]
                self.while_reading(some[0])
                yield run_of(partition, {o: log.records[o] for o in some}, epoch)

    def write(self, start: int, end: int, **limits: int) -> RangeOutcome:
        facts = self.admin.describe(["t"])["t"]
        task = RangeTask(
            source=SOURCE,
            offsets=OffsetRange(start, end),
            topic_id=facts.topic_id,
            cluster_id="cluster",
            partition_count=1,
            **({"max_messages": 6, "max_bytes": MIB} | limits),
        )
        with ExitStack() as opened:
            asks = opened.enter_context(ThreadPoolExecutor(1))
            confirmations = Confirmations(self.admin, asks)
            builder = SegmentBuilder(
                format_of=lambda _: self.archive.format,
                confirm=confirmations.ask,
                uploader=Uploader(self.archive, source_compacted=lambda _: self.is_compacted),
                spool=opened.enter_context(Spool(self.folder, MIB)),
                memory_bytes=16 * MIB,
                encode_threads=1,
                upload_threads=2,
            )
            opened.callback(builder.close, timedelta(seconds=5))
            writer = RangeWriter(
                archive=self.archive,
                builder=builder,
                confirmations=confirmations,
                read=self.read,
                isolation_level="read_committed",
                writer="test",
                created_by="example_app",
                clock=self.clock,
                stop=self.stop,
            )
            return writer.write(task)

    def ranges(self) -> list[tuple[int, int]]:
        return sorted((i.segment.offsets.start, i.segment.offsets.end) for i in self.archive.segments.list(SOURCE))

    def agrees(self) -> None:
        """Every segment holds the records of its range."""
        records = self.broker.logs[P].records
        for info in self.archive.segments.list(SOURCE):
            with closing(self.archive.format.open(self.archive.segments.open(info.segment), info.segment)) as reader:
                origin = reader.footer.origin
                assert (origin.role, origin.created_by) == ("backfill", "example_app")
                found = {
                    offset: value
                    for batch in reader.batches()
                    for offset, value in zip(
                        batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True
                    )
                }
            assert found == {o: r.value for o, r in records.items() if o in info.segment.offsets}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_range_is_covered_to_its_end(bench: Bench) -> None:
    """Holes at both ends, too."""
    bench.fill(30)
    outcome = bench.write(5, 41)
    assert (bench.ranges()[0][0], bench.ranges()[-1][1]) == (5, 41)
    assert all(b[0] == a[1] + 1 for a, b in zip(bench.ranges(), bench.ranges()[1:], strict=False))
    records = sum(5 <= o <= 41 for o in bench.broker.logs[P].records)
    assert (outcome.records, outcome.segments, outcome.skipped) == (records, len(bench.ranges()), 0)
    bench.agrees()


def test_a_range_without_a_record(bench: Bench) -> None:
    bench.broker.hole(P, 10)
    assert bench.write(2, 7).records == 0
    assert bench.ranges() == [(2, 7)]


@pytest.mark.parametrize("limits", [{}, {"max_bytes": 33, "max_messages": 1000}, {"max_bytes": 1}])
def test_cuts_depend_on_the_records_alone(tmp_path: Path, limits: dict[str, int]) -> None:
    found = []
    for batch in (1, 3, 1000):
        bench = Bench(tmp_path)
        bench.fill(60, size=20)
        bench.batch = batch
        bench.write(0, 80, **limits)
        found.append(bench.ranges())
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 5


def test_what_is_covered_is_skipped(bench: Bench) -> None:
    bench.fill(30)
    bench.write(10, 19)
    outcome = bench.write(0, 41)
    assert (outcome.skipped, bench.ranges()[0][0]) == (10, 0)
    again = bench.write(0, 41)
    assert (again.segments, again.records, again.skipped) == (0, 0, 42)
    bench.agrees()


def test_another_attempt_stores_the_same_meanwhile(bench: Bench) -> None:
    """Each key is put once, and the later attempt finds an equal segment."""
    bench.fill(30)
    done: list[RangeOutcome] = []

    def other(offset: int) -> None:
        bench.while_reading = lambda _: None
        done.append(bench.write(0, 41))

    bench.while_reading = other
    outcome = bench.write(0, 41)
    assert (outcome.segments, outcome.records) == (0, done[0].records)
    assert done[0].segments == len(bench.ranges())
    bench.agrees()


def test_another_log_is_not_stored_beside(bench: Bench) -> None:
    bench.fill(30)
    bench.write(0, 41)
    stored = bench.ranges()
    key = next(iter(bench.objects.list(f"data/{SOURCE}/0/"))).key

    def back(_: int) -> None:
        bench.while_reading = lambda _: None
        bench.objects.put_new(key, io.BytesIO(body), len(body))
        log = bench.broker.logs[P]
        log.records = {o: FakeRecord(value=b"other") for o in log.records}

    with bench.objects.open(key) as opened:
        body = opened.read()
    bench.objects.delete_many([key])
    bench.while_reading = back
    with pytest.raises(SegmentsDiffer):
        bench.write(0, 41)
    assert bench.ranges() == stored


def test_a_topic_that_was_created_again(bench: Bench) -> None:
    bench.fill(30)

    def again(_: int) -> None:
        bench.while_reading = lambda _: None
        bench.admin.ids["t"] = "another"

    bench.while_reading = again
    with pytest.raises(TargetError, match="created again"):
        bench.write(0, 41)
    assert bench.ranges() == []


def test_a_log_that_is_cut_while_it_is_read(bench: Bench) -> None:
    """A later record of an earlier leader epoch: they are of two logs."""
    bench.fill(10)
    log = bench.broker.logs[P]
    bench.read = lambda *_: (  # type: ignore[method-assign]
        run_of(P, {o: log.records[o]}, epoch) for o, epoch in ((0, 5), (1, 3))
    )
    with pytest.raises(TargetError, match="cut while it was read"):
        bench.write(0, 20)
    assert bench.ranges() == []


def test_retention_was_faster(bench: Bench) -> None:
    bench.fill(30)
    bench.broker.trim(P, 10)
    with pytest.raises(TargetError, match="any more"):
        bench.write(0, 41)


def test_asked_to_stop(bench: Bench) -> None:
    bench.fill(30)
    bench.while_reading = lambda offset: bench.stop.set() if offset > 20 else None
    with pytest.raises(BackfillStopped):
        bench.write(0, 41)
    bench.while_reading, bench.stop = (lambda _: None), Stop()
    bench.write(0, 41)
    assert (bench.ranges()[0][0], bench.ranges()[-1][1]) == (0, 41)
    bench.agrees()


def test_a_compacted_log_has_lost_records_since(bench: Bench) -> None:
    """The first object stays."""
    bench.fill(12)
    bench.write(0, 11)
    keys = [info.key for info in bench.objects.list("data/")]
    bench.is_compacted = True

    def thinner(_: int) -> None:
        bench.while_reading = lambda _: None
        bench.archive.segments.store(*first)

    [info] = [i for i in bench.archive.segments.list(SOURCE) if i.segment.offsets.start == 0]
    with bench.archive.segments.open(info.segment) as opened:
        body = io.BytesIO(opened.read())
    first = (info.segment, body, info.size_bytes)
    bench.archive.segments.delete_many([info.segment])
    bench.broker.compact(P, 2)
    bench.while_reading = thinner
    bench.write(0, 11)
    assert {info.key for info in bench.objects.list("data/")} >= set(keys)
