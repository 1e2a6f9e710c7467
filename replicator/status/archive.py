"""What the archive covers of each partition, by one listing for each place of a topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor

from replicator.coverage import Extent, join_to_last, joined
from replicator.segment import OffsetRange, SourcePartition
from replicator.store import SegmentStore


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
        known = runs.setdefault(info.segment.source, [])
        join_to_last(known, info.segment.offsets)  # within a level they are listed in order
    return {source: joined(ranges) for source, ranges in runs.items()}


def source_places(store: SegmentStore, regions: Iterable[str], pool: Executor) -> Sequence[tuple[str, str]]:
    """Every place below `regions`, as (region, place)."""
    names = list(dict.fromkeys(regions))
    return [
        (region, place) for region, all_ in zip(names, pool.map(store.topics, names), strict=True) for place in all_
    ]
