"""The source partitions whose target partitions are assigned to this process: delivered, or stopped for an operator."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from formats.messages.delivery_checkpoint import Parked
from formats.records.transform import transform_named
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.contracts.internal_topics import ParkedReporter
from infra.runtime import log_fields
from infra.runtime.busy import BusyValues
from infra.runtime.health import Health
from infra.runtime.lifecycle import Clock
from infra.runtime.metrics import CounterName, Metrics
from ingress.assigned_partition import AssignedPartition, late_policy
from ingress.delivery.events import DeliveryTarget, labels_of
from ingress.routing.archived import ArchivedTopic
from ingress.source_settings import IngressSource
from ingress.undelivered import Undelivered, behind_end

log = logging.getLogger(__name__)

CLAMP: Literal["clamp"] = "clamp"  # of `on_timestamp`

STARTED: tuple[CounterName, ...] = ("lost_segments", "corrupt_segments")
"""Counters that begin with 0 when a partition is assigned: an alert sees the step of the first event then."""


@dataclass(slots=True)
class Assignment:
    """Use from the controller's thread only. May change during an iteration, which covers the partitions assigned at
    its start. Most turns of the loop visit the busy ones only: with thousands of partitions, few have something to
    do."""

    notes: ParkedReporter
    clock: Clock
    metrics: Metrics
    health: Health
    _assigned: BusyValues[SourcePartition, AssignedPartition] = field(default_factory=BusyValues)
    _after: dict[SourcePartition, AssignedPartition] = field(default_factory=dict)  # by an earlier incarnation
    _epochs: int = 0

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(self._assigned)

    def __contains__(self, assigned: AssignedPartition) -> bool:
        """By identity: the same partition assigned again is another `AssignedPartition`."""
        return self._assigned.all.get(assigned.delivery_target.source) is assigned

    def busy(self) -> Collection[AssignedPartition]:
        return self._assigned.busy()

    def settle(self) -> None:
        self._assigned.settle()

    def of(self, source: SourcePartition) -> AssignedPartition | None:
        return self._assigned.get(source)

    def at(self, targets: Collection[TopicPartition]) -> list[AssignedPartition]:
        gone = set(targets)
        return [assigned for assigned in self if assigned.delivery_target.target in gone]

    def add(
        self, source: SourcePartition, target: TopicPartition, route: ArchivedTopic, topic_id: str
    ) -> AssignedPartition:
        """Call `count` when all are added: with thousands of partitions, counting at each takes long."""
        self._epochs += 1
        delivery_target = DeliveryTarget(
            source,
            target,
            topic_id,
            self._epochs,
            clamp_timestamps=route.settings.on_timestamp == CLAMP,
            transform=transform_named(route.settings.transform),
            lineage_header=route.settings.lineage_header,
            preserves_offsets=route.settings.preserves_offsets,
        )
        assigned = AssignedPartition(delivery_target, late_policy(route.settings))
        self._assigned.put(source, assigned)
        self.health.resumed(str(source))  # it may have been refused until now
        for name in STARTED:
            self.metrics.count(name, 0, **assigned.labels)
        return assigned

    def forget(self, partitions: Iterable[AssignedPartition]) -> None:
        for assigned in partitions:
            source = assigned.delivery_target.source
            self._assigned.remove(source)
            self.notes.revoked(assigned.delivery_target.key)
            for before in assigned.left_behind:
                self._after.pop(before, None)
            self.health.resumed(str(source))
            self.health.solved(assigned.lateness)
            for about in (source, *assigned.left_behind):
                self.health.solved(subject_of(about))
                self.metrics.forget("undelivered_offsets", **labels_of(about))
            self.metrics.forget("ingress_lag_records", **assigned.labels)
            self.metrics.forget("ingress_lag_seconds", **assigned.labels)
        self.count()

    def switch_incarnation(
        self,
        source: SourcePartition,
        assigned: AssignedPartition,
        route: ArchivedTopic,
        topic_id: str,
        finished: Mapping[SourcePartition, int],
    ) -> AssignedPartition:
        """Replace the delivered incarnation by the next one. `finished`: next offsets at the end of earlier ones."""
        self.forget([assigned])
        new = self.add(source, assigned.delivery_target.target, route, topic_id)
        new.left_behind = assigned.left_behind | {
            before: Undelivered(behind_end(next_offset)) for before, next_offset in finished.items()
        }
        self._after |= dict.fromkeys(new.left_behind, new)
        self.count()
        return new

    def after(self, source: SourcePartition) -> AssignedPartition | None:
        """The assigned partition of a later incarnation that delivery has switched to from `source`."""
        return self._after.get(source)

    def stop(
        self,
        assigned: AssignedPartition,
        reason: str,
        offset: int | None = None,
        *,
        blames_target: bool = False,
        by_failures: bool = False,
    ) -> None:
        """Stop the partition until an operator acts or the cause is gone; it is retried at intervals. `offset`: of the
        record at fault, if known. `blames_target`: no record is at fault."""
        if assigned.stopped != reason:
            log.error("partition_stopped", extra=assigned.fields | {log_fields.REASON: reason})
        assigned.stop(reason, by_failures=by_failures)
        next_offset = offset if offset is not None else assigned.sequencer.next_offset if assigned.sequencer else None
        parked = Parked(next_offset, reason, self.clock.now(), blames_target=blames_target)
        self.notes.parked(assigned.delivery_target.key, parked)
        self.health.stopped(str(assigned.delivery_target.source), reason)
        self.count()

    def fails(self, assigned: AssignedPartition, reason: str) -> None:
        """The reason of a stop by failures, as of the last one. Neither logged nor noted, since it may be another one
        with each attempt."""
        assigned.stop(reason, by_failures=True)
        self.health.stopped(str(assigned.delivery_target.source), reason)

    def resume(self, assigned: AssignedPartition) -> None:
        if assigned.stop_reason is not None:
            assigned.resume()
            self.notes.progressed(assigned.delivery_target.key)
            self.health.resumed(str(assigned.delivery_target.source))
            log.info("partition_resumed", extra=assigned.fields)
            self.count()

    def count(self) -> None:
        self.metrics.gauge("assigned_partitions", len(self._assigned.all))
        stopped = sum(1 for assigned in self._assigned.all.values() if assigned.stop_reason is not None)
        self.metrics.gauge("stopped_partitions", stopped, held="true")


def is_configured(assigned: AssignedPartition, settings: IngressSource) -> bool:
    """Whether its delivery was begun with these settings of its source."""
    given = assigned.delivery_target
    return (
        assigned.policy == late_policy(settings)
        and given.clamp_timestamps == (settings.on_timestamp == CLAMP)
        and given.transform == transform_named(settings.transform)
        and given.lineage_header == settings.lineage_header
        and given.preserves_offsets == settings.preserves_offsets
    )


def subject_of(source: SourcePartition) -> str:
    """Health subject for offsets of `source` that delivery has left behind."""
    return f"{source} undelivered"
