"""An in-memory archive for tests of compaction: writes as egress does, reads as a reader does."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from compaction.delete_merged import Cleaner
from compaction.gc import Collector
from compaction.merge import Merger
from compaction.planner import CompactionPlan
from compaction.replicas import ReplicaCheck
from compaction.run import Compactor
from compaction.task_rows import PlanOutcome, decode_outcome, decode_plan, encode_outcome, encode_plan
from compaction.worker import Worker
from formats.control.lease import Lease
from formats.coverage import Gap, steps
from formats.errors import SegmentNotFound
from formats.parquet.writer import ParquetFormat
from formats.registry import SegmentFormat
from formats.segment import OffsetRange, Segment, format_key
from formats.topic_selection import TopicPattern, TopicRule
from infra.archive.control import ControlStore
from infra.archive.lease import NAME
from infra.archive.segments import SegmentStore
from infra.archive.upload import Uploader
from infra.contracts.storage import ObjectStore, UploadInfo
from infra.runtime.lifecycle import Stop
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.config import CompactionJob, RetentionRule, RetentionSettings
from tests.fakes.archive import archive_of
from tests.formats.sample_records import ORIGIN, SOURCE, Row, batch_of, rows_of

T0 = datetime(2026, 3, 5, tzinfo=UTC)
PREFIX = "data"


def job(**settings: Any) -> CompactionJob:
    """Merges any segments, and deletes at once."""
    eager: dict[str, Any] = {
        "name": "test",
        "min_segment_age": timedelta(0),
        "min_segment_count": 2,
        "min_segment_size": 0,
        "delete_grace": timedelta(0),
    }
    return CompactionJob(**eager | settings)


def retention(rules: Mapping[str, RetentionRule], **settings: Any) -> RetentionSettings:
    topics = tuple(TopicRule(TopicPattern(name), rule) for name, rule in rules.items())
    return RetentionSettings(topics=topics, **settings)


class AtOnce(Executor):
    """Runs on the calling thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class Uploads:
    """An `UploadStore` in memory."""

    def __init__(self) -> None:
        self.begun: list[UploadInfo] = []

    def list(self, prefix: str) -> Iterator[UploadInfo]:
        return iter([one for one in self.begun if one.key.startswith(prefix)])

    def abort(self, upload: UploadInfo) -> None:
        self.begun = [one for one in self.begun if one != upload]


class Archive:
    """One region's archive, and a clock that only advances when moved."""

    def __init__(
        self, segment_format: SegmentFormat | None = None, *, around: Callable[[Any], Any] | None = None
    ) -> None:
        self.time = T0
        self.memory = MemoryObjectStore(now=lambda: self.time)
        self.objects: ObjectStore = self.memory if around is None else around(self.memory)
        self.format: SegmentFormat = segment_format or ParquetFormat()
        self.store = SegmentStore(self.objects, PREFIX)
        self.control = ControlStore(self.objects, PREFIX)
        self.uploads = Uploads()
        self.stop = Stop()

    def now(self) -> datetime:
        return self.time

    def write(self, segment: Segment, rows: Sequence[Row], **origin: Any) -> None:
        """Stores a segment as egress does; `rows` lie inside its range."""
        sink = io.BytesIO()
        writer = self.format.create(sink)
        if rows:
            writer.write([batch_of(list(rows))])
        writer.close(segment, replace(ORIGIN, **origin))
        size = sink.tell()
        sink.seek(0)
        SegmentStore(self.memory, PREFIX).store(segment, sink, size)

    def segments(self) -> list[Segment]:
        return [info.segment for info in SegmentStore(self.memory, PREFIX).list(SOURCE)]

    def bytes_of(self, segment: Segment) -> bytes:
        with closing(self.memory.open(format_key(PREFIX, segment))) as file:
            return file.read()

    def read(self, next_offset: int = 0, *, seen: Iterable[Segment] | None = None) -> list[Row]:
        """As every reader does: plan by coverage, plan again when a segment is gone. `seen`: an older listing."""
        rows: list[Row] = []
        known = list(self.segments() if seen is None else seen)
        while True:
            for step in steps(known, next_offset):
                if isinstance(step, Gap):
                    next_offset = step.offsets.next_offset
                    continue
                try:
                    file = self.memory.open(format_key(PREFIX, step.segment))
                except SegmentNotFound:
                    assert set(known) != set(self.segments()), "a listing that holds what is not there"
                    known = self.segments()
                    break
                with closing(self.format.open(file, step.segment)) as reader:
                    rows += rows_of(list(reader.batches(step.offsets.start)))
                next_offset = step.offsets.next_offset
            else:
                return rows

    def worker(self, copies: ReplicaCheck | None = None) -> Worker:
        stored = archive_of(self.store, self.format)
        return Worker(
            merger=Merger(
                archive=stored,
                uploader=Uploader(stored, source_compacted=lambda _: True),
                row_group_bytes=1 << 20,
                writer="tests",
                created_by="example_app",
            ),
            cleaner=Cleaner(archive=stored, replicas=copies or ReplicaCheck(original=self.store)),
        )

    def compactor(self, copies: ReplicaCheck | None = None) -> Compactor:
        worker = self.worker(copies)

        def execute(plans: Sequence[CompactionPlan], _job: CompactionJob) -> Sequence[PlanOutcome]:
            """As Spark does: plans and outcomes pass as text."""
            answers = [encode_outcome(worker.execute(decode_plan(encode_plan(plan)))) for plan in plans]
            return [decode_outcome(answer) for answer in answers]

        return Compactor(
            region=SOURCE.region,
            store=self.store,
            control=self.control,
            execute=execute,
            clock=self,
            stop=self.stop,
        )

    def lease(self) -> Lease:
        return self.control.leases.take(SOURCE.region, NAME, "tests", now=self.time, span=timedelta(minutes=5))

    def collector(self, settings: RetentionSettings, copies: ReplicaCheck | None = None) -> Collector:
        check = copies or ReplicaCheck(original=self.store)
        return Collector(
            region=SOURCE.region,
            settings=settings,
            own_topics=(),
            store=self.store,
            control=self.control,
            uploads=self.uploads,
            uncopied=lambda segments: check.each_uncopied(segments, AtOnce()),
            clock=self,
            stop=self.stop,
        )


def covered(segments: Collection[Segment]) -> set[int]:
    return {offset for s in segments for offset in range(s.offsets.start, s.offsets.next_offset)}


def ranges(*edges: tuple[int, int]) -> list[OffsetRange]:
    return [OffsetRange(start, end) for start, end in edges]
