"""What destinations with the source's offsets wait for: long holes before they begin, and sources with too many holes.

Of each partition that has not begun: the begin of its archive, below which everything is filled. Of each partition: its
newest segment, whose records show how many holes a second there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from formats.coverage import SegmentSlice
from formats.holes import time_to_fill
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.records.hole_rate import holes_per_second
from formats.segment import SourcePartition
from infra.archive.archive import Archive
from ingress.checkpoint_lookup import Positions
from ingress.routing.archived import ArchivedTopic, keeping_offsets
from ingress.settings import IngressSettings


@dataclass(frozen=True, slots=True)
class PreservePlan:
    notes: Sequence[str] = ()
    problems: Mapping[str, str] = field(default_factory=dict)  # by source partition


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHoles:
    """Of one source partition."""

    prefix: int  # offsets before the begin of its archive that are to be filled; 0 once its delivery has begun
    per_second: float

    def problem(self, settings: IngressSettings) -> str:
        """Why it is not delivered, or not for long, with the remedy; empty when it is."""
        most, limit = settings.preserve_holes_per_second, settings.preserve_hole_limit
        if self.per_second > most:
            return (
                f"its newest segment has {self.per_second:.0f} holes a second, such as markers of transactions, and "
                f"ingress.preserve_holes_per_second is {most}: with offsets = 'preserve' it would fall behind; set "
                "offsets = 'map'"
            )
        if self.prefix > limit:
            return (
                f"its archive begins at offset {self.prefix}; to fill what is before takes {self.takes}, and "
                f"ingress.preserve_hole_limit is {limit}: raise it, or set offsets = 'map'"
            )
        return ""

    @property
    def takes(self) -> str:
        return f"about {time_to_fill(self.prefix).total_seconds():.0f} s"


def preserve_plan(
    archive: Archive,
    chosen: Mapping[str, Sequence[ArchivedTopic]],
    positions: Positions,
    settings: IngressSettings,
) -> PreservePlan:
    """`chosen`: the routes to each destination. Raises StoreUnavailable."""
    notes: list[str] = []
    problems: dict[str, str] = {}
    for destination in sorted(keeping_offsets(chosen)):
        for source in (source for route in chosen[destination] for source in _sources(archive, route)):
            has_begun = CheckpointKey(source, destination) in positions
            holes = SourceHoles(
                prefix=0 if has_begun else _begin(archive, source), per_second=_newest_rate(archive, source)
            )
            if problem := holes.problem(settings):
                problems[str(source)] = problem
            elif holes.prefix:
                notes.append(f"fill {source} up to offset {holes.prefix}, where its archive begins: {holes.takes}")
    return PreservePlan(tuple(notes), problems)


def _sources(archive: Archive, route: ArchivedTopic) -> Iterator[SourcePartition]:
    first = route.incarnations[0]
    for partition in archive.segments.partitions(route.region, first.path):
        yield first.source(route.region, partition)


def _begin(archive: Archive, source: SourcePartition) -> int:
    begin = archive.control.begins.of(source)
    return 0 if begin is None else begin.offset


def _newest_rate(archive: Archive, source: SourcePartition) -> float:
    infos = archive.segments.list(source)
    if not infos:
        return 0.0
    newest = max(infos, key=lambda info: info.segment.offsets.end).segment
    return holes_per_second(archive.batches(SegmentSlice.rest(newest, newest.offsets.start)))
