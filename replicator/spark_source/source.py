"""The archive as a Spark data source: its records as rows, without Kafka. See docs/spark-source.md.

register(spark)
flights = spark.read.format("segments").option("config", "replicator.toml").option("topic", "flights").load()

    driver     options, filters ──> listings ──> read splits, one Spark partition each
    executor   read split ──> segments, with clients of its own ──> Arrow batches ──> Spark
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from formats.coverage import Gap, SegmentSlice, parts, uncovered
from formats.errors import ConfigError
from formats.read_splits import ArchiveQuery, ReadSplit, read_splits
from formats.records.scope import RecordFilter
from formats.segment import OffsetRange, SegmentInfo, SourcePartition
from infra.archive.archive import Archive
from infra.archive.control import ControlStore
from infra.archive.read import SplitReader
from infra.archive.segments import SegmentStore
from infra.runtime import log_fields
from infra.runtime.lifecycle import Stop
from infra.runtime.logs import TextFormatter
from replicator.config import Config
from replicator.services.archive import open_archive
from replicator.services.wiring import ARCHIVE_THREADS, for_workers
from replicator.spark_source.filters import admits, narrowed
from replicator.spark_source.options import SOURCE, TOPIC, ReadOptions, parse_options
from replicator.spark_source.rows import table_of

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# `replicator.spark_source.rows.TABLE` as a Spark schema.
COLUMNS = (
    "topic STRING NOT NULL, partition INT NOT NULL, incarnation STRING NOT NULL, offset BIGINT NOT NULL, "
    "timestamp TIMESTAMP, timestamp_ms BIGINT NOT NULL, timestamp_type TINYINT NOT NULL, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING NOT NULL, value: BINARY>>"
)

log = logging.getLogger(__name__)


def register(spark: SparkSession) -> None:
    """Register `spark.read.format("segments")` with this session.

    On a local master without PYSPARK_PYTHON, Spark's Python workers then use the interpreter that calls this: the
    `python3` that Spark would start may lack our packages.
    """
    context = spark.sparkContext
    if str(context.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")  # else Spark refuses a source with pushFilters
    spark.dataSource.register(SegmentsSource)


class SegmentsSource(DataSource):
    """Created in each of Spark's Python processes that plan a read."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str:
        """Called by `load`, so that a wrong option fails there. Raises ConfigError."""
        parse_options(self.options)
        return COLUMNS

    def reader(self, schema: StructType) -> SegmentsReader:  # noqa: ARG002, Spark compares it with what is read
        return SegmentsReader(parse_options(self.options))


class SegmentsReader(DataSourceReader):
    """Plans on the driver, is pickled (with the credentials of [s3]), and reads on executors."""

    def __init__(self, options: ReadOptions) -> None:
        self._config = for_workers(options.config)
        self._wanted = options.wanted
        self._max_bytes = options.max_partition_bytes
        self._conditions: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802, Spark's name
        """Use the filters to read less. All are returned, so that Spark still applies them to each row."""
        self._conditions = filters
        self._wanted = narrowed(self._wanted, filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        """Raises ConfigError for a topic that the archive does not have, StoreUnavailable."""
        with _archive(self._config) as archive, ThreadPoolExecutor(ARCHIVE_THREADS) as pool:
            sources = list(_sources(archive.segments, self._wanted, self._conditions))
            return [
                InputPartition(split)
                for source, infos in zip(sources, pool.map(archive.segments.list, sources), strict=True)
                for split in self._splits(archive.control, source, infos)
            ]

    def _splits(
        self, control: ControlStore, source: SourcePartition, infos: Sequence[SegmentInfo]
    ) -> Iterator[ReadSplit]:
        within = self._wanted.offset_range
        if within is None:
            return
        steps = list(parts((info.segment for info in infos), within))
        _warn_of_gaps(control, source, [step.offsets for step in steps if isinstance(step, Gap)])
        sizes = {info.segment: info.size_bytes for info in infos}
        found = (step for step in steps if isinstance(step, SegmentSlice))
        yield from read_splits(source, found, sizes, self._max_bytes)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        split = partition.value
        if not isinstance(split, ReadSplit):
            return  # the empty partition that Spark adds if the plan has none
        with _archive(self._config) as archive:
            reader = SplitReader(archive, RecordFilter(timestamps=self._wanted.timestamps))
            for batch in reader.batches(split):
                yield table_of(batch, split.source)


def _sources(store: SegmentStore, wanted: ArchiveQuery, conditions: Sequence[Filter]) -> Iterator[SourcePartition]:
    """The archived partitions that the query selects. Raises ConfigError for a topic of which nothing is archived."""
    for topic, partitions in _archived(store, wanted).items():
        for partition in partitions:
            source = wanted.at(topic, partition)
            is_wanted = wanted.partitions is None or partition in wanted.partitions
            if is_wanted and all(admits(condition, source) for condition in conditions):
                yield source


def _archived(store: SegmentStore, wanted: ArchiveQuery) -> Mapping[str, Sequence[int]]:
    """The selected topics, each with its partitions in the archive."""
    names = [pattern.text for pattern in wanted.topics]
    if not names or any(pattern.is_expression for pattern in wanted.topics):
        listed = _listed(store, wanted)
        names = [name for name in listed if not names or any(pattern.matches(name) for pattern in wanted.topics)]
    found = {name: store.partitions(wanted.region, wanted.at(name, 0).path) for name in names}
    topics = [topic for topic, partitions in found.items() if partitions]
    missing = [pattern.text for pattern in wanted.topics if not any(map(pattern.matches, topics))]
    if missing or not topics:
        here = ", ".join(_listed(store, wanted)) or "nothing"
        what = f"nothing is archived as {', '.join(missing) or 'any topic'}; of region {wanted.region} there is: {here}"
        raise ConfigError([f"{TOPIC}: {what}"], source=SOURCE)
    return found


def _listed(store: SegmentStore, wanted: ArchiveQuery) -> list[str]:
    """Topics that have the selected incarnation in the archive."""
    return [one.topic for one in store.incarnations(wanted.region) if one.id == wanted.incarnation]


def _warn_of_gaps(control: ControlStore, source: SourcePartition, gaps: Sequence[OffsetRange]) -> None:
    """Warn of gaps that are not recorded. Egress records those where the source itself lost the offsets."""
    if not gaps:
        return
    recorded = control.gap_ranges(source)
    unknown = [offsets for gap in gaps for offsets in uncovered(recorded, gap)]
    if unknown:
        fields = {
            log_fields.REGION: source.region,
            log_fields.TOPIC: source.path,
            log_fields.PARTITION: source.partition,
        }
        offsets = {log_fields.COUNT: len(unknown), log_fields.START: unknown[0].start, log_fields.END: unknown[-1].end}
        _format_warnings()
        log.warning("archive_gaps", extra=fields | offsets)


def _format_warnings() -> None:
    """Format warnings with their fields: logging is not set up in Spark's Python processes."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(TextFormatter())


@contextmanager
def _archive(config: Config) -> Iterator[Archive]:
    with ExitStack() as opened:
        yield open_archive(config, Stop(), opened)
