"""RecordFilter, compared with a check of each record."""

from __future__ import annotations

from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.coverage import SegmentSlice
from formats.footer import SegmentFooter
from formats.int_range import ANY_OFFSET, ANY_TIME, IntRange
from formats.parquet.writer import ParquetFormat
from formats.records.scope import RecordFilter
from infra.archive.run_reader import SegmentRun, SegmentRunReader
from tests.formats.sample_records import ORIGIN, Row, batch_of, rows, rows_of, sample_rows, segment
from tests.ingress.world import STAMP, World

ROWS = sample_rows(20, first_offset=100, step=2)


def spans(values: list[int]) -> st.SearchStrategy[IntRange]:
    """Around what there is."""
    edges = st.sampled_from([v + d for v in values for d in (-1, 0, 1) if -(2**63) <= v + d < 2**63])
    return st.just(IntRange()) | st.builds(IntRange, edges, edges) | st.builds(IntRange, edges)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), found=rows(min_size=1, max_size=12))
def test_records_match_when_both_ranges_contain_them(data: st.DataObject, found: list[Row]) -> None:
    offsets = data.draw(spans([row["offset"] for row in found]))
    timestamps = data.draw(spans([row["timestamp"] for row in found]))
    wanted = [
        row
        for row in rows_of([batch_of(found)])
        if offsets.low <= row["offset"] <= offsets.high and timestamps.low <= row["timestamp"] <= timestamps.high
    ]
    assert rows_of([RecordFilter(offsets=offsets, timestamps=timestamps).of(batch_of(found))]) == wanted


def test_everything_is_the_batch_itself() -> None:
    batch = batch_of(ROWS)
    assert RecordFilter().of(batch) is batch
    assert RecordFilter(offsets=IntRange(0), timestamps=IntRange()).of(batch) is batch


@pytest.mark.parametrize("offsets", [IntRange(-5, -1), IntRange(10, 5), IntRange(139), IntRange(0, 99)])
def test_a_range_outside_the_batch_selects_nothing(offsets: IntRange) -> None:
    assert RecordFilter(offsets=offsets).of(batch_of(ROWS)).num_rows == 0


@pytest.mark.parametrize(("high", "past"), [(99, True), (100, False), (2**63 - 1, False)])
def test_a_batch_is_past_the_offsets_once_its_first_is(high: int, past: bool) -> None:
    assert RecordFilter(offsets=IntRange(0, high)).is_past(batch_of(ROWS)) == past


def footer_of(found: list[Row]) -> SegmentFooter:
    writer = ParquetFormat().create(BytesIO())
    if found:
        writer.write([batch_of(found)])
    return writer.close(segment(0, 1000), ORIGIN)


def test_a_footer_shows_whether_a_record_may_match() -> None:
    timestamps = [row["timestamp"] for row in ROWS]
    footer = footer_of(ROWS)
    assert RecordFilter().may_match(footer)
    assert RecordFilter(timestamps=IntRange(max(timestamps))).may_match(footer)
    assert RecordFilter(timestamps=IntRange(high=min(timestamps))).may_match(footer)
    assert not RecordFilter(timestamps=IntRange(max(timestamps) + 1)).may_match(footer)
    assert not RecordFilter(timestamps=IntRange(high=min(timestamps) - 1)).may_match(footer)


def test_a_footer_without_timestamp_bounds_excludes_nothing() -> None:
    assert RecordFilter(timestamps=IntRange(5, 6)).may_match(footer_of([]))


# --- through a reader of slices ---------------------------------------------------------------------------------------


def runs(scope: RecordFilter, *, records: int = 4) -> list[SegmentRun]:
    """Of offsets 0 to 29 in three slices."""
    world = World()
    slices = [SegmentSlice.rest(world.put(n, n + 9), n) for n in (0, 10, 20)]
    return list(SegmentRunReader(world.archive, records, 1 << 20, scope=scope).runs(slices))


@pytest.mark.parametrize(
    "scope",
    [
        RecordFilter(timestamps=IntRange(STAMP + 1000)),
        RecordFilter(offsets=IntRange(50)),
        RecordFilter(offsets=IntRange(5, 4)),
    ],
    ids=str,
)
def test_dropped_records_still_advance_the_position(scope: RecordFilter) -> None:
    [run] = runs(scope)
    assert (run.batches, run.count, run.next_offset, run.last) == ((), 0, 30, True)


@settings(max_examples=50, deadline=None)
@given(offsets=spans([0, 9, 10, 29]), timestamps=spans([STAMP, STAMP + 9, STAMP + 29]), records=st.integers(1, 12))
def test_matching_records_are_in_order_and_the_position_rises(
    offsets: IntRange, timestamps: IntRange, records: int
) -> None:
    found = runs(
        RecordFilter(offsets=offsets.intersection(ANY_OFFSET), timestamps=timestamps.intersection(ANY_TIME)),
        records=records,
    )
    given_ = [row["offset"] for run in found for row in rows_of(list(run.batches))]
    assert given_ == [
        o for o in range(30) if offsets.low <= o <= offsets.high and timestamps.low <= STAMP + o <= timestamps.high
    ]
    assert [run.next_offset for run in found] == sorted({run.next_offset for run in found})
    assert (found[-1].next_offset, found[-1].last) == (30, True)
