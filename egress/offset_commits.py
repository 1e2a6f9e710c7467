"""Commits group offsets: the newest of each partition, repeated until the broker accepts it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from egress.assigned_partition import AssignedPartition
from formats.errors import ReplicatorError
from infra.contracts.cluster import Committed, TopicPartition
from infra.contracts.consumer import SourceConsumer
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable
from infra.runtime.failures import Attempt
from infra.runtime.retry import RETRY

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Commits:
    """Use from the poll thread only. An offset is added only when everything below it is stored."""

    consumer: SourceConsumer
    _waiting: dict[TopicPartition, Committed] = field(default_factory=dict)
    _not_before: datetime | None = None

    def add(self, partition: TopicPartition, position: Committed) -> None:
        self._waiting[partition] = position

    @property
    def are_waiting(self) -> bool:
        return bool(self._waiting)

    def forget(self, partition: TopicPartition) -> None:
        self._waiting.pop(partition, None)

    def poll(self, assigned_to: Callable[[TopicPartition], AssignedPartition | None], now: datetime) -> None:
        """Send the waiting offsets."""
        for partition, refused in self.consumer.commit_answers().items():
            assigned = assigned_to(partition)
            if assigned is not None and not refused:
                assigned.failing.succeeded(Attempt.COMMIT)
            elif assigned is not None and (session := assigned.session) is not None:
                # whichever commit was refused, everything below `committable` is stored: commit that after RETRY
                log.warning("commit_failed", extra=assigned.fields | {log_fields.REASON: refused})
                assigned.failing.failed(Attempt.COMMIT, refused, now)
                self._waiting.setdefault(partition, session.position(session.core.committable))
                self._not_before = now + RETRY
        if not self._waiting or (self._not_before is not None and now < self._not_before):
            return
        try:
            with durable(Step.COMMIT_OFFSETS):  # only sent here: `commit_answers` returns the result
                self.consumer.commit(self._waiting)
        except ReplicatorError as error:
            log.warning("commit_failed", extra={log_fields.ERROR: str(error)})
            for partition in self._waiting:
                if (assigned := assigned_to(partition)) is not None:
                    assigned.failing.failed(Attempt.COMMIT, str(error), now)
            self._not_before = now + RETRY
            return
        self._waiting, self._not_before = {}, None

    def commit_and_wait(self, partitions: Collection[TopicPartition], timeout: timedelta) -> None:
        """Commit before `partitions` are revoked: wait at most `timeout` for the answer, and log a failure."""
        leaving = {p: self._waiting.pop(p) for p in partitions if p in self._waiting}
        if not leaving:
            return
        try:
            with durable(Step.COMMIT_OFFSETS):
                self.consumer.commit(leaving, wait=timeout)
        except ReplicatorError as error:
            log.warning("commit_failed_at_revoke", extra={log_fields.ERROR: str(error), log_fields.COUNT: len(leaving)})
