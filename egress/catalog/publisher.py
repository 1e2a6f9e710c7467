"""Writes the heartbeats and the control objects of this region: one process at a time.

    every turn:   STANDBY   list heartbeats; read the newest once no new one has come
                  WRITER    put a heartbeat if it is due ──> the turn of each publication

`egress.catalog.election` says which process that is, `egress.catalog.publication` what keeps generations in order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from egress.catalog.election import Election
from egress.catalog.heartbeat_topic import HeartbeatTopic
from egress.catalog.publication import Outcome, Publication
from formats.control.catalog import Catalog
from formats.control.group_snapshot import GroupSnapshot
from formats.control.heartbeat import WriterHeartbeat, decode_heartbeat, encode_heartbeat
from formats.control.schemas import SchemaSnapshot
from formats.control.watermarks import SourceWatermarks
from formats.errors import MalformedEvent, ReplicatorError, SegmentNotFound
from infra.archive.generations import Generations
from infra.runtime import log_fields
from infra.runtime.failures import Attempt, Failures
from infra.runtime.health import Health
from infra.runtime.lifecycle import Clock, Stop

log = logging.getLogger(__name__)

CATALOG = "catalog"  # in health
COLLECTED_WITHIN = timedelta(seconds=1)  # of its end, an observation is put

AnyPublication = (
    Publication[Catalog] | Publication[SourceWatermarks] | Publication[GroupSnapshot] | Publication[SchemaSnapshot]
)


@dataclass(slots=True)
class ControlPublisher:
    """`run` runs on a thread of its own, until `stop` is set."""

    catalog: Publication[Catalog]
    watermarks: Publication[SourceWatermarks] | None  # None: not written
    groups: Publication[GroupSnapshot] | None = field(default=None, kw_only=True)  # None: not written
    schemas: Publication[SchemaSnapshot] | None = field(default=None, kw_only=True)  # None: there is no registry
    heartbeats: Generations
    election: Election
    clock: Clock
    health: Health
    stop: Stop
    topic: HeartbeatTopic | None = None  # None: heartbeats are in the bucket only
    _failures: Failures = field(default_factory=Failures)

    def run(self) -> None:
        while not self.stop.is_set():
            self.turn(self.clock.now())
            self.stop.wait(self.pause)
        self._end()

    @property
    def pause(self) -> timedelta:
        """Until the next turn. A turn of the writer in which nothing is due makes no request."""
        intervals = [one.interval() for one in self._publications]
        if any(one.is_under_way for one in self._publications):
            intervals.append(COLLECTED_WITHIN)
        return min(self.election.interval, *filter(None, intervals))

    def turn(self, now: datetime) -> None:
        """Does not wait for the cluster. Errors are reported, and tried again in the next turn."""
        if self._try(Attempt.HEARTBEAT, partial(self._beat, now), now):
            for one in self._publications:
                if self.election.is_writer:
                    self._try(one.attempt, partial(self._publish, one, now), now)
        self.health.problem(CATALOG, self._failures.alarm(now))

    @property
    def _publications(self) -> Sequence[AnyPublication]:
        return [self.catalog, *(one for one in (self.watermarks, self.groups, self.schemas) if one is not None)]

    def _try(self, attempt: Attempt, work: Callable[[], bool], now: datetime) -> bool:
        """False when it failed. `work` returns whether it is done; what is under way neither fails nor succeeds."""
        try:
            is_done = work()
        except ReplicatorError as error:
            log.warning("catalog_not_published", extra={log_fields.OPERATION: attempt, log_fields.ERROR: str(error)})
            self._failures.failed(attempt, str(error), now)
            if self.election.is_stale(now):
                self._step_down()
            return False
        if is_done:
            self._failures.succeeded(attempt)
        return True

    def _beat(self, now: datetime) -> bool:
        # frozen for long: what a successor put may be thinned by now, so that a free number proves nothing
        if self.election.is_stale(now) and self.heartbeats.newest(self.election.number) != self.election.number:
            self._step_down()
        if not self.election.is_writer:
            number = self.heartbeats.newest(self.election.number)
            is_read = self.election.must_read(number)
            self.election.seen(number, self._heartbeat(number) if is_read else None, now)
        if self.election.may_take_over(now) or self.election.is_due(now):
            self._put_heartbeat(now)
        return True

    def _put_heartbeat(self, now: datetime, *, is_last: bool = False) -> None:
        beat = WriterHeartbeat(
            writer=self.election.writer,
            written_at=now,
            interval_ms=round(self.election.interval.total_seconds() * 1000),
            is_last=is_last,
            catalog=self.catalog.number,
            watermarks=0 if self.watermarks is None else self.watermarks.number,
            watermarks_at=None if self.watermarks is None else self.watermarks.confirmed_at,
            groups=0 if self.groups is None else self.groups.number,
            groups_at=None if self.groups is None else self.groups.confirmed_at,
        )
        if not self.heartbeats.put(self.election.number + 1, encode_heartbeat(beat)):
            self._step_down()
            return
        if self.topic is not None:
            self.topic.stored(now)
        if self.election.stored(now):
            for one in self._publications:
                one.begin_term()
            log.info("catalog_writer", extra={log_fields.OPERATION: "this process writes the catalogue"})

    def _heartbeat(self, number: int) -> WriterHeartbeat | None:
        try:
            return decode_heartbeat(self.heartbeats.read(number)) if number else None
        except (MalformedEvent, SegmentNotFound):
            return None  # of a newer program, damaged, or thinned meanwhile: waited for as for any other

    def _publish(self, one: AnyPublication, now: datetime) -> bool:
        outcome = one.turn(now)
        if outcome is Outcome.LOST:
            self._step_down()  # observe again, once this process is the writer again
        return outcome is not Outcome.IDLE

    def _step_down(self) -> None:
        if self.election.is_writer:
            log.info("catalog_standby", extra={log_fields.OPERATION: "this process does not write the catalogue now"})
        self.election.lost()
        for one in self._publications:
            one.end_term()

    def _end(self) -> None:
        """The last heartbeat, so that another process need not wait."""
        if self.election.is_writer:
            try:
                self._put_heartbeat(self.clock.now(), is_last=True)
            except ReplicatorError as error:
                log.info("last_heartbeat_not_stored", extra={log_fields.ERROR: str(error)})
