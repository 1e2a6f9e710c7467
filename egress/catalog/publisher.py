"""Writes the catalogue and the heartbeats of this region: one process at a time.

    newest generation n read ──> observe ──> differs, or this process has just taken over ──> put n + 1
                                                                    taken: read again, observe again

A new writer puts a generation at once, even one that says the same: the number that a frozen predecessor was about to
put is taken then. A predecessor that thaws steps down, and never puts its old content under a higher number.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from egress.catalog.election import Election
from egress.catalog.observer import CatalogObserver
from formats.control.catalog import Catalog, decode_catalog, encode_catalog
from formats.control.heartbeat import Heartbeat, decode_heartbeat, encode_heartbeat
from formats.errors import MalformedEvent, ReplicatorError, SegmentNotFound
from infra.archive.generations import Generations
from infra.runtime import log_fields
from infra.runtime.failures import Attempt, Failures
from infra.runtime.health import Health
from infra.runtime.lifecycle import Clock, Stop

log = logging.getLogger(__name__)

CATALOG = "catalog"  # in health


@dataclass(slots=True)
class CatalogPublisher:
    """`run` runs on a thread of its own, until `stop` is set."""

    observer: CatalogObserver
    catalogs: Generations
    heartbeats: Generations
    election: Election
    refresh: timedelta  # between observations
    clock: Clock
    health: Health
    stop: Stop
    _generation: int = 0  # newest generation of the catalogue that is known
    _current: Catalog | None = None  # its content; None: there is none, or it cannot be decoded
    _must_put: bool = False  # this process has taken over, and has not stored a generation since
    _observe_at: datetime | None = None
    _failures: Failures = field(default_factory=Failures)

    def run(self) -> None:
        while not self.stop.is_set():
            self.turn(self.clock.now())
            self.stop.wait(min(self.election.interval, self.refresh))
        self._end()

    def turn(self, now: datetime) -> None:
        """One heartbeat, and one observation if it is due. Errors are reported, and tried again in the next turn."""
        try:
            self._beat(now)
            if self.election.is_writer and (self._observe_at is None or now >= self._observe_at):
                self._publish()
                self._observe_at = now + self.refresh
        except ReplicatorError as error:
            log.warning("catalog_not_published", extra={log_fields.ERROR: str(error)})
            self._failures.failed(Attempt.CATALOG, str(error), now)
            if self.election.is_stale(now):
                self._step_down()
        else:
            self._failures.succeeded(Attempt.CATALOG)
        self.health.problem(CATALOG, self._failures.alarm(now))

    def _beat(self, now: datetime) -> None:
        if not self.election.is_writer:
            number = self.heartbeats.newest(self.election.number)
            self.election.seen(number, self._heartbeat(number), now)
        if self.election.may_take_over(now) or self.election.is_due(now):
            self._put_heartbeat(now)

    def _put_heartbeat(self, now: datetime, *, is_last: bool = False) -> None:
        beat = Heartbeat(
            writer=self.election.writer,
            written_at=now,
            interval_ms=round(self.election.interval.total_seconds() * 1000),
            is_last=is_last,
            catalog=self._generation,
        )
        if not self.heartbeats.put(self.election.number + 1, encode_heartbeat(beat)):
            self._step_down()
        elif self.election.stored(now):
            self._must_put, self._observe_at = True, None
            log.info("catalog_writer", extra={log_fields.OPERATION: "this process writes the catalogue"})

    def _heartbeat(self, number: int) -> Heartbeat | None:
        try:
            return decode_heartbeat(self.heartbeats.read(number)) if number else None
        except (MalformedEvent, SegmentNotFound):
            return None  # of a newer program, damaged, or thinned meanwhile: waited for as for any other

    def _publish(self) -> None:
        self._read_newest()
        found = self.observer.observe(self._current, self.clock.now())
        if not self._must_put and self._current is not None and found.says_the_same(self._current):
            return
        data = encode_catalog(found)
        if not self.catalogs.put(self._generation + 1, data):
            self._step_down()  # read and observe again, once this process is the writer again
            return
        self._generation, self._current, self._must_put = self._generation + 1, found, False
        extra = {log_fields.COUNT: len(found.topics), log_fields.BYTES: len(data), log_fields.KEY: self._generation}
        log.info("catalog_published", extra=extra)

    def _read_newest(self) -> None:
        newest = self.catalogs.newest(self._generation)
        if newest == self._generation and (newest == 0 or self._current is not None):
            return
        try:
            self._current = decode_catalog(self.catalogs.read(newest))
        except MalformedEvent as error:
            self._current = None
            log.warning("catalog_not_readable", extra={log_fields.KEY: newest, log_fields.ERROR: str(error)})
        self._generation = newest

    def _step_down(self) -> None:
        self.election.lost()
        self._must_put = False

    def _end(self) -> None:
        """The last heartbeat, so that another process need not wait."""
        if self.election.is_writer:
            try:
                self._put_heartbeat(self.clock.now(), is_last=True)
            except ReplicatorError as error:
                log.info("last_heartbeat_not_stored", extra={log_fields.ERROR: str(error)})
