"""Empties a destination before the first record of a restore.

    plan     ends of its partitions ──> shown, and confirmed
    run      fence ──> not begun? delete up to these ends ──> begun ──> records

What is deleted ends where the plan says, not where the log ends by then. So a process that was frozen before it deletes
cannot delete what a later process of the same restore wrote: that lies behind. A topic that this restore has begun to
write is never emptied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from formats.errors import TargetError
from infra.contracts.cluster import ClusterAdmin, TopicPartition, Watermarks
from infra.runtime.crash_points import Step, durable
from replicator.first_few import first_few


@dataclass(frozen=True, slots=True)
class Purge:
    """`ends`: of every partition of the destination that the restore may write, also empty ones."""

    ends: Mapping[TopicPartition, Watermarks]

    @property
    def filled(self) -> Mapping[TopicPartition, Watermarks]:
        return {partition: marks for partition, marks in sorted(self.ends.items()) if marks.high > marks.low}

    @property
    def offsets(self) -> int:
        """Upper bound of the number of records."""
        return sum(marks.high - marks.low for marks in self.ends.values())


def carry_out(admin: ClusterAdmin, purge: Purge) -> None:
    """Raises TargetError when the cluster refuses, and when somebody wrote records since the plan: they are kept.
    Raises BrokerUnavailable."""
    if purge.filled:
        with durable(Step.DELETE_RECORDS):
            admin.delete_records({partition: marks.high for partition, marks in purge.filled.items()})
    written = [str(p) for p, marks in sorted(admin.watermarks(purge.ends).items()) if marks.high > marks.low]
    if written:
        shown = first_few(written, 5)
        raise TargetError(f"records were written to {shown} since this was planned: stop their writers, and plan again")
