"""Which level the segments of a topic, and merged ones, are compressed at."""

from __future__ import annotations

import pytest

from egress.settings import EgressTopicSettings
from formats.errors import ConfigError
from formats.parquet.writer import ParquetFormat
from formats.registry import load
from replicator.config import Config
from replicator.config.load import from_mapping
from replicator.services.compaction import merged_format
from replicator.services.segment_formats import SegmentFormats


def config(**options: object) -> Config:
    return from_mapping({"region": "a", "s3": {"bucket": "b"}, "format_options": options})


def formats(**options: object) -> SegmentFormats:
    made = config(**options)
    return SegmentFormats(made, load(made.format, made.format_options))


def test_a_topic_has_its_own_level_and_all_other_options() -> None:
    found = formats(page_bytes=1 << 16, compression_level=4)
    assert found.of(EgressTopicSettings()) == ParquetFormat(page_bytes=1 << 16, compression_level=4)
    assert found.of(None) == found.of(EgressTopicSettings())
    nine = found.of(EgressTopicSettings(compression_level=9))
    assert nine == ParquetFormat(page_bytes=1 << 16, compression_level=9)
    assert found.of(EgressTopicSettings(compression_level=9)) is nine


def test_merged_segments_have_a_level_by_sample_unless_the_job_has_one() -> None:
    job = {"name": "j"}
    one, other = (
        from_mapping({"region": "a", "s3": {"bucket": "b"}, "compaction": {"jobs": [job | more]}}).compaction
        for more in ({}, {"compression_level": 6})
    )
    assert one is not None
    assert other is not None
    made = [merged_format(config(compression_level=4), section.jobs[0]) for section in (one, other)]
    assert [fmt.compression_level for fmt in made if isinstance(fmt, ParquetFormat)] == ["auto", 6]
    gzip = merged_format(config(compression="gzip"), one.jobs[0])
    assert isinstance(gzip, ParquetFormat)
    assert gzip.compression_level is None


def test_a_level_that_zstd_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="levels are"):
        formats(compression_level=99)
