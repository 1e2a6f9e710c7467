"""The archive as Spark sees it."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql.functions import spark_partition_id

from formats.control.archive_begin import ArchiveBegin
from formats.control.gap import RecordedGap
from formats.errors import ConfigError, SegmentNotFound
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from infra.archive.control import ControlStore
from infra.local.stack import LocalStack
from replicator.config import from_mapping
from replicator.demo.flights import by_partition, flights
from replicator.services.compaction import Compaction, in_process
from replicator.spark_source.options import parse_options
from replicator.spark_source.rows import TABLE
from replicator.spark_source.source import COLUMNS, SegmentsReader
from tests.formats.sample_records import ORIGIN, Row, batch_of, sample_rows
from tests.integration.bucket import Bucket
from tests.integration.on_spark import source_session
from tests.processes.harness import to_toml
from tests.processes.s3_proxy import S3Proxy, proxied

pytestmark = pytest.mark.integration

DOCS = Path(__file__).parents[2] / "docs" / "spark-source.md"
ROWS = 50  # of a segment
BEGUN_MS = 1_700_000_000_000

RecordFields = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]
"""Partition, offset, timestamp, key, value and headers of a record."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Its Python processes have no pandas."""
    without = tmp_path_factory.mktemp("without")
    (without / "pandas.py").write_text("raise ImportError('there is no pandas here')\n")
    properties = {"spark.sql.shuffle.partitions": "1", "spark.sql.session.timeZone": "UTC"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(without))
        patch.delenv("PYSPARK_PYTHON", raising=False)
        patch.setenv("SECRET", "test")
        with source_session(properties) as session:
            yield session


class Archive(Bucket):
    """Three partitions of topic orders, four segments each; a record a second."""

    def __init__(self, stack: LocalStack, unique: Callable[[str], str], folder: Path, proxy: S3Proxy) -> None:
        super().__init__(stack, unique, folder)
        self.proxy = proxy
        tables = self.tables()
        del tables["compaction"]
        tables["s3"] |= {"endpoint_url": proxy.endpoint_url, "secret_access_key": "${SECRET}"}
        self.config = folder / "replicator.toml"
        self.config.write_text(to_toml(tables), encoding="utf-8")

    def source(self, partition: int, topic: str = "orders") -> SourcePartition:
        return SourcePartition("a", topic, partition)

    def rows(self, name: Segment) -> list[Row]:
        rows = super().rows(name)
        return [{**row, "timestamp": BEGUN_MS + row["offset"] * 1_000} for row in rows]

    def put(self, name: Segment, batch: pa.RecordBatch) -> None:
        body = io.BytesIO()
        writer = self.format.create(body)
        writer.write([batch])
        writer.close(name, ORIGIN)
        self.store.store(name, body, body.tell())

    def options(self, **more: str) -> dict[str, str]:
        return {"config": str(self.config), "topic": "orders", **more}

    def load(self, spark: SparkSession, **more: str) -> DataFrame:
        return spark.read.format("segments").options(**self.options(**more)).load()

    def opened(self) -> set[str]:
        """Since it was asked last: partition, level and offsets of each segment that was read."""
        paths = self.proxy.asked("GetObject")
        return {path.partition("/orders/")[2] for path in paths}

    def everything(self) -> list[RecordFields]:
        found = [(partition, row) for partition in range(3) for row in self.read(self.source(partition))]
        return [(p, row["offset"], row["timestamp"], row["key"], row["value"], row["headers"]) for p, row in found]


@contextmanager
def archive_of_orders(
    stack: LocalStack, unique: Callable[[str], str], folder: Path, monkeypatch: pytest.MonkeyPatch, *, partitions: int
) -> Iterator[Archive]:
    """Four segments of ROWS records in each partition of `orders`."""
    monkeypatch.setenv("SECRET", "test")
    with proxied(stack.moto.endpoint_url) as proxy:
        made = Archive(stack, unique, folder, proxy)
        made.fill("orders", partitions=partitions, segments=4, rows=ROWS)
        yield made
        made.client.close()


@pytest.fixture
def archive(
    stack: LocalStack, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Archive]:
    with archive_of_orders(stack, unique, tmp_path, monkeypatch, partitions=3) as made:
        yield made


def record_fields(rows: list[SparkRow]) -> list[RecordFields]:
    """In the order of `Archive.everything`, which is the tests' alone."""
    for row in rows:
        assert (row.topic, row.incarnation) == ("orders", "")
        assert int(row.timestamp.timestamp() * 1_000) == row.timestamp_ms
    found = sorted(rows, key=lambda row: (row.partition, row.offset))
    headers = [[(header.key, header.value) for header in row.headers or ()] or None for row in found]
    return [(r.partition, r.offset, r.timestamp_ms, r.key, r.value, h) for r, h in zip(found, headers, strict=True)]


def test_every_record_once_and_in_order(spark: SparkSession, archive: Archive) -> None:
    """Also where segments overlap, and whatever a Spark partition may read."""
    before = archive.everything()
    both = [row for n in (50, 100) for row in archive.rows(Segment(archive.source(1), 0, OffsetRange(n, n + 49)))]
    archive.put(Segment(archive.source(1), 0, OffsetRange(70, 119)), batch_of(both[20:70]))
    rows = archive.load(spark, maxPartitionBytes="12kB").withColumn("task", spark_partition_id()).collect()
    assert record_fields(rows) == before
    tasks = [list(of_task) for _, of_task in groupby(rows, key=lambda row: row.task)]
    assert len(tasks) > 3
    for of_task in tasks:
        assert len({row.partition for row in of_task}) == 1
        assert [row.offset for row in of_task] == sorted(row.offset for row in of_task)


@pytest.mark.long
def test_what_is_outside_is_not_opened(spark: SparkSession, archive: Archive) -> None:
    before = archive.everything()
    frame = archive.load(spark)
    archive.opened()

    wanted = "topic = 'orders' and partition in (1, 5) and offset >= 60 and offset < 70"
    assert record_fields(frame.where(wanted).collect()) == [row for row in before if row[0] == 1 and 60 <= row[1] < 70]
    assert archive.opened() == {"1/0/00000000000000000050-00000000000000000099"}

    assert frame.where("topic = 'payments'").count() == 0
    assert archive.opened() == set()

    assert record_fields(archive.load(spark, partition="0,2", offsets="190-").collect()) == [
        row for row in before if row[0] in (0, 2) and row[1] >= 190
    ]
    assert archive.opened() == {f"{p}/0/00000000000000000150-00000000000000000199" for p in (0, 2)}


def explained(frame: DataFrame) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        frame.explain("formatted")
    return printed.getvalue()


def test_explain_shows_what_the_source_decides_and_what_spark_applies(spark: SparkSession, archive: Archive) -> None:
    at = "timestamp >= timestamp'2023-11-14 22:14:20'"
    plan = explained(archive.load(spark).where(f"partition = 1 and offset >= 60 and offset < 70 and {at}"))
    [pushed] = re.findall(r"PushedFilters: \[(.*)\]", plan)
    assert pushed.split(", ") == ["EqualTo(partition,1)", "GreaterThanOrEqual(offset,60)", "LessThan(offset,70)"]
    [applied] = re.findall(r"\nCondition : (.*)\n", plan)
    assert "timestamp" in applied
    assert "offset" not in applied
    assert "ReadSchema: struct<topic:string," in plan, "Spark passes no wanted columns to a Python source"


def test_columns_of_a_schema_are_those_that_are_read(spark: SparkSession, archive: Archive) -> None:
    frame = spark.read.schema("partition INT, offset BIGINT").format("segments").options(**archive.options()).load()
    plan = explained(frame)
    assert "ReadSchema: struct<partition:int,offset:bigint>" in plan
    assert frame.where("offset < 3").count() == 9


def test_a_python_source_has_no_way_to_learn_of_the_wanted_columns(spark: SparkSession) -> None:
    """The day this fails, columns can be pruned: then take the wanted ones over, and say so in the page."""
    builder = "org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder"
    wanted = "org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns"
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    of_name = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass
    assert not of_name(wanted).isAssignableFrom(of_name(builder))


def test_times_are_exact(spark: SparkSession, archive: Archive) -> None:
    before = archive.everything()
    expected = [row for row in before if BEGUN_MS + 60_000 <= row[2] < BEGUN_MS + 63_000]
    assert len(expected) == 9
    start, end = "2023-11-14T22:14:20Z", "2023-11-14T22:14:23Z"
    assert record_fields(archive.load(spark, **{"from": start, "until": end}).collect()) == expected
    assert (
        record_fields(archive.load(spark).where(f"timestamp >= '{start}' and timestamp < '{end}'").collect())
        == expected
    )


def test_merged_between_plan_and_read(spark: SparkSession, archive: Archive) -> None:
    before = archive.everything()
    frame = archive.load(spark)
    frame._jdf.queryExecution().executedPlan()  # planned, and kept for the action
    with ExitStack() as opened:
        config = from_mapping(archive.tables())
        with Compaction(config, execute=in_process(config, opened)) as compaction:
            compaction.compact()
    assert archive.segments(archive.source(0)) == [Segment(archive.source(0), 1, OffsetRange(0, 4 * ROWS - 1))]
    archive.opened()
    assert record_fields(frame.collect()) == before
    assert "0/1/00000000000000000000-00000000000000000199" in archive.opened()


def test_what_is_lost_between_plan_and_read_is_an_error(archive: Archive) -> None:
    reader = SegmentsReader(parse_options(archive.options(partition="0")))
    [partition] = reader.partitions()
    archive.store.delete_many([Segment(archive.source(0), 0, OffsetRange(50, 99))])
    with pytest.raises(SegmentNotFound):
        list(reader.read(partition))


def test_gaps_are_passed_over_and_logged_unless_recorded(archive: Archive, caplog: pytest.LogCaptureFixture) -> None:
    source = archive.source(0)
    archive.store.delete_many([Segment(source, 0, OffsetRange(50, 99)), Segment(source, 0, OffsetRange(100, 149))])
    reader = SegmentsReader(parse_options(archive.options(partition="0")))
    [partition] = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(partition)) == 2 * ROWS
    [warning] = [record for record in caplog.records if record.message == "archive_gaps"]
    fields = ("topic", "partition", "count", "start", "end")
    assert [vars(warning)[field] for field in fields] == ["orders", 0, 1, 50, 149]

    gap = RecordedGap(
        source=source, offsets=OffsetRange(40, 160), reason="trimmed", low=0, high=200, recorded_at=ORIGIN.created_at
    )
    ControlStore(archive.objects, "data").gaps.record(gap)
    caplog.clear()
    assert reader.partitions() != []
    assert caplog.records == []


def test_what_is_missing_before_the_first_segment_is_logged(archive: Archive, caplog: pytest.LogCaptureFixture) -> None:
    source = archive.source(0)
    begin = ArchiveBegin(offset=20, reason="log start", recorded_at=ORIGIN.created_at)
    ControlStore(archive.objects, "data").begins.record(source, begin)
    archive.store.delete_many([Segment(source, 0, OffsetRange(0, 49))])
    reader = SegmentsReader(parse_options(archive.options(partition="0")))
    assert reader.partitions() != []
    [warning] = [record for record in caplog.records if record.message == "archive_gaps"]
    assert [vars(warning)[field] for field in ("partition", "count", "start", "end")] == [0, 1, 20, 49]
    caplog.clear()
    assert SegmentsReader(parse_options(archive.options(partition="0", offsets="50-"))).partitions() != []
    assert caplog.records == []


def test_options_are_refused_where_they_are_given(spark: SparkSession, archive: Archive) -> None:
    with pytest.raises(AnalysisException, match=r"no option 'topics' \(did you mean 'topic'\?\)"):
        archive.load(spark, topics="orders")


def test_a_topic_that_is_not_there(archive: Archive) -> None:
    for wanted in ("order", "orders,^pay.*"):
        with pytest.raises(ConfigError, match=r"nothing is archived as .*; of region a there is: orders"):
            SegmentsReader(parse_options(archive.options(topic=wanted))).partitions()
    with pytest.raises(ConfigError, match="of region b there is: nothing"):
        SegmentsReader(parse_options(archive.options(region="b"))).partitions()


def test_topics_by_expression_and_lives(archive: Archive) -> None:
    later = SourcePartition("a", "orders", 0, "a1b2c3")
    for source in (later, archive.source(0, "orders.eu"), archive.source(0, "payments")):
        name = Segment(source, 0, OffsetRange(0, 9))
        archive.put(name, batch_of(sample_rows(10)))

    def sources(**options: str) -> set[str]:
        reader = SegmentsReader(parse_options(archive.options(**options)))
        return {str(partition.value.source) for partition in reader.partitions()}

    assert sources(topic="^orders.*", partition="0") == {"a/orders/0", "a/orders.eu/0"}
    assert sources(incarnation="a1b2c3") == {"a/orders@a1b2c3/0"}


def test_damage_is_an_error(spark: SparkSession, archive: Archive) -> None:
    key = format_key("data", Segment(archive.source(0), 0, OffsetRange(50, 99)))
    data = bytearray(archive.client.get_object(Bucket=archive.name, Key=key)["Body"].read())
    data[len(data) // 3] ^= 1
    archive.client.put_object(Bucket=archive.name, Key=key, Body=bytes(data))
    with pytest.raises(PySparkException, match="corrupt segment a/orders/0/0/"):
        archive.load(spark).count()


def test_both_definitions_of_the_columns_agree(spark: SparkSession, archive: Archive) -> None:
    """Spark compares them only with those of records."""
    frame = archive.load(spark)
    assert frame.columns == TABLE.names
    assert frame.schema == spark.createDataFrame([], COLUMNS).schema


def test_a_segment_is_a_parquet_file(spark: SparkSession, archive: Archive, tmp_path: Path) -> None:
    name = Segment(archive.source(2), 0, OffsetRange(50, 99))
    file = tmp_path / "segment.parquet"
    file.write_bytes(archive.client.get_object(Bucket=archive.name, Key=format_key("data", name))["Body"].read())
    assert pq.read_table(file).column("offset").to_pylist() == list(range(50, 100))
    assert spark.read.parquet(str(file)).where("offset >= 90").count() == 10


@pytest.mark.long
def test_the_example_of_the_documentation(
    spark: SparkSession, archive: Archive, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = flights(2_000)
    for partition, batch in by_partition(records, 3).items():
        archive.put(Segment(archive.source(partition, "flights"), 0, OffsetRange(0, batch.num_rows - 1)), batch)
    found = re.search(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    monkeypatch.setattr(sys, "argv", ["delays.py", str(archive.config)])
    exec(compile(found[1], DOCS.name, "exec"), {})
    shown = re.findall(r"\|\s*(\w\w)\|\s*(\d+)\|\s*(-?[\d.]+)\|", capsys.readouterr().out)
    assert [(carrier, int(count), float(mean)) for carrier, count, mean in shown] == delays(records)


def delays(records: pa.RecordBatch) -> list[tuple[str, int, float]]:
    """The same answer, without Spark."""
    by_carrier: dict[str, list[float]] = {}
    for value in records.column("value").to_pylist():
        flight = json.loads(value)
        if flight["dep_delay"] is not None:
            by_carrier.setdefault(flight["carrier"], []).append(flight["dep_delay"])
    means = [(carrier, len(delays), round(sum(delays) / len(delays), 1)) for carrier, delays in by_carrier.items()]
    return sorted(means, key=lambda carrier: -carrier[2])
