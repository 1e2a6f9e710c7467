"""The archive as a stream: each record once, through compaction, a lost segment, and a query that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from formats.control.gap import RecordedGap
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.control import ControlStore
from infra.local.stack import LocalStack
from replicator.config import from_mapping
from replicator.services.compaction import Compaction, in_process
from replicator.spark_source.options import OF_A_READ, parse_options
from replicator.spark_source.source import KAFKA_COLUMNS
from replicator.spark_source.stream import FIND_EVERY, SegmentsStreamReader
from tests.fakes.surroundings import HandClock
from tests.formats.sample_records import ORIGIN, batch_of
from tests.integration.on_spark import source_session
from tests.integration.test_spark_source import ROWS, Archive, archive_of_orders

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
Place = tuple[str, str, int, int]
"""Topic, incarnation, partition and offset of a record."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    properties = {"spark.sql.shuffle.partitions": "1", "spark.sql.session.timeZone": "UTC"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET", "test")
        with source_session(properties) as session:
            yield session


@pytest.fixture
def archive(
    stack: LocalStack, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Archive]:
    with archive_of_orders(stack, unique, tmp_path, monkeypatch, partitions=2) as made:
        yield made


def store(archive: Archive, source: SourcePartition, start: int) -> None:
    name = Segment(source, 0, OffsetRange(start, start + ROWS - 1))
    archive.put(name, batch_of(archive.rows(name)))


def compact(archive: Archive) -> None:
    with ExitStack() as opened:
        config = from_mapping(archive.tables())
        with Compaction(config, execute=in_process(config, opened)) as compaction:
            compaction.compact()


def drain(spark: SparkSession, archive: Archive, **options: str) -> list[list[Place]]:
    """Batches of a query that reads what is there, and goes on from the checkpoint of the one before."""
    batches: list[list[Place]] = []

    def keep(frame: DataFrame, _: int) -> None:
        rows = frame.select("topic", "incarnation", "partition", "offset").collect()
        batches.append(sorted((row[0], row[1], row[2], row[3]) for row in rows))

    stream = spark.readStream.format("segments").options(**archive.options(**options)).load()
    checkpoint = str(archive.folder / "checkpoint")
    query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint).trigger(availableNow=True)
    assert query.start().awaitTermination(120)
    return [batch for batch in batches if batch]


def flat(batches: list[list[Place]]) -> list[Place]:
    return [place for batch in batches for place in batch]


def places(partition: int, first: int, count: int, incarnation: str = "") -> list[Place]:
    return [("orders", incarnation, partition, offset) for offset in range(first, first + count)]


@pytest.mark.long
def test_what_comes_is_read_once_through_compaction_and_a_new_incarnation(
    spark: SparkSession, archive: Archive
) -> None:
    size = archive.store.list(archive.source(0))[0].size_bytes
    first = drain(spark, archive, maxBytesPerTrigger=str(int(size * 4.5)))
    assert len(first) > 1
    assert sorted(flat(first)) == places(0, 0, 4 * ROWS) + places(1, 0, 4 * ROWS)
    compact(archive)
    store(archive, archive.source(0), 5 * ROWS)  # the one before it is still to come
    store(archive, SourcePartition("a", "orders", 0, "a1b2c3"), 0)
    assert flat(drain(spark, archive)) == places(0, 0, ROWS, "a1b2c3")
    store(archive, archive.source(0), 4 * ROWS)
    compact(archive)
    assert flat(drain(spark, archive)) == places(0, 4 * ROWS, 2 * ROWS)
    assert drain(spark, archive) == []


@pytest.mark.long
def test_what_is_missing_for_good_is_an_error_unless_it_may_be_lost(spark: SparkSession, archive: Archive) -> None:
    drain(spark, archive, partition="0")
    store(archive, archive.source(0), 6 * ROWS)
    with pytest.raises(
        PySparkException, match=r"a/orders/0: offsets \[200,299\] are not in the archive.*failOnDataLoss"
    ):
        drain(spark, archive, partition="0", lostSegmentTimeout="0s")
    lost = drain(spark, archive, partition="0", lostSegmentTimeout="0s", failOnDataLoss="false")
    assert flat(lost) == places(0, 6 * ROWS, ROWS)


@pytest.mark.long
def test_a_recorded_gap_is_passed(spark: SparkSession, archive: Archive) -> None:
    source = archive.source(0)
    archive.store.delete_many([Segment(source, 0, OffsetRange(50, 99))])
    gap = RecordedGap(
        source=source, offsets=OffsetRange(50, 99), reason="trimmed", low=0, high=200, recorded_at=ORIGIN.created_at
    )
    ControlStore(archive.objects, "data").gaps.record(gap)
    assert flat(drain(spark, archive, partition="0")) == places(0, 0, 50) + places(0, 100, 100)


@pytest.mark.long
def test_it_starts_where_it_is_asked_to(spark: SparkSession, archive: Archive) -> None:
    at = "2023-11-14T22:16:00Z"  # of offset 160
    assert flat(drain(spark, archive, partition="0", startingTimestamp=at)) == places(0, 160, 40)
    # partition 1 is new to the query: it is read from its begin
    assert flat(drain(spark, archive, partition="1", startingOffsets="latest")) == places(1, 0, 4 * ROWS)


@pytest.mark.long
def test_from_the_latest_on(spark: SparkSession, archive: Archive) -> None:
    assert drain(spark, archive, startingOffsets="latest") == []
    store(archive, archive.source(1), 4 * ROWS)
    assert flat(drain(spark, archive, startingOffsets="latest")) == places(1, 4 * ROWS, ROWS)


def test_new_incarnations_are_found_at_the_first_trigger_and_then_now_and_then(archive: Archive) -> None:
    clock = HandClock()
    reader = SegmentsStreamReader(parse_options(archive.options(), refused=OF_A_READ), clock=clock)
    start = reader.initialOffset()
    store(archive, SourcePartition("a", "orders", 0, "a1b2c3"), 0)
    first = reader.latestOffset(start, ReadAllAvailable())
    assert first["orders@a1b2c3"] == {"0": {"first": 0, "next": ROWS}}
    store(archive, SourcePartition("a", "orders", 0, "d4e5f6"), 0)
    store(archive, archive.source(0), 4 * ROWS)
    second = reader.latestOffset(first, ReadAllAvailable())
    assert second == first | {"orders": first["orders"] | {"0": {"first": 0, "next": 5 * ROWS}}}
    clock.advance(FIND_EVERY.total_seconds())
    third = reader.latestOffset(second, ReadAllAvailable())
    assert third == second | {"orders@d4e5f6": {"0": {"first": 0, "next": ROWS}}}
    # another process of the driver, which plans the batch between two positions again
    again = SegmentsStreamReader(parse_options(archive.options(), refused=OF_A_READ))
    batches = [[str(one.value) for one in each.partitions(first, third)] for each in (reader, again)]
    assert batches[0] == batches[1]
    assert len(batches[0]) == 2


@pytest.mark.long
def test_nothing_is_written(spark: SparkSession, archive: Archive) -> None:
    frame = spark.range(1)
    with pytest.raises(AnalysisException, match=r"one writer for each partition.*backfill"):
        frame.write.format("segments").options(**archive.options()).mode("append").save()
    stream = spark.readStream.format("rate").load().writeStream.format("segments").options(**archive.options())
    refused = stream.option("checkpointLocation", str(archive.folder / "refused"))
    with pytest.raises(PySparkException, match=r"one writer for each partition.*backfill"):
        refused.start().awaitTermination(60)


@pytest.mark.long
def test_options_of_the_other_kind_are_refused(spark: SparkSession, archive: Archive) -> None:
    with pytest.raises(PySparkException, match=r"maxBytesPerTrigger: an option of spark.readStream only"):
        archive.load(spark, maxBytesPerTrigger="1MiB").count()
    with pytest.raises(PySparkException, match=r"offsets: an option of spark.read only"):
        drain(spark, archive, offsets="0-9")


@pytest.mark.long
def test_kafkas_columns(spark: SparkSession, archive: Archive) -> None:
    frame = archive.load(spark, columnNames="kafka")
    assert frame.schema == spark.createDataFrame([], KAFKA_COLUMNS).schema
    ours = archive.load(spark).selectExpr(
        "key", "value", "topic", "partition", "offset", "timestamp", "CAST(timestamp_type AS INT)", "headers"
    )
    assert sorted(frame.collect(), key=place) == sorted(ours.collect(), key=place)


def place(row: tuple[object, ...]) -> tuple[int, int]:
    return int(str(row[3])), int(str(row[4]))


@pytest.mark.long
def test_a_view_with_columns_of_its_own(spark: SparkSession, archive: Archive) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW few (partition INT, offset BIGINT) USING segments "
        f"OPTIONS (config '{archive.config}', topic 'orders')"
    )
    wanted = spark.sql("SELECT offset FROM few WHERE partition = 1 AND offset < 3 ORDER BY offset")
    assert [row.offset for row in wanted.collect()] == [0, 1, 2]
    plan = str(wanted._jdf.queryExecution().toString())
    assert "value" not in plan
    with pytest.raises(PySparkException, match=r"no column offsett bigint; there are: topic STRING"):
        spark.read.schema("offsett BIGINT").format("segments").options(**archive.options()).load().count()


PROGRAM = """
import json, os, signal, sys
from pathlib import Path
from pyspark.sql import SparkSession
from replicator.spark_source import register

config, folder, killed_in = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)

def keep(frame, batch):
    rows = sorted([row.partition, row.offset] for row in frame.select("partition", "offset").collect())
    name = f"{batch}.again" if (folder / f"{batch}.json").exists() else f"{batch}.json"
    (folder / name).write_text(json.dumps(rows))
    if batch == killed_in:
        os.killpg(0, signal.SIGKILL)

stream = spark.readStream.format("segments").option("config", config).option("maxBytesPerTrigger", "20kB").load()
query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / "checkpoint"))
query.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.long
def test_a_query_killed_between_batch_and_commit(archive: Archive) -> None:
    """Its last batch comes again with the same records, although they were merged meanwhile; all the others once."""

    def run(killed_in: int) -> int:
        command = [sys.executable, "-c", PROGRAM, str(archive.config), str(archive.folder), str(killed_in)]
        return subprocess.run(
            command, cwd=ROOT, env={**os.environ, "SECRET": "test"}, start_new_session=True, check=False
        ).returncode

    def kept(name: str) -> list[list[int]]:
        found: list[list[int]] = json.loads((archive.folder / name).read_text())
        return found

    assert run(1) == -signal.SIGKILL
    compact(archive)
    assert run(-1) == 0
    assert kept("1.again") == kept("1.json")
    assert [file.name for file in archive.folder.glob("*.again")] == ["1.again"]
    found = sorted(row for file in archive.folder.glob("*.json") for row in kept(file.name))
    assert found == [[partition, offset] for partition in range(2) for offset in range(4 * ROWS)]
