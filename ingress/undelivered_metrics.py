"""Reports stored offsets that the delivery of assigned partitions has left behind, as a metric and as problems.

events, full listings ──> `passed`, `left_behind` of each AssignedPartition
                                  └──less offsets given up by operators──> health, metrics
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from formats.messages.delivery_checkpoint import CheckpointKey, Skipped
from formats.segment import Segment
from infra.runtime.health import Health
from infra.runtime.metrics import Metrics
from ingress import partition_log
from ingress.assigned_partition import AssignedPartition
from ingress.assignment import Assignment, subject_of
from ingress.delivery.events import labels_of
from ingress.undelivered import describe_after_end, describe_before_begin


@dataclass(slots=True)
class UndeliveredMetrics:
    """Use from the controller's thread only."""

    assignment: Assignment
    metrics: Metrics
    health: Health
    given_up: Sequence[Skipped] = ()  # offsets that operators gave up, as far as known

    def created(self, segment: Segment) -> None:
        """Handle a creation event."""
        assigned = self.assignment.of(segment.source)
        if assigned is not None and assigned.passed is not None and assigned.passed.stored(segment):
            partition_log.before_begin(segment)
            self.show(assigned)
        # not of the delivered incarnation, but perhaps of an earlier one; most events are of other owners' partitions
        later = self.assignment.after(segment.source)
        if later is not None and later.left_behind[segment.source].stored(segment):
            partition_log.after_its_end(segment)
            self.show(later)

    def show(self, assigned: AssignedPartition) -> None:
        source, destination = assigned.delivery_target.source, assigned.delivery_target.target.topic
        passed = {} if assigned.passed is None else {source: assigned.passed}
        if not passed:
            self.health.solved(subject_of(source))
            self.metrics.forget("undelivered_offsets", **labels_of(source))
        for where, undelivered in {**passed, **assigned.left_behind}.items():
            key = CheckpointKey(where, destination)
            left = undelivered.left(skipped.offsets for skipped in self.given_up if skipped.key == key)
            count = sum(offsets.count for offsets in left)
            self.metrics.gauge("undelivered_offsets", count, **labels_of(where))
            if not left:
                self.health.solved(subject_of(where))
            elif where == source:
                begun_at = assigned.delivery_target.begun_at or 0
                self.health.problem(subject_of(where), describe_before_begin(where, destination, begun_at, left))
            else:
                self.health.problem(subject_of(where), describe_after_end(where, destination, left))
