"""Positions of a streaming query: batches that repeat, whatever is merged; and each offset in one batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.coverage import SegmentSlice
from formats.errors import ConfigError
from formats.segment import OffsetRange, Segment, SourcePartition
from replicator.spark_source.positions import Position, advance, decode, encode, shares, size_of, unread, within

SOURCE = SourcePartition("a", "orders", 0)
LATER = SourcePartition("a", "orders", 0, "a1b2c3")


def segment(start: int, end: int, level: int = 0) -> Segment:
    return Segment(SOURCE, level, OffsetRange(start, end))


def test_stored_as_json_by_archive_path() -> None:
    positions = {LATER: Position(0, 7), SOURCE: Position(3, 9)}
    stored = encode("a", positions)
    paths = {"orders": {"0": {"first": 3, "next": 9}}, "orders@a1b2c3": {"0": {"first": 0, "next": 7}}}
    assert stored == {"@region": "a", **paths}
    assert decode("a", stored) == positions
    assert decode("a", paths) == positions, "of a version that did not write the region"


def test_positions_of_another_region_are_refused() -> None:
    """What lies before them there would be left out, without an error."""
    with pytest.raises(
        ConfigError, match="in the archive of a, and this query reads that of b: give this query a check"
    ):
        decode("b", encode("a", {SOURCE: Position(0, 20)}))


def test_a_batch_has_what_lies_between_two_positions() -> None:
    start = {SOURCE: Position(3, 9)}
    end = {SOURCE: Position(3, 12), LATER: Position(5, 7)}
    assert unread(start, end) == {SOURCE: OffsetRange(9, 11), LATER: OffsetRange(5, 6)}
    assert unread(end, end) == {}


def test_it_waits_where_a_segment_may_still_come() -> None:
    found = advance([segment(0, 9), segment(20, 29)], (), 0, 100)
    assert (found.next_offset, found.missing) == (10, OffsetRange(10, 19))


def test_it_passes_what_is_recorded_as_a_gap_and_no_more() -> None:
    segments = [segment(0, 9), segment(20, 29)]
    whole = advance(segments, [OffsetRange(10, 19)], 0, 100)
    assert (whole.next_offset, whole.recorded, whole.missing) == (30, [OffsetRange(10, 19)], None)
    part = advance(segments, [OffsetRange(10, 14)], 0, 100)
    assert (part.next_offset, part.recorded, part.missing) == (15, [OffsetRange(10, 14)], OffsetRange(15, 19))


def test_of_a_longer_recorded_gap_it_passes_what_no_segment_has() -> None:
    found = advance([segment(0, 9), segment(20, 29)], [OffsetRange(5, 24)], 0, 100)
    assert (found.next_offset, found.recorded) == (30, [OffsetRange(10, 19)])
    assert [part.offsets for part in found.slices] == [OffsetRange(0, 9), OffsetRange(20, 29)]


def test_no_part_of_a_segment_is_for_nothing() -> None:
    """Else a trigger with a limit might read for ever."""
    whole = segment(0, 9)
    sizes = [size_of(SegmentSlice(whole, OffsetRange(0, end)), {whole: 20}) for end in (9, 4, 0)]
    assert sizes == [20, 10, 2]
    assert size_of(SegmentSlice(whole, OffsetRange(0, 0)), {whole: 3}) == 1


def test_a_share_ends_at_a_segment_or_inside_one_that_is_larger() -> None:
    segments = [segment(0, 9), segment(10, 19), segment(20, 29)]
    sizes = dict.fromkeys(segments, 1_000)
    reached = advance(segments, (), 0, 100)
    ends = [within(reached, sizes, share) for share in (3_000, 2_999, 1_000, 500, 1)]
    assert ends == [30, 20, 10, 5, 1]


@given(st.dictionaries(st.integers(0, 20), st.integers(1, 1_000)), st.integers(0, 10_000))
def test_shares_use_what_there_is(given: dict[int, int], max_bytes: int) -> None:
    available = {SourcePartition("a", "orders", partition): size for partition, size in given.items()}
    found = shares(available, max_bytes)
    assert all(found[one] <= size for one, size in available.items())
    assert sum(found.values()) == min(max_bytes, sum(available.values()))


@given(st.data())
def test_each_offset_once_through_merges_and_late_segments(data: st.DataObject) -> None:
    """Segments are stored in any order and merged at any time; a trigger takes a part; a batch repeats as it was."""
    lengths = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=8))
    edges = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    order = data.draw(st.permutations(range(len(lengths))))
    waiting = [segment(edges[n], edges[n + 1] - 1) for n in order]
    stored: list[Segment] = []
    batches: list[OffsetRange] = []
    at = 0
    while waiting or at < edges[-1]:
        is_late = data.draw(st.booleans())
        if waiting and not is_late:
            stored.append(waiting.pop())
        is_merged = data.draw(st.booleans())
        if is_merged:
            stored = merged(stored)
        reached = advance(stored, (), at, edges[-1])
        if not waiting and reached.next_offset == at:
            raise AssertionError(f"stands still at {at}")
        end = within(reached, dict.fromkeys(stored, 10), data.draw(st.integers(1, 100)))
        if at < end:
            batches.append(OffsetRange(at, end - 1))
        at = end
        for batch in batches:
            again = advance(stored, (), batch.start, batch.next_offset)
            read = [offset for part in again.slices for offset in range(part.offsets.start, part.offsets.next_offset)]
            assert read == list(range(batch.start, batch.next_offset))
    assert [offset for batch in batches for offset in range(batch.start, batch.next_offset)] == list(range(edges[-1]))


def merged(stored: list[Segment]) -> list[Segment]:
    """The first two that adjoin, as one; unchanged if none do."""
    for one in stored:
        for other in stored:
            if other.offsets.start == one.offsets.next_offset:
                whole = Segment(SOURCE, one.level + other.level + 1, OffsetRange(one.offsets.start, other.offsets.end))
                return [left for left in stored if left not in (one, other)] + [whole]
    return stored
