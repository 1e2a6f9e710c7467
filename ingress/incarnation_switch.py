"""Which incarnation of its source's topic a partition delivers, and when it goes on to the next one.

`ingress.routing.succession` decides, from values; this reads them off the partition and applies the decision.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.errors import CheckpointConflict
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.segment import SourcePartition
from infra.runtime import log_fields
from ingress.assigned_partition import AssignedPartition, PendingListing
from ingress.assignment import Assignment
from ingress.checkpoint_lookup import Positions, has_only_begun_elsewhere, is_of_this_topic
from ingress.delivery.rounds import Delivery
from ingress.routing.archived import ArchivedTopic
from ingress.routing.succession import Succession, SuccessionStep, Switch, succession_step
from ingress.routing.watcher import DestinationWatcher
from ingress.segment_lister import SegmentLister
from ingress.sequencer import Sequencer
from ingress.target_partitions import SETTLE
from ingress.undelivered import delivery_path

log = logging.getLogger(__name__)

NO_ROUND = timedelta()  # to wait for: none has the partition


@dataclass(slots=True)
class _BegunIncarnations:
    """Of the last positions that were asked about: thousands of partitions begin with the same ones."""

    _positions: Positions | None = None
    _keys: dict[tuple[str, str, int, str], list[CheckpointKey]] = field(default_factory=dict)  # by delivery path

    def beside(self, key: CheckpointKey, positions: Positions) -> Sequence[CheckpointKey]:
        """The keys of all incarnations that are delivered there, with its own."""
        if positions is not self._positions:
            self._positions, self._keys = positions, {}
            for each in positions:
                self._keys.setdefault(delivery_path(each), []).append(each)
        return self._keys.get(delivery_path(key), [])


@dataclass(frozen=True, slots=True, kw_only=True)
class IncarnationSwitch:
    """A switch ends an ownership and begins another, of the same target partition. Use from the poll thread only."""

    watcher: DestinationWatcher
    assignment: Assignment
    lister: SegmentLister
    delivery: Delivery
    _begun: _BegunIncarnations = field(default_factory=_BegunIncarnations)

    def route(self, assigned: AssignedPartition) -> ArchivedTopic:
        return self.watcher.found.route(assigned.delivery_target.source, assigned.delivery_target.target.topic)

    def sources(self, assigned: AssignedPartition) -> Sequence[SourcePartition]:
        """Of all incarnations that are delivered to its target, in order."""
        return self._succession(assigned).sources

    def current(self, assigned: AssignedPartition, positions: Positions) -> AssignedPartition:
        """The incarnation whose delivery was begun last, of those with the same target."""
        delivery_target, succession = assigned.delivery_target, self._succession(assigned)
        known = {
            source: found
            for source in succession.sources
            if (found := positions.get(CheckpointKey(source, delivery_target.target.topic))) is not None
            and not has_only_begun_elsewhere(assigned, found)
        }
        switch = succession.switch_to_begun(delivery_target.source, known, delivery_target.target_topic_id)
        return assigned if switch is None else self._switch(assigned, switch, NO_ROUND)

    def overtaken(self, assigned: AssignedPartition, positions: Positions) -> str:
        """Why nothing more of it is delivered: a later incarnation that is not known now was begun in the same target
        topic. Empty when there is none. Order says only what is known, and its records came after."""
        delivery_target, route = assigned.delivery_target, self.route(assigned)
        if route.settings.on_recreate != "follow":
            return ""
        known = self._succession(assigned).sources
        begun = sorted(
            key.source.path
            for key in self._begun.beside(delivery_target.key, positions)
            if key.source not in known
            and (isinstance(positions[key], CheckpointConflict) or is_of_this_topic(assigned, positions[key]))
        )
        if not begun:
            return ""
        return (
            f"delivery to {delivery_target.target.topic} had gone on to {', '.join(begun)}, whose order among the "
            "incarnations is not known now: what is left of this one would come after its records. Copy the missing "
            "objects below _control/v1/places/ from the source's bucket; or, if nothing of it is to follow any more, "
            "set on_recreate to another value than 'follow'"
        )

    def begin_again(self, assigned: AssignedPartition) -> None:
        """The same incarnation, from its position, although a round may be delivering it."""
        self._switch(assigned, Switch(source=assigned.delivery_target.source, finished={}), SETTLE)

    def follow(self, assigned: AssignedPartition, sequencer: Sequencer, now: datetime) -> None:
        """Switch to the next incarnation when this one is delivered."""
        source, succession = assigned.delivery_target.source, self._succession(assigned)
        successor = succession.successor_of(source)
        if successor is None or isinstance(assigned.listing, PendingListing):
            return
        settled_at = successor.settled_at(self.route(assigned).settings.first_segment_delay)
        match succession_step(now, exhausted=sequencer.exhausted, listed_at=sequencer.listed_at, settled_at=settled_at):
            case SuccessionStep.WAIT:
                pass
            case SuccessionStep.LIST:
                self.lister.begin(assigned, sequencer, full=True, reason="incarnation")
            case SuccessionStep.FOLLOW:
                log.warning("next_incarnation_follows", extra=assigned.fields | {log_fields.NEXT: successor.path})
                switch = succession.switch_to_successor(source, successor, sequencer.next_offset or 0)
                self._switch(assigned, switch, NO_ROUND)

    def _succession(self, assigned: AssignedPartition) -> Succession:
        return self.route(assigned).succession(assigned.delivery_target.target.partition)

    def _switch(self, assigned: AssignedPartition, switch: Switch, timeout: timedelta) -> AssignedPartition:
        self.delivery.release([assigned.delivery_target.epoch], timeout)
        topic_id = self.watcher.found.destinations[assigned.delivery_target.target.topic].facts.topic_id
        return self.assignment.switch_incarnation(
            switch.source, assigned, self.route(assigned), topic_id, switch.finished
        )
