"""The archive as a Spark data source: its records as rows, without Kafka. See docs/spark-source.md.

register(spark)
flights = spark.read.format("segments").option("config", "replicator.toml").option("topic", "flights").load()

    driver     options, filters ──> listings ──> read splits, one Spark partition each
    executor   read split ──> segments, with clients of its own ──> Arrow batches ──> Spark
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from formats.coverage import Gap, SegmentSlice, parts, uncovered
from formats.errors import ConfigError
from formats.read_splits import ReadSplit, read_splits
from formats.records.scope import RecordFilter
from formats.segment import OffsetRange, SegmentInfo, SourcePartition
from infra.archive.archive import Archive
from infra.archive.control import ControlStore
from infra.archive.read import SplitReader
from replicator.services.wiring import ARCHIVE_THREADS, for_workers
from replicator.spark_source.archived import archived_sources
from replicator.spark_source.filters import is_exact, narrowed
from replicator.spark_source.opened import log_gaps, opened
from replicator.spark_source.options import OF_A_READ, OF_A_STREAM, SOURCE, ReadOptions, parse_options
from replicator.spark_source.rows import KAFKA, TABLE, chosen, table_of

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from replicator.spark_source.stream import SegmentsStreamReader

# `replicator.spark_source.rows.TABLE` as a Spark schema.
COLUMNS = (
    "topic STRING NOT NULL, partition INT NOT NULL, incarnation STRING NOT NULL, offset BIGINT NOT NULL, "
    "timestamp TIMESTAMP, timestamp_ms BIGINT NOT NULL, timestamp_type TINYINT NOT NULL, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING NOT NULL, value: BINARY>>"
)

# `replicator.spark_source.rows.KAFKA` as a Spark schema.
KAFKA_COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)

READ_ONLY = (
    "nothing can be written: the archive has one writer for each partition, egress; "
    "`replicator backfill` brings history from Kafka into it"
)


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
        """Called by `load` without a schema, so that a wrong option fails there. Raises ConfigError."""
        return KAFKA_COLUMNS if parse_options(self.options).kafka_columns else COLUMNS

    def reader(self, schema: StructType) -> SegmentsReader:
        options = parse_options(self.options, refused=OF_A_STREAM)
        return SegmentsReader(options, columns_of(schema, options))

    def streamReader(self, schema: StructType) -> SegmentsStreamReader:  # noqa: N802, Spark's name
        try:
            from replicator.spark_source.stream import SegmentsStreamReader  # noqa: PLC0415, PySpark 4.1 lacks its base
        except ImportError as error:
            raise ConfigError([f"readStream needs PySpark 4.2 or newer: {error}"], source=SOURCE) from error
        options = parse_options(self.options, refused=OF_A_READ)
        return SegmentsStreamReader(options, columns_of(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002
        raise ConfigError([READ_ONLY], source=SOURCE)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        raise ConfigError([READ_ONLY], source=SOURCE)


class SegmentsReader(DataSourceReader):
    """Plans on the driver, is pickled (with the credentials of [s3]), and reads on executors."""

    def __init__(self, options: ReadOptions, columns: pa.Schema = TABLE) -> None:
        self._options = options
        self._config = for_workers(options.config)
        self._wanted = options.wanted
        self._columns = columns
        self._conditions: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802, Spark's name
        """Use the filters to read less. Returns those that Spark still has to apply to each row; the others are in
        `explain` as PushedFilters of the scan."""
        self._conditions = filters
        self._wanted = narrowed(self._wanted, filters)
        return [one for one in filters if not is_exact(one)]

    def partitions(self) -> list[InputPartition]:
        """Raises ConfigError for a topic that the archive does not have, StoreUnavailable."""
        with opened(self._config) as archive, ThreadPoolExecutor(ARCHIVE_THREADS) as pool:
            sources = archived_sources(archive.segments, self._options, self._conditions)
            splits = pool.map(lambda source: self._splits(archive, source), sources)
            return [InputPartition(split) for some in splits for split in some]

    def _splits(self, archive: Archive, source: SourcePartition) -> list[ReadSplit]:
        within = self._wanted.offset_range
        if within is None:
            return []
        infos = archive.segments.list(source)
        steps = list(parts((info.segment for info in infos), within))
        gaps = [step.offsets for step in steps if isinstance(step, Gap)]
        _warn_of_gaps(archive.control, source, [*_missing_head(archive.control, source, infos, within), *gaps])
        sizes = {info.segment: info.size_bytes for info in infos}
        found = (step for step in steps if isinstance(step, SegmentSlice))
        return list(read_splits(source, found, sizes, self._options.max_partition_bytes))

    def read(self, partition: InputPartition | None) -> Iterator[RecordBatch]:
        split = None if partition is None else partition.value
        if not isinstance(split, ReadSplit):
            return  # what Spark adds if the plan has no partition: an empty one, or until PySpark 4.1 none at all
        with opened(self._config) as archive:
            reader = SplitReader(archive, RecordFilter(timestamps=self._wanted.timestamps))
            for batch in reader.batches(split):
                yield chosen(table_of(batch, split.source), self._columns)


def _missing_head(
    control: ControlStore, source: SourcePartition, infos: Sequence[SegmentInfo], within: OffsetRange
) -> list[OffsetRange]:
    """What the first segments do not have of `within`, from the recorded begin of the archive on."""
    first = min((info.segment.offsets.start for info in infos), default=0)
    if first <= within.start or (begin := control.begins.of(source)) is None:
        return []
    start, end = max(begin.offset, within.start), min(first - 1, within.end)
    return [OffsetRange(start, end)] if start <= end else []


def _warn_of_gaps(control: ControlStore, source: SourcePartition, gaps: Sequence[OffsetRange]) -> None:
    """Warn of gaps that are not recorded. Egress records those where the source itself lost the offsets."""
    if gaps:
        recorded = control.gaps.ranges(source)
        log_gaps("archive_gaps", source, [offsets for gap in gaps for offsets in uncovered(recorded, gap)])


def columns_of(schema: StructType, options: ReadOptions) -> pa.Schema:
    """The columns of `schema`, which is a user's or the whole table's. Raises ConfigError for a column that the table
    does not have, or not with this type."""
    table, texts = (KAFKA, KAFKA_COLUMNS) if options.kafka_columns else (TABLE, COLUMNS)
    types = {field.name: from_arrow_type(field.type).simpleString() for field in table}
    wrong = [
        f"{field.name} {field.dataType.simpleString()}"
        for field in schema
        if types.get(field.name) != field.dataType.simpleString()
    ]
    if wrong:
        raise ConfigError([f"no column {', '.join(wrong)}; there are: {texts}"], source=SOURCE)
    return pa.schema([table.field(field.name).with_nullable(field.nullable) for field in schema])
