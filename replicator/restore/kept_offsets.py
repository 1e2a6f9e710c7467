"""What a restore that keeps the source's offsets has to fill, and why it may not start. Pure.

    source log      ·  ·  ·  3  4  m  6  ·  ·        m: transaction marker   ·: removed by the source
    archive                  3  4  ·  6              and the moment, or the archive, ends at 9
    destination              3  4  m  6  f  m        0 to 2 are filled, then removed: the log begins at 3

1. A destination's log ends where the source's did at the moment, as far as the archive reaches; without a moment,
   after the last selected offset that is stored.
2. What lies in the destination before the restore begins takes offsets away: it may hold nothing, and may not end
   beyond the first offset to restore.
3. Known stretches without a record, such as what lies before the begin of the archive, are limited: filling them takes
   time, which an operator accepts first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

from formats.coverage import uncovered
from formats.footer import SegmentFooter
from formats.holes import HOLES_PER_SECOND, time_to_fill
from formats.segment import OffsetRange
from infra.contracts.cluster import TopicPartition, Watermarks
from replicator.first_few import first_few
from replicator.restore.conflicts import Conflict, ConflictKind
from replicator.restore.partition_plan import PartitionPlan

NAMED = 3  # holes in one reason
WORTH_SAYING = timedelta(seconds=10)  # of filling


def log_end(plan: PartitionPlan) -> int:
    """Rule 1: a next offset; 0: there is nothing to fill up to."""
    restored = 0 if plan.offsets is None else plan.offsets.next_offset
    if plan.cut is None or plan.cut.end is None:
        return restored
    archived = min(plan.stored_until, plan.wanted_until + 1)
    return max(min(plan.cut.end, archived), restored)


def holes(plan: PartitionPlan) -> Sequence[OffsetRange]:
    """The stretches without a record that are known, as far as they are beyond the position."""
    end = log_end(plan)
    if end == 0:
        return []
    whole = OffsetRange(0, end - 1)
    held = [] if plan.offsets is None else uncovered([*plan.recorded, *plan.missing], plan.offsets)
    begun = plan.checkpoint
    # of a position that is where delivery begins, it is not known whether what is before is filled
    done = (
        0
        if begun is None or (plan.offsets is not None and begun.next_offset <= plan.offsets.start)
        else begun.next_offset
    )
    return uncovered([*held, OffsetRange(0, done - 1)] if done else held, whole)


def time_for(plans: Iterable[PartitionPlan]) -> timedelta:
    """About how long the known holes of these partitions take."""
    return _time(hole for plan in plans for hole in holes(plan))


def against_holes(plans: Iterable[PartitionPlan], limit: int) -> Iterator[Conflict]:
    """Rule 3."""
    found = [(plan, hole) for plan in plans for hole in holes(plan) if hole.count > limit]
    if found:
        named = first_few([f"{plan.source} {hole}" for plan, hole in found], NAMED)
        time = _time(hole for _, hole in found).total_seconds()
        yield Conflict(
            kind=ConflictKind.LONG_HOLES,
            reason=f"more than {limit:,} offsets in a row have no record to restore, and are to be filled, which takes "
            f"about {time:,.0f} s: {named}",
        )


def against_taken(marks: Mapping[TopicPartition, Watermarks], plans: Collection[PartitionPlan]) -> Iterator[Conflict]:
    """Rule 2, for a destination that exists. `marks`: of its partitions."""
    for plan in plans:
        mark = marks.get(plan.target)
        if plan.checkpoint is not None or mark is None:
            continue  # an earlier run has begun there: each record is compared
        first = log_end(plan) if plan.offsets is None else plan.offsets.start
        if mark.high > mark.low or mark.high > first:
            yield Conflict(
                kind=ConflictKind.OFFSETS_TAKEN,
                reason=f"{plan.target} ends at offset {mark.high} already, and what is restored begins at offset "
                f"{first}: an offset is given once, also that of a record which was deleted. Delete "
                f"{plan.target.topic}, restore into another topic (--rename), or leave --preserve-offsets out",
            )


def fill_warnings(plans: Sequence[PartitionPlan], footers: Collection[SegmentFooter]) -> Iterator[str]:
    """How long filling takes, as far as the footers say."""
    known, within = time_for(plans), _within_segments(plans, footers)
    if known + within > WORTH_SAYING:
        yield (
            f"{plans[0].source.topic}: offsets without a record are filled, which takes about "
            f"{known.total_seconds():,.0f} s for those before, between and after the segments, and up to "
            f"{within.total_seconds():,.0f} s for those within them, if each lies alone, as markers of transactions do"
        )


def _within_segments(plans: Iterable[PartitionPlan], footers: Collection[SegmentFooter]) -> timedelta:
    """At most: by the share of such offsets in the segments whose footers were read."""
    covered = sum(footer.offsets.count for footer in footers)
    empty = covered - sum(footer.count for footer in footers)
    left = sum(plan.offsets_left for plan in plans)
    return timedelta(seconds=left * empty / max(covered, 1) / HOLES_PER_SECOND)


def _time(found: Iterable[OffsetRange]) -> timedelta:
    return sum((time_to_fill(hole.count) for hole in found), timedelta())
