"""What a table of the archive's records is made of: what is wanted, and the stretches that hold it.

    listing of one partition ── coverage.parts ──> parts ── about so many bytes ──> stretches, one for each task

Pure: segments in, stretches out. A stretch is read in offset order by one reader, and no record lies in two of them.
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
    """Which records: those that are all of it."""

    region: str
    topics: tuple[TopicPattern, ...] = ()  # any of them; empty: every topic
    incarnation: str = ""  # the plain place
    partitions: frozenset[int] | None = None  # None: all
    offsets: IntRange = ANY_OFFSET
    stamps: IntRange = ANY_TIME  # of timestamps, in milliseconds

    def at(self, topic: str, partition: int) -> SourcePartition:
        return SourcePartition(self.region, topic, partition, self.incarnation)

    @property
    def offset_range(self) -> OffsetRange | None:
        """None when no offset is wanted."""
        low, high = max(self.offsets.low, 0), self.offsets.high
        return OffsetRange(low, high) if low <= high else None


@dataclass(frozen=True, slots=True)
class ReadSplit:
    """Parts of one source partition, in order, at least one. Between them may lie what the archive does not have."""

    source: SourcePartition
    parts: tuple[SegmentSlice, ...]


def read_splits(
    source: SourcePartition, parts: Iterable[SegmentSlice], sizes: Mapping[Segment, int], max_bytes: int
) -> Iterator[ReadSplit]:
    """`sizes`: of the objects, in bytes. A large segment is cut at equal numbers of offsets: a row group at each cut is
    read twice, and its records are yielded once."""
    gathered: list[SegmentSlice] = []
    room = max_bytes
    for part in parts:
        for piece, size_bytes in _cut(part, sizes[part.segment], max_bytes):
            if gathered and size_bytes > room:
                yield ReadSplit(source, tuple(gathered))
                gathered, room = [], max_bytes
            gathered.append(piece)
            room -= size_bytes
    if gathered:
        yield ReadSplit(source, tuple(gathered))


def _cut(part: SegmentSlice, segment_bytes: int, max_bytes: int) -> Sequence[tuple[SegmentSlice, int]]:
    whole = part.segment.offsets.next_offset - part.segment.offsets.start
    start, count = part.offsets.start, part.offsets.next_offset - part.offsets.start
    size_bytes = segment_bytes * count // whole
    pieces = min(max(-(-size_bytes // max_bytes), 1), count)
    edges = [start + count * n // pieces for n in range(pieces + 1)]
    ranges = [OffsetRange(a, b - 1) for a, b in pairwise(edges)]
    return [(SegmentSlice(part.segment, offsets), size_bytes // pieces) for offsets in ranges]
