"""What is to be delivered where, as time goes by: looks on a pool, and takes in the answers.

every `interval` ──> look ──> `found`, refusals told
partitions assigned, or found anew ──> confirm: what their topics are now ──> `found`, and they may be held
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ingress.destinations import DestinationFinder, Found
from replicator import logkeys
from replicator.checkpoint import Parked
from replicator.errors import ReplicatorError
from replicator.health import Health
from replicator.protocols import ParkedNotes, TopicFacts, TopicPartition

log = logging.getLogger(__name__)

RETRY = timedelta(seconds=1)


@dataclass(slots=True)
class DestinationWatcher:
    """The controller's thread calls; the questions run on `pool`."""

    finder: DestinationFinder
    pool: Executor
    interval: timedelta
    notes: ParkedNotes
    health: Health
    found: Found = field(default_factory=lambda: Found({}, {}))
    _told: Found = field(default_factory=lambda: Found({}, {}))
    _look: Future[Found] | None = None
    _look_at: datetime | None = None
    _confirming: list[tuple[set[TopicPartition], Future[Mapping[str, TopicFacts]]]] = field(default_factory=list)

    def turn(self, now: datetime) -> bool:
        """True when a look brought its answer."""
        news = False
        if self._look is not None and self._look.done():
            look, self._look = self._look, None
            try:
                self.found, news = look.result(), True
            except ReplicatorError as error:
                log.warning("archive_not_seen", extra={logkeys.ERROR: str(error)})
        if self._look is None and (self._look_at is None or now >= self._look_at):
            self._look_at = now + self.interval
            self._look = self.pool.submit(self.finder.look)
        return news

    def tell_refused(self, now: datetime) -> None:
        """What is refused, and what no more. Nothing of that may be held."""
        before, found, self._told = self._told, self.found, self.found
        for name in before.refused.keys() - found.refused.keys():
            self.health.resumed(name)
        for name, reason in found.refused.items():
            if before.refused.get(name) != reason:
                log.error("source_refused", extra={logkeys.TOPIC: name, logkeys.REASON: reason})
            self.health.stopped(name, reason)
        # nobody holds these, so everybody says it
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
            except ReplicatorError as error:
                log.warning("destinations_not_seen", extra={logkeys.ERROR: str(error)})
                self._look_at = min(self._look_at or now, now + RETRY)  # which asks again
                continue
            self.found = self.found.with_facts(facts)
            partitions += sorted(p for p in asked[0] if p.topic in facts)  # else it is just being deleted
        return partitions
