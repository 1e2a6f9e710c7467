"""What the archive covers of each partition, by one listing for each place of a topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from replicator.segment import OffsetRange, SourcePartition
from replicator.store import SegmentStore


@dataclass(frozen=True, slots=True)
class Extent:
    """Covered offsets as runs: in order, none touching the next. Empty when nothing is stored."""

    runs: tuple[OffsetRange, ...] = ()

    @property
    def start(self) -> int | None:
        return self.runs[0].start if self.runs else None

    @property
    def next_offset(self) -> int | None:
        """Behind the last covered one."""
        return self.runs[-1].next_offset if self.runs else None

    def missing_at(self, offset: int) -> OffsetRange | None:
        """The uncovered offsets that begin at `offset`, when something behind them is covered."""
        for run in self.runs:
            if offset in run:
                return None
            if run.start > offset:
                return OffsetRange(offset, run.start - 1)
        return None


def joined(ranges: Iterable[OffsetRange]) -> Extent:
    """Of any ranges; O(n log n)."""
    runs: list[OffsetRange] = []
    for one in sorted(ranges):
        if runs and one.start <= runs[-1].next_offset:
            runs[-1] = OffsetRange(runs[-1].start, max(runs[-1].end, one.end))
        else:
            runs.append(one)
    return Extent(tuple(runs))


def extents(store: SegmentStore, places: Iterable[tuple[str, str]], pool: Executor) -> Mapping[SourcePartition, Extent]:
    """Of every partition stored in these places, (region, place) each; the places are listed side by side. Memory is
    that of the runs, not of the segments. Raises what the store raises."""
    wanted = list(dict.fromkeys(places))
    found: dict[SourcePartition, Extent] = {}
    for answer in pool.map(lambda where: _extents(store, *where), wanted):
        found.update(answer)
    return found


def _extents(store: SegmentStore, region: str, place: str) -> Mapping[SourcePartition, Extent]:
    runs: dict[SourcePartition, list[OffsetRange]] = {}
    for info in store.walk(region, place):
        offsets, known = info.segment.offsets, runs.setdefault(info.segment.source, [])
        if known and known[-1].start <= offsets.start <= known[-1].next_offset:  # as they are listed, within a level
            known[-1] = OffsetRange(known[-1].start, max(known[-1].end, offsets.end))
        else:
            known.append(offsets)
    return {source: joined(ranges) for source, ranges in runs.items()}


def source_places(store: SegmentStore, regions: Iterable[str], pool: Executor) -> Sequence[tuple[str, str]]:
    """Every place below `regions`, as (region, place)."""
    names = list(dict.fromkeys(regions))
    return [
        (region, place) for region, all_ in zip(names, pool.map(store.topics, names), strict=True) for place in all_
    ]
