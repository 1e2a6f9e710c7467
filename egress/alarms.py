"""What lasts and an operator has to know of, beside stopped partitions: refused topics, failures in a row."""

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
    """The poll thread's."""

    region: str
    holdings: Assignment
    health: Health
    _refused: frozenset[str] = frozenset()  # topics of which `/readyz` says so

    def tell_refused(self, refused: Mapping[str, str]) -> None:
        """Topics that the cluster does not show any more, with the reason: the group takes their partitions away, so no
        partition is left to say it."""
        for topic in self._refused - refused.keys():
            self.health.resumed(f"{self.region}/{topic}")
        for topic, reason in refused.items():
            if topic not in self._refused:
                log.error("topic_refused", extra={log_fields.TOPIC: topic, log_fields.REASON: reason})
            self.health.stopped(f"{self.region}/{topic}", reason)
        self._refused = frozenset(refused)

    def turn(self, now: datetime, *, topics: str) -> None:
        """Failures in a row that last: it is tried as before, and an operator has to know of it. `topics`: why they are
        not refreshed, empty while they are."""
        self.health.problem(TOPICS, topics)
        for held in self.holdings:
            alarm = held.failing.alarm(now)
            if alarm != held.alarm:
                held.alarm = alarm
                self.health.problem(held.attempts, alarm)
