"""Decides which offsets of a partition a backfill writes, and where its archive begins afterwards. Pure.

                  begin                committed
    ┊─────────────┃━━━━━━━━━┊┈┈gap┈┈┊━━━┃── egress goes on here
    └─ written ───┘         └written┘

Egress alone writes from what its group has committed, or from the recorded begin while it has committed nothing. A
backfill writes only what lies before that and no segment covers. So the two never write the same offsets, except when
egress begins meanwhile, or its group has lost its offsets: then it begins at the first gap of the archive, and segments
of the two overlap, which is legal.

    what is known                  written, of what is wanted       the begin
    egress has not begun           up to the last stable offset     recorded before the first segment, as by egress
    wanted from before the begin   up to the begin, or the commit   lowered after everything up to it is stored
    wanted from the begin on       up to the commit                 stays
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from formats.coverage import uncovered
from formats.segment import OffsetRange, SourcePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """What the source, the group and the archive know of one partition."""

    source: SourcePartition
    low: int  # first offset still in the log
    stable: int  # last stable offset: nothing from here on may be read yet
    begin: int | None  # where the archive begins; None: nothing of it was ever archived
    committed: int | None  # by egress, for this incarnation
    is_begun: bool = True  # by egress; False: not at all, or by a backfill
    covered: Sequence[OffsetRange] = ()  # by segments
    recorded: Sequence[OffsetRange] = ()  # gaps
    refused: str = ""  # why nothing may be written to this archive, whatever is wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an operator wants of one partition."""

    start: int  # first offset
    next_offset: int  # the one after the last
    fill_gaps: bool = False  # also recorded gaps
    leave_gap: bool = False  # what is not wanted before the begin of the archive is recorded as a gap


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBackfill:
    source: SourcePartition
    ranges: tuple[OffsetRange, ...] = ()  # to be written, in order; disjoint
    begin: int | None = None  # of the archive, as it is now
    new_begin: int | None = None  # recorded at the end, once nothing is missing behind it; None: stays
    is_first: bool = False  # nothing was ever archived: `new_begin` is recorded before the first segment
    left_out: tuple[OffsetRange, ...] = ()  # recorded as gaps before the begin is lowered
    notes: tuple[str, ...] = ()
    conflict: str = ""  # why it cannot be done; all fields above are empty then

    @property
    def offset_count(self) -> int:
        """Upper bound of the number of records."""
        return sum(one.count for one in self.ranges)

    @property
    def is_empty(self) -> bool:
        return not self.ranges and self.new_begin is None


def plan_partition(facts: PartitionFacts, wanted: Wanted) -> PartitionBackfill:
    if facts.refused:
        return PartitionBackfill(source=facts.source, begin=facts.begin, conflict=facts.refused)
    limit = _limit(facts)
    start, end = max(wanted.start, facts.low), min(wanted.next_offset, limit, facts.stable)
    notes = _notes(facts, wanted, limit)
    if start >= end:
        return PartitionBackfill(source=facts.source, begin=facts.begin, notes=notes)
    explained = [*facts.covered, *facts.recorded]
    ranges = tuple(uncovered(facts.covered if wanted.fill_gaps else explained, OffsetRange(start, end - 1)))
    plan = PartitionBackfill(source=facts.source, ranges=ranges, begin=facts.begin, notes=notes)
    if facts.begin is None:
        return replace(plan, new_begin=start, is_first=True)
    if start >= facts.begin:
        return plan
    rest = uncovered(explained, OffsetRange(end, facts.begin - 1)) if end < facts.begin else []
    if not rest:
        return replace(plan, new_begin=start)
    if end == facts.stable < wanted.next_offset:
        return plan  # the rest is not committed yet: another run writes it, and lowers the begin
    if wanted.leave_gap:
        return replace(plan, new_begin=start, left_out=tuple(rest))
    missing = ", ".join(f"{one.start}-{one.end}" for one in rest)
    conflict = (
        f"the archive begins at {facts.begin}, and {missing} would be missing before it. Leave out the end of the "
        "range, so that it reaches there; or give --leave-gap, which records as a gap what is left out"
    )
    return PartitionBackfill(source=facts.source, begin=facts.begin, notes=notes, conflict=conflict)


def split(ranges: Sequence[OffsetRange], size: int) -> Iterator[OffsetRange]:
    """Cut `ranges` at the multiples of `size`, so that a later plan cuts what is left at the same offsets."""
    if size < 1:
        raise ValueError(f"a task has at least one offset: {size}")
    for one in ranges:
        start = one.start
        while start <= one.end:
            end = min((start // size + 1) * size - 1, one.end)
            yield OffsetRange(start, end)
            start = end + 1


def is_joined(plan: PartitionBackfill, covered: Sequence[OffsetRange], recorded: Sequence[OffsetRange]) -> bool:
    """Whether nothing is missing between the new begin and the one before, so that it may be recorded."""
    if plan.new_begin is None or plan.begin is None or plan.new_begin >= plan.begin:
        return False
    return not uncovered([*covered, *recorded], OffsetRange(plan.new_begin, plan.begin - 1))


def _limit(facts: PartitionFacts) -> int:
    """Egress writes from here on. Below its commit everything that it read is stored; after the begin and before the
    first commit, segments are being uploaded in any order."""
    if not facts.is_begun:
        return facts.stable
    return max(facts.begin or 0, facts.committed or 0)


def _notes(facts: PartitionFacts, wanted: Wanted, limit: int) -> tuple[str, ...]:
    notes = []
    if 0 < wanted.start < facts.low:
        notes.append(f"the source's log begins at {facts.low}: nothing before is in it any more")
    if min(wanted.next_offset, limit) > facts.stable:
        notes.append(
            f"an open transaction begins at {facts.stable}: what follows is written when the command is given again "
            "after its end"
        )
    return tuple(notes)
