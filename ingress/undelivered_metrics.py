"""Stored offsets that the delivery of held partitions has left behind, as a metric and as problems.

events, full listings ──> `passed`, `left_behind` of each AssignedPartition
                                  └──less what an operator gave up──> health, metrics
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from formats.messages.delivery_checkpoint import CheckpointKey, Skipped
from formats.segment import Segment
from infra.runtime.health import Health
from infra.runtime.metrics import Metrics
from ingress import partition_log as tell
from ingress.assigned_partition import AssignedPartition
from ingress.assignment import Assignment, subject_of
from ingress.delivery.events import labels_of
from ingress.undelivered import told_before_begin, told_behind_end


@dataclass(slots=True)
class UndeliveredMetrics:
    """The controller thread's."""

    holdings: Assignment
    metrics: Metrics
    health: Health
    given_up: Sequence[Skipped] = ()  # by operators, as far as known

    def created(self, segment: Segment) -> None:
        """By an event."""
        held = self.holdings.of(segment.source)
        if held is not None and held.passed is not None and held.passed.stored(segment):
            tell.before_begin(segment)
            self.show(held)
        # of no incarnation that is delivered here, but perhaps of an earlier one; most are of partitions of others
        later = self.holdings.after(segment.source)
        if later is not None and later.left_behind[segment.source].stored(segment):
            tell.behind_its_life(segment)
            self.show(later)

    def show(self, held: AssignedPartition) -> None:
        source, destination = held.assignment.source, held.assignment.target.topic
        passed = {} if held.passed is None else {source: held.passed}
        if not passed:
            self.health.solved(subject_of(source))
        for where, undelivered in {**passed, **held.left_behind}.items():
            key = CheckpointKey(where, destination)
            left = undelivered.left(skipped.offsets for skipped in self.given_up if skipped.key == key)
            count = sum(offsets.next_offset - offsets.start for offsets in left)
            self.metrics.gauge("undelivered_offsets", count, **labels_of(where))
            if not left:
                self.health.solved(subject_of(where))
            elif where == source:
                begun_at = held.assignment.begun_at or 0
                self.health.problem(subject_of(where), told_before_begin(where, destination, begun_at, left))
            else:
                self.health.problem(subject_of(where), told_behind_end(where, destination, left))
