"""Stored offsets that delivery has left behind for good: they arrived after it had begun after them, or had switched to
the topic's next incarnation. Pure.

    segments, by events and listings ──> runs within `span` ──less offsets given up by operators──> missing offsets
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from formats.coverage import joined, uncovered
from formats.errors import CheckpointConflict
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.segment import OffsetRange, Segment, SourcePartition

MOST = 1_000  # runs that are kept; a listing brings the others once these are gone
SHOWN = 3
END = 2**63 - 1


@dataclass(slots=True)
class Undelivered:
    """Undelivered offsets of one source partition, as far as known. `span`: offsets that are not delivered any more."""

    span: OffsetRange
    _runs: tuple[OffsetRange, ...] = field(default=())  # in order, none touching the next

    def listed(self, covered: Iterable[OffsetRange]) -> None:
        """Replace the known offsets by those that a listing shows of `span`."""
        self._runs = self._of(covered)

    def stored(self, segment: Segment) -> bool:
        """Add a stored segment. Returns whether it holds offsets of `span`. Only a listing removes deleted segments."""
        found = self._of([segment.offsets])
        self._runs = joined([*self._runs, *found]).runs[:MOST]
        return bool(found)

    def left(self, given_up: Iterable[OffsetRange]) -> Sequence[OffsetRange]:
        """The undelivered offsets without those that an operator gave up."""
        return without(self._runs, given_up)

    def _of(self, covered: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        return joined(_within(self.span, covered)).runs[:MOST]


def undelivered(
    span: OffsetRange | None, stored: Iterable[OffsetRange], given_up: Iterable[OffsetRange]
) -> Sequence[OffsetRange]:
    """The same of offsets that are known otherwise."""
    return [] if span is None else without(_within(span, stored), given_up)


def without(ranges: Iterable[OffsetRange], given_up: Iterable[OffsetRange]) -> Sequence[OffsetRange]:
    gone = list(given_up)
    return [left for one in ranges for left in uncovered(gone, one)]


def _within(span: OffsetRange, ranges: Iterable[OffsetRange]) -> Sequence[OffsetRange]:
    return [OffsetRange(max(r.start, span.start), min(r.end, span.end)) for r in ranges if r.overlaps(span)]


def before_begin(begun_at: int | None) -> OffsetRange | None:
    """The span of a delivery that began there; None: everything before it was left out on purpose, or it is empty."""
    return OffsetRange(0, begun_at - 1) if begun_at else None


def behind_end(next_offset: int) -> OffsetRange:
    """The span of an incarnation whose delivery ended before `next_offset`."""
    return OffsetRange(next_offset, END)


def later_incarnations(
    key: CheckpointKey, checkpoint: Checkpoint, known: Mapping[CheckpointKey, Checkpoint | CheckpointConflict]
) -> Sequence[CheckpointKey]:
    """Keys of the incarnations that delivery to the same partition has switched to since, by later checkpoints."""
    return [
        other
        for other, position in known.items()
        if isinstance(position, Checkpoint)
        and other != key
        and delivery_path(other) == delivery_path(key)
        and position.at > checkpoint.at
    ]


def delivery_path(key: CheckpointKey) -> tuple[str, str, int, str]:
    """Identifies the incarnations of a source partition that are delivered to the same destination."""
    return key.source.region, key.source.topic, key.source.partition, key.destination_topic


def describe_before_begin(source: SourcePartition, destination: str, begun_at: int, left: Sequence[OffsetRange]) -> str:
    return (
        f"{_named(left)} of {source} are stored and lie before {begun_at}, where delivery to {destination} began: they "
        f"arrived later than that, and are not delivered. {_remedies(source, left)}; or deliver everything again from "
        f"there: `replicator checkpoints seed {source} --offset {left[0].start}`"
    )


def describe_after_end(source: SourcePartition, destination: str, left: Sequence[OffsetRange]) -> str:
    return (
        f"{_named(left)} of {source} are stored, and are not delivered: delivery to {destination} had switched to the "
        "topic's next incarnation when they arrived, first_segment_delay after that was created. "
        f"{_remedies(source, left)}"
    )


def _remedies(source: SourcePartition, left: Sequence[OffsetRange]) -> str:
    first, incarnation = left[0], f" --incarnation {shlex.quote(source.incarnation)}"
    return (
        f"Restore them into a separate topic: `replicator restore {source.topic} --archive-region {source.region} "
        f"--partition {source.partition}{incarnation} --offsets {first.start}-{first.end} --rename "
        f"{source.topic}=TOPIC`, and give them up here: `replicator skip {source} {first.start} --through {first.end} "
        "--reason TEXT --yes`"
    )


def _named(left: Sequence[OffsetRange]) -> str:
    more = f" and {len(left) - SHOWN} more ranges" if len(left) > SHOWN else ""
    return f"offsets {', '.join(map(str, left[:SHOWN]))}{more}"
