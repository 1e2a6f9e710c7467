"""The archive as a streaming source: `spark.readStream.format("segments")`. See docs/spark-source.md.

    trigger    positions so far ──> listings from there on ──> next positions, which Spark writes into its checkpoint
    batch      two positions ──> listings between them ──> read splits

The second step repeats after a crash, with the same records, whatever was merged meanwhile: see `positions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from formats.int_range import INT64_MAX
from formats.read_splits import ReadSplit, read_splits
from formats.segment import SourcePartition
from infra.archive.archive import Archive
from infra.archive.read import SplitReader
from infra.runtime.lifecycle import Clock, SystemClock
from replicator.config import Config
from replicator.services.wiring import ARCHIVE_THREADS, for_workers
from replicator.spark_source.archived import archived_sources, selects
from replicator.spark_source.missing import MissingSegments
from replicator.spark_source.opened import log_gaps, opened
from replicator.spark_source.options import ReadOptions
from replicator.spark_source.positions import Position, StreamPositions, decode, encode, shares, size_of, unread, within
from replicator.spark_source.reach import ArchiveReach, ReachFinder
from replicator.spark_source.rows import TABLE, chosen, table_of
from replicator.spark_source.start import StartFinder

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
        # of a query with the trigger availableNow, once its first batch is planned
        self._bound: StreamPositions | None = None
        self._missing = MissingSegments(options.stream.lost_segment_timeout)
        self._found_at: datetime | None = None  # when topics and partitions were listed last

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802, Spark's name
        """Raises ConfigError for a topic that the archive does not have, StoreUnavailable."""
        with self._open(self._config) as archive, ThreadPoolExecutor(ARCHIVE_THREADS) as pool:
            finder = self._start_finder(archive, pool)
            starts = {source: finder.initial(source) for source in archived_sources(archive.segments, self._options)}
            return encode(self._options.wanted.region, _positions(starts))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802, Spark's name
        self._missing.is_bounded = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802, Spark's name
        max_bytes = self._options.stream.max_bytes
        return ReadAllAvailable() if max_bytes is None else ReadMaxBytes(max_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802, Spark's name
        """Raises ArchivedDataLost, StoreUnavailable."""
        region = self._options.wanted.region
        known = decode(region, start)
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        with self._open(self._config) as archive, ThreadPoolExecutor(ARCHIVE_THREADS) as pool:
            if self._missing.is_bounded and self._bound is None:
                self._bound = self._latest(archive, pool, self._with_new(archive, pool, known), None)
            if self._bound is None:
                return encode(region, self._latest(archive, pool, self._with_new(archive, pool, known), max_bytes))
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
        return ReachFinder(archive, self._options.stream.fail_on_data_loss, self._missing)

    def _start_finder(self, archive: Archive, pool: ThreadPoolExecutor) -> StartFinder:
        return StartFinder(archive, pool, self._options.stream, self._missing, self._clock.now())

    def _latest(
        self, archive: Archive, pool: ThreadPoolExecutor, known: StreamPositions, max_bytes: int | None
    ) -> dict[SourcePartition, Position]:
        finder, now, bound = self._finder(archive), self._clock.now(), self._bound

        def reach(source: SourcePartition) -> ArchiveReach:
            until = INT64_MAX if bound is None else bound[source].next_offset  # which has all that is known
            start = known[source].next_offset
            return finder.reach(source, start, until=until, now=now, max_bytes=max_bytes)

        # those of a checkpoint that are not selected any more stay where they are, should they be selected again
        read = [source for source in known if selects(self._options, source)]
        reached = dict(zip(read, pool.map(reach, read), strict=True))
        ends = {source: one.advance.next_offset for source, one in reached.items()}
        if max_bytes is not None:
            sizes = {s: sum(size_of(part, one.sizes) for part in one.advance.slices) for s, one in reached.items()}
            for source, share in shares(sizes, max_bytes).items():
                ends[source] = within(reached[source].advance, reached[source].sizes, share)
        return {**known, **{source: Position(known[source].first, end) for source, end in ends.items()}}

    def _with_new(
        self, archive: Archive, pool: ThreadPoolExecutor, known: StreamPositions
    ) -> dict[SourcePartition, Position]:
        """`known`, and the source partitions that appeared since. Listing topics and partitions costs a request for
        each topic, so it is not repeated at each trigger."""
        found, now = dict(known), self._clock.now()
        if self._found_at is not None and now - self._found_at < FIND_EVERY:
            return found
        self._found_at = now
        finder = self._start_finder(archive, pool)
        new = (source for source in archived_sources(archive.segments, self._options) if source not in found)
        return found | _positions({source: finder.appeared(source) for source in new})

    def _starts_of_bound(self) -> dict[SourcePartition, Position]:
        return {source: Position(at.first, at.first) for source, at in (self._bound or {}).items()}


def _positions(starts: Mapping[SourcePartition, int | None]) -> dict[SourcePartition, Position]:
    """Of those whose start is known."""
    return {source: Position(start, start) for source, start in starts.items() if start is not None}
