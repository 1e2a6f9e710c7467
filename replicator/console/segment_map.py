"""The segments of a partition as blocks of a picture: levels by offsets. Pure.

    level 1   ████████████████████                 a merged segment
    level 0   ░░░░░░░░░░  ░░░░░░ ░░░░ ████ ██      what it replaced, and what came after it
    offsets   0 ────────────────────────────>

Segments that are narrower than a picture can show are one block with their number, and so is a level's hole between
them. Holes of the archive are exact: they are computed from the segments and not from the blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from formats.control.archive_begin import ArchiveBegin
from formats.control.gap import RETENTION, RecordedGap
from formats.coverage import joined, uncovered
from formats.segment import OffsetRange, SegmentInfo

MOST_BLOCKS = 400  # of a level
MOST_HOLES = 200


@dataclass(frozen=True, slots=True)
class MapBlock:
    """Segments of one level that are near each other."""

    offsets: OffsetRange
    segments: int
    size_bytes: int
    newest_at: datetime  # when the last one was stored


@dataclass(frozen=True, slots=True, kw_only=True)
class MapLevel:
    level: int
    segments: int
    size_bytes: int
    blocks: tuple[MapBlock, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapHole:
    """Offsets within the archive that no listed segment has."""

    offsets: OffsetRange
    kind: str  # "retention", "accepted", "loss", "recorded" (for a reason that was not read) or "unrecorded"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncarnationMap:
    """The segments of one partition of one incarnation."""

    path: str
    incarnation_id: str  # empty: the first one of the topic
    levels: tuple[MapLevel, ...] = ()  # the highest first
    start: int | None = None  # first offset in a segment or a gap; None: nothing is stored
    next_offset: int | None = None
    holes: tuple[MapHole, ...] = ()
    more_holes: int = 0  # beyond MOST_HOLES
    damaged: Mapping[str, str] = field(default_factory=dict)  # segment in quarantine → reason
    begin: ArchiveBegin | None = None  # the first offset that was ever archived
    forks: tuple[int, ...] = ()  # offsets at which the source's log forked
    is_cut: bool = False  # only the first segments of the listing are here


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSegments:
    """All incarnations, the oldest first."""

    read_at: datetime
    incarnations: tuple[IncarnationMap, ...] = ()
    error: str = ""


def incarnation_map(
    path: str,
    incarnation_id: str,
    infos: Iterable[SegmentInfo],
    gaps: Sequence[RecordedGap | OffsetRange],
    *,
    damaged: Mapping[str, str],
    begin: ArchiveBegin | None = None,
    forks: Iterable[int] = (),
    settled: int | None = None,
    is_cut: bool = False,
) -> IncarnationMap:
    """`gaps`: recorded ones, those without a record at their ranges alone. `settled`: from this offset on, segments may
    be on their way, and what is not there is not missing; None: nowhere. `is_cut`: nothing is known to be missing."""
    by_level: dict[int, list[SegmentInfo]] = {}
    for info in infos:
        by_level.setdefault(info.segment.level, []).append(info)
    known = [gap if isinstance(gap, OffsetRange) else gap.offsets for gap in gaps]
    covered = [info.segment.offsets for some in by_level.values() for info in some]
    extent = joined([*covered, *known])
    span = 0 if extent.start is None or extent.next_offset is None else extent.next_offset - extent.start
    holes = list(_holes(covered, gaps, 0 if is_cut else settled))
    return IncarnationMap(
        path=path,
        incarnation_id=incarnation_id,
        levels=tuple(
            MapLevel(
                level=level,
                segments=len(some),
                size_bytes=sum(info.size_bytes for info in some),
                blocks=tuple(blocks(some, max(span // MOST_BLOCKS, 1))),
            )
            for level, some in sorted(by_level.items(), reverse=True)
        ),
        start=extent.start,
        next_offset=extent.next_offset,
        holes=tuple(holes[:MOST_HOLES]),
        more_holes=max(len(holes) - MOST_HOLES, 0),
        damaged=damaged,
        begin=begin,
        forks=tuple(forks),
        is_cut=is_cut,
    )


def blocks(infos: Sequence[SegmentInfo], width: int) -> Iterator[MapBlock]:
    """Segments of one level, in order of offset, joined while a block is narrower than `width` offsets and the next
    segment is nearer than that: a block begins at every second `width` at most."""
    block: MapBlock | None = None
    for info in sorted(infos, key=lambda one: one.segment.offsets):
        offsets = info.segment.offsets
        if block is not None and offsets.start < block.offsets.next_offset + width and block.offsets.count < width:
            end = max(block.offsets.end, offsets.end)
            block = MapBlock(
                OffsetRange(block.offsets.start, end),
                block.segments + 1,
                block.size_bytes + info.size_bytes,
                max(block.newest_at, info.stored_at),
            )
            continue
        if block is not None:
            yield block
        block = MapBlock(offsets, 1, info.size_bytes, info.stored_at)
    if block is not None:
        yield block


def _holes(
    covered: Sequence[OffsetRange], gaps: Sequence[RecordedGap | OffsetRange], settled: int | None
) -> Iterator[MapHole]:
    """In order of offset. A segment takes precedence over a recorded gap."""
    recorded = {(gap if isinstance(gap, OffsetRange) else gap.offsets): gap for gap in gaps}
    extent = joined([*covered, *recorded])
    if extent.start is None or extent.next_offset is None:
        return
    found = [
        MapHole(offsets=left, kind=_kind(gap), reason=gap.reason if isinstance(gap, RecordedGap) else "")
        for offsets, gap in recorded.items()
        for left in uncovered(covered, offsets)
    ]
    end = extent.next_offset if settled is None else min(extent.next_offset, settled)
    if extent.start < end:
        found += [
            MapHole(offsets=left, kind="unrecorded", reason="in no segment, and no gap is recorded")
            for left in uncovered([*covered, *recorded], OffsetRange(extent.start, end - 1))
        ]
    yield from sorted(found, key=lambda hole: hole.offsets)


def _kind(gap: RecordedGap | OffsetRange) -> str:
    if isinstance(gap, OffsetRange):
        return "recorded"
    if gap.reason == RETENTION:
        return "retention"
    return "accepted" if gap.is_accepted else "loss"
