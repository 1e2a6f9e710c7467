"""Positions of a streaming query in the archive, and how far one may advance.

    listing from the position on ── advance ──> slices and next position ── share ──> a trigger's part of them

Pure. A position is an offset of a source partition, not a segment: compaction and gc replace and delete segments, and
the records between two positions stay the same. So a position passes only offsets that a segment covers, or a recorded
gap: egress stores segments in any order, and one that is missing now may still come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from formats.coverage import SegmentSlice, explained_until, steps
from formats.errors import ConfigError
from formats.incarnation import parse_incarnation
from formats.segment import OffsetRange, Segment, SourcePartition


@dataclass(frozen=True, slots=True)
class Position:
    """`first`: where the query began to read this source partition, so that a batch in which it appears is the same
    when it is planned again."""

    first: int
    next_offset: int


StreamPositions = Mapping[SourcePartition, Position]


OF_REGION = "@region"  # no archive path begins like this


def encode(region: str, positions: StreamPositions) -> dict[str, Any]:
    """As Spark stores them in the checkpoint: `{"@region": "a", "orders@id": {"0": {"first": 0, "next": 100}}}`, in
    order."""
    found: dict[str, Any] = {OF_REGION: region}
    for source in sorted(positions):
        at = positions[source]
        found.setdefault(source.path, {})[str(source.partition)] = {"first": at.first, "next": at.next_offset}
    return found


def decode(region: str, stored: Mapping[str, Any]) -> dict[SourcePartition, Position]:
    """Inverse of `encode`. Raises ConfigError for positions of another region, MalformedKey, ValueError or KeyError for
    what it has not written."""
    if (of := stored.get(OF_REGION, region)) != region:  # a checkpoint of an earlier version does not say
        problem = f"it has positions in the archive of {of}, and this query reads that of {region}"
        raise ConfigError([f"{problem}: give this query a checkpointLocation of its own"], source="checkpointLocation")
    return {
        SourcePartition.of(region, parse_incarnation(path), int(partition)): Position(int(at["first"]), int(at["next"]))
        for path, partitions in stored.items()
        if path != OF_REGION
        for partition, at in partitions.items()
    }


def unread(start: StreamPositions, end: StreamPositions) -> dict[SourcePartition, OffsetRange]:
    """The offsets of the batch between two positions, by source partition; without those that did not advance."""
    found = {}
    for source, at in end.items():
        # Spark asks for the initial offsets again when it plans the first batch again: those that it counted with hold
        is_followed = source in start and start[source].first == at.first
        begin = start[source].next_offset if is_followed else at.first
        if begin < at.next_offset:
            found[source] = OffsetRange(begin, at.next_offset - 1)
    return found


@dataclass(frozen=True, slots=True)
class Advance:
    slices: Sequence[SegmentSlice]
    next_offset: int
    recorded: Sequence[OffsetRange] = ()  # gaps that were passed
    missing: OffsetRange | None = None  # begins at `next_offset`; a later segment exists


def advance(segments: Iterable[Segment], recorded: Sequence[OffsetRange], next_offset: int, until: int) -> Advance:
    """From `next_offset` up to before `until`, as far as segments and recorded gaps reach without interruption."""
    slices: list[SegmentSlice] = []
    passed: list[OffsetRange] = []
    for step in steps(segments, next_offset):
        if step.offsets.start >= until:
            break
        end = min(step.offsets.end, until - 1)
        if isinstance(step, SegmentSlice):
            slices.append(SegmentSlice(step.segment, OffsetRange(next_offset, end)))
        else:
            explained = min(explained_until(recorded, next_offset), end + 1)
            if explained > next_offset:
                passed.append(OffsetRange(next_offset, explained - 1))
            if explained <= end:
                return Advance(slices, explained, passed, OffsetRange(explained, end))
        next_offset = end + 1
    return Advance(slices, next_offset, passed)


def size_of(part: SegmentSlice, sizes: Mapping[Segment, int]) -> int:
    """The stored bytes of a slice, as if all offsets of its segment were equally large; at least 1."""
    whole = part.segment.offsets.count
    return max(sizes[part.segment] * part.offsets.count // whole, 1)


def shares(available: Mapping[SourcePartition, int], max_bytes: int) -> dict[SourcePartition, int]:
    """`max_bytes` in fair shares, none larger than what is available: what small ones leave goes to the others."""
    found: dict[SourcePartition, int] = {}
    for number, source in enumerate(sorted(available, key=lambda one: (available[one], one))):
        found[source] = min(available[source], max(max_bytes, 0) // (len(available) - number))
        max_bytes -= found[source]
    return found


def within(reached: Advance, sizes: Mapping[Segment, int], max_bytes: int) -> int:
    """The next position of `reached` that costs at most `max_bytes`, at the end of a segment, or inside one that is
    larger by itself. Advances by at least one offset of a segment, else a query would stand still."""
    left = max_bytes
    for number, part in enumerate(reached.slices):
        size_bytes = size_of(part, sizes)
        if size_bytes > left:
            if number:
                return part.offsets.start
            count = part.offsets.count * left // size_bytes
            return part.offsets.start + max(count, 1)
        left -= size_bytes
    return reached.next_offset
