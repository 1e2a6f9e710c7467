"""Which partitions do not go on, and how far each is behind, as metrics.

held, with a view ────────────────────────> `AssignedPartition.measure`
held and stopped, not all in view ─┐
later incarnations of what is held ┼──> `StoredLag`, by what the archive lists
refused: no process holds them ────┘
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
    """The controller thread's."""

    holdings: Assignment
    watcher: DestinationWatcher
    checkpoints: CheckpointWatch
    metrics: Metrics
    stored: StoredLag

    def turn(self, now: datetime) -> None:
        self.count()
        if self.checkpoints.is_read:  # else everything stored would seem to wait
            self.stored.turn({key: self._next_offset(key) for key in self._unseen()}, now)
        for held in self.holdings:
            if _is_measured_by_view(held):
                held.measure(self.metrics, now)

    def count(self) -> None:
        """Refused partitions, which `Assignment` does not count."""
        self.metrics.gauge("stopped_partitions", len(self._unheld()), held="false")

    def _unheld(self) -> Sequence[CheckpointKey]:
        return [key for key in self.watcher.found.stopped if self.holdings.of(key.source) is None]

    def _unseen(self) -> Iterator[CheckpointKey]:
        yield from self._unheld()
        yield from self.watcher.found.earlier
        destinations = self.watcher.found.destinations
        for held in self.holdings:
            if held.stopped and not _is_measured_by_view(held):
                yield held.assignment.key
            source, target = held.assignment.source, held.assignment.target
            destination = destinations.get(target.topic)
            if destination is None or not destination.has_later_lives:
                continue
            if (route := destination.route_of(source)) is not None:
                sources = route.sources(source.partition)
                for later in sources[sources.index(source) + 1 :]:
                    yield CheckpointKey(later, target.topic)

    def _next_offset(self, key: CheckpointKey) -> int | None:
        """Of the checkpoint, as far as it is known here; one that is gone is none, as for whoever asks outside."""
        held, word = self.holdings.of(key.source), self.checkpoints.positions.get(key)
        if held is not None and held.is_forgotten:
            return None
        if held is not None and held.checkpointed is not None:
            return held.checkpointed
        return word.next_offset if isinstance(word, Checkpoint) else None


def _is_measured_by_view(held: AssignedPartition) -> bool:
    """A view is capped. While something is delivered it is filled again and again, and so is what it shows; of what is
    stopped the archive is asked, which costs nothing while no checkpoint moves."""
    return held.is_seen and not (held.stopped and (held.view.truncated or held.is_forgotten))
