"""What a restore of all that is stored leaves out: offsets that egress reported as archived and that are in no segment.

Segments show holes between them. That the last ones of a partition are gone, or all, only the reports show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import datetime

from formats.coverage import uncovered
from formats.segment import OffsetRange, SourcePartition
from infra.archive.archive import Archive
from replicator.first_few import first_few
from replicator.restore.partition_plan import PartitionPlan
from replicator.restore.plan import RestorePlan
from replicator.restore.reported_ends import ReportsUnreadable, lost_partitions, reported_ends
from replicator.selection import Selection

NAMED = 3  # ranges of a warning


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedEnds:
    """`now`: reports of the last hour before it do not count."""

    archive: Archive
    selection: Selection
    now: datetime
    pool: Executor

    def with_lacking(self, plan: RestorePlan, *, accepted: bool) -> RestorePlan:
        """`plan`, which is not one to a moment, with what it lacks by the reports, and a warning that names it.
        `accepted`: by the operator, so a warning is all. Raises StoreUnavailable, MalformedEvent."""
        try:
            ends = reported_ends(self.archive, self.selection, self.now, self.pool)
        except ReportsUnreadable as error:  # what is stored can be restored all the same
            return replace(plan, warnings=[*plan.warnings, str(error)])
        if not ends:
            return plan
        found = [*self._tails(plan.partitions, ends), *self._lost(plan, ends)]
        if not found:
            return plan
        named = first_few([f"{source} {offsets}" for source, offsets in found], NAMED)
        warning = (
            f"egress reported {named} as archived an hour ago or earlier, and no segment holds them, so they are not "
            "restored: search for them in a copy of the bucket, or in its versions"
        )
        return replace(plan, warnings=[*plan.warnings, warning], lacking=() if accepted else tuple(found))

    def _tails(
        self, partitions: Sequence[PartitionPlan], ends: Mapping[SourcePartition, int]
    ) -> Iterator[tuple[SourcePartition, OffsetRange]]:
        for one in partitions:
            start = max(one.stored_until, self.selection.offsets.low)
            end = min(ends.get(one.source, 0) - 1, self.selection.offsets.high)
            if start <= end:
                yield one.source, OffsetRange(start, end)

    def _lost(
        self, plan: RestorePlan, ends: Mapping[SourcePartition, int]
    ) -> Iterator[tuple[SourcePartition, OffsetRange]]:
        """Of partitions of which nothing is stored, without those of incarnations that are not restored."""
        planned = {one.source for one in plan.partitions}
        chosen = {topic.incarnation.topic: topic.incarnation.id for topic in plan.topics}
        absent = {
            source: end
            for source, end in ends.items()
            if source not in planned and chosen.get(source.topic, source.incarnation) == source.incarnation
        }
        control = self.archive.control
        for source in lost_partitions(self.archive, absent, self.pool):
            begin = control.begins.of(source)
            start = max(0 if begin is None else begin.offset, self.selection.offsets.low)
            end = min(ends[source] - 1, self.selection.offsets.high)
            if start <= end:
                for offsets in uncovered(control.gaps.ranges(source), OffsetRange(start, end)):
                    yield source, offsets
