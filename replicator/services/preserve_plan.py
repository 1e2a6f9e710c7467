"""What destinations with the source's offsets wait for: long holes before they begin, and sources with too many holes.

Of each partition that has not begun: the begin of its archive, below which everything is filled. Of each partition: its
newest segment, whose records show how many holes a second there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from formats.coverage import SegmentSlice
from formats.holes import HOLES_PER_SECOND, time_to_fill
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.records.hole_rate import holes_per_second
from formats.segment import SourcePartition
from infra.archive.archive import Archive
from ingress.checkpoint_lookup import Positions
from ingress.routing.archived import ArchivedTopic, keeping_offsets


@dataclass(frozen=True, slots=True)
class PreservePlan:
    notes: Sequence[str] = ()
    problems: Mapping[str, str] = field(default_factory=dict)  # by source partition


def preserve_plan(
    archive: Archive, chosen: Mapping[str, Sequence[ArchivedTopic]], positions: Positions, *, hole_limit: int
) -> PreservePlan:
    """`chosen`: the routes to each destination. Raises StoreUnavailable."""
    notes: list[str] = []
    problems: dict[str, str] = {}
    for destination in sorted(keeping_offsets(chosen)):
        for route in chosen[destination]:
            for source in _sources(archive, route):
                if CheckpointKey(source, destination) not in positions:
                    _prefix(archive, source, hole_limit, notes, problems)
                infos = archive.segments.list(source)
                if infos:
                    newest = max(infos, key=lambda info: info.segment.offsets.end).segment
                    batches = archive.batches(SegmentSlice.rest(newest, newest.offsets.start))
                    rate = holes_per_second(batches)
                    if rate > HOLES_PER_SECOND:
                        problems[str(source)] = (
                            f"its newest segment has {rate:.0f} holes a second, such as markers of transactions, and "
                            f"about {HOLES_PER_SECOND} are filled in a second: with offsets = 'preserve' it would fall "
                            "behind; set offsets = 'map'"
                        )
    return PreservePlan(notes, problems)


def _sources(archive: Archive, route: ArchivedTopic) -> Iterator[SourcePartition]:
    first = route.incarnations[0]
    for partition in archive.segments.partitions(route.region, first.path):
        yield first.source(route.region, partition)


def _prefix(
    archive: Archive, source: SourcePartition, hole_limit: int, notes: list[str], problems: dict[str, str]
) -> None:
    """What lies before the begin of the archive."""
    begin = archive.control.begin(source)
    if begin is None or begin.offset == 0:
        return
    takes = f"about {time_to_fill(begin.offset).total_seconds():.0f} s"
    if begin.offset > hole_limit:
        problems[str(source)] = (
            f"its archive begins at offset {begin.offset}; to fill what is before takes {takes}, and "
            f"ingress.preserve_hole_limit is {hole_limit}: raise it, or set offsets = 'map'"
        )
    else:
        notes.append(f"fill {source} up to offset {begin.offset}, where its archive begins: {takes}")
