"""Options of the Spark source: their meaning, and the problems of invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition

from formats.errors import ConfigError
from formats.int_range import IntRange
from formats.read_splits import ArchiveQuery
from formats.segment import OffsetRange
from infra.settings.units import MIB
from replicator.spark_source.options import parse_options
from replicator.spark_source.rows import TABLE
from replicator.spark_source.source import SegmentsReader

CONFIG = 'region = "a"\n[s3]\nbucket = "archive"\n'


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "replicator.toml"
    file.write_text(CONFIG, encoding="utf-8")
    return str(file)


def test_by_default_everything_of_the_configured_region(config: str) -> None:
    options = parse_options({"config": config})
    assert options.config.s3.bucket == "archive"
    assert options.wanted == ArchiveQuery(region="a")
    assert options.max_partition_bytes == 128 * MIB


def test_all_of_them(config: str) -> None:
    given = {
        "config": config,
        "region": "b",
        "topic": "orders, ^sensor[.].*",
        "partition": "0, 3",
        "incarnation": "a1b2",
        "OFFSETS": "10-19",
        "from": "1970-01-01T01:00:00.0001+01:00",
        "until": "1970-01-01T00:00:01Z",
        "maxpartitionbytes": "1MiB",
    }
    options = parse_options(given)
    wanted = options.wanted
    assert (wanted.region, wanted.incarnation, wanted.partitions) == ("b", "a1b2", frozenset({0, 3}))
    assert [str(pattern) for pattern in wanted.topics] == ["orders", "^sensor[.].*"]
    assert wanted.offset_range == OffsetRange(10, 19)
    assert wanted.timestamps == IntRange(1, 999), (
        "from a time on, and until before another; a part of a millisecond is after it"
    )
    assert options.max_partition_bytes == MIB


@pytest.mark.parametrize(("text", "span"), [("7-", IntRange(7)), ("-7", IntRange(0, 7)), ("7-7", IntRange(7, 7))])
def test_an_end_of_the_offsets_may_be_open(config: str, text: str, span: IntRange) -> None:
    assert parse_options({"config": config, "offsets": text}).wanted.offsets == span


def test_an_archive_path_is_a_topic_and_an_incarnation(config: str) -> None:
    with pytest.raises(ConfigError, match="'orders@a1b2' is an archive path: give topic 'orders', and incarnation"):
        parse_options({"config": config, "topic": "payments,orders@a1b2"})
    found = parse_options({"config": config, "topic": "orders", "incarnation": "a1b2"})
    assert (found.wanted.topics[0].text, found.wanted.incarnation) == ("orders", "a1b2")


def test_every_problem_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(
            {
                "topics": "orders",
                "path": "x",
                "topic": "a b",
                "partition": "-1",
                "offsets": "-",
                "from": "2026-01-31T12:00:00",
                "until": "noon",
                "maxPartitionBytes": "0",
            }
        )
    assert [problem.partition(";")[0] for problem in caught.value.problems] == [
        "no option 'topics' (did you mean 'topic'?)",
        "no option 'path'",
        "config: missing: the path of a replicator.toml, which names the archive",
        "from: '2026-01-31T12:00:00' has no time zone: write 2026-01-31T12:00:00Z for UTC",
        "until: 'noon' is not a time, such as 2026-01-31T12:00:00Z",
        "topic: 'a b' is not a topic name (1 to 249 of A-Z a-z 0-9 . _ -)",
        "partition: '-1' is not a partition number, nor several such as \"0,3\"",
        "offsets: '-' is not a range of offsets",
        "maxPartitionBytes: must be at least 1",
    ]


def test_the_configuration_itself_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        parse_options({"config": str(tmp_path / "none.toml")})


def test_nothing_is_read_of_the_partition_that_spark_adds_to_an_empty_plan(config: str) -> None:
    reader = SegmentsReader(parse_options({"config": config}), TABLE)
    assert list(reader.read(InputPartition(None))) == []
    assert list(reader.read(None)) == [], "PySpark 4.1"
