"""Metrics of stopped partitions, and of the lag of each partition.

assigned, with a view ────────────────────> `AssignedPartition.measure`
assigned and stopped, view incomplete ─┐
later incarnations of assigned ones ───┼──> `StoredLag`, by listings of the archive
refused: assigned to no process ───────┘
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from infra.runtime.metrics import Metrics
from ingress.assigned_partition import AssignedPartition
from ingress.assignment import Assignment
from ingress.checkpoint_watch import CheckpointWatch
from ingress.routing.watcher import DestinationWatcher
from ingress.stored_lag import StoredLag


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetrics:
    """Use from the controller's thread only."""

    assignment: Assignment
    watcher: DestinationWatcher
    checkpoints: CheckpointWatch
    metrics: Metrics
    stored: StoredLag

    def poll(self, now: datetime) -> None:
        self.count()
        if self.checkpoints.is_read:  # else all stored offsets would count as lag
            self.stored.poll({key: self._next_offset(key) for key in self._without_view()}, now)
        for assigned in self.assignment:
            if _is_measured_by_view(assigned):
                assigned.measure(self.metrics, now)

    def count(self) -> None:
        """Count the refused partitions, which `Assignment` does not count."""
        self.metrics.gauge("stopped_partitions", len(self._refused()), held="false")

    def _refused(self) -> Sequence[CheckpointKey]:
        return [key for key in self.watcher.found.stopped if self.assignment.of(key.source) is None]

    def _without_view(self) -> Iterator[CheckpointKey]:
        yield from self._refused()
        yield from self.watcher.found.earlier
        destinations = self.watcher.found.destinations
        for assigned in self.assignment:
            if assigned.stopped and not _is_measured_by_view(assigned):
                yield assigned.delivery_target.key
            source, target = assigned.delivery_target.source, assigned.delivery_target.target
            destination = destinations.get(target.topic)
            if destination is None or not destination.has_later_incarnations:
                continue
            if (route := destination.route_of(source)) is not None:
                sources = route.sources(source.partition)
                for later in sources[sources.index(source) + 1 :]:
                    yield CheckpointKey(later, target.topic)

    def _next_offset(self, key: CheckpointKey) -> int | None:
        """Next offset of the checkpoint, as far as known here; None when it is gone, as for an outside observer."""
        assigned, checkpoint = self.assignment.of(key.source), self.checkpoints.positions.get(key)
        if assigned is not None and assigned.is_forgotten:
            return None
        if assigned is not None and assigned.checkpointed is not None:
            return assigned.checkpointed
        return checkpoint.next_offset if isinstance(checkpoint, Checkpoint) else None


def _is_measured_by_view(assigned: AssignedPartition) -> bool:
    """Whether the view gives the lag. A view is capped, but refilled while segments are delivered. The lag of a stopped
    partition comes from the archive, which costs nothing while its checkpoint does not move."""
    return assigned.is_seen and not (assigned.stopped and (assigned.view.truncated or assigned.is_forgotten))
