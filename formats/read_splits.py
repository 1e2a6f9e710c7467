"""A query for archived records, and how the segments of a partition are cut into splits.

    listing of one partition ── coverage.parts ──> parts ── about `max_bytes` each ──> splits, one for each task

Pure: segments in, splits out. One reader reads a split in offset order, and no record is in two splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from formats.coverage import SegmentSlice
from formats.int_range import ANY_OFFSET, ANY_TIME, IntRange
from formats.segment import OffsetRange, Segment, SourcePartition
from formats.topic_selection import TopicPattern


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveQuery:
    """Selects records that match every field."""

    region: str
    topics: tuple[TopicPattern, ...] = ()  # any of them; empty: every topic
    incarnation: str = ""  # empty: the plain path
    partitions: frozenset[int] | None = None  # None: all
    offsets: IntRange = ANY_OFFSET
    timestamps: IntRange = ANY_TIME  # in milliseconds

    @property
    def offset_range(self) -> OffsetRange | None:
        """None when the query selects no offset."""
        low, high = max(self.offsets.low, 0), self.offsets.high
        return OffsetRange(low, high) if low <= high else None


@dataclass(frozen=True, slots=True)
class ReadSplit:
    """Slices of one source partition, in order, at least one. Gaps may lie between them."""

    source: SourcePartition
    parts: tuple[SegmentSlice, ...]


def read_splits(
    source: SourcePartition, parts: Iterable[SegmentSlice], sizes: Mapping[Segment, int], max_bytes: int
) -> Iterator[ReadSplit]:
    """`sizes`: object sizes in bytes. A large segment is cut into equal numbers of offsets: the row group at a cut is
    read twice, but each of its records is yielded once."""
    gathered: list[SegmentSlice] = []
    room = max_bytes
    for part in parts:
        for segment_slice, size_bytes in _cut(part, sizes[part.segment], max_bytes):
            if gathered and size_bytes > room:
                yield ReadSplit(source, tuple(gathered))
                gathered, room = [], max_bytes
            gathered.append(segment_slice)
            room -= size_bytes
    if gathered:
        yield ReadSplit(source, tuple(gathered))


def _cut(part: SegmentSlice, segment_bytes: int, max_bytes: int) -> Sequence[tuple[SegmentSlice, int]]:
    whole = part.segment.offsets.count
    start, count = part.offsets.start, part.offsets.count
    size_bytes = segment_bytes * count // whole
    slice_count = min(max(-(-size_bytes // max_bytes), 1), count)
    edges = [start + count * n // slice_count for n in range(slice_count + 1)]
    ranges = [OffsetRange(a, b - 1) for a, b in pairwise(edges)]
    return [(SegmentSlice(part.segment, offsets), size_bytes // slice_count) for offsets in ranges]
