"""The source partitions whose target partitions are assigned to this process: which go on, and which an operator has to
look at."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ingress.destinations import Destination
from ingress.held import Held, late_policy
from ingress.reports import Assignment
from replicator import logkeys
from replicator.checkpoint import Parked
from replicator.health import Health
from replicator.metrics import Metrics
from replicator.protocols import Clock, ParkedNotes, TopicPartition
from replicator.segment import Segment, SourcePartition

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Holdings:
    """The controller thread's. Iterating may be interrupted by changes: it goes over what was held when it began."""

    notes: ParkedNotes
    clock: Clock
    metrics: Metrics
    health: Health
    _held: dict[SourcePartition, Held] = field(default_factory=dict)
    _finished: dict[SourcePartition, int] = field(default_factory=dict)  # of lives before those held
    _epochs: int = 0

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._held.values()))

    def __contains__(self, held: Held) -> bool:
        """This very holding; the same partition assigned again is another one."""
        return self._held.get(held.assignment.source) is held

    def of(self, source: SourcePartition) -> Held | None:
        return self._held.get(source)

    def at(self, targets: Collection[TopicPartition]) -> list[Held]:
        gone = set(targets)
        return [held for held in self if held.assignment.target in gone]

    @property
    def targets(self) -> set[TopicPartition]:
        return {held.assignment.target for held in self}

    def add(self, source: SourcePartition, target: TopicPartition, destination: Destination) -> Held:
        self._epochs += 1
        assignment = Assignment(
            source,
            target,
            destination.facts.topic_id,
            self._epochs,
            clamp_timestamps=destination.settings.on_timestamp == "clamp",
        )
        held = self._held[source] = Held(assignment, late_policy(destination.settings))
        self._count()
        return held

    def forget(self, helds: Iterable[Held]) -> None:
        for held in helds:
            source = held.assignment.source
            del self._held[source]
            self.notes.left(held.assignment.key)
            for before in held.finished:
                self._finished.pop(before, None)
            self.health.resumed(str(source))
            self.metrics.forget("ingress_lag_records", **held.labels)
            self.metrics.forget("ingress_lag_seconds", **held.labels)
        self._count()

    def turn_to(
        self, source: SourcePartition, held: Held, destination: Destination, finished: Mapping[SourcePartition, int]
    ) -> Held:
        """Another life in place of the one at hand. `finished`: next offsets of those that are left behind."""
        self.forget([held])
        new = self.add(source, held.assignment.target, destination)
        new.finished = {**held.finished, **finished}
        self._finished |= new.finished
        return new

    def left_behind(self, segment: Segment) -> bool:
        """Whether it is of a life whose successor was begun, and is not delivered for that reason. Most that are of no
        life at hand are of partitions that others hold."""
        offsets = segment.offsets
        return offsets.end >= self._finished.get(segment.source, offsets.next_offset)

    def stop(self, held: Held, reason: str, offset: int | None = None) -> None:
        """Waits for an operator, or for the cause to go: it is tried again from time to time. `offset` is that of the
        record at fault, if it is known."""
        if held.stopped != reason:
            log.error("partition_stopped", extra=held.fields | {logkeys.REASON: reason})
        held.stopped = reason
        next_offset = offset if offset is not None else held.sequencer.next_offset if held.sequencer else None
        self.notes.parked(held.assignment.key, Parked(next_offset, reason, self.clock.now()))
        self.health.stopped(str(held.assignment.source), reason)
        self._count()

    def resume(self, held: Held) -> None:
        if held.stopped:
            held.stopped = ""
            self.notes.going(held.assignment.key)
            self.health.resumed(str(held.assignment.source))
            log.info("partition_resumed", extra=held.fields)
            self._count()

    def _count(self) -> None:
        self.metrics.gauge("assigned_partitions", len(self._held))
        self.metrics.gauge("stopped_partitions", sum(1 for h in self._held.values() if h.stopped))
