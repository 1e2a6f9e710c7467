"""What a running process says of itself: its loops turn, it is ready, these partitions stopped and why."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSnapshot:
    turns: Mapping[str, datetime] = field(default_factory=dict)  # loop → when it last turned, UTC
    is_ready: bool = False
    stopped: Mapping[str, str] = field(default_factory=dict)  # partition → reason, in the order they stopped


class Health:
    """Written by loops, read by the HTTP endpoint and `status`. Safe to call from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[str, datetime] = {}
        self._is_ready = False
        self._stopped: dict[str, str] = {}

    def turn(self, now: datetime, *, loop: str = "main") -> None:
        """Once per turn of a loop."""
        with self._lock:
            self._turns[loop] = now

    def ended(self, *, loop: str = "main") -> None:
        """This loop is over, as it should be: nobody waits for its next turn."""
        with self._lock:
            self._turns.pop(loop, None)

    def ready(self, is_ready: bool) -> None:
        """True once the work has begun; False again while shutting down."""
        with self._lock:
            self._is_ready = is_ready

    def stopped(self, partition: str, reason: str) -> None:
        """`partition` waits for an operator. Again with another reason replaces it."""
        with self._lock:
            self._stopped[partition] = reason

    def resumed(self, partition: str) -> None:
        """It goes on, or moved away. No error when it never stopped."""
        with self._lock:
            self._stopped.pop(partition, None)

    def snapshot(self) -> HealthSnapshot:
        with self._lock:
            return HealthSnapshot(turns=dict(self._turns), is_ready=self._is_ready, stopped=dict(self._stopped))
