"""The target partitions that the group assigns to this process, and the source partitions delivered there.

assigned ───> confirm: current facts of its topic, on a pool ──> source partitions are added: of each route the first
found again ┘                                                    incarnation, until the checkpoints name another
routing changed ──> dropped, and confirmed again
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from infra.contracts.cluster import TopicPartition
from ingress.assigned_partition import AssignedPartition
from ingress.assignment import Assignment, is_configured
from ingress.delivery.rounds import Delivery
from ingress.routing.archived import ArchivedTopic
from ingress.routing.watcher import DestinationWatcher

SETTLE = timedelta(seconds=2)  # for the current round of partitions that are dropped


@dataclass(slots=True)
class TargetPartitions:
    """Use from the controller's thread only."""

    watcher: DestinationWatcher
    assignment: Assignment
    delivery: Delivery
    _assigned: set[TopicPartition] = field(default_factory=set)

    def add(self, partitions: Collection[TopicPartition]) -> None:
        self._assigned.update(partitions)
        self.watcher.confirm(self._incomplete(partitions))

    def take(self, partitions: Collection[TopicPartition]) -> list[AssignedPartition]:
        """Remove revoked target partitions; returns the source partitions that were delivered there."""
        self._assigned -= set(partitions)
        leaving = self.assignment.at(partitions)
        self.assignment.forget(leaving)
        return leaving

    def poll(self, now: datetime) -> None:
        """Add the source partitions of the confirmed partitions."""
        confirmed = self.watcher.confirmed(now)
        if confirmed:
            self.drop_others()
            for partition in confirmed:
                if partition in self._assigned:
                    self._add_sources(partition)
            self.assignment.count()

    @property
    def kept_topics(self) -> frozenset[str]:
        """Topics whose partition 0 is assigned here: this process keeps them like their sources, and no other does."""
        return frozenset(one.topic for one in self._assigned if one.partition == 0)

    def confirm_all(self) -> None:
        self.watcher.confirm_all(self._incomplete(self._assigned))

    def drop_others(self) -> None:
        """Drop partitions that are still assigned, but whose routing or settings have changed: nothing more is produced
        for them. Those that are still delivered here are added again, with the settings of now."""
        lost = [assigned for assigned in self.assignment if not self._is_routed(assigned)]
        # the current round may have partitions that stay, and may be about to write the checkpoint to begin again at
        self.delivery.release([h.delivery_target.epoch for h in lost], SETTLE)
        self.assignment.forget(lost)

    def _is_routed(self, assigned: AssignedPartition) -> bool:
        found, target = self.watcher.found, assigned.delivery_target
        if not found.delivers(target.source, target.target.topic, topic_id=target.target_topic_id):
            return False
        return is_configured(assigned, found.route(target.source, target.target.topic).settings)

    def _incomplete(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        return {p for p in partitions if not self._is_complete(p)}

    def _is_complete(self, partition: TopicPartition) -> bool:
        """Whether each route to `partition` has a source partition here."""
        destination = self.watcher.found.destinations.get(partition.topic)
        return destination is not None and all(self._source_of(route, partition) for route in destination.routes)

    def _source_of(self, route: ArchivedTopic, target: TopicPartition) -> AssignedPartition | None:
        found = (self.assignment.of(source) for source in route.sources(target.partition))
        return next(
            (assigned for assigned in found if assigned is not None and assigned.delivery_target.target == target), None
        )

    def _add_sources(self, partition: TopicPartition) -> None:
        """Add the first incarnation of each source topic delivered there; the checkpoints show which one is current."""
        destination = self.watcher.found.destinations.get(partition.topic)
        if destination is None:
            return
        for route in destination.routes:
            if self._source_of(route, partition) is None:
                self.assignment.add(route.sources(partition.partition)[0], partition, route, destination.facts.topic_id)
