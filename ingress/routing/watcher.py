"""Keeps the routing table current: refreshes it on a pool, and collects the answers.

every `interval`, on a new partition, or when the settings were replaced ──> find ──> `found`, refusals reported
partitions assigned, or found again ──> confirm: current facts of their topics ──> `found`, delivery may begin
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
from ingress.settings import IngressSettings

log = logging.getLogger(__name__)

DESTINATIONS = "destinations"  # in health


@dataclass(slots=True)
class DestinationWatcher:
    """Use from the controller's thread only; the requests run on `pool`."""

    finder: DestinationFinder
    pool: Executor
    interval: timedelta
    notes: ParkedReporter
    health: Health
    found: RoutingTable = field(default_factory=lambda: RoutingTable({}, {}))
    _failures: Failures = field(default_factory=Failures)
    _reported: RoutingTable = field(default_factory=lambda: RoutingTable({}, {}))
    _problems: Mapping[str, str] = field(default_factory=dict)  # in health: subject -> reason
    _refresh: Lookup[RoutingTable] = field(init=False)
    # earliest refresh because of a new partition: several appear at once, and a refresh may fail
    _soon_at: datetime | None = None
    # the settings of the last refresh that was begun, and of the last one that succeeded
    _asked_settings: IngressSettings | None = None
    _found_settings: IngressSettings | None = None
    _counts: Mapping[tuple[str, str], int] = field(default_factory=dict)  # of destinations, by region and path
    _stopped: Collection[SourcePartition] = ()  # as `found` has them
    _grown: set[tuple[str, str]] = field(default_factory=set)  # paths with a new partition, for the next refresh
    _asked: frozenset[tuple[str, str]] = frozenset()  # the same, of the refresh in flight
    _confirming: Lookups[tuple[str, int], Mapping[str, TopicFacts]] = field(init=False)  # by topic and question
    _questions: int = 0
    _last_question: dict[str, int] = field(default_factory=dict)  # by topic
    _unconfirmed: dict[str, set[TopicPartition]] = field(default_factory=dict)  # by topic: of its last question

    def __post_init__(self) -> None:
        self._refresh, self._confirming = Lookup(self.pool), Lookups(self.pool)

    def poll(self, now: datetime) -> bool:
        """True when a refresh has succeeded."""
        outcome = self._refresh.collect()
        match outcome:
            case Answer(value=found):
                self.found, self._found_settings = found, self._asked_settings
                self._counts, self._stopped = _counts(found), {key.source for key in found.stopped}
                self._failures.succeeded(Attempt.DISCOVERY)
                if found.is_unfinished:
                    self.find_again()
            case Failed(error=error):
                self._grown |= self._asked
                log.warning("archive_not_seen", extra={log_fields.ERROR: str(error)})
                self._failures.failed(Attempt.DISCOVERY, str(error), now)
                if self._found_settings is not None and self._found_settings is not self._asked_settings:
                    self._refresh.due_at = now + RETRY
        is_wanted_soon = bool(self._grown) and self._soon_at is not None and now >= self._soon_at
        settings = self.finder.settings.value
        is_wanted_soon |= settings is not self._asked_settings
        if self._refresh.is_due(now) or (is_wanted_soon and not self._refresh.is_under_way):
            self._asked_settings = settings  # `find` may read still later ones, and is then asked once more
            self._refresh.due_at, self._soon_at = now + self.interval, now + RETRY
            self._asked, self._grown = frozenset(self._grown), set()
            self._refresh.ask(self.finder.find, self._asked)
        return isinstance(outcome, Answer)

    def find_again(self) -> None:
        """Refresh with the next `poll`: topics of this cluster have changed."""
        self._refresh.due_at = None

    def stored(self, source: SourcePartition) -> None:
        """Handle a creation event. A partition without a destination is not left to the next complete refresh, which is
        rare."""
        where = (source.region, source.path)
        count = self._counts.get(where)
        if count is not None and source.partition >= count and source not in self._stopped:
            self._grown.add(where)

    def report_failures(self, now: datetime) -> None:
        """Report failures to refresh: delivery continues, but new topics are not found."""
        self.health.problem(DESTINATIONS, self._failures.alarm(now))

    def report_refused(self, now: datetime) -> None:
        """Report newly refused partitions, and those that are refused no longer. None of them may be assigned here."""
        before, found, self._reported = self._reported, self.found, self.found
        for name, reason in found.refused.items():
            if before.refused.get(name) != reason:
                log.error("source_refused", extra={log_fields.TOPIC: name, log_fields.REASON: reason})
        problems_before, self._problems = self._problems, _subjects(found)
        for subject in problems_before.keys() - self._problems.keys():
            self.health.resumed(subject)
        for subject, reason in self._problems.items():
            self.health.stopped(subject, reason)
        for subject in before.problems.keys() - found.problems.keys():
            self.health.solved(subject)
        for subject, reason in found.problems.items():
            self.health.problem(subject, reason)
        # these have no owner, so every process reports them; withheld ones are visible without a note
        for key in before.refused_partitions.keys() - found.refused_partitions.keys():
            self.notes.revoked(key)
        for key, reason in found.refused_partitions.items():
            self.notes.parked(key, Parked(None, reason, now))

    def confirm(self, partitions: Collection[TopicPartition]) -> None:
        """Request the current facts of their topics. The group revokes and assigns the partitions of a topic that was
        deleted and created again as if nothing had happened, so facts from before the assignment may be of the old
        topic."""
        asked = {p for p in partitions if p.topic in self.found.destinations}
        if not asked:
            return
        self._questions += 1
        topics = {p.topic for p in asked}
        for partition in asked:
            self._unconfirmed.setdefault(partition.topic, set()).add(partition)
        self._last_question |= dict.fromkeys(topics, self._questions)
        self._confirming.ask({(topic, self._questions) for topic in topics}, self.finder.facts, topics)

    def confirm_all(self, partitions: Collection[TopicPartition]) -> None:
        """The same of all that are not confirmed. Where there are none, those of a failed request have moved."""
        self.confirm(partitions)
        if not len(self._confirming):
            self._failures.succeeded(Attempt.DESTINATIONS)

    def confirmed(self, now: datetime) -> list[TopicPartition]:
        """Partitions whose topics are confirmed, with their facts in `found`. The next refresh reports the others. Only
        the last question about a topic counts: the answer to an earlier one may be of before a partition's last
        assignment."""
        partitions: list[TopicPartition] = []
        for asked, outcome in self._confirming.collect():
            last = {topic for topic, question in asked if self._last_question.get(topic) == question}
            waiting = {topic: self._unconfirmed.pop(topic) for topic in last}
            match outcome:
                case Answer(value=facts):
                    self._failures.succeeded(Attempt.DESTINATIONS)
                    there = {topic: facts[topic] for topic in last if topic in facts}  # others are being deleted
                    self.found = self.found.with_facts(there)
                    self._counts = _counts(self.found)
                    partitions += sorted(partition for topic in there for partition in waiting[topic])
                case Failed(error=error):
                    log.warning("destinations_not_seen", extra={log_fields.ERROR: str(error)})
                    self._failures.failed(Attempt.DESTINATIONS, str(error), now)
                    # the refresh repeats the request
                    self._refresh.due_at = min(self._refresh.due_at or now, now + RETRY)
        return partitions


def _subjects(found: RoutingTable) -> Mapping[str, str]:
    """Health subjects: every refused partition, and refused topics without a known partition."""
    partitions = {str(key.source): reason for key, reason in found.stopped.items()}
    paths = {f"{k.source.region}/{name}" for k in found.stopped for name in (k.source.path, k.source.topic)}
    return {name: why for name, why in found.refused.items() if name not in paths} | partitions


def _counts(found: RoutingTable) -> Mapping[tuple[str, str], int]:
    """How many partitions have a destination, by region and path; 0 for refused topics."""
    refused = {(key.source.region, key.source.path): 0 for key in found.stopped}
    delivered = {
        (route.region, incarnation.path): destination.facts.partition_count
        for destination in found.destinations.values()
        for route in destination.routes
        for incarnation in route.incarnations
    }
    return refused | delivered
