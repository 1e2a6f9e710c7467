"""Runs `BucketSync` as a service: notifications as they arrive, and a listing of both buckets every interval."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import timedelta

from egress.bucket_sync import BucketSync
from formats.errors import TransientError
from infra.contracts.storage import NotificationQueue
from infra.runtime import log_fields
from infra.runtime.failures import Attempt, Failures
from infra.runtime.health import Health
from infra.runtime.lifecycle import Clock, Deadline, Stop
from infra.runtime.retry import UNAVAILABLE

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SyncLoop:
    """Runs on its own thread until stopped: notifications as they arrive, and a listing every `interval`."""

    sync: BucketSync
    queue: NotificationQueue | None
    queue_wait: timedelta  # a stop waits for so long
    interval: timedelta
    clock: Clock
    health: Health
    stop: Stop
    _failures: Failures = field(default_factory=Failures)  # of rounds

    def run(self) -> None:
        """Sync by listing only; `follow` runs on another thread."""
        while not self.stop.is_set():
            self.round()
            self._rest()

    def round(self) -> None:
        try:
            result = self.sync.once()
        except TransientError as error:
            log.warning("sync_round_failed", extra={log_fields.ERROR: str(error)})
            self._failed("copies", self._failures, Attempt.BUCKETS, str(error))
            return
        self._failures.succeeded(Attempt.BUCKETS)
        self.health.started(True)
        if result.difference:
            self.health.problem("sync", result.difference)
        elif not self.stop.is_set():  # an interrupted round proves nothing about the objects that it did not reach
            self.health.solved("sync")
        if result.failed:
            reason = f"{result.failed} failed, {result.copied} copied; the last failure: {result.failure}"
            self._failed("copies", self._failures, Attempt.COPIES, reason)
        elif not self.stop.is_set():
            self._failures.succeeded(Attempt.COPIES)
            self.health.solved("copies")

    def _failed(self, subject: str, failures: Failures, attempt: Attempt, reason: str) -> int:
        """Returns the number of consecutive failures before this one."""
        now = self.clock.now()
        before = failures.failed(attempt, reason, now)
        self.health.problem(subject, failures.alarm(now))
        return before

    def _rest(self) -> None:
        """Wait until the next round, and report a failure of the last one once it has lasted ALARM: `interval` may be
        hours. A round itself may take long, which `/healthz` reports."""
        rest = Deadline(self.interval)
        while not rest.expired and not self.stop.is_set():
            now = self.clock.now()
            self.health.turn(now)
            self.health.problem("copies", self._failures.alarm(now))
            self.stop.wait(min(rest.left, timedelta(seconds=10)))

    def follow(self) -> None:
        failures = Failures()
        while not self.stop.is_set():
            assert self.queue is not None
            try:
                self.sync.follow(self.queue, self.queue_wait)
            except TransientError as error:
                before = self._failed("notifications", failures, Attempt.NOTIFICATIONS, str(error))
                pause = UNAVAILABLE.delay(before)
                log.warning(
                    "sync_queue_failed",
                    extra={log_fields.ERROR: str(error), log_fields.WAIT_MS: int(pause.total_seconds() * 1000)},
                )
                self.stop.wait(pause)
            else:
                failures.succeeded(Attempt.NOTIFICATIONS)
                self.health.solved("notifications")
