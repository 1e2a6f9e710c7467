"""The level of a segment: 1, or what the operator sets, or the dense one where a sample shows that it pays."""

from __future__ import annotations

import random
from collections.abc import Sequence
from io import BytesIO
from typing import Literal

import pyarrow as pa
import pytest

from bench.data import records
from formats.parquet.compression_level import DENSE, FAST, WORTH, level_by_sample
from formats.parquet.writer import ParquetFormat
from formats.records.schema import SCHEMA
from tests.formats.sample_records import ORIGIN, batch_of, sample_rows, segment

COUNT = 4_000


def batch(values: Sequence[bytes | None]) -> pa.RecordBatch:
    count = len(values)
    columns = [
        pa.array(range(count), pa.int64()),
        pa.array(range(count), pa.int64()).view(SCHEMA.field("timestamp").type),
        pa.repeat(pa.scalar(0, pa.int8()), count),
        pa.nulls(count, pa.binary()),
        pa.array(values, pa.binary()),
        pa.nulls(count, SCHEMA.field("headers").type),
    ]
    return pa.record_batch(columns, schema=SCHEMA)


def unlike() -> pa.RecordBatch:
    """JSON with random ids and readings."""
    return batch(records("json", COUNT, 1).values)


def alike() -> pa.RecordBatch:
    """Rows of a table as JSON: small numbers and few names."""
    chance = random.Random(5)

    def row() -> bytes:
        left, took = chance.randrange(2400), chance.randrange(20, 400)
        carrier, tail = chance.choice(("UA", "AA", "B6", "DL", "EV")), f"N{chance.randrange(400):03d}"
        return (
            f'{{"year":2013,"month":1,"dep_time":{left},"dep_delay":{chance.randrange(-9, 60)},"carrier":"{carrier}",'
            f'"tailnum":"{tail}","origin":"EWR","air_time":{took},"distance":{took * 7},"hour":{left // 100}}}'
        ).encode()

    return batch([row() for _ in range(COUNT)])


def stored(fmt: ParquetFormat, batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = BytesIO()
    writer = fmt.create(sink)
    writer.write(batches)
    writer.close(segment(0, COUNT - 1), ORIGIN)
    return sink.getvalue()


@pytest.mark.parametrize(("made", "level"), [(unlike(), FAST), (alike(), DENSE)], ids=["unlike", "alike"])
def test_the_dense_level_is_taken_where_it_pays(made: pa.RecordBatch, level: int) -> None:
    assert level_by_sample([made]) == level
    assert level_by_sample([made.slice(0, 1_000), made.slice(1_000, 3_000)]) == level
    at = {one: stored(ParquetFormat(compression_level=one), [made]) for one in (FAST, DENSE)}
    assert (len(at[DENSE]) < WORTH * len(at[FAST])) == (level == DENSE)
    assert stored(ParquetFormat(compression_level="auto"), [made]) == at[level]


def test_the_first_records_decide_for_a_segment() -> None:
    later = pa.record_batch([pa.array(range(COUNT, 2 * COUNT), pa.int64()), *alike().columns[1:]], schema=SCHEMA)

    def written(level: int | Literal["auto"]) -> bytes:
        sink = BytesIO()
        writer = ParquetFormat(compression_level=level).create(sink)
        writer.write([unlike()])
        writer.write([later])
        writer.close(segment(0, 2 * COUNT - 1), ORIGIN)
        return sink.getvalue()

    assert written("auto") == written(FAST) != written(DENSE)


@pytest.mark.parametrize("values", [[None] * 3, [b""] * 3, [b"x"], [b"x" * 3_000_000]])
def test_any_records_have_a_level(values: list[bytes | None]) -> None:
    assert level_by_sample([batch(values)]) in (FAST, DENSE)


def test_a_segment_without_records_has_one() -> None:
    sink = BytesIO()
    writer = ParquetFormat(compression_level="auto").create(sink)
    footer = writer.close(segment(0, 9), ORIGIN)
    assert footer.count == 0
    assert list(ParquetFormat().open(sink, segment(0, 9)).batches()) == []


def test_the_default_is_the_fast_level() -> None:
    made = unlike()
    assert stored(ParquetFormat(), [made]) == stored(ParquetFormat(compression_level=FAST), [made])
    assert stored(ParquetFormat(), [made]) != stored(ParquetFormat(compression_level=3), [made])


def test_only_zstd_has_a_level_by_sample() -> None:
    with pytest.raises(ValueError, match="compression_level 'auto' is of zstd, not of 'gzip'"):
        ParquetFormat(compression="gzip", compression_level="auto")


def test_sample_rows_of_every_kind_are_written_at_a_level_by_sample() -> None:
    rows = sample_rows(200)
    sink = BytesIO()
    writer = ParquetFormat(compression_level="auto").create(sink)
    writer.write([batch_of(rows)])
    writer.close(segment(0, 10_000), ORIGIN)
    assert sum(b.num_rows for b in ParquetFormat().open(sink, segment(0, 10_000)).batches()) == len(rows)
