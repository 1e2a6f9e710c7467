"""The state of a running process: whether its loops turn, whether it has started, what has stopped, and problems that
need an operator although the work continues."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSnapshot:
    turns: Mapping[str, datetime] = field(default_factory=dict)  # loop → time of its last turn, UTC
    is_started: bool = False
    stopped: Mapping[str, str] = field(default_factory=dict)  # subject → reason, in the order they stopped
    problems: Mapping[str, str] = field(default_factory=dict)  # subject → problem, in the order they were found

    @property
    def is_ready(self) -> bool:
        """Started, nothing stopped, and no problem."""
        return self.is_started and not self.stopped and not self.problems


class HealthSource(Protocol):
    def snapshot(self) -> HealthSnapshot:
        """The state now. Called from any thread."""


class Health:
    """Written by loops, read by the HTTP endpoint and `status`. Safe to call from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[str, datetime] = {}
        self._is_started = False
        self._stopped: dict[str, str] = {}
        self._problems: dict[str, str] = {}

    def turn(self, now: datetime, *, loop: str = "main") -> None:
        """Called once per turn of a loop."""
        with self._lock:
            self._turns[loop] = now

    def ended(self, *, loop: str = "main") -> None:
        """The loop has ended regularly: `/healthz` expects no further turn."""
        with self._lock:
            self._turns.pop(loop, None)

    def started(self, is_started: bool) -> None:
        """True once the work has started; False again during the shutdown."""
        with self._lock:
            self._is_started = is_started

    def stopped(self, subject: str, reason: str) -> None:
        """`subject` waits for an operator: a partition, a topic, or something that partitions depend on
        ("notifications"). A further call replaces the reason; an empty reason means that it continues."""
        if not reason:
            self.resumed(subject)
            return
        with self._lock:
            self._stopped[subject] = reason

    def resumed(self, subject: str) -> None:
        """`subject` continues, or moved to another process. No error when it had not stopped."""
        with self._lock:
            self._stopped.pop(subject, None)

    def problem(self, subject: str, what: str) -> None:
        """`subject` continues but needs an operator: records are missing, or a proof failed. A further call replaces
        the text; an empty text means that there is no problem."""
        if not what:
            self.solved(subject)
            return
        with self._lock:
            self._problems[subject] = what

    def solved(self, subject: str) -> None:
        """Remove a problem. No error when there was none."""
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
