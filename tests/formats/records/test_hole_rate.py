"""How many holes a second a source has."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import RecordBatch

from formats.records.hole_rate import BEHIND, HoleBacklog, holes_per_second
from tests.contracts.target import STAMP, row
from tests.formats.sample_records import batch_of


def batches(offsets: Sequence[int], *, lasts_ms: int) -> Iterator[RecordBatch]:
    steps = max(len(offsets) - 1, 1)
    rows = [row(offset, stamp=STAMP + n * lasts_ms // steps) for n, offset in enumerate(offsets)]
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


BURST = int(BEHIND.total_seconds()) * 10  # holes that may wait where ten a second are filled


@pytest.mark.parametrize(
    ("holes", "lasts_ms", "is_endless"),
    [
        (BURST, 1_000, False),  # a burst is filled later
        (BURST + 11, 1_000, True),
        (BURST + 11, 999, False),  # timestamps that say nothing
        (2 * BURST, 1_000 * BURST, False),  # two in a second
        (3 * BURST, 100 * BURST, True),  # thirty
    ],
)
def test_a_burst_is_filled_later_and_a_rate_above_it_never(holes: int, lasts_ms: int, *, is_endless: bool) -> None:
    backlog = HoleBacklog(10)
    end = 2 * holes + 1
    backlog.add(list(batches(range(0, end, 2), lasts_ms=lasts_ms)), position=0, next_offset=end)
    assert backlog.is_endless == is_endless


def test_holes_at_both_ends_count_and_what_was_delivered_elsewhere_does_not() -> None:
    backlog = HoleBacklog(10)
    backlog.add(list(batches([7], lasts_ms=0)), position=5, next_offset=9)
    assert backlog.waiting == 2
    backlog.add([], position=9, next_offset=11)
    assert backlog.waiting == 3
    backlog.add(list(batches([100], lasts_ms=0)), position=100, next_offset=101)
    assert backlog.waiting == 3


@given(st.sets(st.integers(0, 200)), st.lists(st.integers(0, 200), max_size=5))
def test_however_a_log_arrives_and_is_tried_again_its_holes_are_counted_once(found: set[int], cuts: list[int]) -> None:
    """All in one moment, so none is filled meanwhile. A hole that is cut in two is filled in two steps."""
    backlog, holes = HoleBacklog(10), 0
    for start, end in itertools.pairwise(sorted({0, *cuts, 201})):
        part = sorted(offset for offset in found if start <= offset < end)
        for _ in range(2):
            backlog.add(list(batches(part, lasts_ms=0)), position=start, next_offset=end)
        holes += sum(b - a > 1 for a, b in itertools.pairwise([start - 1, *part, end]))
    assert backlog.waiting == holes
