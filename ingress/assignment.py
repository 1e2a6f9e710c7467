"""The source partitions whose target partitions are assigned to this process: delivered, or stopped for an operator."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from formats.messages.delivery_checkpoint import Parked
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.contracts.internal_topics import ParkedReporter
from infra.runtime import log_fields
from infra.runtime.health import Health
from infra.runtime.lifecycle import Clock
from infra.runtime.metrics import Metrics
from ingress.assigned_partition import AssignedPartition, late_policy
from ingress.delivery.events import DeliveryTarget, labels_of
from ingress.routing.destinations import Route
from ingress.undelivered import Undelivered, behind_end

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Assignment:
    """Use from the controller's thread only. May change during an iteration, which covers the partitions assigned at
    its start."""

    notes: ParkedReporter
    clock: Clock
    metrics: Metrics
    health: Health
    _held: dict[SourcePartition, AssignedPartition] = field(default_factory=dict)
    _after: dict[SourcePartition, AssignedPartition] = field(default_factory=dict)  # by an earlier incarnation
    _epochs: int = 0

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(list(self._held.values()))

    def __contains__(self, held: AssignedPartition) -> bool:
        """By identity: the same partition assigned again is another `AssignedPartition`."""
        return self._held.get(held.assignment.source) is held

    def of(self, source: SourcePartition) -> AssignedPartition | None:
        return self._held.get(source)

    def at(self, targets: Collection[TopicPartition]) -> list[AssignedPartition]:
        gone = set(targets)
        return [held for held in self if held.assignment.target in gone]

    def add(self, source: SourcePartition, target: TopicPartition, route: Route, topic_id: str) -> AssignedPartition:
        self._epochs += 1
        assignment = DeliveryTarget(
            source,
            target,
            topic_id,
            self._epochs,
            clamp_timestamps=route.settings.on_timestamp == "clamp",
        )
        held = self._held[source] = AssignedPartition(assignment, late_policy(route.settings))
        self.health.resumed(str(source))  # it may have been refused until now
        self._count()
        return held

    def forget(self, partitions: Iterable[AssignedPartition]) -> None:
        for held in partitions:
            source = held.assignment.source
            del self._held[source]
            self.notes.revoked(held.assignment.key)
            for before in held.left_behind:
                self._after.pop(before, None)
            self.health.resumed(str(source))
            self.health.solved(held.lateness)
            for about in (source, *held.left_behind):
                self.health.solved(subject_of(about))
                self.metrics.forget("undelivered_offsets", **labels_of(about))
            self.metrics.forget("ingress_lag_records", **held.labels)
            self.metrics.forget("ingress_lag_seconds", **held.labels)
        self._count()

    def turn_to(
        self,
        source: SourcePartition,
        held: AssignedPartition,
        route: Route,
        topic_id: str,
        finished: Mapping[SourcePartition, int],
    ) -> AssignedPartition:
        """Replace the delivered incarnation by the next one. `finished`: next offsets at the end of earlier ones."""
        self.forget([held])
        new = self.add(source, held.assignment.target, route, topic_id)
        new.left_behind = held.left_behind | {
            before: Undelivered(behind_end(next_offset)) for before, next_offset in finished.items()
        }
        self._after |= dict.fromkeys(new.left_behind, new)
        return new

    def after(self, source: SourcePartition) -> AssignedPartition | None:
        """The assigned partition of a later incarnation that delivery has switched to from `source`."""
        return self._after.get(source)

    def stop(
        self,
        held: AssignedPartition,
        reason: str,
        offset: int | None = None,
        *,
        blames_target: bool = False,
        by_failures: bool = False,
    ) -> None:
        """Stop the partition until an operator acts or the cause is gone; it is retried at intervals. `offset`: of the
        record at fault, if known. `blames_target`: no record is at fault."""
        if held.stopped != reason:
            log.error("partition_stopped", extra=held.fields | {log_fields.REASON: reason})
        held.stop(reason, by_failures=by_failures)
        next_offset = offset if offset is not None else held.sequencer.next_offset if held.sequencer else None
        parked = Parked(next_offset, reason, self.clock.now(), blames_target=blames_target)
        self.notes.parked(held.assignment.key, parked)
        self.health.stopped(str(held.assignment.source), reason)
        self._count()

    def resume(self, held: AssignedPartition) -> None:
        if held.stop_reason is not None:
            held.resume()
            self.notes.progressed(held.assignment.key)
            self.health.resumed(str(held.assignment.source))
            log.info("partition_resumed", extra=held.fields)
            self._count()

    def _count(self) -> None:
        self.metrics.gauge("assigned_partitions", len(self._held))
        stopped = sum(1 for held in self._held.values() if held.stop_reason is not None)
        self.metrics.gauge("stopped_partitions", stopped, held="true")


def subject_of(source: SourcePartition) -> str:
    """Health subject for offsets of `source` that delivery has left behind."""
    return f"{source} undelivered"
