"""What is to be done with single objects of a bucket, and in which order.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from formats.errors import MalformedKey
from formats.segment import Segment, parse_key

MOST_WAITING = 100_000  # copies that are in memory


@dataclass(frozen=True, slots=True)
class SyncStep:
    """What is to be done with one object."""

    name: str  # its key below the prefix
    is_copy: bool  # else it is compared
    state: int | None = None  # identifies the state of both objects, as listed


def by_offset(steps: Iterator[SyncStep]) -> Iterator[SyncStep]:
    """`steps`, which are in key order, with the copies of a partition's segments by offset.

    Keys have the level before the offset, so merged segments, which hold the earlier records, come after the small
    ones: who delivers from the other bucket misses them until then."""
    waiting: list[tuple[Segment, SyncStep]] = []
    for step in steps:
        if not step.is_copy:
            yield step
            continue
        segment = _segment(step.name)
        is_same = segment is not None and waiting and waiting[0][0].source == segment.source
        if waiting and (len(waiting) == MOST_WAITING or not is_same):
            yield from _sorted(waiting)
            waiting = []
        if segment is None:
            yield step
        else:
            waiting.append((segment, step))
    yield from _sorted(waiting)


def _sorted(waiting: list[tuple[Segment, SyncStep]]) -> Iterator[SyncStep]:
    for _, step in sorted(waiting, key=lambda one: (one[0].offsets.start, -one[0].level)):
        yield step


def _segment(name: str) -> Segment | None:
    try:
        return parse_key("", name)
    except MalformedKey:
        return None
