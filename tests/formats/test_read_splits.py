"""Read splits: every offset once, in order, and splits of about equal size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from formats.coverage import SegmentSlice, parts
from formats.int_range import IntRange
from formats.read_splits import ArchiveQuery, read_splits
from formats.segment import OffsetRange, Segment, SourcePartition
from tests.examples import property_examples

SOURCE = SourcePartition("r", "t", 0)
ALL = OffsetRange(0, 2**63 - 1)


def segment(start: int, end: int) -> Segment:
    return Segment(SOURCE, 0, OffsetRange(start, end))


def planned(sizes: dict[Segment, int], max_bytes: int, within: OffsetRange = ALL) -> list[list[OffsetRange]]:
    found = [part for part in parts(sizes, within) if isinstance(part, SegmentSlice)]
    return [[p.offsets for p in stretch.parts] for stretch in read_splits(SOURCE, found, sizes, max_bytes)]


def test_small_segments_share_a_split_and_a_large_one_is_cut() -> None:
    sizes = {segment(0, 9): 40, segment(10, 19): 60, segment(20, 29): 1, segment(30, 49): 200}
    assert planned(sizes, 100) == [
        [OffsetRange(0, 9), OffsetRange(10, 19)],
        [OffsetRange(20, 29)],
        [OffsetRange(30, 39)],
        [OffsetRange(40, 49)],
    ]


def test_only_the_selected_part_of_a_segment_counts() -> None:
    assert planned({segment(0, 99): 1_000}, 100, OffsetRange(90, 99)) == [[OffsetRange(90, 99)]]


def test_one_record_larger_than_a_split() -> None:
    assert planned({segment(5, 5): 10_000}, 100) == [[OffsetRange(5, 5)]]


@property_examples()
@given(
    st.dictionaries(
        st.tuples(st.integers(0, 40), st.integers(0, 8)).map(lambda t: segment(t[0], t[0] + t[1])),
        st.integers(0, 500),
        max_size=10,
    ),
    st.integers(1, 300),
)
def test_every_offset_once_and_in_order(sizes: dict[Segment, int], max_bytes: int) -> None:
    read = [o for ranges in planned(sizes, max_bytes) for r in ranges for o in range(r.start, r.next_offset)]
    assert read == sorted({o for s in sizes for o in range(s.offsets.start, s.offsets.next_offset)})


def test_the_offset_range_of_a_query() -> None:
    assert ArchiveQuery(region="a").offset_range == ALL
    assert ArchiveQuery(region="a", offsets=IntRange(-5, 7)).offset_range == OffsetRange(0, 7)
    assert ArchiveQuery(region="a", offsets=IntRange(8, 7)).offset_range is None


def test_spans_overlap_when_they_share_a_number() -> None:
    span = IntRange(5, 9)
    for low, high, wanted in ((0, 4, False), (0, 5, True), (6, 7, True), (9, 20, True), (10, 20, False), (0, 20, True)):
        assert span.overlaps(low, high) == wanted, (low, high)
