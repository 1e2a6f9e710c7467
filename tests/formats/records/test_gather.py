"""Small batches are concatenated; the records, and the segments written from them, stay the same."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.parquet.writer import ParquetFormat
from formats.records.gather import MIN_BYTES, MIN_ROWS, gathered
from tests.formats.sample_records import ORIGIN, batch_of, rows_of, sample_rows, segment

ROWS = sample_rows(3 * MIN_ROWS)


def cut(sizes: Sequence[int]) -> list[pa.RecordBatch]:
    """Batches with these numbers of records, some of them slices of a larger one."""
    whole, batches, at = batch_of(ROWS), [], 0
    for size in sizes:
        batches.append(whole.slice(at, size) if at % 2 else batch_of(ROWS[at : at + size]))
        at += size
    return batches


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 3) | st.integers(0, MIN_ROWS), max_size=20).filter(lambda s: sum(s) <= len(ROWS)))
def test_the_same_records_in_few_batches(sizes: list[int]) -> None:
    found = list(gathered(cut(sizes)))
    assert rows_of(found) == ROWS[: sum(sizes)]
    assert all(batch.num_rows for batch in found)
    assert all(batch.num_rows >= MIN_ROWS or batch.nbytes >= MIN_BYTES for batch in found[:-1])


def test_large_batches_are_not_copied() -> None:
    batches = cut([MIN_ROWS, MIN_ROWS])
    assert [a is b for a, b in zip(gathered(batches), batches, strict=True)] == [True, True]


@pytest.mark.parametrize("sliced", [False, True])
def test_batches_of_large_records_are_gathered_by_their_bytes(sliced: bool) -> None:
    """A slice is as large as its records, not as the buffers that it shares."""
    rows = [{**row, "value": bytes(MIN_BYTES // 8)} for row in ROWS[:40]]
    whole = batch_of(rows)
    batches = [whole.slice(at, 1) if sliced else batch_of(rows[at : at + 1]) for at in range(len(rows))]
    assert [batch.num_rows for batch in gathered(batches)] == [8, 8, 8, 8, 8]


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="not the schema of records"):
        list(gathered([pa.record_batch({"offset": [1]})]))


def written(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = io.BytesIO()
    writer = ParquetFormat().create(sink)
    writer.write(batches)
    writer.close(segment(0, len(ROWS) - 1), ORIGIN)
    return sink.getvalue()


def test_a_segment_does_not_depend_on_how_its_records_were_batched() -> None:
    ones = [1] * len(ROWS)
    assert written(cut(ones)) == written([batch_of(ROWS)])


@pytest.mark.cpu
def test_records_written_one_by_one_cost_little_more() -> None:
    """It used to cost a hundred times as much: each batch was measured, checked and digested separately."""
    ones, whole = cut([1] * MIN_ROWS), cut([MIN_ROWS])

    def cost(batches: Sequence[pa.RecordBatch]) -> float:
        best = float("inf")
        for _ in range(5):
            began = time.process_time()
            written(batches)
            best = min(best, time.process_time() - began)
        return best

    assert cost(ones) < 20 * cost(whole)
