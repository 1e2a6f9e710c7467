"""Group offsets on their way to the broker: the newest of each partition, said again until it was taken."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
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
    """The poll thread's. An offset is added only when everything below it is stored."""

    consumer: SourceConsumer
    _waiting: dict[TopicPartition, Committed] = field(default_factory=dict)
    _not_before: datetime | None = None

    def add(self, partition: TopicPartition, position: Committed) -> None:
        self._waiting[partition] = position

    def forget(self, partition: TopicPartition) -> None:
        self._waiting.pop(partition, None)

    def turn(self, held: Mapping[TopicPartition, AssignedPartition], now: datetime) -> Mapping[TopicPartition, int]:
        """Send what waits. Answers what was sent."""
        for partition, refused in self.consumer.commit_answers().items():
            asked = held.get(partition)
            if asked is not None and not refused:
                asked.failing.worked(Attempt.COMMIT)
            elif asked is not None and (session := asked.session) is not None:
                # whatever was refused, everything below `committable` is stored: say that, a little later
                log.warning("commit_failed", extra=asked.fields | {log_fields.REASON: refused})
                asked.failing.failed(Attempt.COMMIT, refused, now)
                self._waiting.setdefault(partition, session.position(session.core.committable))
                self._not_before = now + RETRY
        if not self._waiting or (self._not_before is not None and now < self._not_before):
            return {}
        try:
            with durable(Step.COMMIT_OFFSETS):  # sent: the answer comes by `commit_answers`
                self.consumer.commit(self._waiting)
        except ReplicatorError as error:
            log.warning("commit_failed", extra={log_fields.ERROR: str(error)})
            for partition in self._waiting.keys() & held.keys():
                held[partition].failing.failed(Attempt.COMMIT, str(error), now)
            self._not_before = now + RETRY
            return {}
        sent = {p: c.next_offset for p, c in self._waiting.items()}
        self._waiting, self._not_before = {}, None
        return sent

    def settle(self, partitions: Collection[TopicPartition], timeout: timedelta) -> None:
        """Before they are given up: sent and answered, or logged as not."""
        leaving = {p: self._waiting.pop(p) for p in partitions if p in self._waiting}
        if not leaving:
            return
        try:
            with durable(Step.COMMIT_OFFSETS):
                self.consumer.commit(leaving, wait=timeout)
        except ReplicatorError as error:
            log.warning("commit_failed_at_revoke", extra={log_fields.ERROR: str(error), log_fields.COUNT: len(leaving)})
