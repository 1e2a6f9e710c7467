"""The state of a running process: whether its loops turn, whether it started, what stopped, and what an operator has to
look at although everything goes on."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSnapshot:
    turns: Mapping[str, datetime] = field(default_factory=dict)  # loop → when it last turned, UTC
    is_started: bool = False
    stopped: Mapping[str, str] = field(default_factory=dict)  # subject → reason, in the order they stopped
    problems: Mapping[str, str] = field(default_factory=dict)  # subject → what is wrong, in the order they were found

    @property
    def is_ready(self) -> bool:
        """Started, nothing stopped, and no problem."""
        return self.is_started and not self.stopped and not self.problems


class Health:
    """Written by loops, read by the HTTP endpoint and `status`. Safe to call from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[str, datetime] = {}
        self._is_started = False
        self._stopped: dict[str, str] = {}
        self._problems: dict[str, str] = {}

    def turn(self, now: datetime, *, loop: str = "main") -> None:
        """Once per turn of a loop."""
        with self._lock:
            self._turns[loop] = now

    def ended(self, *, loop: str = "main") -> None:
        """This loop is over, as it should be: nobody waits for its next turn."""
        with self._lock:
            self._turns.pop(loop, None)

    def started(self, is_started: bool) -> None:
        """True once the work has begun; False again while shutting down."""
        with self._lock:
            self._is_started = is_started

    def stopped(self, subject: str, reason: str) -> None:
        """`subject` waits for an operator: a partition, a topic, or what partitions need ("notifications"). Again
        with another reason replaces it; empty: it goes on."""
        if not reason:
            self.resumed(subject)
            return
        with self._lock:
            self._stopped[subject] = reason

    def resumed(self, subject: str) -> None:
        """It goes on, or moved away. No error when it never stopped."""
        with self._lock:
            self._stopped.pop(subject, None)

    def problem(self, subject: str, what: str) -> None:
        """`subject` goes on, but an operator has to look at it: records are missing, or a proof failed. Again with
        another text replaces it; empty: there is no problem."""
        if not what:
            self.solved(subject)
            return
        with self._lock:
            self._problems[subject] = what

    def solved(self, subject: str) -> None:
        """No error when there was no problem."""
        with self._lock:
            self._problems.pop(subject, None)

    def snapshot(self) -> HealthSnapshot:
        with self._lock:
            return HealthSnapshot(
                turns=dict(self._turns),
                is_started=self._is_started,
                stopped=dict(self._stopped),
                problems=dict(self._problems),
            )
