"""The archive as a streaming source: `spark.readStream.format("segments")`. See docs/spark-source.md.

    trigger    positions so far ──> listings from there on ──> next positions, which Spark writes into its checkpoint
    batch      two positions ──> listings between them ──> read splits

The second step repeats after a crash, with the same records, whatever was merged meanwhile: see `positions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from formats.coverage import Gap, end_of, explained_until, from_first
from formats.int_range import INT64_MAX
from formats.read_splits import ReadSplit, read_splits
from formats.segment import OffsetRange, SourcePartition
from infra.archive.archive import Archive
from infra.archive.offset_for_time import TimeFinder
from infra.archive.read import SplitReader
from infra.runtime.lifecycle import Clock, SystemClock
from replicator.config import Config
from replicator.services.wiring import ARCHIVE_THREADS, for_workers
from replicator.spark_source.archived import archived_sources
from replicator.spark_source.opened import log_gaps, opened
from replicator.spark_source.options import ReadOptions
from replicator.spark_source.positions import Position, StreamPositions, decode, encode, shares, size_of, unread, within
from replicator.spark_source.reach import ArchiveReach, MissingSince, ReachFinder
from replicator.spark_source.rows import TABLE, chosen, table_of

if TYPE_CHECKING:
    from pyarrow import RecordBatch

FIND_EVERY = timedelta(seconds=15)  # new topics, incarnations and partitions


class SegmentsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One lives in a Python process of the driver as long as the query; `read` is pickled to executors."""

    def __init__(
        self,
        options: ReadOptions,
        columns: pa.Schema = TABLE,
        *,
        open_archive: Callable[[Config], AbstractContextManager[Archive]] = opened,
        clock: Clock | None = None,
    ) -> None:
        self._options = options
        self._open, self._clock = open_archive, clock or SystemClock()
        self._config = for_workers(options.config)
        self._columns = columns
        self._is_bounded = False
        # of a query with the trigger availableNow, once its first batch is planned
        self._bound: StreamPositions | None = None
        self._missing_since = MissingSince()
        self._found_at: datetime | None = None  # when topics and partitions were listed last

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802, Spark's name
        """Raises ConfigError for a topic that the archive does not have, StoreUnavailable."""
        with self._open(self._config) as archive, ThreadPoolExecutor(ARCHIVE_THREADS) as pool:
            found = {}
            for source in archived_sources(archive.segments, self._options):
                start = self._start(archive, pool, source)
                found[source] = Position(start, start)
            return encode(self._options.wanted.region, found)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802, Spark's name
        self._is_bounded = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802, Spark's name
        max_bytes = self._options.stream.max_bytes
        return ReadAllAvailable() if max_bytes is None else ReadMaxBytes(max_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802, Spark's name
        """Raises ArchivedDataLost, StoreUnavailable."""
        region = self._options.wanted.region
        known = decode(region, start)
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        with self._open(self._config) as archive, ThreadPoolExecutor(ARCHIVE_THREADS) as pool:
            if self._is_bounded and self._bound is None:
                self._bound = self._latest(archive, pool, self._with_new(archive, known), None)
            if self._bound is None:
                return encode(region, self._latest(archive, pool, self._with_new(archive, known), max_bytes))
            return encode(region, self._latest(archive, pool, {**self._starts_of_bound(), **known}, max_bytes))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raises ArchivedDataLost if a part of the batch was deleted since it was planned first, StoreUnavailable."""
        region = self._options.wanted.region
        found: list[InputPartition] = []
        with self._open(self._config) as archive:
            finder = self._finder(archive)
            for source, offsets in unread(decode(region, start), decode(region, end)).items():
                reached = finder.reach(source, offsets.start, until=offsets.next_offset, now=None)
                log_gaps("recorded_gap_passed", source, reached.advance.recorded)
                log_gaps("archived_data_lost", source, reached.lost)
                slices, max_bytes = reached.advance.slices, self._options.max_partition_bytes
                found += map(InputPartition, read_splits(source, slices, reached.sizes, max_bytes))
        return found

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        split = partition.value
        if isinstance(split, ReadSplit):
            with self._open(self._config) as archive:
                for batch in SplitReader(archive).batches(split):
                    yield chosen(table_of(batch, split.source), self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to release: Spark's checkpoint has the positions."""

    def _finder(self, archive: Archive) -> ReachFinder:
        stream = self._options.stream
        missing_since = None if self._is_bounded else self._missing_since
        return ReachFinder(archive, stream.fail_on_data_loss, stream.lost_segment_timeout, missing_since)

    def _latest(
        self, archive: Archive, pool: ThreadPoolExecutor, known: StreamPositions, max_bytes: int | None
    ) -> dict[SourcePartition, Position]:
        finder, now, bound = self._finder(archive), self._clock.now(), self._bound

        def reach(source: SourcePartition) -> ArchiveReach:
            until = INT64_MAX if bound is None else bound[source].next_offset  # which has all that is known
            start = known[source].next_offset
            return finder.reach(source, start, until=until, now=now, max_bytes=max_bytes)

        reached = dict(zip(known, pool.map(reach, known), strict=True))
        ends = {source: one.advance.next_offset for source, one in reached.items()}
        if max_bytes is not None:
            sizes = {s: sum(size_of(part, one.sizes) for part in one.advance.slices) for s, one in reached.items()}
            for source, share in shares(sizes, max_bytes).items():
                ends[source] = within(reached[source].advance, reached[source].sizes, share)
        return {source: Position(known[source].first, ends[source]) for source in known}

    def _with_new(self, archive: Archive, known: StreamPositions) -> dict[SourcePartition, Position]:
        """`known`, and the source partitions that appeared since: those are read from their begin. Listing topics and
        partitions costs a request for each topic, so it is not repeated at each trigger."""
        found, now = dict(known), self._clock.now()
        if self._found_at is not None and now - self._found_at < FIND_EVERY:
            return found
        self._found_at = now
        for source in archived_sources(archive.segments, self._options):
            if source not in found:
                start = self._earliest(archive, source, may_have_expired=False)
                found[source] = Position(start, start)
        return found

    def _starts_of_bound(self) -> dict[SourcePartition, Position]:
        return {source: Position(at.first, at.first) for source, at in (self._bound or {}).items()}

    def _start(self, archive: Archive, pool: ThreadPoolExecutor, source: SourcePartition) -> int:
        stream = self._options.stream
        if stream.from_time is not None:
            found = TimeFinder(archive, pool).next_offset(source, stream.from_time)
            return self._earliest(archive, source) if found is None else self._before_late(archive, source, found)
        if stream.from_latest:
            return end_of(info.segment.offsets for info in archive.segments.list(source))
        return self._earliest(archive, source)

    def _earliest(self, archive: Archive, source: SourcePartition, *, may_have_expired: bool = True) -> int:
        """The recorded begin of the archive, less the recorded gaps there, if the segment there is stored or may still
        come; else the first stored offset, with `may_have_expired`: a lifecycle rule of the bucket has deleted those
        before it."""
        infos = sorted(archive.segments.firsts(source), key=lambda one: one.segment.offsets.start)
        recorded = archive.control.begins.of(source)
        if recorded is None:
            return infos[0].segment.offsets.start if infos else 0
        begin = explained_until(archive.control.gaps.ranges(source), recorded.offset)
        if not infos:
            return begin
        first = infos[0].segment.offsets.start
        age = self._clock.now() - min(one.stored_at for one in infos)
        is_late = may_have_expired and age >= self._options.stream.lost_segment_timeout
        if is_late and begin < first:
            log_gaps("archived_data_lost", source, [OffsetRange(begin, first - 1)])
        return first if is_late or begin > first else begin

    def _before_late(self, archive: Archive, source: SourcePartition, found: int) -> int:
        """`found`, or the first hole before it whose segment may still come: it may have such a record, too."""
        infos, recorded = list(archive.segments.list(source)), archive.control.gaps.ranges(source)
        young = self._clock.now() - self._options.stream.lost_segment_timeout
        for step in from_first(info.segment for info in infos):
            if step.offsets.start >= found:
                break
            if not isinstance(step, Gap):
                continue
            missing_from = explained_until(recorded, step.offsets.start)
            behind = [info.stored_at for info in infos if info.segment.offsets.start >= step.offsets.next_offset]
            if missing_from < step.offsets.next_offset and min(behind) > young:
                return missing_from
        return found
