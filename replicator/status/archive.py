"""The offsets of each partition that the archive covers, with one listing for each archive path of a topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime

from formats.coverage import Extent, join_to_last, joined
from formats.incarnation import Incarnation
from formats.segment import OffsetRange, SegmentInfo, SourcePartition
from infra.archive.segments import SegmentStore


@dataclass(slots=True)
class ArchivedPartition:
    """The archived offsets of one partition."""

    runs: list[OffsetRange] = field(default_factory=list)
    waits_since: datetime | None = None  # when the first segment at or beyond the given position was stored
    newest: SegmentInfo | None = None  # the last stored segment

    @property
    def extent(self) -> Extent:
        return joined(self.runs)


def archived(
    store: SegmentStore, paths: Iterable[tuple[str, str]], positions: Mapping[SourcePartition, int], pool: Executor
) -> Mapping[SourcePartition, ArchivedPartition]:
    """The archived offsets of every partition stored below `paths`, each (region, archive path); listed in parallel.

    `positions`: next offsets; 0 for partitions that it does not contain. Memory grows with the runs of offsets, not
    with the segments. Raises what the store raises.
    """
    wanted = list(dict.fromkeys(paths))
    found: dict[SourcePartition, ArchivedPartition] = {}
    for answer in pool.map(lambda where: _archived(store, where[0], where[1], positions), wanted):
        found.update(answer)
    return found


def _archived(
    store: SegmentStore, region: str, path: str, positions: Mapping[SourcePartition, int]
) -> Mapping[SourcePartition, ArchivedPartition]:
    found: dict[SourcePartition, ArchivedPartition] = {}
    for info in store.walk(region, path):
        source, offsets = info.segment.source, info.segment.offsets
        known = found.setdefault(source, ArchivedPartition())
        if known.newest is None or info.stored_at >= known.newest.stored_at:
            known.newest = info
        join_to_last(known.runs, offsets)  # within a level segments are listed in order
        if offsets.end >= positions.get(source, 0):
            known.waits_since = min(known.waits_since or info.stored_at, info.stored_at)
    return found


def stored_incarnations(
    store: SegmentStore, regions: Iterable[str], pool: Executor
) -> Sequence[tuple[str, Incarnation]]:
    """Every incarnation of which anything is stored below `regions`, each with its region."""
    names = list(dict.fromkeys(regions))
    found = zip(names, pool.map(store.incarnations, names), strict=True)
    return [(region, incarnation) for region, all_ in found for incarnation in all_]
