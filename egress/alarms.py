"""Reports lasting problems to operators, in addition to stopped partitions: refused topics, and failures in a row."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from egress.assignment import Assignment
from infra.runtime import log_fields
from infra.runtime.health import Health

log = logging.getLogger(__name__)

TOPICS = "topics"  # in health


@dataclass(slots=True)
class Alarms:
    """Use from the poll thread only."""

    region: str
    assignment: Assignment
    health: Health
    _refused: frozenset[str] = frozenset()  # topics that `/readyz` reports

    def report_refused(self, refused: Mapping[str, str]) -> None:
        """Report topics that the cluster no longer shows, with the reason. The group revokes their partitions, so no
        partition is left to report it."""
        for topic in self._refused - refused.keys():
            self.health.resumed(f"{self.region}/{topic}")
        for topic, reason in refused.items():
            if topic not in self._refused:
                log.error("topic_refused", extra={log_fields.TOPIC: topic, log_fields.REASON: reason})
            self.health.stopped(f"{self.region}/{topic}", reason)
        self._refused = frozenset(refused)

    def poll(self, now: datetime, *, topics: str) -> None:
        """Report failures in a row that last; the requests are retried as before. `topics`: why topics are not
        refreshed; empty while they are."""
        self.health.problem(TOPICS, topics)
        for partition in self.assignment.busy():
            alarm = partition.failing.alarm(now)
            if alarm != partition.alarm:
                partition.alarm = alarm
                self.health.problem(partition.attempts, alarm)
