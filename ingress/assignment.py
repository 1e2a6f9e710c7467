"""The source partitions whose target partitions are assigned to this process: which go on, and which an operator has to
look at."""

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
    """The controller thread's. Iterating may be interrupted by changes: it goes over what was held when it began."""

    notes: ParkedReporter
    clock: Clock
    metrics: Metrics
    health: Health
    _held: dict[SourcePartition, AssignedPartition] = field(default_factory=dict)
    _after: dict[SourcePartition, AssignedPartition] = field(
        default_factory=dict
    )  # by an earlier incarnation of what is held
    _epochs: int = 0

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(list(self._held.values()))

    def __contains__(self, held: AssignedPartition) -> bool:
        """This very holding; the same partition assigned again is another one."""
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

    def forget(self, helds: Iterable[AssignedPartition]) -> None:
        for held in helds:
            source = held.assignment.source
            del self._held[source]
            self.notes.left(held.assignment.key)
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
        """Replace the incarnation that is delivered. `finished`: next offsets of those that are left behind."""
        self.forget([held])
        new = self.add(source, held.assignment.target, route, topic_id)
        new.left_behind = held.left_behind | {
            before: Undelivered(behind_end(next_offset)) for before, next_offset in finished.items()
        }
        self._after |= dict.fromkeys(new.left_behind, new)
        return new

    def after(self, source: SourcePartition) -> AssignedPartition | None:
        """What is held of a later incarnation, to which delivery has turned."""
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
        """Waits for an operator, or for the cause to go: it is tried again from time to time. `offset` is that of the
        record at fault, if it is known; `blames_target`: none is."""
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
            self.notes.going(held.assignment.key)
            self.health.resumed(str(held.assignment.source))
            log.info("partition_resumed", extra=held.fields)
            self._count()

    def _count(self) -> None:
        self.metrics.gauge("assigned_partitions", len(self._held))
        stopped = sum(1 for held in self._held.values() if held.stop_reason is not None)
        self.metrics.gauge("stopped_partitions", stopped, held="true")


def subject_of(source: SourcePartition) -> str:
    """Of a problem, in health: offsets of it that are left behind."""
    return f"{source} undelivered"
