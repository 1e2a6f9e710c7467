"""What is to be delivered where, as time goes by: looks on a pool, and takes in the answers.

every `interval`, or on a new partition ──> look ──> `found`, refusals told
partitions assigned, or found anew ──> confirm: what their topics are now ──> `found`, and they may be held
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.messages.delivery_checkpoint import Parked
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicFacts, TopicPartition
from infra.contracts.internal_topics import ParkedReporter
from infra.runtime import log_fields
from infra.runtime.failures import Attempt, Failures
from infra.runtime.health import Health
from infra.runtime.lookups import Answer, Failed, Lookup, Lookups
from infra.runtime.retry import RETRY
from ingress.routing.destinations import DestinationFinder, RoutingTable

log = logging.getLogger(__name__)

DESTINATIONS = "destinations"  # in health


@dataclass(slots=True)
class DestinationWatcher:
    """The controller's thread calls; the questions run on `pool`."""

    finder: DestinationFinder
    pool: Executor
    interval: timedelta
    notes: ParkedReporter
    health: Health
    found: RoutingTable = field(default_factory=lambda: RoutingTable({}, {}))
    _failures: Failures = field(default_factory=Failures)
    _told: RoutingTable = field(default_factory=lambda: RoutingTable({}, {}))
    _told_as: Mapping[str, str] = field(default_factory=dict)  # in health: subject -> reason
    _look: Lookup[RoutingTable] = field(init=False)
    _soon_at: datetime | None = None  # not before then for a new partition: they come in crowds, and looks may fail
    _counts: Mapping[tuple[str, str], int] = field(default_factory=dict)  # of destinations, by region and place
    _stopped: Collection[SourcePartition] = ()  # as `found` has them
    _grown: set[tuple[str, str]] = field(default_factory=set)  # places with a new partition, for the next look
    _asked: frozenset[tuple[str, str]] = frozenset()  # the same, of the look under way
    _confirming: Lookups[TopicPartition, Mapping[str, TopicFacts]] = field(init=False)

    def __post_init__(self) -> None:
        self._look, self._confirming = Lookup(self.pool), Lookups(self.pool)

    def turn(self, now: datetime) -> bool:
        """True when a look brought its answer."""
        outcome = self._look.take_in()
        match outcome:
            case Answer(value=found):
                self.found = found
                self._counts, self._stopped = _counts(found), {key.source for key in found.stopped}
                self._failures.worked(Attempt.LOOK)
            case Failed(error=error):
                self._grown |= self._asked
                log.warning("archive_not_seen", extra={log_fields.ERROR: str(error)})
                self._failures.failed(Attempt.LOOK, str(error), now)
        is_wanted_soon = bool(self._grown) and self._soon_at is not None and now >= self._soon_at
        if self._look.is_due(now) or (is_wanted_soon and not self._look.is_under_way):
            self._look.due_at, self._soon_at = now + self.interval, now + RETRY
            self._asked, self._grown = frozenset(self._grown), set()
            self._look.ask(self.finder.look, self._asked)
        return isinstance(outcome, Answer)

    def stored(self, source: SourcePartition) -> None:
        """By an event. A partition that has no place to go is not left to the next complete look, which is rare."""
        where = (source.region, source.path)
        count = self._counts.get(where)
        if count is not None and source.partition >= count and source not in self._stopped:
            self._grown.add(where)

    def tell_failures(self, now: datetime) -> None:
        """What is delivered goes on, and what is new is not seen."""
        self.health.problem(DESTINATIONS, self._failures.alarm(now))

    def tell_refused(self, now: datetime) -> None:
        """What is refused, and what no more. Nothing of that may be held."""
        before, found, self._told = self._told, self.found, self.found
        for name, reason in found.refused.items():
            if before.refused.get(name) != reason:
                log.error("source_refused", extra={log_fields.TOPIC: name, log_fields.REASON: reason})
        told_before, self._told_as = self._told_as, _subjects(found)
        for subject in told_before.keys() - self._told_as.keys():
            self.health.resumed(subject)
        for subject, reason in self._told_as.items():
            self.health.stopped(subject, reason)
        # nobody holds these, so everybody says it; what is withheld is seen without a note
        for key in before.unplaced.keys() - found.unplaced.keys():
            self.notes.left(key)
        for key, reason in found.unplaced.items():
            self.notes.parked(key, Parked(None, reason, now))

    def confirm(self, partitions: Collection[TopicPartition]) -> None:
        """Ask what their topics are now. A topic that was deleted and created again is taken and given back as if
        nothing had been: what was known of it before the assignment may be of the other one."""
        asked = {p for p in partitions if p.topic in self.found.destinations}
        if asked:
            self._confirming.ask(asked, self.finder.facts, {p.topic for p in asked})

    def confirmed(self, now: datetime) -> list[TopicPartition]:
        """Partitions whose topics are as `found` says; the others are told of by the next look."""
        partitions: list[TopicPartition] = []
        for asked, outcome in self._confirming.take_in():
            match outcome:
                case Answer(value=facts):
                    self._failures.worked(Attempt.DESTINATIONS)
                    self.found = self.found.with_facts(facts)
                    self._counts = _counts(self.found)
                    partitions += sorted(p for p in asked if p.topic in facts)  # else it is just being deleted
                case Failed(error=error):
                    log.warning("destinations_not_seen", extra={log_fields.ERROR: str(error)})
                    self._failures.failed(Attempt.DESTINATIONS, str(error), now)
                    self._look.due_at = min(self._look.due_at or now, now + RETRY)  # which asks again
        return partitions


def _subjects(found: RoutingTable) -> Mapping[str, str]:
    """Of health: every partition that is refused, and what is refused without any that is known."""
    partitions = {str(key.source): reason for key, reason in found.stopped.items()}
    places = {f"{k.source.region}/{name}" for k in found.stopped for name in (k.source.path, k.source.topic)}
    return {name: why for name, why in found.refused.items() if name not in places} | partitions


def _counts(found: RoutingTable) -> Mapping[tuple[str, str], int]:
    """How many partitions have a place to go: none of a topic that is refused."""
    refused = {(key.source.region, key.source.path): 0 for key in found.stopped}
    delivered = {
        (route.region, life.path): destination.facts.partition_count
        for destination in found.destinations.values()
        for route in destination.routes
        for life in route.lives
    }
    return refused | delivered
