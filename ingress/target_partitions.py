"""The target partitions that the group assigns to this process, and which source partitions are delivered there.

assigned ──> confirm: what its topic is now, on a pool ──> source partitions are held: of each route the first
found anew ─┘                                              incarnation, until the checkpoints say which
not to be delivered any more as it was ──> dropped, and confirmed anew
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from infra.contracts.cluster import TopicPartition
from ingress.assigned_partition import AssignedPartition
from ingress.assignment import Assignment
from ingress.delivery.rounds import Delivery
from ingress.routing.destinations import Route
from ingress.routing.watcher import DestinationWatcher


@dataclass(slots=True)
class TargetPartitions:
    """The controller thread's."""

    watcher: DestinationWatcher
    holdings: Assignment
    delivery: Delivery
    _assigned: set[TopicPartition] = field(default_factory=set)

    def add(self, partitions: Collection[TopicPartition]) -> None:
        self._assigned.update(partitions)
        self._confirm(partitions)

    def take(self, partitions: Collection[TopicPartition]) -> list[AssignedPartition]:
        """They are gone; answers what was delivered there."""
        self._assigned -= set(partitions)
        leaving = self.holdings.at(partitions)
        self.holdings.forget(leaving)
        return leaving

    def turn(self, now: datetime) -> None:
        """Takes in what was confirmed."""
        confirmed = self.watcher.confirmed(now)
        if confirmed:
            self.drop_others()
            for partition in confirmed:
                if partition in self._assigned:
                    self._hold(partition)

    def confirm_all(self) -> None:
        self._confirm(self._assigned)

    def drop_others(self) -> None:
        """Ours still, but not to be delivered any more as they were: nothing is produced for them from here on."""
        found = self.watcher.found
        lost = [
            h
            for h in self.holdings
            if not found.delivers(h.assignment.source, h.assignment.target.topic, topic_id=h.assignment.target_topic_id)
        ]
        self.delivery.release([h.assignment.epoch for h in lost], timedelta())
        self.holdings.forget(lost)

    def _confirm(self, partitions: Collection[TopicPartition]) -> None:
        self.watcher.confirm({p for p in partitions if not self._is_held(p)})

    def _is_held(self, partition: TopicPartition) -> bool:
        """By all that is delivered there."""
        destination = self.watcher.found.destinations.get(partition.topic)
        return destination is not None and all(self._held_of(route, partition) for route in destination.routes)

    def _held_of(self, route: Route, target: TopicPartition) -> AssignedPartition | None:
        found = (self.holdings.of(source) for source in route.sources(target.partition))
        return next((held for held in found if held is not None and held.assignment.target == target), None)

    def _hold(self, partition: TopicPartition) -> None:
        """Of each source topic that goes there, its first incarnation; which one is delivered now is known with the
        checkpoints."""
        destination = self.watcher.found.destinations.get(partition.topic)
        if destination is None:
            return
        for route in destination.routes:
            if self._held_of(route, partition) is None:
                self.holdings.add(route.sources(partition.partition)[0], partition, route, destination.facts.topic_id)
