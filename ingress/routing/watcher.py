"""What is to be delivered where, as time goes by: looks on a pool, and takes in the answers.

every `interval`, or on a new partition ──> look ──> `found`, refusals told
partitions assigned, or found anew ──> confirm: what their topics are now ──> `found`, and they may be held
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.errors import ReplicatorError
from formats.messages.delivery_checkpoint import Parked
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicFacts, TopicPartition
from infra.contracts.internal_topics import ParkedReporter
from infra.runtime import log_fields
from infra.runtime.failures import Attempt, Failures
from infra.runtime.health import Health
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
    _look: Future[RoutingTable] | None = None
    _look_at: datetime | None = None
    _soon_at: datetime | None = None  # not before then for a new partition: they come in crowds, and looks may fail
    _counts: Mapping[tuple[str, str], int] = field(default_factory=dict)  # of destinations, by region and place
    _stopped: Collection[SourcePartition] = ()  # as `found` has them
    _grown: set[tuple[str, str]] = field(default_factory=set)  # places with a new partition, for the next look
    _asked: frozenset[tuple[str, str]] = frozenset()  # the same, of the look under way
    _confirming: list[tuple[set[TopicPartition], Future[Mapping[str, TopicFacts]]]] = field(default_factory=list)

    def turn(self, now: datetime) -> bool:
        """True when a look brought its answer."""
        news = False
        if self._look is not None and self._look.done():
            look, self._look = self._look, None
            try:
                self.found, news = look.result(), True
                self._counts, self._stopped = _counts(self.found), {key.source for key in self.found.stopped}
                self._failures.worked(Attempt.LOOK)
            except ReplicatorError as error:
                self._grown |= self._asked
                log.warning("archive_not_seen", extra={log_fields.ERROR: str(error)})
                self._failures.failed(Attempt.LOOK, str(error), now)
        is_due = self._look_at is None or now >= self._look_at
        if self._look is None and (is_due or (self._grown and self._soon_at is not None and now >= self._soon_at)):
            self._look_at, self._soon_at = now + self.interval, now + RETRY
            self._asked, self._grown = frozenset(self._grown), set()
            self._look = self.pool.submit(self.finder.look, self._asked)
        return news

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
            names = {p.topic for p in asked}
            self._confirming.append((asked, self.pool.submit(self.finder.facts, names)))

    def confirmed(self, now: datetime) -> list[TopicPartition]:
        """Partitions whose topics are as `found` says; the others are told of by the next look."""
        partitions: list[TopicPartition] = []
        for asked in [a for a in self._confirming if a[1].done()]:
            self._confirming.remove(asked)
            try:
                facts = asked[1].result()
                self._failures.worked(Attempt.DESTINATIONS)
            except ReplicatorError as error:
                log.warning("destinations_not_seen", extra={log_fields.ERROR: str(error)})
                self._failures.failed(Attempt.DESTINATIONS, str(error), now)
                self._look_at = min(self._look_at or now, now + RETRY)  # which asks again
                continue
            self.found = self.found.with_facts(facts)
            self._counts = _counts(self.found)
            partitions += sorted(p for p in asked[0] if p.topic in facts)  # else it is just being deleted
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
