"""How many holes a second a source has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from pyarrow import RecordBatch

from formats.records.hole_rate import holes_per_second
from tests.contracts.target import STAMP, row
from tests.formats.sample_records import batch_of


def batches(offsets: Sequence[int], *, lasts_ms: int) -> Iterator[RecordBatch]:
    step = lasts_ms // max(len(offsets) - 1, 1)
    rows = [row(offset, stamp=STAMP + n * step) for n, offset in enumerate(offsets)]
    half = len(rows) // 2
    yield from (batch_of(part) for part in (rows[:half], rows[half:]) if part)


@pytest.mark.parametrize(
    ("offsets", "lasts_ms", "rate"),
    [
        ([0], 0, 0),
        (range(101), 10_000, 0),
        (range(0, 202, 2), 10_000, 10),  # a transaction of one record each
        ([0, 1000, 1001, 1002, 1003], 2_000, 0.5),
        (range(0, 200, 2), 99, 0),  # too short to tell
    ],
)
def test_holes_a_second(offsets: Sequence[int], lasts_ms: int, rate: float) -> None:
    assert holes_per_second(batches(offsets, lasts_ms=lasts_ms)) == pytest.approx(rate)
