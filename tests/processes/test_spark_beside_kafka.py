"""`columnNames=kafka` beside Spark's own source "kafka", which reads the topic from the broker: nothing differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame, SparkSession

from infra.local.cache import cache_dir
from infra.local.jars import JarSet, fetched
from infra.runtime.java import find_java
from tests.integration.on_spark import source_session
from tests.processes.flow import Flow
from tests.processes.harness import A, to_toml
from tests.processes.traffic import EPOCH_MS, KEEPS_EVERYTHING, Draft

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.processes.harness import Site

pytestmark = [pytest.mark.integration, pytest.mark.long]

PARTITIONS = 2
KAFKA_VERSION = "4.2.0"  # of the source: its columns are the same in all of Spark 4
KAFKA_SOURCE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{KAFKA_VERSION}"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    folder = cache_dir() / f"spark-kafka-{KAFKA_VERSION}"
    jars = fetched(find_java(), JarSet("Spark's source kafka", KAFKA_SOURCE, folder, beside_sparks))
    properties = {"spark.jars": ",".join(map(str, jars)), "spark.sql.session.timeZone": "UTC"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET", "test")
        with source_session(properties) as session:
            yield session


def beside_sparks(fetched: Path) -> list[Path]:
    """What PySpark does not have."""
    return [jar for jar in fetched.glob("*.jar") if "kafka" in jar.name or "commons-pool2" in jar.name]


def drafts() -> list[Draft]:
    """Whatever may be absent, empty or repeated."""
    headers = [(), (("a", b"1"),), (("a", b"1"), ("b", b""), ("a", None)), (("", b"\x00\xff"), ("ü", "ß".encode()))]
    keys = [None, b"", b"k", b"\x00\xff"]
    values = [b"v", None, b"", b"\xff" * 1000]
    return [
        Draft(n % PARTITIONS, keys[n // 2 % 4], values[n // 8 % 4], headers[n // 3 % 4], EPOCH_MS + n * 7)
        for n in range(400)
    ]


def ours(site: Site, topic: str) -> Mapping[str, str]:
    file: Path = site.folder / "spark.toml"
    s3 = {**site.s3(), "access_key_id": "test", "secret_access_key": "${SECRET}"}
    file.write_text(to_toml({"region": A, "s3": s3}), encoding="utf-8")
    return {"config": str(file), "topic": topic, "columnNames": "kafka"}


def kafkas(site: Site, topic: str) -> Mapping[str, str]:
    return {
        "kafka.bootstrap.servers": site.bootstrap(A),
        "kafka.isolation.level": "read_committed",
        "subscribe": topic,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }


def rows(frame: DataFrame) -> list[object]:
    return list(frame.orderBy("topic", "partition", "offset").collect())


@pytest.mark.parametrize("stamp", ["CreateTime", "LogAppendTime"])
def test_the_same_columns_and_rows(site: Site, spark: SparkSession, stamp: str) -> None:
    with Flow(site, partitions=PARTITIONS, config={**KEEPS_EVERYTHING, "message.timestamp.type": stamp}) as flow:
        egress = site.egress("egress", {flow.topic: {}}).start()
        flow.produce(drafts())
        with flow.traffic(seed=7, most=40) as traffic:  # with transactions, some of them aborted
            site.wait("traffic in the archive", lambda: flow.ends()[0] > 300)
            traffic.finish()
        flow.wait_for_archive()
        egress.stop()
        kafka = spark.read.format("kafka").options(**kafkas(site, flow.topic)).load()
        segments = spark.read.format("segments").options(**ours(site, flow.topic)).load()
        assert segments.schema == kafka.schema
        wanted = rows(kafka)
        assert len(wanted) > 400
        assert rows(segments) == wanted
        text = "CAST(key AS STRING) k, length(value) n, partition, timestampType, headers[0].key h"
        where = "partition = 1 AND offset >= 20 AND timestampType IN (0, 1)"
        by = [frame.where(where).selectExpr(*text.split(", ")).collect() for frame in (kafka, segments)]
        assert sorted(map(str, by[0])) == sorted(map(str, by[1]))
        batches = [
            spark.readStream.format(name).options(**options).load()
            for name, options in (("kafka", kafkas(site, flow.topic)), ("segments", ours(site, flow.topic)))
        ]
        assert batches[0].schema == batches[1].schema
